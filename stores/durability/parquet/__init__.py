"""Durable files: how they are written, read and proved."""
