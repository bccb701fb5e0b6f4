"""Value getters: the access of a processor to a table that it is not part of, through operators without a store."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.errors import NoHistoryError
from millpond.processors.runtime.batches.columns import Array
from millpond.processors.runtime.processor import ProcessorContext
from millpond.processors.tables.table_columns import table_columns
from millpond.processors.tables.table_store import TableStore
from millpond.stores.encoding.column_serdes import column_serde
from millpond.stores.typed.timestamped_keyvalue import ValueAndTimestamp
from millpond.stores.typed.versions.versioned import VersionedKeyValueStore
from millpond.stores.typed.windows.grids import Grid
from millpond.stores.typed.windows.session import ReadOnlySessionStore
from millpond.stores.typed.windows.windowed import Windowed


class ValueGetter(ABC):
    """Reads a table's current value, through the operators between the table and its store."""

    versioned: bool = False
    """True if ``get_as_of`` works: the reads end in a versioned store."""

    value_type: pa.DataType | None = None
    """The type of the values as an Arrow array, where the store's serde has one."""

    @abstractmethod
    def get(self, key: Any) -> ValueAndTimestamp[Any] | None:
        """Return the latest value of ``key`` and its timestamp, or None."""

    def get_as_of(self, key: Any, timestamp: int) -> ValueAndTimestamp[Any] | None:
        """Return the value of ``key`` that was valid at ``timestamp``, or None."""
        raise NoHistoryError("as-of lookups need a table that is materialized in a versioned store (KIP-914)")

    def get_many(self, keys: Sequence[Any]) -> list[ValueAndTimestamp[Any] | None]:
        """Return ``get`` of many keys, in their order."""
        return list(map(self.get, keys))

    def get_many_as_of(self, keys: Sequence[Any], timestamps: Sequence[int]) -> list[ValueAndTimestamp[Any] | None]:
        """Return ``get_as_of`` of many keys, in their order."""
        return list(map(self.get_as_of, keys, timestamps))

    def get_many_from(
        self, keys: Sequence[Any], earliest: Sequence[int], latest: Sequence[int]
    ) -> list[ValueAndTimestamp[Any] | None]:
        """Return each key's first value that became valid from ``earliest`` to ``latest``, both included, and when.

        Nothing is found where ``earliest`` is before the history.
        """
        return list(map(self._first, keys, earliest, latest))

    def _first(self, key: Any, earliest: int, latest: int) -> ValueAndTimestamp[Any] | None:
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

    def get_columns(self, keys: Array, timestamps: npt.NDArray[np.int64]) -> tuple[Array, Array] | None:
        """Return each key's value, as of the timestamp if ``versioned``, and its timestamp; null where there is none.

        Args:
            keys: an Arrow array without nulls.
            timestamps: as many, int milliseconds.

        Returns:
            Two Arrow arrays, or None if these keys have to be looked up as objects.
        """
        return None

    def get_latest_columns(self, keys: Array) -> tuple[Array, Array] | None:
        """Return the latest value of each key and its timestamp, null where there is none.

        Args:
            keys: an Arrow array without nulls.

        Returns:
            Two Arrow arrays, or None if these keys have to be looked up as objects.
        """
        return None

    def steps(self, key: Any, earliest: int, until: int | None) -> list[tuple[int, ValueAndTimestamp[Any] | None]]:
        """Return the value of ``key`` at ``earliest``, and each later one with its time, up to and without ``until``.

        Tombstones are included, even where there was no value before. None for ``until`` means no end. Before the
        history retention nothing is known, and values read as None.
        """
        raise NoHistoryError("histories need a table that is materialized in a versioned store (KIP-914)")

    def step_after(self, key: Any, time: int) -> tuple[int, ValueAndTimestamp[Any] | None] | None:
        """Return the first of the later steps of ``steps(key, time, None)``; None if there is none."""
        raise NoHistoryError("histories need a table that is materialized in a versioned store (KIP-914)")

    def horizon(self) -> int | None:
        """Return the time before which as-of look-ups may miss values that there were; None if they never do."""
        return None

    def history_retention(self) -> int:
        """Return how far that is behind the newest time that the table has seen."""
        return 0


@dataclass(frozen=True)
class ValueGetterFactory:
    """Makes a table's value getter inside a task; ``stores`` must be connected to the processor that uses it."""

    stores: tuple[str, ...]
    make: Callable[[ProcessorContext], ValueGetter]


