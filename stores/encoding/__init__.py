"""Keys, values and times as bytes and as Arrow columns."""
