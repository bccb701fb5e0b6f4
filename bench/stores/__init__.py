"""``millpond bench stores``: what streams do with their state stores, on backends and beside the engines under them."""
