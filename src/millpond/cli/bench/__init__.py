"""``millpond bench`` and ``millpond advise``: commands, and the options that they share. Import from the modules."""
