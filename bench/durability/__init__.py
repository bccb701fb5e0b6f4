"""Benchmarks of a task's durable state and local copies: damage, restores, upgrades and other partitions."""
