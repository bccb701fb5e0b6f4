"""Joins of change feeds: each side is a table in a store of its own, and a change feed comes out.

Rule of this room: which rows meet is up to the operators on tables; here they are packed rows and their keys.
"""
