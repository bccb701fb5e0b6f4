"""What a Python worker keeps: open states, local directories, counters."""
