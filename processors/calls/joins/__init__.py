"""Joins as users call them: their sides and keys are checked here, their arguments as those of all verbs.

Rule of this room: no other call knows a join.
"""
