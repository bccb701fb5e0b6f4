"""Which backend suits a job on this machine: measured by ``millpond.bench.engines``, judged here."""
