"""Faults on demand, for tests of whatever stands on a backend or a storage that may fail."""
