"""What a user writes for a verb, checked, and what it means for time.

Rule of this room: it knows verbs and Arrow, but neither Spark nor where rows come from.
"""
