"""A job that is not what it was: its state in another shape, its local copies in another format."""
