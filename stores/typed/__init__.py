"""The typed stores, one class a kind for every backend, and what only they use."""
