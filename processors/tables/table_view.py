"""``TableView``: a table as an operator reads it. ``TableStore``: the view of a table's own store, which it fills, too.

A view reads by record (``get``, ``get_many``, ...) and by column (``get_columns``, ...). A table without a store is
read through the tables that it is made of: the operator that makes it has its view.

Rule of this module: it alone knows which kinds of stores tables have, and which of them take whole columns. KIP-914: a
versioned store orders a key's records by timestamp, any other by arrival.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.errors import NoHistoryError
from millpond.processors.runtime.batches.columns import Array
from millpond.processors.runtime.processor import ProcessorContext
from millpond.stores.encoding.column_serdes import column_serde
from millpond.stores.encoding.serdes import PLAIN_KEYS
from millpond.stores.typed.keyvalue import KeyValueStore
from millpond.stores.typed.timestamped_columns import TimestampedColumns
from millpond.stores.typed.timestamped_keyvalue import UNKNOWN_TIMESTAMP, TimestampedKeyValueStore, ValueAndTimestamp
from millpond.stores.typed.versions.versioned import VALID_TO_UNDEFINED, VersionedKeyValueStore
from millpond.stores.typed.versions.versioned_columns import VersionedColumns
from millpond.stores.typed.windows.grids import Grid
from millpond.stores.typed.windows.session import ReadOnlySessionStore
from millpond.stores.typed.windows.windowed import Windowed

Found: TypeAlias = ValueAndTimestamp[Any] | None
"""A value of a table and its timestamp; None where there is none."""
Integers = npt.NDArray[np.int64]


class TableView(ABC):
    """Reads a table's current value, through the operators between the table and its store."""

    versioned: bool = False
    """True if ``get_as_of`` works: the reads end in a versioned store."""

    value_type: pa.DataType | None = None
    """The type of the values as an Arrow array, where the store's serde has one."""

    @abstractmethod
    def get(self, key: Any) -> Found:
        """Return the latest value of ``key`` and its timestamp, or None."""

    def get_as_of(self, key: Any, timestamp: int) -> Found:
        """Return the value of ``key`` that was valid at ``timestamp``, or None."""
        raise NoHistoryError("as-of lookups need a table that is materialized in a versioned store (KIP-914)")

    def get_many(self, keys: Sequence[Any]) -> list[Found]:
        """Return ``get`` of many keys, in their order."""
        return list(map(self.get, keys))

    def get_many_as_of(self, keys: Sequence[Any], timestamps: Sequence[int]) -> list[Found]:
        """Return ``get_as_of`` of many keys, in their order."""
        return list(map(self.get_as_of, keys, timestamps))

    def get_many_from(self, keys: Sequence[Any], earliest: Sequence[int], latest: Sequence[int]) -> list[Found]:
        """Return each key's first value that became valid from ``earliest`` to ``latest``, both included, and when.

        Nothing is found where ``earliest`` is before the history.
        """
        return list(map(self._first, keys, earliest, latest))

    def _first(self, key: Any, earliest: int, latest: int) -> Found:
        horizon = self.horizon()
        if horizon is not None and earliest < horizon:
            return None
        step = self.step_after(key, earliest - 1)
        while step is not None and step[0] <= latest:
            time, found = step
            if found is not None:
                return ValueAndTimestamp(found.value, time)
            step = self.step_after(key, time)
        return None

    def get_columns(self, keys: Array) -> tuple[Array, Array] | None:
        """Return the latest value of each key and its timestamp, null where there is none.

        Args:
            keys: an Arrow array without nulls.

        Returns:
            Two Arrow arrays, or None if these keys have to be looked up as objects.
        """
        return None

    def get_columns_as_of(self, keys: Array, timestamps: Integers) -> tuple[Array, Array] | None:
        """Return ``get_columns``, but as of the timestamp at the same position if ``versioned``, in milliseconds."""
        return self.get_columns(keys)

    def steps(self, key: Any, earliest: int, until: int | None) -> list[tuple[int, Found]]:
        """Return the value of ``key`` at ``earliest``, and each later one with its time, up to and without ``until``.

        Tombstones are included, even where there was no value before. None for ``until`` means no end. Before the
        history retention nothing is known, and values read as None.
        """
        raise NoHistoryError("histories need a table that is materialized in a versioned store (KIP-914)")

    def step_after(self, key: Any, time: int) -> tuple[int, Found] | None:
        """Return the first of the later steps of ``steps(key, time, None)``; None if there is none."""
        raise NoHistoryError("histories need a table that is materialized in a versioned store (KIP-914)")

    def horizon(self) -> int | None:
        """Return the time before which as-of look-ups may miss values that there were; None if they never do."""
        return None

    def history_retention(self) -> int:
        """Return how far that is behind the newest time that the table has seen."""
        return 0


@dataclass(frozen=True)
class ViewFactory:
    """Makes the view of a table inside a task; ``stores`` must be connected to the processor that uses it."""

    stores: tuple[str, ...]
    make: Callable[[ProcessorContext], TableView]


