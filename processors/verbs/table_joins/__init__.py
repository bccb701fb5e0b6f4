"""Joins of change feeds: each side is a table in a store of its own, and a change feed comes out.

Rule of this room: the operators on tables decide which rows meet; here they are packed rows and their keys.
"""
