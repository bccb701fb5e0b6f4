"""Copies of queries as they were after a micro-batch: backups, clones, and the parts of forks. Needs no Spark."""
