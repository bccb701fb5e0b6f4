"""What stands around a backend and shows its rows otherwise."""
