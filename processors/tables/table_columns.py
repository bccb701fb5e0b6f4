"""A table's store for whole columns: one read for each distinct key, one write for a run of updates.

Rule of this module: which kinds of stores can be used so is known here alone.
"""

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.processors.runtime.batches.columns import Array
from millpond.processors.runtime.order.time_order import stable_order
from millpond.stores.columns.column_serdes import ColumnSerde, column_serde
from millpond.stores.serdes import PLAIN_KEYS
from millpond.stores.typed.timestamped_columns import TimestampedColumns
from millpond.stores.typed.timestamped_keyvalue import TimestampedKeyValueStore
from millpond.stores.typed.versioned import VALID_TO_UNDEFINED, VersionedKeyValueStore
from millpond.stores.typed.versioned_columns import VersionedColumns

Integers = npt.NDArray[np.int64]


class TableColumns(Protocol):
    """What a table does with whole columns; keys are Arrow arrays without nulls."""

    def takes(self, keys: pa.DataType, values: pa.DataType | None = None) -> bool:
        """Whether keys, and values that are put, may be columns of these types."""

    def get_as_of(self, keys: Array, timestamps: Integers) -> Array:
        """The value of each key, as of the timestamp if the store has versions; null where there is none."""

    def put(self, keys: Array, values: Array, timestamps: Integers) -> list[int]:
        """Put updates in their order, a null value deletes; returns for each what ``TableStore.put`` does."""


class LatestColumns(TableColumns, Protocol):
    """What a table of one value a key can do besides."""

    def get_latest(self, keys: Array) -> tuple[Array, Array]:
        """The value of each key and its timestamp, null where there is none."""

    def get_before(self, keys: Array, values: Array) -> Array:
        """The value before each update that is about to be put, null where there is none."""


class _Timestamped:
    """A store of one value a key."""

    def __init__(self, store: TimestampedKeyValueStore[Any, Any], keys: ColumnSerde, values: ColumnSerde) -> None:
        self._columns = TimestampedColumns(store, keys, values)
        self._values = values

    def takes(self, keys: pa.DataType, values: pa.DataType | None = None) -> bool:
        return self._columns.takes(keys) and (values is None or self._values.takes(values))

    def get_as_of(self, keys: Array, timestamps: Integers) -> Array:
        encoded = keys.dictionary_encode()
        values, _ = self._columns.get(encoded.dictionary)
        return values.take(encoded.indices)

    def get_latest(self, keys: Array) -> tuple[Array, Array]:
        return self._columns.get(keys)

    def get_before(self, keys: Array, values: Array) -> Array:
        encoded = keys.dictionary_encode()
        kept, _ = self._columns.get(encoded.dictionary)
        if len(kept) == len(keys):
            return kept
        places = encoded.indices.to_numpy().astype(np.int64)
        by_key = stable_order(places)
        before, after = by_key[:-1], by_key[1:]
        repeated = places[before] == places[after]
        places[after[repeated]] = len(kept) + before[repeated]
        return pa.concat_arrays([kept, self._values.own(values)]).take(pa.array(places))

    def put(self, keys: Array, values: Array, timestamps: Integers) -> list[int]:
        self._columns.put(keys, values, pa.array(timestamps))
        return [VALID_TO_UNDEFINED] * len(keys)


def table_columns(store: Any) -> TableColumns | None:
    """The store for whole columns; None if its keys or values have to be objects, or its kind does."""
    if isinstance(store, VersionedKeyValueStore):
        serdes = _column_serdes(store)
        return None if serdes is None else VersionedColumns(store, *serdes)
    return latest_columns(store)


def latest_columns(store: Any) -> LatestColumns | None:
    """The same for a store of one value a key; None for any other, too."""
    serdes = _column_serdes(store) if isinstance(store, TimestampedKeyValueStore) else None
    return None if serdes is None else _Timestamped(store, *serdes)


def _column_serdes(store: Any) -> tuple[ColumnSerde, ColumnSerde] | None:
    """What the serdes of keys and values do for whole columns; None if one needs objects, or keys are not plain."""
    keys, values = column_serde(store.key_serde), column_serde(store.value_serde)
    return None if keys is None or values is None or store.key_serde not in PLAIN_KEYS else (keys, values)
