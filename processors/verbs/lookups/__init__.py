"""Look-ups in tables that others keep in files: ``lookup_join``, and the reading of such tables.

Rule of this folder: nothing of a table is kept beyond the memory of a process.
"""
