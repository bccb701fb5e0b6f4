"""Flink SQL in an interpreter and a process of its own: its packages do not go with Spark's.

Rule of this room: it runs queries on rows that it is given, and knows no workload.
"""
