"""The change feed of every kind of store is the difference of two looks, however it is found."""

import pickle
from collections import Counter
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow.parquet import read_metadata

from millpond.adapters.inspect.changes import change_parts, change_schema, changes
from millpond.adapters.inspect.selection import EVERYTHING, Selection
from millpond.adapters.inspect.store_view import StoreView
from millpond.errors import ConfigurationError, CorruptFileError
from millpond.stores.durability import Manifest
from millpond.stores.durability.parquet import rows
from millpond.stores.encoding.partitions import partition_of
from millpond.stores.encoding.serdes import BYTES, INT64, MSGPACK, STRING
from millpond.stores.specs.store_spec import StoreKind, StoreSpec
from millpond.stores.typed.layouts import Layout
from millpond.stores.typed.windows.windowed import Windowed
from tests.inspect.task_views import Row, storage_in, task, view

_WINDOW: dict[str, Any] = {"retention": 3000, "window_size": 10}

SPECS = {
    "plain": StoreSpec("plain", StoreKind.KEY_VALUE, STRING, INT64),
    "times": StoreSpec("times", StoreKind.TIMESTAMPED_KEY_VALUE, STRING, INT64),
    "versions": StoreSpec("versions", StoreKind.VERSIONED, STRING, INT64, history_retention=3000),
    "windows": StoreSpec("windows", StoreKind.WINDOW, STRING, INT64, **_WINDOW),
    "duplicates": StoreSpec("duplicates", StoreKind.WINDOW, STRING, INT64, retain_duplicates=True, **_WINDOW),
    "stamped-windows": StoreSpec("stamped-windows", StoreKind.TIMESTAMPED_WINDOW, STRING, INT64, **_WINDOW),
    "sessions": StoreSpec("sessions", StoreKind.SESSION, STRING, INT64, retention=3000),
    "stamped-sessions": StoreSpec("stamped-sessions", StoreKind.TIMESTAMPED_SESSION, STRING, INT64, retention=3000),
}
KEYS = ["", "a", "a\0", "b", "c\1", "ü"]

Put = tuple[str, int | None, int]
puts = st.tuples(st.sampled_from(KEYS), st.sampled_from([None, 1, 2]), st.integers(0, 12_000))
histories = st.lists(st.lists(puts, max_size=8), min_size=2, max_size=4)


def put(store: Any, spec: StoreSpec, one: Put) -> None:
    """Make one change of a store of any kind; times are so few that they meet."""
    key, value, time = one[0], one[1], one[2] // 100 * 100
    calls = {
        StoreKind.KEY_VALUE: lambda: store.put(key, value),
        StoreKind.TIMESTAMPED_KEY_VALUE: lambda: store.put(key, value, time),
        StoreKind.VERSIONED: lambda: store.put(key, value, time),
        StoreKind.WINDOW: lambda: store.put(key, value, time),
        StoreKind.TIMESTAMPED_WINDOW: lambda: store.put(key, value, time + 1, time),
        StoreKind.SESSION: lambda: store.put(Windowed(key, time, time + 5), value),
        StoreKind.TIMESTAMPED_SESSION: lambda: store.put(Windowed(key, time, time + 5), value, time),
    }
    calls[spec.kind]()


def run(directory: Path, spec: StoreSpec, history: list[list[Put]], **options: Any) -> list[Manifest]:
    """Return the manifests of a task that has made these changes, one after each micro-batch."""
    manifests: list[Manifest] = []
    with task(directory, spec, **options) as state:
        for batch in history:
            store = state.open(manifests[-1] if manifests else None)[spec.name]
            for one in batch:
                put(store, spec, one)
            manifests.append(state.commit())
    return manifests


def rows_of(batches: Any) -> list[Row]:
    return [row for batch in batches for row in batch.to_pylist()]


