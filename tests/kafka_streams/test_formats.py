"""The rows of each format, made up by hand: what is read of them, and what is refused."""

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.adapters.kafka_streams import Entry, open_store, segments, versions
from millpond.adapters.kafka_streams.entries import Row
from millpond.adapters.kafka_streams.segments import Span
from millpond.adapters.kafka_streams.versions import Interval
from millpond.errors import ConfigurationError, CorruptStoreError, FormatError, UnreadableRowError
from millpond.stores import StoreKind
from tests.kafka_streams.directories import TIMED, write_database, write_task

LATEST = -1
TOMBSTONE = -1


def row(key: bytes, value: bytes) -> Row:
    return Row(key, value, lambda key: "store 'made up'")


def longs(*numbers: int) -> bytes:
    return struct.pack(f">{len(numbers)}q", *numbers)


def older(segment: int, key: bytes, valid_to: int, *items: tuple[int, bytes | None]) -> Row:
    """Return a row of a segment; the items are newest first, as in the row."""
    sizes = b"".join(struct.pack(">qi", start, TOMBSTONE if value is None else len(value)) for start, value in items)
    values = b"".join(value or b"" for _, value in reversed(items))
    return row(longs(segment) + key, longs(valid_to, items[-1][0]) + sizes + values)


def latest(key: bytes, start: int, value: bytes) -> Row:
    return row(longs(LATEST) + key, longs(start) + value)


def history(*rows: Row) -> list[tuple[bytes | None, int | None, int | None]]:
    interval = Interval()
    found = versions.history([versions.versions_of(one, interval) for one in rows])
    return [(entry.value, entry.start, entry.end) for entry in found]


def test_the_versions_of_a_key_are_those_of_all_its_rows() -> None:
    rows = [older(2, b"k", 25, (21, b"b"), (15, b"")), older(1, b"k", 15, (4, b"a")), latest(b"k", 25, b"c")]
    assert history(*rows) == [(b"a", 4, 15), (b"", 15, 21), (b"b", 21, 25), (b"c", 25, None)]


def test_where_a_version_ends_and_none_begins_there_is_a_tombstone() -> None:
    assert history(older(1, b"k", 15, (4, b"a")), latest(b"k", 30, b"c")) == [
        (b"a", 4, 15),
        (None, 15, 30),
        (b"c", 30, None),
    ]
    assert history(older(1, b"k", 15, (4, b"a"))) == [(b"a", 4, 15), (None, 15, None)]


def test_a_tombstone_after_nothing_begins_and_ends_at_once_and_lasts() -> None:
    assert history(older(1, b"k", 12, (12, None))) == [(None, 12, None)]
    assert history(older(1, b"k", 12, (12, None), (3, b"a"))) == [(b"a", 3, 12), (None, 12, None)]


def test_a_value_of_the_same_time_takes_the_place_of_a_tombstone_after_nothing() -> None:
    assert history(older(1, b"k", 12, (12, None)), latest(b"k", 12, b"c")) == [(b"c", 12, None)]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([older(1, b"k", 15, (4, b"a")), latest(b"k", 14, b"c")], "one after the other"),
        ([older(1, b"k", 15, (15, b"a"))], "newest first"),
        ([older(1, b"k", 15, (4, b"a"), (9, b"b"))], "newest first"),
        ([older(1, b"k", 15, (-4, b"a"))], "newest first"),
        ([older(1, b"k", 15, (4, b"a")), older(1, b"k", 25, (16, b"b"))], "versions that end in segment 7"),
        ([older(-2, b"k", 15, (4, b"a"))], "the number of a segment"),
        ([row(b"short", b"")], "the number of a segment"),
        ([row(longs(LATEST) + b"k", b"short")], "the latest version is valid"),
        ([latest(b"k", -5, b"c")], "not negative"),
        ([row(longs(1) + b"k", longs(15, 4))], "the list of a key's versions"),
        ([row(longs(1) + b"k", longs(15, 4) + struct.pack(">qi", 4, -7))], "a tombstone, not -7"),
        ([row(longs(1) + b"k", longs(15, 4) + struct.pack(">qi", 9, -1))], "ends with the one from 4"),
    ],
)
def test_rows_that_are_no_versions_are_refused(rows: list[Row], expected: str) -> None:
    with pytest.raises(UnreadableRowError, match=f"store 'made up'.*key 0x.*expected.*{expected}"):
        history(*rows, older(7, b"other", 75, (1, b"")))


