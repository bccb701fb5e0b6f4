"""Change feeds as calls see them: what verbs note of those that they make, and what is asked of rows that change."""