def difference(before: StoreView, after: StoreView, selection: Selection = EVERYTHING) -> list[Row]:
    """Return what the feed has to be, from the rows of two looks."""
    schema = change_schema(before.schema)
    identity = schema.names[1:-2]

    def content(look: StoreView) -> dict[str, tuple[Row, Row]]:
        seen: Counter[str] = Counter()
        found = {}
        for row in rows_of(look.rows(selection)):
            name = {column: row[column] for column in identity}
            seen[repr(name)] += 1
            rest = {column: value for column, value in row.items() if column not in identity}
            found[f"{name} {seen[repr(name)]}"] = name, rest
        return found

    olds, news = content(before), content(after)
    expected = []
    for one in olds.keys() | news.keys():
        (name, old), (_, new) = olds.get(one, (news.get(one, ({}, None))[0], None)), news.get(one, ({}, None))
        if old != new:
            change = "insert" if old is None else "delete" if new is None else "update"
            expected.append({"change": change, **name, "before": old, "after": new})
    return expected


def check(before: StoreView, after: StoreView, selection: Selection = EVERYTHING) -> list[Row]:
    """Return the feed, after it was compared with the difference of two looks."""
    found = list(changes(before, after, selection))
    for batch in found:
        assert batch.schema.equals(change_schema(after.schema))
        batch.validate(full=True)
    feed = rows_of(found)
    assert sorted(map(repr, feed)) == sorted(map(repr, difference(before, after, selection)))
    return feed


@pytest.mark.parametrize("name", SPECS)
@settings(max_examples=4, deadline=None)
@given(history=histories, max_deltas=st.sampled_from([1, 2, 64]))
def test_a_feed_is_the_difference_of_two_looks(name: str, history: list[list[Put]], max_deltas: int) -> None:
    spec = SPECS[name]
    with TemporaryDirectory() as place:
        manifests = run(Path(place), spec, history, max_deltas=max_deltas)
        views = [view(storage_in(Path(place)), spec, [one]) for one in manifests]
        for before, after in pairwise([*views, views[0], views[-1], views[-1]]):
            check(before, after)
        check(views[0], views[-1], Selection(key_from="a", key_to="b"))
        if spec.versioned:
            check(views[0], views[-1], Selection(as_of=6000))


def spread(directory: Path, spec: StoreSpec, batch: list[Put], partitions: int, changed: list[Put]) -> list[StoreView]:
    """Return the views of a store after two micro-batches of tasks that share its keys."""
    manifests = []
    for number in range(partitions):
        mine, later = (
            [one for one in puts if partition_of(one[0].encode(), partitions) == number] for puts in (batch, changed)
        )
        manifests.append(run(directory, spec, [mine, later], number=number))
    return [
        view(storage_in(directory), spec, list(one), batch=at, partitions=partitions)
        for at, one in enumerate(zip(*manifests, strict=True))
    ]


@pytest.mark.parametrize("name", SPECS)
def test_tasks_of_another_number_are_compared_row_by_row(tmp_path: Path, name: str) -> None:
    batch: list[Put] = [(f"key {number}", number, 1000 + 100 * (number % 7)) for number in range(30)]
    changed: list[Put] = [("key 3", 33, 1300), ("key 5", None, 1500), ("key 8", 8, 1100), ("new", 1, 1900)]
    for was, now in ((4, 6),):
        before, _ = spread(tmp_path / f"{was}-{now}-a", SPECS[name], batch, was, [])
        same, after = spread(tmp_path / f"{was}-{now}-b", SPECS[name], batch, now, changed)
        assert len(change_parts(before, after)) == now
        assert check(before, same) == []
        assert {row["key"] for row in check(before, after)} >= {"key 3", "new"}


