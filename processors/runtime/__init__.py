"""Processors, what their context gives them, and the topologies that they make.

Rule of this room: it runs nothing. ``order`` says in which order records are taken, and ``tasks`` runs topologies.
"""
