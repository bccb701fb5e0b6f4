"""Help, completion, lengths of time, JSON and the end by a signal, as all commands have them on a terminal.

Rule of this room: it knows no command.
"""
