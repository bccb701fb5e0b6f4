"""The demo behind ``millpond demo``: a year of real flights, each joined with the weather of its hour, on Spark.

``data`` prepares the input, ``topologies`` defines the work, ``job`` runs it on Spark, ``truth`` computes the same
answer another way, ``report`` shows both. Nothing imports this package but the command line.
"""
