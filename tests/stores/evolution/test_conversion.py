"""A store that becomes another kind holds what it would hold if its entries had been put into that in order of time."""

import tempfile
from dataclasses import replace
from math import gcd
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.errors import CorruptStoreError
from millpond.processors import Consumed, Materialized, StreamsBuilder, Topology
from millpond.stores.backend import column_changes
from millpond.stores.backend.memory import MemoryBackend
from millpond.stores.backend.registry import open_backend
from millpond.stores.backend.transaction import Transaction
from millpond.stores.durability import Storage
from millpond.stores.durability.copies.restore import restore
from millpond.stores.encoding.keys import BEYOND, DATA, INDEX
from millpond.stores.encoding.partitions import partition_of
from millpond.stores.encoding.serdes import BYTES
from millpond.stores.evolution import old_rows
from millpond.stores.evolution.carrying import Origin
from millpond.stores.evolution.conversion import Conversion
from millpond.stores.evolution.losses import Counting, Loss, with_observed
from millpond.stores.evolution.shape import Shape, StoreShape
from millpond.stores.specs.store_spec import StoreKind, StoreSpec
from millpond.stores.typed.timestamped_keyvalue import UNKNOWN_TIMESTAMP
from tests.drawing import tries
from tests.stores.evolution.jobs import Input, Job
from tests.stores.evolution.jobs import shape_of as job_shape_of
from tests.stores.evolution.queries import Change, Task, Tasks, carry, manifests_of, opened, run, shape_of

RETENTION = 100
VALID_FROM = 40
PLAIN = StoreSpec("plain", StoreKind.KEY_VALUE, BYTES, BYTES)
STAMPED = StoreSpec("stamped", StoreKind.TIMESTAMPED_KEY_VALUE, BYTES, BYTES)
VERSIONED = StoreSpec("versioned", StoreKind.VERSIONED, BYTES, BYTES, history_retention=RETENTION)
DIRECTIONS = [
    (one, other) for one in (PLAIN, STAMPED, VERSIONED) for other in (PLAIN, STAMPED, VERSIONED) if one != other
]

keys = st.binary(max_size=3) | st.sampled_from([b"", b"\x00", b"\x00\xff", b"\xff\x00\x00", b"a\x00\x01", bytes(8)])
puts = st.tuples(keys, st.none() | st.binary(max_size=3), st.integers(-5, 400))
batches = st.lists(st.lists(puts, max_size=30), min_size=1, max_size=3)
partitions = st.integers(1, 4)


def converted(
    storage: Storage, old: StoreSpec, new: StoreSpec, before: int, after: int, tasks: Tasks
) -> tuple[Tasks, Loss]:
    """Return the tasks of the store as another kind, and what it has lost."""
    origin = Origin(0, old.name, Conversion(old.kind, new.kind, VALID_FROM))
    counting = Counting(storage, before, {new.name: origin}, tasks)
    origins, losses = with_observed({new.name: origin}, map(counting.run, range(counting.units)), ())
    carried = carry(storage, shape_of([old], before), shape_of([new], after), tasks, origins=origins)
    return carried, losses[new.name]


def entries(task: Task, old: StoreSpec) -> list[tuple[bytes, bytes, int]]:
    """Return the latest entry of each key, with its time."""
    store = task.stores[old.name]
    if old.kind is StoreKind.KEY_VALUE:
        return [(key, value, UNKNOWN_TIMESTAMP) for key, value in store.scan()]
    if old.kind is StoreKind.TIMESTAMPED_KEY_VALUE:
        return [(key, value, timestamp) for key, (value, timestamp) in store.scan()]
    return [(key, one.value, one.timestamp) for key, one in store.scan() if one.valid_to is None]


def filled(new: StoreSpec, content: list[tuple[bytes, bytes, int]]) -> tuple[Any, dict[bytes, bytes]]:
    """Return a store into which that was put in the order of time, and its rows."""
    transaction = Transaction(MemoryBackend())
    store: Any = new.open(transaction)
    dated = [(k, v, VALID_FROM if new.versioned and t == UNKNOWN_TIMESTAMP else t) for k, v, t in content]
    for key, value, time in sorted(dated, key=lambda entry: entry[2]):
        store.put(key, value, *((time,) if new.kind.stamped else ()))
    store.flush()
    rows = dict(transaction.scan(DATA, BEYOND))
    transaction.rollback()
    return store, rows


