"""Columns of the state that an aggregate keeps of a change feed."""
