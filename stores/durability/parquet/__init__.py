"""Durable files: writing, reading and proving them."""
