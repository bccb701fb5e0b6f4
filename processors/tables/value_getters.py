"""How processors see tables: a store of either kind, and value getters for tables that have no store of their own.

KIP-914: a versioned store orders a key's records by timestamp, any other by arrival.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from millpond.errors import TopologyError
from millpond.processors.runtime.processor import ProcessorContext
from millpond.stores.typed.keyvalue import KeyValueStore
from millpond.stores.typed.timestamped_keyvalue import UNKNOWN_TIMESTAMP, TimestampedKeyValueStore, ValueAndTimestamp
from millpond.stores.typed.versioned import NOT_PUT, VALID_TO_UNDEFINED, VersionedKeyValueStore

__all__ = ["NOT_PUT", "VALID_TO_UNDEFINED", "TableStore", "ValueGetter", "ValueGetterFactory"]


class _Untimed:
    """A store without timestamps where one with them is expected; they come back as unknown (KIP-258)."""

    def __init__(self, store: KeyValueStore[Any, Any]) -> None:
        self._store = store

    def get(self, key: Any) -> ValueAndTimestamp[Any] | None:
        return _untimed(self._store.get(key))

    def get_many(self, keys: Sequence[Any]) -> list[ValueAndTimestamp[Any] | None]:
        return list(map(_untimed, self._store.get_many(keys)))

    def put(self, key: Any, value: Any, timestamp: int) -> None:
        self._store.put(key, value)


def _untimed(value: Any) -> ValueAndTimestamp[Any] | None:
    return None if value is None else ValueAndTimestamp(value, UNKNOWN_TIMESTAMP)


class TableStore:
    """A table's store, timestamped, versioned or plain, behind the few calls that table processors need."""

    def __init__(self, store: Any) -> None:
        self.store: TimestampedKeyValueStore[Any, Any] | VersionedKeyValueStore[Any, Any] | _Untimed = (
            _Untimed(store) if isinstance(store, KeyValueStore) else store
        )
        self.versioned = isinstance(store, VersionedKeyValueStore)

    def get(self, key: Any) -> ValueAndTimestamp[Any] | None:
        """The latest value and its timestamp."""
        found = self.store.get(key)
        if found is None or isinstance(found, ValueAndTimestamp):
            return found
        return ValueAndTimestamp(found.value, found.timestamp)

    def put(self, key: Any, value: Any, timestamp: int) -> int:
        """Put a value, or delete with None; the result of a versioned put, VALID_TO_UNDEFINED for others."""
        if isinstance(self.store, VersionedKeyValueStore):
            return self.store.put(key, value, timestamp)
        self.store.put(key, value, timestamp)
        return VALID_TO_UNDEFINED


class ValueGetter(ABC):
    """Reads a table's current value, through the operators between the table and its store."""

    versioned: bool = False
    """Whether ``get_as_of`` works: the reads end in a versioned store."""

    @abstractmethod
    def get(self, key: Any) -> ValueAndTimestamp[Any] | None:
        """The latest value of ``key`` and its timestamp, or None."""

    def get_as_of(self, key: Any, timestamp: int) -> ValueAndTimestamp[Any] | None:
        """The value of ``key`` that was valid at ``timestamp``, or None."""
        raise TopologyError("as-of lookups need a table that is materialised in a versioned store (KIP-914)")

    def get_many(self, keys: Sequence[Any]) -> list[ValueAndTimestamp[Any] | None]:
        """``get`` for many keys, in their order."""
        return list(map(self.get, keys))

    def get_many_as_of(self, keys: Sequence[Any], timestamps: Sequence[int]) -> list[ValueAndTimestamp[Any] | None]:
        """``get_as_of`` for many keys, in their order."""
        return list(map(self.get_as_of, keys, timestamps))

    def steps(self, key: Any, earliest: int, until: int | None) -> list[tuple[int, ValueAndTimestamp[Any] | None]]:
        """The value of ``key`` at ``earliest``, and when it was set anew, up to but not including ``until``.

        A tombstone counts, even where there was no value before. None for ``until`` means no end. Of times before the
        history retention nothing is known; they count as None.
        """
        raise TopologyError("histories need a table that is materialised in a versioned store (KIP-914)")

    def horizon(self) -> int | None:
        """The time before which as-of lookups may find nothing although there was a value; None where there is none."""
        return None


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

    def steps(self, key: Any, earliest: int, until: int | None) -> list[tuple[int, ValueAndTimestamp[Any] | None]]:
        if until is not None and until <= earliest:
            return [(earliest, None)]
        latest = None if until is None else until - 1
        steps: dict[int, ValueAndTimestamp[Any] | None] = {earliest: None}
        steps.update(dict.fromkeys(self._store.version_times(key, earliest, latest)))
        for version in self._store.history(key, earliest, latest):
            steps[max(version.timestamp, earliest)] = ValueAndTimestamp(version.value, version.timestamp)
        return list(steps.items())

    def horizon(self) -> int | None:
        if not isinstance(self._store, VersionedKeyValueStore) or self._store.observed_stream_time is None:
            return None
        return self._store.observed_stream_time - self._store.history_retention


def store_getter(store: str) -> ValueGetterFactory:
    """The factory for a table that is materialised in ``store``."""
    return ValueGetterFactory((store,), lambda context: StoreGetter(context.store(store)))
