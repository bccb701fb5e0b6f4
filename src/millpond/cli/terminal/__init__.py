"""What all commands have in common on a terminal: help, completion, lengths of time, JSON, and an end by a signal.

Rule of this room: it knows no command.
"""
