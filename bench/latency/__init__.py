"""The latency of results at a fixed rate of rows: a source by the clock, and the wait of each row for its result."""
