"""What is kept of queries for those who watch them from another process: micro-batches, runs, history."""
