"""A verb begins with the rows that another one has kept."""
