"""State that is carried to another number of partitions is what it would have been there all along."""

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.errors import ConfigurationError, CorruptFileError, StateConflictError
from millpond.stores.durability import Manifest, Storage
from millpond.stores.durability.parquet.reading import read_all_tables, read_tables
from millpond.stores.encoding.partitions import partition_of
from millpond.stores.encoding.serdes import BYTES, INT64, JSON
from millpond.stores.evolution import old_rows, snapshots
from millpond.stores.evolution.carrying import Origin, carry_unit
from millpond.stores.evolution.shape import Shape, StoreShape
from millpond.stores.specs.store_spec import StoreKind, StoreSpec
from tests.drawing import tries
from tests.stores.evolution.queries import (
    LONG,
    SPECS,
    Change,
    Task,
    Tasks,
    carry,
    manifests_of,
    opened,
    put,
    restored,
    rows_of,
    run,
    shape_of,
)

keys = st.binary(max_size=3) | st.sampled_from([b"\x00", b"\x00\xff", b"\xff\x00\x00", b"a\x00\x01", bytes(8)])
changes = st.tuples(
    st.sampled_from([spec.name for spec in SPECS]),
    keys,
    st.none() | st.binary(max_size=3),
    st.integers(-5000, 5000),
    st.integers(0, 30),
)
batches = st.lists(st.lists(changes, max_size=40), min_size=1, max_size=3)
partitions = st.integers(1, 6)


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage.from_uri(f"file://{tmp_path}?sync=false")


