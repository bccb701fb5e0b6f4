"""Aggregates of the table that a change feed describes: its rows by the feed's key, and the groups that they are in.

Rule of this room: the row that a change replaces is known by the feed's key, before groups matter.
"""
