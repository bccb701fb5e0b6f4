"""The DSL that the user writes: builder, streams, tables and what lies between them."""
