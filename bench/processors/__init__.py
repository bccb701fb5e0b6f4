"""``millpond bench processors``: topologies in this process, on backends and beside the same work on plain dicts."""
