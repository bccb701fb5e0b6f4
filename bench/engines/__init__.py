"""Engines as they are, and what ``millpond bench engines`` measures: backends, raw engines and peers, each by itself."""
