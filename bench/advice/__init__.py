"""The advice on a backend for a job on this machine: measured by ``millpond.bench.engines``, judged here."""
