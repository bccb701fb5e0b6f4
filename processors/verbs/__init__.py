"""Verbs on rows of columns: joins, tables and aggregates as small topologies, and what they compute.

Rule of this room: it is on top of the DSL and knows Arrow, but no Spark. Times and durations are microseconds.
"""
