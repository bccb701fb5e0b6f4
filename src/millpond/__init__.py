"""Millpond: pluggable, typed, versioned state stores for Spark streams, and the stream processors that use them.

The rooms, and which way the imports point::

    millpond.cli, millpond.demo      the front door: may import everything, nothing imports it
    millpond.bench                   measures; may import everything but the front door
    millpond.processors              what a stream does        -> millpond.stores
    millpond.adapters                bridges to other software -> millpond.stores (``adapters.spark``: also processors)
    millpond.stores                  what keeps state          -> millpond.errors
    millpond.errors                  the error tree            -> nothing
"""

__version__ = "0.2.0"
