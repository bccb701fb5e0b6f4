"""The typed stores, one class per kind for all backends, and their parts."""
