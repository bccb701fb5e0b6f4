"""The demo behind ``millpond demo``: a year of real flights, each joined with the weather of its hour, on Spark.

``data`` prepares the input, ``topologies`` says what happens to it, ``job`` runs that on Spark, ``truth`` computes the
same answer another way, ``report`` shows both. Nothing imports this package but the command line.
"""
