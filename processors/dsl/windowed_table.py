"""``WindowedKTable``: the results of a windowed aggregation, by key and window."""

from typing import Any

from millpond.processors.dsl.ktable import KTable
from millpond.processors.tables.value_getters import ValueGetter, ValueGetterFactory
from millpond.stores.typed.session import ReadOnlySessionStore
from millpond.stores.typed.timestamped_keyvalue import ValueAndTimestamp
from millpond.stores.typed.windowed import Windowed


class _WindowGetter(ValueGetter):
    """Reads results by windowed key."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def get(self, key: Windowed[Any]) -> ValueAndTimestamp[Any] | None:
        found: ValueAndTimestamp[Any] | None = self._store.fetch(key.key, key.start)
        return found


class _SessionGetter(ValueGetter):
    """Reads results by session; the timestamp of each is its session's end."""

    def __init__(self, store: ReadOnlySessionStore[Any, Any]) -> None:
        self._store = store

    def get(self, key: Windowed[Any]) -> ValueAndTimestamp[Any] | None:
        found = self._store.fetch_session(key.key, key.start, key.end)
        return None if found is None else ValueAndTimestamp(found, key.end)


class WindowedKTable(KTable):
    """A table with windowed keys."""

    def value_getter(self) -> ValueGetterFactory:
        name = self.config.store
        assert name is not None

        def make(context: Any) -> ValueGetter:
            store = context.store(name)
            return _SessionGetter(store) if isinstance(store, ReadOnlySessionStore) else _WindowGetter(store)

        return ValueGetterFactory((name,), make)
