"""The format ``LATEST_APART`` of versioned stores: its bytes, its migration, and its way through durable files."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from millpond.errors import FormatError
from millpond.stores.backend.memory import MemoryBackend
from millpond.stores.backend.registry import open_backend, supplier
from millpond.stores.backend.transaction import Transaction
from millpond.stores.durability.parquet.rows import tables_of_entries
from millpond.stores.encoding.serdes import STRING
from millpond.stores.specs.directory import store_directory
from millpond.stores.specs.formats import FormatVersion
from millpond.stores.specs.migration import open_directory
from millpond.stores.specs.store_spec import StoreKind, StoreSpec
from millpond.stores.typed.versions.read_only_versioned import VersionedRecord
from millpond.stores.typed.versions.version_rows import (
    changes_with_latest_apart,
    entries_with_latest_apart,
    plain_changes,
)
from millpond.stores.typed.versions.versioned import VersionedKeyValueStore
from tests.drawing import tries

SPEC = StoreSpec("prices", StoreKind.VERSIONED, STRING, STRING, history_retention=10_000)
PUTS = (
    ("tea", "3.10", 1000),
    ("tea", "3.20", 5000),
    ("tea", "3.15", 4000),
    ("a\0b", "x", 4500),
    ("gone", "y", 100),
    ("gone", None, 6000),
)
VERSION_1 = {
    "006f627365727665645f73747265616d5f74696d65": "8000000000001770",
    "016100ff6200008000000000001194": "0178",
    "01676f6e6500008000000000000064": "0179",
    "01676f6e6500008000000000001770": "00",
    "01746561000080000000000003e8": "01332e3130",
    "0174656100008000000000000fa0": "01332e3135",
    "0174656100008000000000001388": "01332e3230",
    "0280000000000009c4676f6e650000": "",
    "0280000000000009c47465610000": "",
    "0280000000000013886100ff620000": "",
    "0280000000000013887465610000": "",
    "028000000000001d4c676f6e650000": "",
    "028000000000001d4c7465610000": "",
}
"""What a release before the format wrote for ``PUTS``."""
VERSION_3 = {
    "006f627365727665645f73747265616d5f74696d65": "8000000000001770",
    "016100ff620001": "8000000000001194000178",
    "01676f6e6500008000000000000064": "0179",
    "01676f6e650001": "80000000000017700100",
    "01746561000080000000000003e8": "01332e3130",
    "0174656100008000000000000fa0": "01332e3135",
    "017465610001": "80000000000013880101332e3230",
    "0280000000000013887465610000": "",
    "028000000000001d4c676f6e650000": "",
    "028000000000001d4c7465610000": "",
}


def rows_of(hexed: Mapping[str, str]) -> dict[bytes, bytes]:
    return {bytes.fromhex(row): bytes.fromhex(data) for row, data in hexed.items()}


def answers(store: Any) -> list[Any]:
    keys, times = ("tea", "a\0b", "gone", "none"), (99, 100, 1500, 4000, 4999, 5000, 6000, 7000)
    return [
        *(store.get(key, time) for key in keys for time in (*times, None)),
        store.get_many_as_of(list(keys) * len(times), sorted(times * len(keys))),
        [list(store.history(key)) for key in keys],
        list(store.scan()),
        [store.version_times(key, 0) for key in keys],
        store.observed_stream_time,
    ]


def test_the_same_bytes_are_written_as_ever() -> None:
    backend = MemoryBackend()
    with Transaction(backend) as transaction:
        store: Any = SPEC.open(transaction)
        for put in PUTS:
            store.put(*put)
        store.flush()
        transaction.commit()
    assert dict(backend.scan()) == rows_of(VERSION_3)


@pytest.mark.parametrize("engine", ["lmdb", "rocksdb"])
def test_a_store_of_format_1_is_migrated_and_answers_as_one_that_was_written_now(tmp_path: Path, engine: str) -> None:
    directory = store_directory(tmp_path, "app", "0_0", engine, SPEC)
    older = directory.with_name(FormatVersion.PLAIN.directory_name(SPEC.name))
    with open_backend(engine, older) as backend:
        backend.load(iter(sorted(rows_of(VERSION_1).items())))
        backend.flush()
    fresh = MemoryBackend()
    fresh.write(rows_of(VERSION_3))
    with open_directory(supplier(engine), directory, SPEC) as backend:
        migrated, written = (SPEC.open(Transaction(each)) for each in (backend, fresh))
        assert [path.name for path in directory.parent.iterdir()] == ["prices-v3"]
        migrated.check()
        assert answers(migrated) == answers(written)
        assert migrated.get("tea", 4500) == VersionedRecord("3.15", 4000, 5000)  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", [StoreKind.KEY_VALUE, StoreKind.TIMESTAMPED_KEY_VALUE])
def test_another_kind_does_not_take_over_the_directory(tmp_path: Path, kind: StoreKind) -> None:
    other = StoreSpec("prices", kind, STRING, STRING)
    store_directory(tmp_path, "app", "0_0", "lmdb", SPEC).mkdir(parents=True)
    with pytest.raises(FormatError, match="format version 3"):
        open_directory(supplier("lmdb"), store_directory(tmp_path, "app", "0_0", "lmdb", other), other)


def test_durable_files_have_every_version_by_its_time() -> None:
    tables = list(tables_of_entries("prices", FormatVersion.LATEST_APART, iter(rows_of(VERSION_3).items())))
    keys = [key for table in tables for key in table["key"].to_pylist()]
    values = [value for table in tables for value in table["value"].to_pylist()]
    durable = dict(zip(keys, values, strict=True))
    data = {row: value for row, value in rows_of(VERSION_1).items() if row[:1] == b"\1"}
    assert {row: value for row, value in durable.items() if row[:1] == b"\1"} == data
    assert keys == sorted(keys)


times = st.integers(-30, 60).map(lambda time: time * 250)
puts = st.tuples(st.sampled_from(["a", "a\0", "b"]), st.none() | st.text(max_size=2), times)
set_backs = st.tuples(st.just("set back"), times)


@settings(max_examples=tries(150))
@example([[("a", None, 0), ("a", None, 250), ("a", None, 500), ("set back", 250)]])
@given(st.lists(st.lists(puts | set_backs, max_size=8), max_size=8))
def test_the_changes_lead_from_any_version_to_the_next_and_back(batches: list[list[Any]]) -> None:
    """The plain rows of all deltas, set apart anew, are what the store holds; so is each delta, replayed or undone."""
    backend, replica = MemoryBackend(), MemoryBackend()
    plain: dict[bytes, bytes] = {}
    for batch in batches:
        transaction = Transaction(backend)
        store = VersionedKeyValueStore("s", transaction, STRING, STRING, history_retention=4_000)
        for call in batch:
            if call[0] == "set back":
                store.set_back(call[1])
            else:
                store.put(*call)
        store.flush()
        delta = plain_changes(transaction.changes)
        transaction.commit()
        before, held = dict(plain), dict(replica.scan())
        plain = {row: data for row, data in (plain | delta).items() if data is not None}
        assert dict(backend.scan()) == dict(entries_with_latest_apart(sorted(plain.items())))
        replica.write(changes_with_latest_apart(replica, delta))
        assert dict(replica.scan()) == dict(backend.scan())
        replica.write(changes_with_latest_apart(replica, {row: before.get(row) for row in delta}))
        assert dict(replica.scan()) == held
        replica.write(changes_with_latest_apart(replica, delta))
