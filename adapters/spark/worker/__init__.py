"""The state of a Python worker: open stores, local directories, counters."""
