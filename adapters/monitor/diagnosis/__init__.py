"""The diagnosis of a query: rules, each of which knows one bad state by what is kept of the query."""
