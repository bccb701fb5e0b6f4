"""Runs of records: objects or Arrow columns, with or without windows, whole or partial aggregates."""
