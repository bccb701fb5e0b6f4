"""Aggregations by key, by window and by session."""
