"""A file of results as one page to look at: plots, tables, and what the numbers do not show."""
