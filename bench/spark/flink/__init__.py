"""Flink SQL on the same rows, in an interpreter and a process of its own: its packages do not go with Spark's."""
