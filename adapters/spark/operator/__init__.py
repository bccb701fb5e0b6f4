"""A plan as DataFrames: the map side, and the operators that own state."""
