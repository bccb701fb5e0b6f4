"""``TableStore``: a table's store of any kind, behind the few calls that table processors need.

KIP-914: a versioned store orders a key's records by timestamp, any other by arrival.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

from millpond.stores.typed.keyvalue import KeyValueStore
from millpond.stores.typed.timestamped_keyvalue import UNKNOWN_TIMESTAMP, TimestampedKeyValueStore, ValueAndTimestamp
from millpond.stores.typed.versions.versioned import VALID_TO_UNDEFINED, VersionedKeyValueStore

_Found: TypeAlias = list[ValueAndTimestamp[Any] | None]


class _Untimed:
    """Lets a store without timestamps pass for one with them; they read as unknown (KIP-258)."""

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
    """A timestamped, versioned or plain store, with one signature for each call."""

    def __init__(self, store: Any) -> None:
        self.store: TimestampedKeyValueStore[Any, Any] | VersionedKeyValueStore[Any, Any] | _Untimed = (
            _Untimed(store) if isinstance(store, KeyValueStore) else store
        )
        self.versioned = isinstance(store, VersionedKeyValueStore)

    def get(self, key: Any) -> ValueAndTimestamp[Any] | None:
        """Return the latest value and its timestamp."""
        found = self.store.get(key)
        if found is None or isinstance(found, ValueAndTimestamp):
            return found
        return ValueAndTimestamp(found.value, found.timestamp)

    def get_many_at(self, keys: Sequence[Any], reached: Sequence[int]) -> tuple[_Found, _Found]:
        """Return each key's value at the time reached, and values that have expired by then and were not forwarded.

        Only stores with timestamps, whose entries can expire, have it.
        """
        assert not isinstance(self.store, _Untimed), "it has no times"
        return self.store.get_many_at(keys, reached)

    def latest_times(self, keys: Sequence[Any]) -> list[int | None]:
        """Return since when each key is as it is now; None if unknown. Only versioned stores know it of deletes."""
        if isinstance(self.store, VersionedKeyValueStore):
            return self.store.latest_times(keys)
        return [None if found is None else found.timestamp for found in self.store.get_many(keys)]

    def put(self, key: Any, value: Any, timestamp: int) -> int:
        """Put a value, or delete with None; returns what a versioned put does, VALID_TO_UNDEFINED for other stores."""
        if isinstance(self.store, VersionedKeyValueStore):
            return self.store.put(key, value, timestamp)
        self.store.put(key, value, timestamp)
        return VALID_TO_UNDEFINED
