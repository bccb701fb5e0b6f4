"""Measures any backend, the processors and the Spark jobs, always beside a peer in the same run."""