def test_a_task_that_had_no_state_begins_with_inserts_and_one_that_has_none_left_with_deletes(tmp_path: Path) -> None:
    spec = SPECS["plain"]
    (manifest,) = run(tmp_path, spec, [[("a", 1, 0)]])
    nothing, something = (view(storage_in(tmp_path), spec, parts) for parts in ([], [manifest]))
    assert check(nothing, something) == [{"change": "insert", "key": "a", "before": None, "after": {"value": 1}}]
    assert check(something, nothing) == [{"change": "delete", "key": "a", "before": {"value": 1}, "after": None}]
    assert check(nothing, nothing) == []


def test_a_new_version_is_an_insert_and_ends_the_one_before(tmp_path: Path) -> None:
    spec = SPECS["versions"]
    manifests = run(tmp_path, spec, [[("a", 1, 100), ("b", 1, 100)], [("a", 2, 200)]])
    old, new = (view(storage_in(tmp_path), spec, [one]) for one in manifests)
    ended, begun = check(old, new)
    assert (ended["change"], ended["before"]["valid_to"], ended["after"]["valid_to"].microsecond) == (
        "update",
        None,
        200_000,
    )
    assert (begun["change"], begun["key"], begun["after"]) == ("insert", "a", {"value": 2, "valid_to": None})


def test_stores_that_have_cut_time_in_other_segments_are_compared(tmp_path: Path) -> None:
    spec = SPECS["windows"]
    other = StoreSpec("windows", StoreKind.WINDOW, STRING, INT64, retention=90_000, window_size=10)
    batch: list[Put] = [(key, 1, time) for key in KEYS for time in (0, 1600, 2900)]
    before = view(storage_in(tmp_path / "a"), spec, run(tmp_path / "a", spec, [batch]))
    after = view(storage_in(tmp_path / "b"), other, run(tmp_path / "b", other, [[*batch, ("a", 2, 1600)]]))
    assert [(row["change"], row["key"], row["after"]) for row in check(before, after)] == [
        ("update", "a", {"value": 2})
    ]


def test_what_is_expired_by_the_limits_that_somebody_gave_is_compared_as_long_as_it_is_there(tmp_path: Path) -> None:
    spec = SPECS["windows"]
    manifests = run(tmp_path, spec, [[("a", 1, 1000), ("b", 1, 1500)], [("c", 1, 4400)]])
    given = [view(storage_in(tmp_path), spec, [one], given=spec) for one in manifests]
    assert {row["key"] for row in rows_of(given[1].rows())} == {"b", "c"}
    assert [(row["change"], row["key"]) for row in rows_of(changes(given[0], given[1]))] == [("insert", "c")]


def test_other_bytes_of_the_same_value_are_no_update(tmp_path: Path) -> None:
    written = StoreSpec("values", StoreKind.KEY_VALUE, STRING, BYTES)
    manifests: list[Manifest] = []
    with task(tmp_path, written) as state:
        for one in (b"\x01", b"\xcc\x01", b"\x02"):
            store: Any = state.open(manifests[-1] if manifests else None)["values"]
            store.put("a", one)
            manifests.append(state.commit())
    read = StoreSpec("values", StoreKind.KEY_VALUE, STRING, MSGPACK)
    views = [view(storage_in(tmp_path), read, [one]) for one in manifests]
    assert check(views[0], views[1]) == []
    assert [row["after"] for row in check(views[0], views[2])] == [{"value": "2"}]


