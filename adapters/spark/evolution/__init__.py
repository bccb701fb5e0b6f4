"""A job that has changed: its state in another shape, its local copies in another format."""