times = st.lists(st.integers(0, 1000), min_size=2, max_size=8, unique=True).map(sorted)


@given(times, st.lists(st.none() | st.binary(max_size=5), min_size=8, max_size=8))
def test_no_part_of_a_row_is_a_row(starts: list[int], values: list[bytes | None]) -> None:
    items = [(start, value) for start, value in zip(starts[:-1], values, strict=False)]
    whole = older(0, b"k", starts[-1], *reversed(items))
    stood = versions.versions_of(whole, Interval()).entries
    assert [(entry.start, entry.value) for entry in stood] == items
    assert [entry.end for entry in stood] == starts[1:]
    for size in range(len(whole.value)):
        with pytest.raises(UnreadableRowError):
            versions.versions_of(row(whole.key, whole.value[:size]), Interval())
    with pytest.raises(UnreadableRowError):
        versions.versions_of(row(whole.key, whole.value + b"\0"), Interval())


@given(st.binary(max_size=9), st.integers(100, 199), st.integers(0, 2**31 - 1), st.integers(-1, 2**62), st.binary())
def test_a_row_of_windows_says_what_was_written(
    key: bytes, start: int, sequence: int, timestamp: int, value: bytes
) -> None:
    found = row(key + struct.pack(">qi", start, sequence), longs(timestamp) + value)
    entry = segments.timestamped_window_entry(found, Span(100, 200))
    assert entry == Entry(key, value, timestamp, start, None, sequence)


@pytest.mark.parametrize("start", [99, 200, -1])
def test_a_window_in_the_segment_of_another_time_is_refused(start: int) -> None:
    with pytest.raises(UnreadableRowError, match="starts in its segment, from 100 to 199"):
        segments.window_entry(row(b"k" + struct.pack(">qi", start, 0), b""), Span(100, 200))


@pytest.mark.parametrize(("start", "end"), [(151, 150), (-1, 150), (90, 99), (190, 200)])
def test_a_session_that_makes_no_sense_is_refused(start: int, end: int) -> None:
    with pytest.raises(UnreadableRowError, match="a session that"):
        segments.session_entry(row(b"k" + longs(end, start), b""), Span(100, 200))


@pytest.mark.parametrize("value", [b"", b"1234567", longs(-2)])
def test_a_value_without_a_timestamp_is_refused(value: bytes) -> None:
    with pytest.raises(UnreadableRowError, match="expected a timestamp"):
        segments.timestamped_window_entry(row(b"k" + struct.pack(">qi", 150, 0), value), Span(100, 200))


def read(app: Path, kind: StoreKind | None = None) -> list[Entry]:
    with open_store(app, "store", kind) as source:
        return list(source.entries())


def key_values(app: Path, tasks: Mapping[str, Mapping[str, Mapping[bytes, bytes]]]) -> Path:
    for task, families in tasks.items():
        write_database(write_task(app / task) / "rocksdb" / "store", families)
    return app


def test_all_tasks_become_one_in_the_order_of_keys(tmp_path: Path) -> None:
    families: dict[str, Any] = {
        "0_0": {"default": {b"b": b"old"}, TIMED: {b"d": longs(4) + b"d", b"a": longs(1) + b"a"}},
        "0_1": {"default": {}, TIMED: {b"c": longs(-1) + b"c"}},
    }
    app = key_values(tmp_path / "app", families)
    assert [(entry.key, entry.value, entry.timestamp) for entry in read(app)] == [
        (b"a", b"a", 1),
        (b"b", b"old", -1),
        (b"c", b"c", -1),
        (b"d", b"d", 4),
    ]
    assert [entry.key for entry in read(app / "0_1")] == [b"c"]


def test_versions_of_all_tasks_become_one_key_by_key(tmp_path: Path) -> None:
    first = [latest(b"b", 5, b"x"), older(0, b"b", 5, (2, b"w")), latest(b"d", 7, b"z")]
    tasks = {"0_0": first, "0_1": [latest(b"c", 6, b"y"), older(0, b"a", 9, (1, b"v"))]}
    app = key_values(
        tmp_path / "app", {task: {"default": {one.key: one.value for one in rows}} for task, rows in tasks.items()}
    )
    found = [(entry.key, entry.value, entry.end) for entry in read(app, StoreKind.VERSIONED)]
    assert found == [
        (b"a", b"v", 9),
        (b"a", None, None),
        (b"b", b"w", 5),
        (b"b", b"x", None),
        (b"c", b"y", None),
        (b"d", b"z", None),
    ]


