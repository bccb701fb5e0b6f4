"""The kinds of stores, and the place and format in which a store is kept."""