@settings(max_examples=tries(60), deadline=None)
@given(st.sampled_from(DIRECTIONS), batches, partitions, partitions, st.sampled_from(["memory", "lmdb", "rocksdb"]))
def test_every_direction_gives_what_puts_in_the_order_of_time_give(
    direction: tuple[StoreSpec, StoreSpec], changes: list[list[Any]], before: int, after: int, engine: str
) -> None:
    old, new = direction
    with tempfile.TemporaryDirectory() as directory:
        storage = Storage.from_uri(f"file://{directory}/state?sync=false")
        tasks = run(storage, [old], before, [[(old.name, *put, 0) for put in batch] for batch in changes])
        content = [entries(task, old) for task in tasks]
        carried, loss = converted(storage, old, new, before, after, manifests_of(tasks))
        step = gcd(before, after)
        for partition in range(after):
            mine = [entry for some in content for entry in some if partition_of(entry[0], after) == partition]
            _, expected = filled(new, mine)
            found, store = restored_on(engine, Path(directory) / f"{partition}", storage, carried, partition, new)
            assert found == expected
            times = [time for some in content[partition % step :: step] for time in dated(some)]
            if new.versioned and times and (0, partition) in carried:
                assert store.observed_stream_time == max(times)
        assert loss[:3] == expected_loss(tasks, old, new, content)


def dated(content: list[tuple[bytes, bytes, int]]) -> list[int]:
    return [VALID_FROM if time == UNKNOWN_TIMESTAMP else time for _, _, time in content]


def restored_on(
    engine: str, directory: Path, storage: Storage, tasks: Tasks, partition: int, spec: StoreSpec
) -> tuple[dict[bytes, bytes], Any]:
    """Return the rows of a store that an engine restores, and the store, which is sound."""
    with open_backend(engine, directory) as backend:
        if (0, partition) in tasks:
            restore(backend, storage, tasks[0, partition], spec.name, spec.format_version)
        store: Any = spec.open(Transaction(backend))
        store.check()
        return dict(backend.scan(DATA, BEYOND)), store


def expected_loss(tasks: list[Task], old: StoreSpec, new: StoreSpec, content: list[Any]) -> tuple[int, int, int]:
    known = [time != UNKNOWN_TIMESTAMP for some in content for _, _, time in some]
    if new.versioned:
        return 0, 0, known.count(False)
    versions = 0
    if old.versioned:
        rows = sum(row < INDEX for task in tasks for row in task.rows(old.name))
        versions = rows - len(known)
    return versions, 0 if new.kind.stamped else known.count(True), 0


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage.from_uri(f"file://{tmp_path}?sync=false")


