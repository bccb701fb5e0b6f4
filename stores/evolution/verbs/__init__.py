"""The state of verbs in a checkpoint: which verb goes on with whose, and what a user says of it.

Rule of this room: nothing else of an evolution knows a verb.
"""
