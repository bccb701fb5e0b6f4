"""Verbs as users call them: what they write is checked, and made the verb, for whatever has the rows.

Rule of this room: it knows verbs and Arrow, but neither Spark nor where rows come from. What a verb is, is told here
once; tables and DataFrames say what is to be known of their columns (``readings``).
"""
