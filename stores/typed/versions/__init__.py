"""The versioned store: its rows, what puts and the passing of time do to them, and its columns."""
