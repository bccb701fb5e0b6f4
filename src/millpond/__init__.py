"""Millpond: pluggable, typed, versioned state stores for Spark streams, and the stream processors that use them.

The rooms, and which way the imports point::

    millpond.cli, millpond.demo      the front door: may import everything, nothing imports it
    millpond.bench                   measures; may import everything but the front door
    millpond.processors              what a stream does        -> millpond.stores
    millpond.adapters                bridges to other software -> millpond.stores (``adapters.spark``: also processors)
    millpond.stores                  what keeps state          -> millpond.errors
    millpond.errors                  the error tree            -> nothing

``Pond``, verbs on tables in this process, is imported when it is asked for.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millpond.processors.pond import Pond as Pond

__all__ = ["Pond"]

__version__ = "1.0.0rc1"


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from millpond.processors import pond

    return getattr(pond, name)
