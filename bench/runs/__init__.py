"""What benchmarks that measure in several runs have in common: how a run has a process of its own, and what all say."""
