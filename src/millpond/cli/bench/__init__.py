"""``millpond bench``: its commands, and the options that they share. Import from the modules."""
