"""Look-ups in tables that others keep, as a user calls them."""
