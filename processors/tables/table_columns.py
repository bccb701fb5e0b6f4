"""A table's store for whole columns: one read for each distinct key, one write for a run of updates.

Rule of this module: it alone knows which kinds of stores can be used so.
"""

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.processors.runtime.batches.columns import Array
from millpond.processors.runtime.order.time_order import stable_order
from millpond.stores.encoding.column_serdes import ColumnSerde, column_serde
from millpond.stores.encoding.serdes import PLAIN_KEYS
from millpond.stores.typed.timestamped_columns import TimestampedColumns
from millpond.stores.typed.timestamped_keyvalue import TimestampedKeyValueStore
from millpond.stores.typed.versions.versioned import VALID_TO_UNDEFINED, VersionedKeyValueStore
from millpond.stores.typed.versions.versioned_columns import VersionedColumns

Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]


class TableColumns(Protocol):
    """The operations of a table on whole columns; keys are Arrow arrays without nulls."""

    def takes(self, keys: pa.DataType, values: pa.DataType | None = None) -> bool:
        """Return whether keys, and values that are put, may be columns of these types."""

    def own(self, values: Array) -> Array:
        """Return values that may be put as the type that ``get_latest`` gives."""

    def get_as_of(self, keys: Array, timestamps: Integers) -> tuple[Array, Array]:
        """Return what ``get_latest`` does, but as of the timestamp if the store has versions."""

    def get_latest(self, keys: Array, reached: Integers | None = None) -> tuple[Array, Array]:
        """Return the latest value of each key and its timestamp; null where there is none.

        With ``reached``, values that have expired by then are missing, and all keys are different.
        """

    def put(self, keys: Array, values: Array, timestamps: Integers) -> Integers:
        """Put updates in their order, a null value deletes; returns for each what ``TableStore.put`` does."""


class _Timestamped:
    """A store of one value a key."""

    def __init__(self, store: TimestampedKeyValueStore[Any, Any], keys: ColumnSerde, values: ColumnSerde) -> None:
        self._columns = TimestampedColumns(store, keys, values)
        self._values = values

    def takes(self, keys: pa.DataType, values: pa.DataType | None = None) -> bool:
        return self._columns.takes(keys) and (values is None or self._values.takes(values))

    def get_as_of(self, keys: Array, timestamps: Integers) -> tuple[Array, Array]:
        return self.get_latest(keys)

    def get_latest(self, keys: Array, reached: Integers | None = None) -> tuple[Array, Array]:
        encoded = keys.dictionary_encode()
        values, timestamps = self._columns.get(encoded.dictionary, reached)
        return values.take(encoded.indices), timestamps.take(encoded.indices)

    def put(self, keys: Array, values: Array, timestamps: Integers) -> Integers:
        self._columns.put(keys, values, pa.array(timestamps))
        return np.full(len(keys), VALID_TO_UNDEFINED)

    def own(self, values: Array) -> Array:
        return self._values.own(values)


def values_before(numbers: Integers, current: Array, values: Array, counts: Booleans) -> Array:
    """Return the value that each update's key had before it.

    Args:
        numbers: the number of each update's key.
        current: the value of each key before all updates.
        values: the new values, of the same type.
        counts: a mask of the updates that give their key its value.

    >>> numbers, counts = np.array([0, 1, 0, 0]), np.array([True, True, False, True])
    >>> values_before(numbers, pa.array(["a", None]), pa.array(["b", "c", "late", "d"]), counts).to_pylist()
    ['a', None, 'b', 'b']
    """
    order = stable_order(numbers)
    sorted_numbers, at = numbers[order], np.arange(len(numbers))
    begins = np.concatenate([[True], sorted_numbers[1:] != sorted_numbers[:-1]])
    last = np.maximum.accumulate(np.where(counts[order], at, -1))
    before = np.concatenate([[-1], last[:-1]])
    within = before >= np.maximum.accumulate(np.where(begins, at, 0))
    places = np.empty_like(at)
    places[order] = np.where(within, len(current) + order[before], sorted_numbers)
    return pa.concat_arrays([current, values]).take(pa.array(places))


def table_columns(store: Any) -> TableColumns | None:
    """Return the store for whole columns; None if its keys or values have to be objects, or its kind does."""
    if isinstance(store, VersionedKeyValueStore):
        serdes = _column_serdes(store)
        return None if serdes is None else VersionedColumns(store, *serdes)
    return latest_columns(store)


def latest_columns(store: Any) -> TableColumns | None:
    """Return the same for a store of one value a key; None for any other, too."""
    serdes = _column_serdes(store) if isinstance(store, TimestampedKeyValueStore) else None
    return None if serdes is None else _Timestamped(store, *serdes)


def _column_serdes(store: Any) -> tuple[ColumnSerde, ColumnSerde] | None:
    """Return the serdes of keys and values for whole columns; None if one needs objects, or keys are not plain."""
    keys, values = column_serde(store.key_serde), column_serde(store.value_serde)
    return None if keys is None or values is None or store.key_serde not in PLAIN_KEYS else (keys, values)
