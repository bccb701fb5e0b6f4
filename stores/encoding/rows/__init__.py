"""Rows of Arrow columns as bytes: packed rows with numbered schemas, and packed keys that keep the order of tuples.

This room is imported by module, because it brings pyarrow with it.
"""
