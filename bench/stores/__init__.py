"""``millpond bench stores``: the work of streams on state stores, on backends and beside the engines under them."""
