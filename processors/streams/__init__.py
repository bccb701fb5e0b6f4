"""Operators on streams, and joins of streams with streams and tables."""
