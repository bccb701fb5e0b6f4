"""Columns of what an aggregate keeps of a change feed."""