class StoreGetter(ValueGetter):
    """Reads straight from a store."""

    def __init__(self, store: Any) -> None:
        self._table = TableStore(store)
        self._store = store
        self.versioned = self._table.versioned
        self.get = self._table.get  # type: ignore[method-assign]
        self._columns = table_columns(store)
        values = column_serde(store.value_serde)
        self.value_type = None if values is None else values.type

    def get(self, key: Any) -> ValueAndTimestamp[Any] | None:
        return self._table.get(key)

    def get_as_of(self, key: Any, timestamp: int) -> ValueAndTimestamp[Any] | None:
        found = self._store.get(key, timestamp)
        return None if found is None else ValueAndTimestamp(found.value, found.timestamp)

    def get_many(self, keys: Sequence[Any]) -> list[ValueAndTimestamp[Any] | None]:
        return self._table.store.get_many(keys)

    def get_many_as_of(self, keys: Sequence[Any], timestamps: Sequence[int]) -> list[ValueAndTimestamp[Any] | None]:
        found: list[ValueAndTimestamp[Any] | None] = self._store.get_many_as_of(keys, timestamps)
        return found

    def get_many_from(
        self, keys: Sequence[Any], earliest: Sequence[int], latest: Sequence[int]
    ) -> list[ValueAndTimestamp[Any] | None]:
        found: list[ValueAndTimestamp[Any] | None] = self._store.get_many_from(keys, earliest, latest)
        return found

    def get_columns(self, keys: Array, timestamps: npt.NDArray[np.int64]) -> tuple[Array, Array] | None:
        if self._columns is None or not self._columns.takes(keys.type):
            return None
        return self._columns.get_as_of(keys, timestamps)

    def get_latest_columns(self, keys: Array) -> tuple[Array, Array] | None:
        if self._columns is None or not self._columns.takes(keys.type):
            return None
        return self._columns.get_latest(keys)

    def steps(self, key: Any, earliest: int, until: int | None) -> list[tuple[int, ValueAndTimestamp[Any] | None]]:
        if until is not None and until <= earliest:
            return [(earliest, None)]
        latest = None if until is None else until - 1
        steps: dict[int, ValueAndTimestamp[Any] | None] = {earliest: None}
        steps.update(dict.fromkeys(self._store.version_times(key, earliest, latest)))
        for version in self._store.history(key, earliest, latest):
            steps[max(version.timestamp, earliest)] = ValueAndTimestamp(version.value, version.timestamp)
        return list(steps.items())

    def step_after(self, key: Any, time: int) -> tuple[int, ValueAndTimestamp[Any] | None] | None:
        at = self._store.next_version_time(key, time)
        if at is None:
            return None
        with self._store.history(key, at, max(at, self._store.horizon)) as versions:
            found = next(versions, None)
        return at, None if found is None or found.timestamp != at else ValueAndTimestamp(found.value, at)

    def horizon(self) -> int | None:
        return self._store.horizon if isinstance(self._store, VersionedKeyValueStore) else None

    def history_retention(self) -> int:
        return self._store.history_retention if isinstance(self._store, VersionedKeyValueStore) else 0


def store_getter(store: str) -> ValueGetterFactory:
    """Return the factory for a table that is materialized in ``store``."""
    return ValueGetterFactory((store,), lambda context: StoreGetter(context.store(store)))


class _WindowGetter(ValueGetter):
    """Reads results by windowed key."""

    def __init__(self, store: Any, grid: Grid) -> None:
        self._store = store
        self._place = grid.place

    def get(self, key: Windowed[Any]) -> ValueAndTimestamp[Any] | None:
        found: ValueAndTimestamp[Any] | None = self._store.fetch(key.key, self._place(key.start, key.end))
        return found


class _SessionGetter(ValueGetter):
    """Reads results by session; the timestamp of each is its session's end."""

    def __init__(self, store: ReadOnlySessionStore[Any, Any]) -> None:
        self._store = store

    def get(self, key: Windowed[Any]) -> ValueAndTimestamp[Any] | None:
        found = self._store.fetch_session(key.key, key.start, key.end)
        return None if found is None else ValueAndTimestamp(found, key.end)


def windowed_getter(store: str, grid: Grid) -> ValueGetterFactory:
    """Return a factory of getters for results of a windowed aggregation in ``store``, with windows by ``grid``."""

    def make(context: ProcessorContext) -> ValueGetter:
        found = context.store(store)
        return _SessionGetter(found) if isinstance(found, ReadOnlySessionStore) else _WindowGetter(found, grid)

    return ValueGetterFactory((store,), make)
