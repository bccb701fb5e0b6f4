"""The interface that queries are written with: rows with columns to choose from, and verbs on them.

Rule of this module: it names what ``DataFrame`` of Spark has and ``LocalRows`` has, too, and no more than queries need.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol, Self, TypeAlias

from millpond.bench.nexmark.events import LATEST, Site

GRACE: Final = f"{LATEST} seconds"
"""The time that an event may be late: what the suite's watermark allows."""

Expression: TypeAlias = Any
"""A ``Column`` of Spark, or an expression of Arrow."""

Verbs: TypeAlias = Any
"""``Millpond``, or what has its verbs on rows of another kind."""


class Rows(Protocol):
    """Rows of columns. The methods are those of a ``DataFrame``, and so are their names."""

    def select(self, *columns: str) -> Self:
        """Return the rows with these columns alone."""
        ...

    def where(self, condition: Expression) -> Self:
        """Return the rows for which a condition is true."""
        ...

    def withColumn(self, name: str, column: Expression) -> Self:
        """Return the rows with one more column."""
        ...

    def withColumnRenamed(self, old: str, new: str) -> Self:
        """Return the rows with another name of a column."""
        ...


@dataclass(frozen=True)
class Events:
    """The input of a query.

    Attributes:
        persons, auctions, bids: the rows, as ``Site`` makes them; those that a query reads.
        col: an expression of a column; a field of a struct has a path, such as ``"window.end"``.
        tumbling: given a column of times and a number of seconds, the beginning of the window of each time.
        site: where they come from.
    """

    persons: Rows
    auctions: Rows
    bids: Rows
    col: Callable[[str], Expression]
    tumbling: Callable[[str, int], Expression]
    site: Site
