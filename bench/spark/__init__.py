"""``millpond bench spark``: Millpond beside the best that Spark has for the same work, in one run."""
