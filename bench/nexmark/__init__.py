"""Nexmark, the suite of queries by which stream processors are compared: its events, its queries in verbs, and peers.

Rule of this room: the suite's definition says what an event is and what a query answers. A query is written once, in
verbs, and runs on Spark and in one process; DuckDB, which shares no code with it, answers it from the whole input.
"""
