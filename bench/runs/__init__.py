"""The common parts of benchmarks in several runs: a process for each run, and what all of them report."""
