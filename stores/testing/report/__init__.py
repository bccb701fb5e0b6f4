"""What is not of the contract, measured: speed beside that of memory, growth, space, handles and syncs."""
