"""Rows between the local format and the durable one, and the merging of runs."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.errors import CorruptStoreError
from millpond.stores.backend.column_changes import ColumnChanges, parts
from millpond.stores.durability.copies.restore import Progress
from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.durability.parquet.prefetch import prefetched
from millpond.stores.durability.parquet.rows import ROWS_PER_TABLE, local_columns, tables_of_changes, tables_of_entries
from millpond.stores.durability.parquet.sorted_runs import Rows, merged_runs
from millpond.stores.durability.storage.durable_file import DurableFile, FileKind
from millpond.stores.encoding.keys import COMMIT_ROW
from millpond.stores.specs.formats import FormatVersion

PLAIN, TIMESTAMPED = FormatVersion.PLAIN, FormatVersion.TIMESTAMPED

keys = st.one_of(
    st.binary(max_size=4).map(lambda key: b"\x01" + key), st.binary(max_size=2).map(lambda key: b"\x00" + key)
)
changes_of_plain = st.dictionaries(keys, st.none() | st.binary(max_size=20))


def local(tables: list[Any], version: FormatVersion) -> dict[bytes, bytes | None]:
    return {
        key: value
        for table in tables
        for part in parts(*local_columns(table, version))
        for key, value in zip(*part, strict=True)
    }


def columns(changes: dict[bytes, bytes | None]) -> ColumnChanges:
    return ColumnChanges.of(pa.array(list(changes), pa.binary()), pa.array(list(changes.values()), pa.binary()))


@given(changes_of_plain)
def test_plain_rows_come_back_in_key_order(changes: dict[bytes, bytes | None]) -> None:
    changes.pop(COMMIT_ROW, None)
    tables = list(tables_of_changes("s", PLAIN, changes))
    assert not changes or list(tables_of_changes("s", PLAIN, columns(changes))) == tables
    found = local(tables, PLAIN)
    assert found == changes
    assert list(found) == sorted(changes)


versioned_keys = st.builds(
    bytes.__add__,
    st.sampled_from([b"\x01", b"\x01a", b"\x01\x00\xff", b"\x00b", b"\x02"]),
    st.sampled_from(
        [b"", b"\x00\x01", b"\x00\x00" + bytes(8), b"\x00\x00" + bytes(6) + b"\x00\x01", b"\x00\x00\x00\x01"]
    ),
)
versions = st.none() | st.builds(
    bytes.__add__, st.sampled_from([bytes(8), bytes(7) + b"\x05"]), st.sampled_from([b"\x00\x00", b"\x01\x01v"])
)


@given(st.dictionaries(versioned_keys, versions, min_size=1))
def test_columns_of_versions_become_the_same_plain_rows(changes: dict[bytes, bytes | None]) -> None:
    version = FormatVersion.LATEST_APART
    tables = list(tables_of_changes("s", version, changes))
    assert list(tables_of_changes("s", version, columns(changes))) == tables


def test_a_latest_version_without_its_time_is_damaged_in_columns_too() -> None:
    with pytest.raises(CorruptStoreError, match="'short' is no latest version with its time"):
        list(tables_of_changes("s", FormatVersion.LATEST_APART, columns({b"\x01a\x00\x01": b"short"})))


@given(st.dictionaries(st.binary(max_size=4), st.none() | st.tuples(st.integers(-(2**63), 2**63 - 1), st.binary())))
def test_timestamped_rows_come_back(entries: dict[bytes, tuple[int, bytes] | None]) -> None:
    changes = {
        b"\x01" + key: None if entry is None else entry[0].to_bytes(8, "big", signed=True) + entry[1]
        for key, entry in entries.items()
    }
    tables = list(tables_of_changes("s", TIMESTAMPED, changes))
    assert not changes or list(tables_of_changes("s", TIMESTAMPED, columns(changes))) == tables
    assert local(tables, TIMESTAMPED) == changes
    stored = {row["key"][1:]: row for table in tables for row in table.to_pylist()}
    for key, entry in entries.items():
        assert (stored[key]["timestamp"], stored[key]["value"]) == (entry or (None, None))


def test_timestamped_rows_restored_as_plain_lose_their_timestamp() -> None:
    changes: dict[bytes, bytes | None] = {
        b"\x01a": (5).to_bytes(8, "big") + b"value",
        b"\x01b": None,
        b"\x00meta": b"m",
    }
    found = local(list(tables_of_changes("s", TIMESTAMPED, changes)), PLAIN)
    assert found == {b"\x01a": b"value", b"\x01b": None, b"\x00meta": b"m"}


def test_plain_rows_restored_as_timestamped_get_the_unknown_timestamp() -> None:
    changes: dict[bytes, bytes | None] = {b"\x01a": b"value", b"\x01b": None, b"\x00meta": b"m", b"\x02index": b""}
    found = local(list(tables_of_changes("s", PLAIN, changes)), TIMESTAMPED)
    unknown = (-1).to_bytes(8, "big", signed=True)
    assert found == {b"\x01a": unknown + b"value", b"\x01b": None, b"\x00meta": b"m", b"\x02index": b""}


def test_the_position_of_the_local_copy_is_never_durable() -> None:
    entries = [(COMMIT_ROW, b"here"), (b"\x01a", b"1")]
    assert local(list(tables_of_changes("s", PLAIN, dict(entries))), PLAIN) == {b"\x01a": b"1"}
    assert local(list(tables_of_entries("s", PLAIN, iter(entries))), PLAIN) == {b"\x01a": b"1"}
    assert list(tables_of_entries("s", PLAIN, [(COMMIT_ROW, b"here")])) == []


def test_a_value_too_short_for_its_timestamp_is_corrupt() -> None:
    with pytest.raises(CorruptStoreError, match="without the timestamp"):
        list(tables_of_changes("s", TIMESTAMPED, {b"\x01a": b"short"}))


def test_tables_are_bounded_in_rows_and_bytes() -> None:
    many: dict[bytes, bytes | None] = {b"\x01%08d" % number: b"" for number in range(ROWS_PER_TABLE * 2 + 1)}
    assert [table.num_rows for table in tables_of_changes("s", PLAIN, many)] == [ROWS_PER_TABLE, ROWS_PER_TABLE, 1]
    value = bytes(1 << 25)
    big: dict[bytes, bytes | None] = {b"\x01%d" % number: value for number in range(3)}
    assert [table.num_rows for table in tables_of_changes("s", PLAIN, big)] == [1, 1, 1]


runs = st.lists(st.dictionaries(st.binary(max_size=2), st.none() | st.binary(max_size=2), max_size=30), max_size=5)


@given(runs, st.integers(1, 7))
def test_a_later_run_wins(contents: list[dict[bytes, bytes | None]], part: int) -> None:
    def run(content: dict[bytes, bytes | None]) -> list[Rows]:
        order = sorted(content)
        parts = [order[start : start + part] for start in range(0, len(order), part)]
        return [(keys, [content[key] for key in keys]) for keys in parts]

    expected: dict[bytes, bytes | None] = {}
    for content in contents:
        expected |= content

    def merged(deletions: bool) -> list[tuple[bytes, bytes | None]]:
        parts = merged_runs([iter(run(content)) for content in contents], deletions=deletions)
        return [pair for part in parts for pair in zip(*part, strict=True)]

    assert merged(deletions=True) == sorted(expected.items())
    assert merged(deletions=False) == sorted((key, value) for key, value in expected.items() if value is not None)


def test_prefetching_gives_the_same_items_and_errors() -> None:
    def source() -> Iterator[int]:
        yield from range(3)
        raise ZeroDivisionError

    found: list[int] = []
    items = prefetched(source())
    with pytest.raises(ZeroDivisionError):
        found.extend(iter(items))
    assert found == [0, 1, 2]
    assert list(prefetched(iter(()))) == []


def test_one_step_ahead_can_be_left_early() -> None:
    items = prefetched(iter(range(100)))
    assert next(items) == 0
    del items


def test_a_long_restore_tells_how_far_it_is(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    caplog.set_level("INFO")
    file = DurableFile(FileKind.SNAPSHOT, 1, "c", 9, 100, 0)
    parts: list[Rows] = [([b"a", b"b"], [b"1", None]), ([b"c"], [b"1"])]
    progress = Progress("counts", replace(Manifest.empty("app", "0_0", ""), snapshot=file))
    assert list(progress.watched(iter(parts[:1]))) == parts[:1]
    assert caplog.messages == []
    monkeypatch.setattr("millpond.stores.durability.copies.restore.EVERY_SECONDS", 0.0)
    assert list(progress.watched(iter(parts[1:]))) == parts[1:]
    assert caplog.messages == ["restoring store 'counts': 3 of at most 9 rows read in 0 s"]
