"""State as DataFrames."""
