"""The typed stores, one class per kind for all backends, and what only they use."""