def test_a_key_of_two_tasks_is_refused(tmp_path: Path) -> None:
    app = key_values(tmp_path / "app", {"0_0": {"default": {b"k": b"1"}}, "0_1": {"default": {b"k": b"2"}}})
    with pytest.raises(UnreadableRowError, match=r"0x6b.*0_0.*read the directory of one"):
        read(app, StoreKind.KEY_VALUE)


def test_a_key_in_both_column_families_is_refused(tmp_path: Path) -> None:
    app = key_values(tmp_path / "app", {"0_0": {"default": {b"k": b"1"}, TIMED: {b"k": longs(3) + b"1"}}})
    with pytest.raises(UnreadableRowError, match="0x6b"):
        read(app)


def test_a_store_of_two_sub_topologies_has_to_be_told_apart(tmp_path: Path) -> None:
    app = key_values(tmp_path / "app", {"0_0": {"default": {b"a": b"1"}}, "1_0": {"default": {b"b": b"2"}}})
    with pytest.raises(ConfigurationError, match=r"several stores 'store'.*give the directory of one"):
        read(app, StoreKind.KEY_VALUE)
    named = key_values(tmp_path / "named", {f"{one}__0_0": {"default": {b"a": b"1"}} for one in ("here", "there")})
    with pytest.raises(ConfigurationError, match=r"one in .*/here__0_0/rocksdb/store; one in .*/there__0_0/rocksdb/"):
        read(named, StoreKind.KEY_VALUE)
    assert len(read(named / "here__0_0", StoreKind.KEY_VALUE)) == 1


def test_a_store_that_is_not_there_is_refused_with_those_that_are(tmp_path: Path) -> None:
    app = key_values(tmp_path / "app", {"0_0": {"default": {b"a": b"1"}}})
    with pytest.raises(ConfigurationError, match=r"no store 'other' .*, only store"), open_store(app, "other"):
        pytest.fail("it was opened")
    with pytest.raises(ConfigurationError, match="there is no directory"), open_store(tmp_path / "none", "store"):
        pytest.fail("it was opened")


def test_numbers_as_keys_of_a_plain_store_are_no_versions(tmp_path: Path) -> None:
    app = key_values(tmp_path / "app", {"0_0": {"default": {longs(-1): longs(5), longs(3): longs(7)}}})
    assert [entry.key for entry in read(app, StoreKind.KEY_VALUE)] == [longs(3), longs(-1)]


def test_unknown_column_families_are_refused_by_name(tmp_path: Path) -> None:
    app = key_values(tmp_path / "app", {"0_0": {"default": {}, "keyValueWithHeaders": {}}})
    with pytest.raises(FormatError, match="keyValueWithHeaders"):
        read(app)


def segmented(app: Path, segments: Mapping[str, Mapping[str, Mapping[bytes, bytes]]]) -> Path:
    task = write_task(app / "0_0")
    for name, families in segments.items():
        write_database(task / "store" / name, families)
    return app


def test_windows_that_are_kept_put_by_put_have_their_sequence(tmp_path: Path) -> None:
    rows = {b"k" + struct.pack(">qi", 150, number): b"v" for number in (1, 2)}
    app = segmented(tmp_path / "app", {"store.100": {"default": rows}})
    assert [entry.sequence for entry in read(app, StoreKind.WINDOW)] == [1, 2]


@pytest.mark.parametrize("name", ["store:100", "store-202401010000", "store.garbage"])
def test_folders_that_are_no_segments_are_refused(name: str, tmp_path: Path) -> None:
    app = segmented(tmp_path / "app", {"store.100": {"default": {}}, name: {"default": {}}})
    with pytest.raises(FormatError, match=name):
        read(app, StoreKind.WINDOW)


def test_segments_of_different_column_families_are_refused(tmp_path: Path) -> None:
    app = segmented(tmp_path / "app", {"store.100": {"default": {}}, "store.200": {"default": {}, TIMED: {}}})
    with pytest.raises(CorruptStoreError, match="others have not"):
        read(app)


def test_the_example_of_the_module_reads_as_it_says() -> None:
    drawn = [line.replace(" ", "").split("->") for line in str(versions.__doc__).splitlines() if " 6b -> " in line]
    rows = [row(bytes.fromhex(key), bytes.fromhex(value)) for key, value in drawn]
    assert len(rows) == 3
    assert history(*rows) == [(b"a", 4, 15), (None, 15, 21), (b"b", 21, 25), (b"c", 25, None)]