def test_a_few_keys_are_looked_up_without_the_rest_of_the_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A snapshot of four row groups, of which the last is damaged."""
    spec = SPECS["plain"]
    monkeypatch.setattr(rows, "ROWS_PER_TABLE", 1000)
    manifests = []
    with task(tmp_path, spec) as state:
        store: Any = state.open(None)["plain"]
        store.put_many([f"{number:04}" for number in range(4_000)], range(4_000))
        manifests.append(state.commit())
        store = state.open(manifests[0])["plain"]
        store.put_many(["0007", "1500x"], [8, 1])
        manifests.append(state.commit())
    (snapshot,) = (tmp_path / "state").rglob("*.snapshot.parquet")
    content = bytearray(snapshot.read_bytes())
    content[read_metadata(snapshot).row_group(3).column(3).data_page_offset + 9] ^= 1
    snapshot.write_bytes(content)
    before, after = (view(storage_in(tmp_path), spec, [one]) for one in manifests)
    assert rows_of(changes(before, after)) == [
        {"change": "update", "key": "0007", "before": {"value": 7}, "after": {"value": 8}},
        {"change": "insert", "key": "1500x", "before": None, "after": {"value": 1}},
    ]
    with pytest.raises(CorruptFileError):
        rows_of(before.rows())


def test_a_global_table_is_compared_once_whatever_task_shows_it(tmp_path: Path) -> None:
    spec = SPECS["plain"]
    (first,) = run(tmp_path, spec, [[("a", 1, 0)]], number=0)
    (second,) = run(tmp_path, spec, [[("a", 1, 0), ("b", 1, 0)]], number=3)
    before, after = (view(storage_in(tmp_path), spec, [one], partitions=4, is_global=True) for one in (first, second))
    assert [(row["change"], row["key"]) for row in check(before, after)] == [("insert", "b")]


def test_a_part_travels(tmp_path: Path) -> None:
    spec = SPECS["sessions"]
    manifests = run(tmp_path, spec, [[("a", 1, 100)], [("a", None, 100), ("b", 1, 100)]])
    (part,) = change_parts(*(view(storage_in(tmp_path), spec, [one]) for one in manifests))
    found = rows_of(pickle.loads(pickle.dumps(part)).rows())
    assert sorted((row["change"], row["key"]) for row in found) == [("delete", "a"), ("insert", "b")]


def test_stores_whose_rows_cannot_be_compared_are_refused(tmp_path: Path) -> None:
    spec = SPECS["plain"]
    other = StoreSpec("plain", StoreKind.KEY_VALUE, STRING, STRING)
    waiting = StoreSpec(
        "plain", StoreKind.KEY_VALUE, STRING, INT64, layout=Layout("suppress-buffer", 1, key_serde="string")
    )
    storage = storage_in(tmp_path)
    was = [view(storage, spec, [one], batch=at) for at, one in enumerate(run(tmp_path, spec, [[("a", 1, 0)], []]), 2)]
    texts: list[Manifest] = []
    with task(tmp_path / "other", other) as state:
        for value in ("x", "y"):
            store: Any = state.open(texts[-1] if texts else None)["plain"]
            store.put("a", value)
            texts.append(state.commit())
    now = [view(storage_in(tmp_path / "other"), other, [one], batch=at) for at, one in enumerate(texts, 4)]
    with pytest.raises(ConfigurationError, match=r"cannot be told: .*; compare .* both before .*, or both after \["):
        rows_of(changes(was[1], now[0]))
    assert check(was[0], was[1]) == []
    assert check(now[0], now[1]) == [
        {"change": "update", "key": "a", "before": {"value": "x"}, "after": {"value": "y"}}
    ]
    with pytest.raises(ConfigurationError, match=r"micro-batch 3 \(key-value: key string, value int64\).*value string"):
        change_parts(view(storage, spec, [], batch=3), view(storage, other, [], batch=4))
    with pytest.raises(
        ConfigurationError, match="kept by 2 tasks and is kept by 3; compare micro-batches that are both"
    ):
        change_parts(view(storage, waiting, [], partitions=2), view(storage, waiting, [], partitions=3))
    for partitions in (2, 3):
        same = view(storage, waiting, [], partitions=partitions)
        assert check(same, same) == []


def test_a_selection_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    spec = SPECS["plain"]
    manifests = run(tmp_path, spec, [[("a", 1, 0)], [("a", 2, 0)]])
    before, after = (view(storage_in(tmp_path), spec, [one]) for one in manifests)
    with pytest.raises(ConfigurationError, match="keeps no versions; leave as_of out"):
        rows_of(changes(before, after, Selection(as_of=5)))
