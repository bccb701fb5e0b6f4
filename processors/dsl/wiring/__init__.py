"""How a call of the DSL becomes nodes of the graph."""
