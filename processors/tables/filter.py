"""Filtering a table: a row whose predicate turns false is deleted.

An update from no value to no value is dropped if the old value is known. Not on a versioned table (KIP-914): there a
second tombstone may be what keeps an out-of-order value from becoming the latest.
"""

from collections.abc import Callable
from itertools import compress
from typing import Any

import pyarrow as pa

from millpond.processors.runtime.batches.columns import Array, valid
from millpond.processors.runtime.batches.user_functions import ColumnFunction
from millpond.processors.tables.table_view import Found
from millpond.processors.tables.value_operator import TableOperation
from millpond.stores.encoding.nulls import spread


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


class VectorizedFilterTable(FilterTable):
    """``FilterTable`` with a predicate of columns of keys and values, none of which are null."""

    def __init__(self, predicate: ColumnFunction, wanted: bool) -> None:
        super().__init__(predicate.one, wanted)
        self._of_columns = predicate

    def apply(self, keys: list[Any], values: list[Any]) -> list[Any]:
        there = [value is not None for value in values]
        kept = iter(self._of_columns.many(list(compress(keys, there)), list(compress(values, there))))
        return [value if value is not None and bool(next(kept)) is self._wanted else None for value in values]

    def apply_columns(self, keys: Array, values: Array) -> Array:
        there = valid(values)
        if values.null_count:
            keys, values = keys.filter(pa.array(there)), values.filter(pa.array(there))
        if not len(values):
            return spread(values, there)
        found = self._of_columns.of_columns(keys, values).fill_null(False).to_numpy(zero_copy_only=False)
        kept = found == self._wanted
        there[there] = kept
        return spread(values.filter(pa.array(kept)), there)
