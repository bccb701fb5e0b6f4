"""Change feeds as calls see them: the notes of verbs on their feeds, and the questions about rows that change."""
