"""The operators of Millpond: their promises and abilities beyond those of the user's processors."""
