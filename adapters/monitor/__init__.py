"""Watching a query from another process, without Spark: how far it is, how fast, and what its state takes."""
