"""Watching a query from another process, without Spark: its progress, its speed, and the size of its state."""
