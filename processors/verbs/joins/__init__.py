"""Joins: each as a topology, and beside it how it explains the matches of single rows.

Rule of this room: the operators decide which rows meet; here they are packed rows and their keys. An explanation says
once more, version by version, what a join does; it calls nothing of the operators. Of a table that others keep in
files (``table_rows``), nothing outlives the process.
"""
