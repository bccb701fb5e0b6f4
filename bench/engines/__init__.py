"""Engines as they are: backends, the raw engines under them, and peers, each measured by itself."""
