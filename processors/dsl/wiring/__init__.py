"""The wiring that makes nodes of the graph from calls of the DSL."""
