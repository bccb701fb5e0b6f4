"""What a query is written in: rows that it chooses columns of, and verbs on these.

Rule of this module: it names what ``DataFrame`` of Spark has and ``local`` has, too, and no more than queries need.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar

from millpond.bench.nexmark.events import Site

GRACE = "4 seconds"
"""How late an event may be: what the suite's watermark allows."""

Expression: TypeAlias = Any
"""A ``Column`` of Spark, or an expression of Arrow."""

Verbs: TypeAlias = Any
"""``Millpond``, or what has its verbs on rows of another kind."""

SomeRows = TypeVar("SomeRows", bound="Rows")


class Rows(Protocol):
    """Rows of columns. The methods are those of a ``DataFrame``, and so are their names."""

    def select(self: SomeRows, *columns: str) -> SomeRows: ...

    def where(self: SomeRows, condition: Any) -> SomeRows: ...

    def withColumn(self: SomeRows, name: str, column: Any) -> SomeRows: ...

    def withColumnRenamed(self: SomeRows, old: str, new: str) -> SomeRows: ...


@dataclass(frozen=True)
class Events:
    """What a query is given.

    Attributes:
        persons, auctions, bids: the rows, as ``Site`` makes them.
        col: an expression of a column; a field of a struct has a path, such as ``"window.end"``.
        tumbling: given a column of times and a number of seconds, the beginning of the window of each time.
        site: where they come from.
    """

    persons: Any
    auctions: Any
    bids: Any
    col: Callable[[str], Expression]
    tumbling: Callable[[str, int], Expression]
    site: Site
