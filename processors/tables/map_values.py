"""Mapping a table's values: ``map_values`` never sees a missing value, ``transform_values`` does."""

from collections.abc import Callable
from typing import Any

from millpond.processors.tables.table_view import Found
from millpond.processors.tables.value_operator import TableOperation
from millpond.stores.typed.timestamped_keyvalue import UNKNOWN_TIMESTAMP, ValueAndTimestamp


class MapTableValues(TableOperation):
    """Makes ``mapper(key, value)`` of each value; deleted rows stay deleted. A result of None is a deletion."""

    def __init__(self, mapper: Callable[[Any, Any], Any]) -> None:
        self._mapper = mapper

    def apply(self, keys: list[Any], values: list[Any]) -> list[Any]:
        mapper = self._mapper
        return [None if value is None else mapper(key, value) for key, value in zip(keys, values, strict=True)]

    def read(self, key: Any, found: Found) -> Found:
        return None if found is None else _found(self._mapper(key, found.value), found.timestamp)


class TransformTableValues(TableOperation):
    """Makes ``transformer(key, value)`` of each value, which is None for a deleted or absent key."""

    def __init__(self, transformer: Callable[[Any, Any], Any]) -> None:
        self._transformer = transformer

    def apply(self, keys: list[Any], values: list[Any]) -> list[Any]:
        return list(map(self._transformer, keys, values))

    def read(self, key: Any, found: Found) -> Found:
        value, timestamp = (None, UNKNOWN_TIMESTAMP) if found is None else found
        return _found(self._transformer(key, value), timestamp)


def _found(value: Any, timestamp: int) -> Found:
    return None if value is None else ValueAndTimestamp(value, timestamp)
