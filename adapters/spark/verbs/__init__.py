"""Verbs on DataFrames: ``Millpond``, and how rows get into a verb and out of it.

Rule of this room: it knows columns and plans of Spark; what a verb does is in ``millpond.processors.verbs``.
"""
