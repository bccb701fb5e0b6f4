"""Arrow columns as stores keep them: their serdes, and changes that stay columns up to the engine."""