@pytest.mark.parametrize("together", [1, 3])
def test_the_latest_version_is_found_where_those_of_a_key_come_in_several_parts(
    storage: Storage, together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(old_rows, "_ROWS_TOGETHER", together)
    monkeypatch.setattr(column_changes, "_ROWS_PER_PART", together)
    puts: list[Change] = [("versioned", key, b"%d" % time, time, 0) for time in range(5) for key in (b"a", b"b", b"c")]
    tasks = run(storage, [VERSIONED], 1, [puts, [("versioned", b"b", None, 9, 0)]])
    carried, loss = converted(storage, VERSIONED, STAMPED, 1, 1, manifests_of(tasks))
    store = opened(storage, carried[0, 0], STAMPED)
    assert {key: tuple(value) for key, value in store.scan()} == {b"a": (b"4", 4), b"c": (b"4", 4)}
    assert loss == Loss(versions=4 + 4 + 6)


def test_there_and_back_again_all_is_what_it_was_where_keys_have_one_version(storage: Storage) -> None:
    changes: list[Change] = [("stamped", bytes([number]), b"x", number, 0) for number in range(50)]
    tasks = run(storage, [STAMPED], 2, [changes])
    there, loss = converted(storage, STAMPED, VERSIONED, 2, 3, manifests_of(tasks))
    assert not loss.any
    back, loss = converted(storage, VERSIONED, STAMPED, 3, 2, there)
    assert not loss.any
    for partition, task in enumerate(tasks):
        assert sorted(opened(storage, back[0, partition], STAMPED).scan()) == sorted(task.stores["stamped"].scan())


def test_a_global_table_is_counted_once_and_converted_in_every_partition(storage: Storage) -> None:
    (task,) = run(storage, [VERSIONED], 1, [[("versioned", b"k", b"%d" % time, time, 0) for time in range(4)]])
    old = StoreShape(0, VERSIONED.name, VERSIONED.kind, "bytes", "bytes", None, "bytes", is_global=True)
    new = replace(old, name=STAMPED.name, kind=STAMPED.kind)
    copies = {(0, 0): task.manifest, (0, 1): task.manifest}
    for spec, one, other, origin in (
        (STAMPED, old, new, Origin(0, VERSIONED.name, Conversion(VERSIONED.kind, STAMPED.kind))),
        (VERSIONED, new, old, Origin(0, STAMPED.name, Conversion(STAMPED.kind, VERSIONED.kind))),
    ):
        counting = Counting(storage, 2, {spec.name: origin}, copies)
        origins, losses = with_observed(counting.origins, map(counting.run, range(2)), [spec.name])
        assert losses[spec.name].versions == (3 if spec is STAMPED else 0)
        copies = carry(storage, Shape(2, (one,)), Shape(2, (other,)), copies, origins=origins)
        assert set(copies) == {(0, 0), (0, 1)}
        for manifest in copies.values():
            assert opened(storage, manifest, spec).get(b"k")[:2] == (b"3", 3)


def test_a_damaged_version_stops_the_count(storage: Storage) -> None:
    task = Task(storage, [replace(PLAIN, name="versioned")], "0_0")
    task.stores["versioned"].put(b"no version", b"x")
    task.commit()
    with pytest.raises(CorruptStoreError, match="no version of a key") as found:
        converted(storage, VERSIONED, STAMPED, 1, 1, {(0, 0): task.manifest})
    assert "read it with the serdes and the release that wrote it, or go back" in found.value.__notes__[0]


def counted(materialized: Materialized) -> Topology:
    builder = StreamsBuilder()
    words = builder.stream("words", Consumed("string", "string")).group_by_key()
    words.count(materialized).to_stream().to("counts")
    return builder.build()


def test_counts_that_become_versioned_go_on_as_those_that_always_were(storage: Storage) -> None:
    stamped = counted(Materialized("counts", StoreKind.TIMESTAMPED_KEY_VALUE))
    versioned = counted(Materialized.versioned("counts", history_retention=1000))
    first = [Input("words", f"word {number % 7}", "", number) for number in range(30)]
    second = [Input("words", f"word {number % 5}", "", 30 + number) for number in range(20)]
    old, always = Job(storage, stamped, 2), Job(storage, versioned, 3)
    assert old.run(first) == always.run(first)
    origin = Origin(0, "counts", Conversion(StoreKind.TIMESTAMPED_KEY_VALUE, StoreKind.VERSIONED))
    counting = Counting(storage, 2, {"counts": origin}, old.manifests)
    origins, _ = with_observed(counting.origins, map(counting.run, range(2)), ())
    shapes = job_shape_of(stamped, 2), job_shape_of(versioned, 3)
    job = Job(storage, versioned, 3, carry(storage, *shapes, old.manifests, origins=origins))
    assert job.run(second) == always.run(second)
    spec = versioned.subtopologies[0].stores["counts"]
    for place, manifest in job.manifests.items():
        found, expected = (opened(storage, one, spec) for one in (manifest, always.manifests[place]))
        for key in {key for key, _ in expected.scan()}:
            history = list(expected.history(key))
            known = [one for one in history if one.valid_to is None or one.valid_to > 29]
            assert list(found.history(key))[-len(known) :] == known
            assert found.get(key) == expected.get(key)
