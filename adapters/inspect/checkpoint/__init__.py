"""Spark's checkpoint, read without Spark: its micro-batches, and the manifests that it keeps for each task.

Rule of this room: it knows Spark's files and no store's rows.
"""