class TableStore(TableView):
    """A timestamped, versioned or plain store, with one signature for each call.

    Attributes:
        store: the store.
        columns: the same for whole columns; None if its keys or values have to be objects, or its kind does.
    """

    def __init__(self, store: Any) -> None:
        self.store = store
        self.versioned = isinstance(store, VersionedKeyValueStore)
        self._timed = not isinstance(store, KeyValueStore)
        self.columns = _columns_of(store)
        values = column_serde(store.value_serde)
        self.value_type = None if values is None else values.type

    def get(self, key: Any) -> Found:
        found = self.store.get(key)
        if found is None:
            return None
        if not self._timed:
            return ValueAndTimestamp(found, UNKNOWN_TIMESTAMP)
        return ValueAndTimestamp(found.value, found.timestamp) if self.versioned else found

    def get_as_of(self, key: Any, timestamp: int) -> Found:
        found = self.store.get(key, timestamp)
        return None if found is None else ValueAndTimestamp(found.value, found.timestamp)

    def get_many(self, keys: Sequence[Any]) -> list[Found]:
        found: list[Any] = self.store.get_many(keys)
        if self._timed:
            return found
        return [None if value is None else ValueAndTimestamp(value, UNKNOWN_TIMESTAMP) for value in found]

    def get_many_as_of(self, keys: Sequence[Any], timestamps: Sequence[int]) -> list[Found]:
        found: list[Found] = self.store.get_many_as_of(keys, timestamps)
        return found

    def get_many_at(self, keys: Sequence[Any], reached: Sequence[int]) -> tuple[list[Found], list[Found]]:
        """Return each key's value at the time reached, and values that have expired by then and were not forwarded.

        Only stores with timestamps, whose entries can expire, have it.
        """
        there, expired = self.store.get_many_at(keys, reached)
        return there, expired

    def get_many_from(self, keys: Sequence[Any], earliest: Sequence[int], latest: Sequence[int]) -> list[Found]:
        found: list[Found] = self.store.get_many_from(keys, earliest, latest)
        return found

    def latest_times(self, keys: Sequence[Any]) -> list[int | None]:
        """Return since when each key is as it is now; None if unknown. Only versioned stores know it of deletes."""
        if self.versioned:
            times: list[int | None] = self.store.latest_times(keys)
            return times
        return [None if found is None else found.timestamp for found in self.get_many(keys)]

    def put(self, key: Any, value: Any, timestamp: int) -> int:
        """Put a value, or delete with None; returns what a versioned put does, VALID_TO_UNDEFINED for other stores."""
        if self.versioned:
            valid_to: int = self.store.put(key, value, timestamp)
            return valid_to
        if self._timed:
            self.store.put(key, value, timestamp)
        else:
            self.store.put(key, value)
        return VALID_TO_UNDEFINED

    def get_columns(self, keys: Array) -> tuple[Array, Array] | None:
        """Return the result of ``TableView.get_columns``, with one read for each distinct key."""
        if self.columns is None or not self.columns.takes(keys.type):
            return None
        encoded = keys.dictionary_encode()
        values, timestamps = self.columns.get(encoded.dictionary)
        return values.take(encoded.indices), timestamps.take(encoded.indices)

    def get_columns_as_of(self, keys: Array, timestamps: Integers) -> tuple[Array, Array] | None:
        if not isinstance(self.columns, VersionedColumns):
            return self.get_columns(keys)
        return self.columns.get_as_of(keys, timestamps) if self.columns.takes(keys.type) else None

    def steps(self, key: Any, earliest: int, until: int | None) -> list[tuple[int, Found]]:
        if until is not None and until <= earliest:
            return [(earliest, None)]
        latest = None if until is None else until - 1
        steps: dict[int, Found] = {earliest: None}
        steps.update(dict.fromkeys(self.store.version_times(key, earliest, latest)))
        for version in self.store.history(key, earliest, latest):
            steps[max(version.timestamp, earliest)] = ValueAndTimestamp(version.value, version.timestamp)
        return list(steps.items())

    def step_after(self, key: Any, time: int) -> tuple[int, Found] | None:
        at = self.store.next_version_time(key, time)
        if at is None:
            return None
        with self.store.history(key, at, max(at, self.store.horizon)) as versions:
            found = next(versions, None)
        return at, None if found is None or found.timestamp != at else ValueAndTimestamp(found.value, at)

    def horizon(self) -> int | None:
        return self.store.horizon if self.versioned else None

    def history_retention(self) -> int:
        return self.store.history_retention if self.versioned else 0


def _columns_of(store: Any) -> TimestampedColumns | VersionedColumns | None:
    """Return what reads and writes whole columns of a store; None if there is nothing."""
    keys, values = column_serde(store.key_serde), column_serde(store.value_serde)
    if keys is None or values is None or store.key_serde not in PLAIN_KEYS:
        return None
    if isinstance(store, VersionedKeyValueStore):
        return VersionedColumns(store, keys, values)
    return TimestampedColumns(store, keys, values) if isinstance(store, TimestampedKeyValueStore) else None


def store_view(store: str) -> ViewFactory:
    """Return the factory for a table that is materialized in ``store``."""
    return ViewFactory((store,), lambda context: TableStore(context.store(store)))


class _WindowView(TableView):
    """Reads results by windowed key."""

    def __init__(self, store: Any, grid: Grid) -> None:
        self._store = store
        self._place = grid.place

    def get(self, key: Windowed[Any]) -> Found:
        found: Found = self._store.fetch(key.key, self._place(key.start, key.end))
        return found


class _SessionView(TableView):
    """Reads results by session; the timestamp of each is its session's end."""

    def __init__(self, store: ReadOnlySessionStore[Any, Any]) -> None:
        self._store = store

    def get(self, key: Windowed[Any]) -> Found:
        found = self._store.fetch_session(key.key, key.start, key.end)
        return None if found is None else ValueAndTimestamp(found, key.end)


def windowed_view(store: str, grid: Grid) -> ViewFactory:
    """Return the factory for results of a windowed aggregation in ``store``, with windows by ``grid``."""

    def make(context: ProcessorContext) -> TableView:
        found = context.store(store)
        return _SessionView(found) if isinstance(found, ReadOnlySessionStore) else _WindowView(found, grid)

    return ViewFactory((store,), make)
