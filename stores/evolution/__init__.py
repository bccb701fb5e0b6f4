"""State that goes on in another shape: other partitions, renamed or moved stores. Import from the modules."""
