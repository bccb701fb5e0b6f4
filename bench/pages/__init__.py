"""A file of results as one page to look at: plots, tables, and the limits of the numbers."""
