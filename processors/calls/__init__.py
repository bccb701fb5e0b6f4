"""Verbs as users call them: a call is checked and made the verb, for tables and DataFrames alike.

Rule of this room: it knows verbs and Arrow, but neither Spark nor where rows come from. It describes each verb
once; tables and DataFrames describe their columns (``readings``).
"""
