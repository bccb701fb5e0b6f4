"""Rows of columns on their way to the tasks of a verb, and from them.

Rule of this room: rows are Arrow's; the driver knows where they come from and where they go.
"""
