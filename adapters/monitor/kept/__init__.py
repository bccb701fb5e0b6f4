"""The records of queries that are kept for other processes: micro-batches, runs, history."""