@settings(max_examples=tries(25), deadline=None)
@given(batches, partitions, partitions)
def test_stores_of_all_kinds_hold_what_they_would_hold_there_all_along(
    batches: list[list[Change]], before: int, after: int
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        storage = Storage.from_uri(f"file://{directory}?sync=false")
        old, expected = run(storage, SPECS, before, batches), run(storage, SPECS, after, batches)
        carried = carry(storage, shape_of(SPECS, before), shape_of(SPECS, after), manifests_of(old))
        for partition, task in enumerate(expected):
            for spec in SPECS:
                manifest = carried.get((0, partition))
                store = opened(storage, manifest, spec)
                if spec.retain_duplicates:
                    assert list(store.fetch_all()) == list(task.stores[spec.name].fetch_all())
                else:
                    assert rows_of(restored(storage, manifest, spec)) == task.rows(spec.name), spec.name


FEW: list[list[Change]] = [
    [(spec.name, bytes([number]), b"x%d" % number, number, 3) for spec in SPECS for number in range(40)],
    [(spec.name, bytes([number]), None, 50 + number, 0) for spec in SPECS[:2] for number in range(0, 40, 3)],
]

FEW_OF = {spec.name: [[change for change in batch if change[0] == spec.name] for batch in FEW] for spec in SPECS}


def content(storage: Storage, manifests: Tasks, specs: Sequence[StoreSpec], subtopology: int = 0) -> list[object]:
    """Return what the stores of all tasks hold, task by task."""
    count = 1 + max(partition for _, partition in manifests)
    return [
        rows_of(restored(storage, manifests.get((subtopology, partition)), spec))
        for partition in range(count)
        for spec in specs
    ]


def files(storage: Storage) -> list[str]:
    found = sorted(str(path) for path in _root(storage).rglob("*.parquet"))
    assert found
    return found


def _root(storage: Storage) -> Path:
    return Path(storage.uri.removeprefix("file://"))


def test_a_store_goes_on_under_another_name_and_in_another_place(storage: Storage) -> None:
    tasks = manifests_of(run(storage, SPECS, 2, FEW))
    specs = [replace(spec, name=f"new-{spec.name}") for spec in SPECS]
    after = shape_of(specs, 2, subtopology=3)
    origins = {f"new-{spec.name}": Origin(0, spec.name) for spec in SPECS[1:]}
    moved = carry(storage, shape_of(SPECS, 2), after, tasks, origins=origins)
    assert set(moved) == {(3, 0), (3, 1)}
    assert [manifest.task_id for manifest in moved.values()] == ["3_0", "3_1"]
    assert content(storage, moved, specs[1:], 3) == content(storage, tasks, SPECS[1:])
    for spec in specs:
        opened(storage, moved[3, 1], spec)
    assert not rows_of(restored(storage, moved[3, 0], specs[0]))


@pytest.mark.parametrize("partitions", [1, 2, 6])
@pytest.mark.parametrize(("number", "other"), [(0, 1), (1, 0), (3, 4), (7, 6)])
def test_a_store_goes_on_as_its_timestamped_or_plain_twin(
    number: int, other: int, partitions: int, storage: Storage
) -> None:
    old, new = SPECS[number], replace(SPECS[other], name=SPECS[number].name)
    tasks = manifests_of(run(storage, [old], 2, FEW_OF[old.name]))
    moved = carry(storage, shape_of([old], 2), shape_of([new], partitions, subtopology=1), tasks)
    found = [rows_of(restored(storage, manifest, new)) for manifest in moved.values()]
    expected = [rows_of(restored(storage, manifest, new)) for manifest in tasks.values()]
    assert {row: data for rows in found for row, data in rows.items()} == {
        row: data for rows in expected for row, data in rows.items()
    }


def test_a_task_whose_stores_stay_where_they_are_keeps_its_files(storage: Storage) -> None:
    tasks = manifests_of(run(storage, SPECS, 3, FEW))
    before = files(storage)
    shape = shape_of(SPECS, 3)
    kept = carry(storage, shape, shape, tasks)
    assert files(storage) == before
    assert kept == {place: replace(manifest, fingerprint="new") for place, manifest in tasks.items()}
    fewer = carry(storage, shape, shape_of(SPECS[1:], 3), tasks)
    assert [manifest.sequence for manifest in fewer.values()] == [1, 1, 1]
    assert not {manifest.lineage for manifest in fewer.values()} & {manifest.lineage for manifest in tasks.values()}
    assert content(storage, fewer, SPECS[1:]) == content(storage, tasks, SPECS[1:])
    assert {name for file in fewer.values() for name, _ in read_all_tables(storage, file, file.files[0])} == {
        spec.name for spec in SPECS[1:]
    }


def test_a_task_without_state_has_no_manifest(storage: Storage) -> None:
    before, after = shape_of(SPECS, 2), shape_of(SPECS, 4)
    assert carry(storage, before, after, {}) == {}
    only = manifests_of(run(storage, SPECS, 2, [[("plain", b"a", b"1", 0, 0)]]))
    moved = carry(storage, before, after, only)
    assert set(moved) == {(0, partition_of(b"a", 4))}


def test_every_partition_gets_all_rows_of_a_global_table(storage: Storage) -> None:
    spec = SPECS[1]
    (task,) = run(storage, [spec], 1, [[("stamped", bytes([number]), b"x", number, 0) for number in range(9)]])
    store = StoreShape(0, spec.name, spec.kind, "bytes", "bytes", None, "bytes", is_global=True)
    copies = {(0, 1): task.manifest}
    beside = replace(store, subtopology=2)
    moved = carry(storage, Shape(2, (store,)), Shape(3, (store, beside)), copies)
    assert set(moved) == {(place, partition) for place in (0, 2) for partition in range(3)}
    assert all(rows_of(restored(storage, manifest, spec)) == task.rows("stamped") for manifest in moved.values())


def test_keys_that_the_records_have_in_another_form_go_where_the_records_go(storage: Storage) -> None:
    spec = StoreSpec("counts", StoreKind.WINDOW, INT64, BYTES, retention=LONG, window_size=10)
    tasks = [Task(storage, [spec], f"0_{partition}") for partition in range(2)]
    for number in range(60):
        tasks[partition_of(JSON.serialize(number), 2)].stores["counts"].put(number, b"x", number)
    for task in tasks:
        task.commit()
    before, after = (shape_of([spec], number, record_key_serde="json") for number in (2, 6))
    moved = carry(storage, before, after, manifests_of(tasks))
    for number in range(60):
        holder = opened(storage, moved[0, partition_of(JSON.serialize(number), 6)], spec)
        assert holder.fetch(number, number) == b"x"
    unknown = replace(after, stores=(replace(after.stores[0], record_key_serde="mine"),))
    with pytest.raises(
        ConfigurationError, match=r"counts.*'int64'.*'mine'.*; keep the number of partitions, which was 2"
    ):
        carry(storage, before, unknown, manifests_of(tasks))
    renamed = replace(unknown, partitions=2, stores=(replace(unknown.stores[0], name="totals"),))
    kept = carry(storage, before, renamed, manifests_of(tasks), origins={"totals": Origin(0, "counts")})
    for number in range(60):
        holder = opened(storage, kept[0, partition_of(JSON.serialize(number), 2)], replace(spec, name="totals"))
        assert holder.fetch(number, number) == b"x"
    assert carry(storage, before, replace(renamed, partitions=6), manifests_of(tasks), origins={}) == {}


def test_rows_that_do_not_lie_by_the_records_keys_are_refused(storage: Storage) -> None:
    spec = SPECS[0]
    tasks = [Task(storage, [spec], f"0_{partition}") for partition in range(2)]
    for task in tasks:
        task.stores["plain"].put(b"total", b"1")
        task.commit()
    for partitions in (1, 4):
        with pytest.raises(StateConflictError, match=r"'plain'.*total.*in partition [01].*drop the store"):
            carry(storage, shape_of([spec], 2), shape_of([spec], partitions), manifests_of(tasks))
    assert len(carry(storage, shape_of([spec], 2), shape_of([spec], 2), manifests_of(tasks))) == 2


def test_a_users_metadata_is_copied_and_must_agree_where_partitions_become_one(storage: Storage) -> None:
    spec = SPECS[0]
    tasks = [Task(storage, [spec], f"0_{partition}") for partition in range(2)]
    for task in tasks:
        task.stores["plain"].put_metadata("mine", b"same")
        task.commit()
    before = shape_of([spec], 2)
    for partitions in (1, 4):
        moved = carry(storage, before, shape_of([spec], partitions), manifests_of(tasks))
        assert len(moved) == partitions
        assert all(opened(storage, one, spec).get_metadata("mine") == b"same" for one in moved.values())
    tasks[0].stores["plain"].put_metadata("mine", b"other")
    tasks[0].commit()
    with pytest.raises(StateConflictError, match=r"'mine'.*'plain'.*b'other', b'same'"):
        carry(storage, before, shape_of([spec], 1), manifests_of(tasks))
    assert len(carry(storage, before, before, manifests_of(tasks))) == 2
    assert len(carry(storage, before, shape_of([spec], 4), manifests_of(tasks))) == 4


@pytest.mark.parametrize("spec", [SPECS[3], SPECS[5], SPECS[7]], ids=["windows", "joined", "sessions"])
def test_segments_of_different_lengths_become_those_of_the_first(spec: StoreSpec, storage: Storage) -> None:
    for first, second in ((4000, 30_000), (30_000, 4000), (9000, 6000)):
        tasks = []
        for partition, retention in enumerate((first, second)):
            task = Task(storage, [replace(spec, retention=2 * retention)], f"0_{partition}")
            for at in range(0, 60_000, 700):
                for key in (b"a", b"b\x00", b"c", b"d"):
                    if partition_of(key, 2) == partition:
                        put(task.stores[spec.name], spec.kind, key, b"%d" % at, at, 50)
            task.commit()
            tasks.append(task)
        moved = carry(storage, shape_of([spec], 2), shape_of([spec], 1), manifests_of(tasks))
        store = opened(storage, moved[0, 0], spec)
        assert store.segments.interval == first
        for key in (b"a", b"b\x00", b"c", b"d"):
            old = opened(storage, tasks[partition_of(key, 2)].manifest, spec)
            assert list(_of_key(store, key)) == list(_of_key(old, key)) != []


def _of_key(store: Any, key: bytes) -> Any:
    return store.fetch(key) if hasattr(store, "find_sessions") else store.fetch_range(key)


def test_a_damaged_file_is_an_error_and_leaves_nothing(storage: Storage) -> None:
    tasks = manifests_of(run(storage, SPECS, 3, FEW))
    before = files(storage)
    damaged = _root(storage) / tasks[0, 2].path(tasks[0, 2].files[0])
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    with pytest.raises(CorruptFileError, match="0_2"):
        carry(storage, shape_of(SPECS, 3), shape_of(SPECS, 2), tasks)
    assert files(storage) == before


def test_what_was_written_for_nothing_is_in_nobodys_way(storage: Storage) -> None:
    """As if the process had been killed between two units, after which all of them run once more."""
    tasks = manifests_of(run(storage, SPECS, 4, FEW))
    shapes = shape_of(SPECS, 4), shape_of(SPECS, 2)
    origins = {spec.name: Origin(0, spec.name) for spec in SPECS}
    carry_unit(storage, 1, *shapes, origins, tasks, application_id="app", fingerprint="new")
    left = set(files(storage))
    once, again = carry(storage, *shapes, tasks), carry(storage, *shapes, tasks)
    assert content(storage, once, SPECS) == content(storage, again, SPECS)
    named = {str(_root(storage) / one.path(file)) for one in (*once.values(), *again.values()) for file in one.files}
    assert not left & named
    assert all(one.sequence == 1 and Manifest.from_json(one.to_json()) == one for one in once.values())


def test_rows_are_written_as_they_come_however_many_there_are(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "ROWS_PER_TABLE", 5)
    monkeypatch.setattr(snapshots, "_BYTES_HELD", 900)
    monkeypatch.setattr(old_rows, "_ROWS_TOGETHER", 7)
    changes = [("plain", b"%d" % number, b"x" * (number % 90), 0, 0) for number in range(300)]
    old, expected = (run(storage, SPECS[:1], number, [changes[:200], changes[150:]]) for number in (4, 6))
    moved = carry(storage, shape_of(SPECS[:1], 4), shape_of(SPECS[:1], 6), manifests_of(old))
    for partition, task in enumerate(expected):
        manifest = moved[0, partition]
        assert rows_of(restored(storage, manifest, SPECS[0])) == task.rows("plain")
        assert len(list(read_tables(storage, manifest, manifest.files[0], "plain"))) > 1
