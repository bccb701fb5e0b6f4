"""Verification of durable files and local copies, and repairs."""
