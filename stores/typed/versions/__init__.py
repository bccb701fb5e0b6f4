"""The versioned store: its rows, their changes by puts and the passing of time, and its columns."""
