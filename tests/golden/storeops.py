"""The operations of golden store cases, in terms of Millpond's stores.

Rule of this module: it calls stores and returns answers in the form that golden files use; it compares nothing.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from millpond.stores.backend.transaction import Transaction
from millpond.stores.encoding.serdes import STRING
from millpond.stores.specs.store_spec import StoreKind, StoreSpec
from millpond.stores.typed.keyvalue import KeyValueStore
from millpond.stores.typed.store import WritableStore
from millpond.stores.typed.timestamped_keyvalue import UNKNOWN_TIMESTAMP, TimestampedKeyValueStore, ValueAndTimestamp
from millpond.stores.typed.versions.read_only_versioned import VersionedRecord
from millpond.stores.typed.versions.versioned import VersionedKeyValueStore
from millpond.stores.typed.windows.session import SessionStore
from millpond.stores.typed.windows.timestamped_window import TimestampedWindowStore
from millpond.stores.typed.windows.window import WindowStore
from millpond.stores.typed.windows.windowed import Windowed

Operations: TypeAlias = dict[str, Callable[..., Any]]


def after(key: str | None) -> str | None:
    """Return the bound that makes a half-open range include ``key``."""
    return None if key is None else key + "\0"


def key_value_operations(store: KeyValueStore[str, str]) -> Operations:
    return {
        "put": store.put,
        "putIfAbsent": store.put_if_absent,
        "putAll": store.put_all,
        "delete": store.delete,
        "get": store.get,
        "range": lambda start, stop: _pairs(store.scan(start, after(stop))),
        "reverseRange": lambda start, stop: _pairs(store.scan(start, after(stop), reverse=True)),
        "all": lambda: _pairs(store.scan()),
        "reverseAll": lambda: _pairs(store.scan(reverse=True)),
        "prefixScan": lambda prefix: _pairs(store.prefix_scan(prefix)),
        "approximateNumEntries": store.len_estimate,
    }


def timestamped_operations(store: TimestampedKeyValueStore[str, str]) -> Operations:
    def put_all(entries: Iterable[tuple[str, str | None, int]]) -> None:
        store.put_all((key, None if value is None else ValueAndTimestamp(value, ts)) for key, value, ts in entries)

    return {
        "put": store.put,
        "putIfAbsent": lambda key, value, ts: _stamped(store.put_if_absent(key, value, ts)),
        "putAll": put_all,
        "delete": lambda key: _stamped(store.delete(key)),
        "get": lambda key: _stamped(store.get(key)),
        "range": lambda start, stop: _stamped_pairs(store.scan(start, after(stop))),
        "reverseRange": lambda start, stop: _stamped_pairs(store.scan(start, after(stop), reverse=True)),
        "all": lambda: _stamped_pairs(store.scan()),
        "reverseAll": lambda: _stamped_pairs(store.scan(reverse=True)),
        "prefixScan": lambda prefix: _stamped_pairs(store.prefix_scan(prefix)),
        "approximateNumEntries": store.len_estimate,
    }


def untimed_operations(store: KeyValueStore[str, str]) -> Operations:
    """Return the operations of a timestamped store on a plain one, which drops timestamps and returns unknown ones."""

    def pairs(**options: Any) -> Callable[..., list[Sequence[Any]]]:
        def scan(start: str | None = None, stop: str | None = None) -> list[Sequence[Any]]:
            return [[key, _unknown(value)] for key, value in store.scan(start, after(stop), **options)]

        return scan

    return {
        "put": lambda key, value, ts: store.put(key, value),
        "putIfAbsent": lambda key, value, ts: _unknown(store.put_if_absent(key, value)),
        "putAll": lambda entries: store.put_all((key, value) for key, value, _ in entries),
        "delete": lambda key: _unknown(store.delete(key)),
        "get": lambda key: _unknown(store.get(key)),
        "range": pairs(),
        "reverseRange": pairs(reverse=True),
        "all": pairs(),
        "reverseAll": pairs(reverse=True),
        "prefixScan": lambda prefix: [[key, _unknown(value)] for key, value in store.prefix_scan(prefix)],
        "approximateNumEntries": store.len_estimate,
    }


def versioned_operations(store: VersionedKeyValueStore[str, str]) -> Operations:
    return {
        "put": store.put,
        "delete": lambda key, ts: _record(store.delete(key, ts)),
        "get": lambda key: _record(store.get(key)),
        "getAsOf": lambda key, ts: _record(store.get(key, ts)),
        "queryAsOf": lambda key, ts: _record(store.get(key, ts)),
        "query": lambda key, earliest, latest, order: [
            {"value": found.value, "from": found.timestamp, "to": found.valid_to}
            for found in store.history(key, earliest, latest, reverse=order != "asc")
        ],
    }


def window_operations(store: WindowStore[str, Any] | TimestampedWindowStore[str, Any]) -> Operations:
    def fetch_range(key: str, earliest: int, latest: int, reverse: bool = False) -> list[Any]:
        return [[start, _plain(value)] for start, value in store.fetch_range(key, earliest, latest, reverse=reverse)]

    def fetch_keys(
        start: str | None, stop: str | None, earliest: int | None, latest: int | None, reverse: bool = False
    ) -> list[Any]:
        return _spans(store.fetch_keys(start, after(stop), earliest, latest, reverse=reverse))

    return {
        "put": store.put,
        "fetch": lambda key, start: _plain(store.fetch(key, start)),
        "fetchRange": fetch_range,
        "backwardFetchRange": partial(fetch_range, reverse=True),
        "fetchKeys": fetch_keys,
        "backwardFetchKeys": partial(fetch_keys, reverse=True),
        "fetchAll": lambda earliest, latest: _spans(store.fetch_all(earliest, latest)),
        "backwardFetchAll": lambda earliest, latest: _spans(store.fetch_all(earliest, latest, reverse=True)),
        "all": lambda: _spans(store.fetch_all()),
        "backwardAll": lambda: _spans(store.fetch_all(reverse=True)),
    }


def session_operations(store: SessionStore[str, str]) -> Operations:
    def find_of_keys(
        start: str | None, stop: str | None, earliest_end: int, latest_start: int, reverse: bool = False
    ) -> list[Any]:
        return _spans(store.find_sessions_of_keys(start, after(stop), earliest_end, latest_start, reverse=reverse))

    return {
        "put": lambda key, start, end, value: store.put(Windowed(key, start, end), value),
        "remove": lambda key, start, end: store.remove(Windowed(key, start, end)),
        "fetchSession": store.fetch_session,
        "fetch": lambda key: _spans(store.fetch(key)),
        "backwardFetch": lambda key: _spans(store.fetch(key, reverse=True)),
        "fetchKeys": lambda start, stop: _spans(store.fetch_keys(start, after(stop))),
        "backwardFetchKeys": lambda start, stop: _spans(store.fetch_keys(start, after(stop), reverse=True)),
        "findSessions": lambda *bounds: _spans(store.find_sessions(*bounds)),
        "backwardFindSessions": lambda *bounds: _spans(store.find_sessions(*bounds, reverse=True)),
        "findSessionsKeys": find_of_keys,
        "backwardFindSessionsKeys": partial(find_of_keys, reverse=True),
        "findSessionsTime": lambda *bounds: _spans(store.find_sessions_ended(*bounds)),
    }


def open_store(case: dict[str, Any], transaction: Transaction) -> tuple[WritableStore[Any, Any], Operations]:
    """Return the store that a case describes, and its operations by their golden names."""
    if case.get("impl") == "rocksdb_plain":
        plain = KeyValueStore("golden", transaction, STRING, STRING)
        return plain, untimed_operations(plain)
    store: Any = store_spec("golden", case).open(transaction)
    return store, operations(case["kind"], store)


def store_spec(name: str, described: Mapping[str, Any]) -> StoreSpec:
    """Return the store of that name of which a case gives the kind, and what else this needs."""
    return StoreSpec(
        name,
        _KINDS[described["kind"]],
        STRING,
        STRING,
        history_retention=described.get("history_retention_ms"),
        retention=described.get("retention_ms"),
        window_size=described.get("window_size_ms"),
        retain_duplicates=described.get("retain_duplicates", False),
    )


def operations(kind: str, store: Any) -> Operations:
    """Return the operations of a store of this kind by their golden names."""
    return _OPERATIONS[kind](store)


_KINDS = {
    "kv": StoreKind.KEY_VALUE,
    "timestamped_kv": StoreKind.TIMESTAMPED_KEY_VALUE,
    "versioned": StoreKind.VERSIONED,
    "window": StoreKind.WINDOW,
    "timestamped_window": StoreKind.TIMESTAMPED_WINDOW,
    "session": StoreKind.SESSION,
}
_OPERATIONS: dict[str, Callable[..., Operations]] = {
    "kv": key_value_operations,
    "timestamped_kv": timestamped_operations,
    "versioned": versioned_operations,
    "window": window_operations,
    "timestamped_window": window_operations,
    "session": session_operations,
}


def _plain(found: Any) -> Any:
    return _stamped(found) if isinstance(found, ValueAndTimestamp) else found


def _spans(entries: Iterable[tuple[Windowed[str], Any]]) -> list[Any]:
    return [[*window, _plain(value)] for window, value in entries]


def _pairs(entries: Iterable[tuple[str, str]]) -> list[list[str]]:
    return [list(entry) for entry in entries]


def _stamped(found: ValueAndTimestamp[str] | None) -> dict[str, Any] | None:
    return None if found is None else {"value": found.value, "ts": found.timestamp}


def _unknown(value: str | None) -> dict[str, Any] | None:
    return None if value is None else _stamped(ValueAndTimestamp(value, UNKNOWN_TIMESTAMP))


def _stamped_pairs(entries: Iterable[tuple[str, ValueAndTimestamp[str]]]) -> list[Sequence[Any]]:
    return [[key, _stamped(found)] for key, found in entries]


def _record(found: VersionedRecord[str] | None) -> dict[str, Any] | None:
    return None if found is None else {"value": found.value, "ts": found.timestamp, "validTo": found.valid_to}
