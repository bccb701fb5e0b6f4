"""Spans of keys: the row groups of a durable file that can hold a key of a span, and their rows within it.

Rule of this module: it knows keys and their order. Row groups of one store are in key order, so the first that matters
is found by bisection, which reads few of them.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from millpond.stores.durability.parquet.rows import Table


class Span(NamedTuple):
    """The keys with ``start <= key < stop``; None for ``stop`` leaves that side open."""

    start: bytes = b""
    stop: bytes | None = None

    @property
    def whole(self) -> bool:
        """True if it has all keys."""
        return not self.start and self.stop is None

    def tables(self, count: int, first_key: Callable[[int], bytes], read: Callable[[int], Table]) -> Iterator[Table]:
        """Yield the rows within the span of consecutive tables in key order.

        Args:
            count: the number of tables, none of which is empty.
            first_key: returns the first key of one of them by its place.
            read: reads one of them by its place.
        """
        # A key before the second table is in the first one or nowhere, so the first key of all is never needed.
        first = bisect_right(range(1, count), self.start, key=first_key) if self.start and count else 0
        for place in range(first, count):
            table = read(place)
            yield self._cut(table)
            if self.stop is not None and _key(table, -1) >= self.stop:
                return

    def has_any(self, keys: Any) -> bool:
        """Return whether some of the keys of an Arrow array in ascending order are within the span."""
        first = bisect_left(range(len(keys)), self.start, key=lambda place: keys[place].as_py())
        return first < len(keys) and (self.stop is None or keys[first].as_py() < self.stop)

    def _cut(self, table: Table) -> Table:
        """Return the rows of a table within the span."""
        start, stop = (_place(table, bound) for bound in self)
        return table.slice(start or 0, None if stop is None else max(0, stop - (start or 0)))


def _place(table: Table, bound: bytes | None) -> int | None:
    """Return the number of keys of a table that come before ``bound``; None if there is no bound."""
    if bound is None:
        return None
    keys = table.column("key")
    return bisect_left(range(table.num_rows), bound, key=lambda row: keys[row].as_py())


def _key(table: Table, row: int) -> bytes:
    key: bytes = table.column("key")[row].as_py()
    return key
