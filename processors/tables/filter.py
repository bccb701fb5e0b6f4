"""Filtering a table: a row whose predicate turns false is deleted.

An update from no value to no value is dropped if the old value is known. Not on a versioned table (KIP-914): there a
second tombstone may be what keeps an out-of-order value from becoming the latest.
"""

from collections.abc import Callable
from typing import Any

from millpond.processors.tables.value_operator import Found, TableOperation


class FilterTable(TableOperation):
    """Keeps the values for which ``predicate(key, value)`` is ``wanted``; the predicate never sees None."""

    drops_repeated_tombstones = True

    def __init__(self, predicate: Callable[[Any, Any], bool], wanted: bool) -> None:
        self._predicate = predicate
        self._wanted = wanted

    def apply(self, keys: list[Any], values: list[Any]) -> list[Any]:
        predicate, wanted = self._predicate, self._wanted
        return [
            value if value is not None and bool(predicate(key, value)) is wanted else None
            for key, value in zip(keys, values, strict=True)
        ]

    def read(self, key: Any, found: Found) -> Found:
        return found if found is not None and bool(self._predicate(key, found.value)) is self._wanted else None
