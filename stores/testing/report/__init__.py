"""Measures of a backend beyond the contract: speed beside that of memory, growth, space, handles and syncs."""
