"""The operations of golden store cases, in terms of Millpond's stores.

Rule of this module: it calls stores and gives answers in the form in which golden files hold them; it compares nothing.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from millpond.stores.keyvalue import KeyValueStore
from millpond.stores.serdes import STRING
from millpond.stores.timestamped import TimestampedKeyValueStore, ValueAndTimestamp
from millpond.stores.transaction import Transaction
from millpond.stores.versioned import VersionedKeyValueStore, VersionedRecord

Operations: TypeAlias = dict[str, Callable[..., Any]]


def after(key: str | None) -> str | None:
    """The bound that makes a half-open range include ``key``."""
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


def versioned_operations(store: VersionedKeyValueStore[str, str]) -> Operations:
    return {
        "put": store.put,
        "delete": lambda key, ts: _record(store.delete(key, ts)),
        "get": lambda key: _record(store.get(key)),
        "getAsOf": lambda key, ts: _record(store.get(key, ts)),
        "queryAsOf": lambda key, ts: _record(store.get(key, ts)),
        "query": lambda key, earliest, latest, order: [
            {"value": found.value, "from": found.timestamp, "to": found.valid_to}
            for found in store.history(key, earliest, latest, reverse=order == "desc")
        ],
    }


def open_store(case: dict[str, Any], transaction: Transaction) -> tuple[Any, Operations]:
    """The store that a case describes, and its operations by their golden names."""
    kind = case["kind"]
    if kind == "kv":
        plain = KeyValueStore("golden", transaction, STRING, STRING)
        return plain, key_value_operations(plain)
    if kind == "timestamped_kv":
        stamped = TimestampedKeyValueStore("golden", transaction, STRING, STRING)
        return stamped, timestamped_operations(stamped)
    versioned = VersionedKeyValueStore(
        "golden", transaction, STRING, STRING, history_retention=case["history_retention_ms"]
    )
    return versioned, versioned_operations(versioned)


def _pairs(entries: Iterable[tuple[str, str]]) -> list[list[str]]:
    return [list(entry) for entry in entries]


def _stamped(found: ValueAndTimestamp[str] | None) -> dict[str, Any] | None:
    return None if found is None else {"value": found.value, "ts": found.timestamp}


def _stamped_pairs(entries: Iterable[tuple[str, ValueAndTimestamp[str]]]) -> list[Sequence[Any]]:
    return [[key, _stamped(found)] for key, found in entries]


def _record(found: VersionedRecord[str] | None) -> dict[str, Any] | None:
    return None if found is None else {"value": found.value, "ts": found.timestamp, "validTo": found.valid_to}
