"""Copies of queries as they were after a micro-batch: backups, clones, and what forks are made of. Needs no Spark."""
