"""Faults on demand, for tests of code on a backend or a storage that may fail."""
