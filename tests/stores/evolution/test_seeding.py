"""Seeds: stores of all kinds begin with what they would hold had the entries been put, in the order of time."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.errors import ConfigurationError, FormatError, RecordError, StateConflictError
from millpond.processors import Consumed, EmitStrategy, Materialized, StreamsBuilder, TimeWindows
from millpond.processors.aggregations.windowed_processor import WINDOWED_AGGREGATION
from millpond.processors.tables.suppress_buffer import SUPPRESS_BUFFER
from millpond.processors.verbs.rekeying.carriages import CARRIAGES
from millpond.stores.backend.registry import supplier
from millpond.stores.durability import Manifest, Storage, TaskState, read_rows
from millpond.stores.durability.checking.inspection import read_store
from millpond.stores.encoding.partitions import partition_of
from millpond.stores.encoding.serdes import BYTES, INT64, STRING
from millpond.stores.evolution.evolving import Committed, Target, evolve
from millpond.stores.evolution.history import History
from millpond.stores.evolution.matching import Declared
from millpond.stores.evolution.record import EvolutionRecord
from millpond.stores.evolution.seeding import Entry, Seed, Seeds, Sowing, write_seeds
from millpond.stores.evolution.shape import Shape
from millpond.stores.specs.store_spec import KeyForm, StoreKind, StoreSpec
from millpond.stores.typed.windows.windowed import Windowed
from tests.drawing import tries
from tests.stores.evolution import jobs
from tests.stores.evolution.queries import SPECS, put, shape_of
from tests.stores.evolution.test_evolving import in_process

SEEDED = [replace(one, key_serde=STRING, value_serde=INT64) for one in SPECS if not one.retain_duplicates]
RETENTION = {"history_retention": 40, "retention": 40}
PARTITIONS = 3


def shape(specs: Iterable[StoreSpec]) -> Shape:
    return shape_of(specs, PARTITIONS, record_key_serde="string")


def seed_of(spec: StoreSpec, users: int = 1) -> Seed:
    carriage = None if spec.layout is None else CARRIAGES[spec.layout.name]
    return Seed(spec, shape([spec]).stores[0], PARTITIONS, carriage, users)


def sorted_rows(tables: Iterable[pa.Table], size: int = 4) -> Iterator[pa.RecordBatch]:
    """Return the rows as Spark brings them to a writer, in small batches."""
    rows = pa.concat_tables(tables).sort_by([("task", "ascending"), ("store", "ascending"), ("key", "ascending")])
    return iter(rows.combine_chunks().to_batches(max_chunksize=size))


def sown(
    storage: Storage, spec: StoreSpec, parts: Sequence[Sequence[Entry]], bases: Mapping[str, Manifest] | None = None
) -> dict[str, Manifest]:
    """Return the manifests of tasks whose only store gets the entries, some after the other."""
    sowing = Sowing(storage, [spec.name], shape([spec]), bases or {}, "app", "print")
    tables = [table for part in parts for table in seed_of(spec).tables(part)]
    return dict(write_seeds(sowing, sorted_rows(tables))) if tables else {}


def entry(spec: StoreSpec, key: str, value: int, time: int, later: int) -> Entry:
    size = {KeyForm.PLAIN: None, KeyForm.WINDOW: spec.window_size, KeyForm.SESSION: later}[spec.kind.key_form]
    if size is None:
        return Entry(key, value, time)
    return Entry(key, value, time + later, time, time + size)


def as_put(spec: StoreSpec, entries: Iterable[Entry], directory: Path) -> dict[int, list[Any]]:
    """Return what each partition holds, and its stream time, had the entries been put."""
    found = {}
    for partition in range(PARTITIONS):
        storage = Storage.from_uri(directory / str(partition))
        state = TaskState(
            [spec], supplier("memory"), application_id="app", task_id="0_0", local_dir=directory, storage=storage
        )
        with state:
            store: Any = state.open(None)[spec.name]
            for one in sorted(entries, key=lambda one: one.timestamp if one.start is None else one.end or 0):
                if partition_of(one.key.encode(), PARTITIONS) == partition:
                    start = one.timestamp if one.start is None else one.start
                    length = (one.end or 0) - start if spec.kind.key_form is KeyForm.SESSION else one.timestamp - start
                    put(store, spec.kind, one.key, one.value, start, length)
            manifest = state.commit()
        found[partition] = content(storage, manifest, spec)
    return found


def content(storage: Storage, manifest: Manifest, spec: StoreSpec) -> list[Any]:
    store: Any = read_store(storage, manifest, spec)
    store.check()
    return [
        getattr(store, "observed_stream_time", None),
        *sorted(read_rows(storage, manifest, spec, deletes=True), key=repr),
    ]


@pytest.mark.parametrize("spec", SEEDED, ids=lambda one: one.name)
@settings(max_examples=tries(20), deadline=None)
@given(data=st.data())
def test_a_seeded_store_is_what_it_were_had_the_entries_been_put(
    tmp_path_factory: pytest.TempPathFactory, spec: StoreSpec, data: st.DataObject
) -> None:
    limits: dict[str, Any] = {name: value for name, value in RETENTION.items() if getattr(spec, name) is not None}
    spec, directory = replace(spec, **limits), tmp_path_factory.mktemp("seeds")
    drawn = st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 9), st.integers(0, 90), st.integers(0, 9))
    entries = [entry(spec, *one) for one in data.draw(st.lists(drawn, max_size=20))]
    if spec.versioned:
        entries = [one._replace(value=None) if one.value == 0 else one for one in entries]
    entries = list({_place(spec, one): one for one in entries}.values())
    keys = sorted({one.key for one in entries})
    cut = data.draw(st.integers(0, len(keys)))
    parts = [[one for one in entries if (one.key in keys[:cut]) is first] for first in (True, False)]
    storage = Storage.from_uri(directory / "state")
    manifests = sown(storage, spec, [part for part in parts if part])
    found = {
        partition: content(storage, manifests.get(f"0_{partition}", Manifest.empty("app", "0_0", "")), spec)
        for partition in range(PARTITIONS)
    }
    assert found == as_put(spec, entries, directory / "put")


def _place(spec: StoreSpec, one: Entry) -> Any:
    return one.key, one.start, one.end, one.timestamp if spec.versioned else None


def test_seeds_come_on_top_of_what_a_task_has(tmp_path: Path) -> None:
    storage, spec = Storage.from_uri(tmp_path), SEEDED[0]
    base = sown(storage, spec, [[Entry("a", 1, 0)]])
    ((task, manifest),) = base.items()
    later = sown(storage, spec, [[Entry("a", 2, 0), Entry("b", 3, 0), Entry("c", 3, 0)]], base)
    assert later[task].snapshot == manifest.snapshot
    assert (len(later[task].deltas), later[task].sequence) == (1, 2)
    found = {key: value for one in later.values() for key, value, _ in read_rows(storage, one, spec)}
    assert found == {"a": 2, "b": 3, "c": 3}


@pytest.mark.parametrize("name", ["memory", "lmdb", "rocksdb"])
def test_tasks_go_on_with_seeds_on_every_backend(tmp_path: Path, name: str) -> None:
    storage = Storage.from_uri(tmp_path / "state")
    for spec in SEEDED:
        manifests = sown(storage, spec, [[entry(spec, key, 1, 10, 3) for key in "abcdefgh"]])
        for task, manifest in manifests.items():
            state = TaskState(
                [spec],
                supplier(name),
                application_id="app",
                task_id=task,
                local_dir=tmp_path / "local" / spec.name,
                storage=storage,
                fingerprint="print",
            )
            with state:
                put(state.open(manifest)[spec.name], spec.kind, "new", 2, 20, 3)  # type: ignore[arg-type]
                after = state.commit()
            before = content(storage, manifest, spec)[1:]
            assert content(storage, after, spec)[1:] == sorted(
                [*before, *_rows_of(spec, entry(spec, "new", 2, 20, 3))], key=repr
            )


def _rows_of(spec: StoreSpec, one: Entry) -> list[Any]:
    key = one.key if one.start is None or one.end is None else Windowed(one.key, one.start, one.end)
    return [(key, one.value, one.timestamp if spec.kind.stamped else None)]


def test_a_global_store_is_seeded_in_every_partition(tmp_path: Path) -> None:
    spec, storage = SEEDED[0], Storage.from_uri(tmp_path)
    seed = seed_of(spec)
    seed = replace(seed, shape=replace(seed.shape, is_global=True))
    sowing = Sowing(storage, [spec.name], shape([spec]), {}, "app", "print")
    written = dict(write_seeds(sowing, sorted_rows(seed.tables([Entry("a", 1, 0), Entry("b", 2, 0)]))))
    assert len(written) == PARTITIONS
    assert all(len(list(read_rows(storage, one, spec))) == 2 for one in written.values())


def test_a_windowed_aggregation_goes_on_from_the_latest_time_of_the_seeds(tmp_path: Path) -> None:
    spec = replace(SEEDED[4], layout=WINDOWED_AGGREGATION)
    (table,) = seed_of(spec, users=2).tables([Entry("a", 1, 17, 10, 20), Entry("a", 1, 23, 20, 30)])
    found = dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))
    assert found[b"\x00stream-time-0"] == found[b"\x00stream-time-1"] == bytes.fromhex("018000000000000017")
    assert found[b"\x00observed_stream_time"] == bytes.fromhex("8000000000000014")
    assert found[b"\x00layout"] == WINDOWED_AGGREGATION.to_bytes()


@pytest.mark.parametrize("emit", list(EmitStrategy))
def test_windows_of_another_job_go_on_and_those_that_have_come_out_stay_out(tmp_path: Path, emit: EmitStrategy) -> None:
    builder = StreamsBuilder()
    windows = builder.stream("words", Consumed(STRING, STRING)).group_by_key()
    counted = windows.windowed_by(TimeWindows(10, grace=5)).emit_strategy(emit).count(Materialized("counts"))
    counted.to_stream().to("out")
    topology, storage = builder.build(), Storage.from_uri(tmp_path)
    ((index, part),) = [(one.index, one) for one in topology.subtopologies if one.stores]
    (spec,) = part.stores.values()
    old = jobs.Job(storage, topology, PARTITIONS)
    old.run([jobs.Input("words", key, "", time) for time in (3, 14, 28) for key in "abcdefgh"])
    before = jobs.shape_of(topology, PARTITIONS)
    entries = [
        Entry(windowed.key, value, timestamp or 0, windowed.start, windowed.end)
        for manifest in old.manifests.values()
        for windowed, value, timestamp in read_rows(storage, manifest, spec)
    ]
    seed = Seed(spec, before.named(spec.name)[0], PARTITIONS, CARRIAGES[WINDOWED_AGGREGATION.name], 1)
    sowing = Sowing(storage, [spec.name], before, {}, "app", "old")
    written = dict(write_seeds(sowing, sorted_rows(seed.tables(entries))))
    new = jobs.Job(storage, topology, PARTITIONS, {(index, int(task[-1])): one for task, one in written.items()})
    later = [jobs.Input("words", key, "", time) for time in (12, 29, 30, 47) for key in "abcdefgh"]
    assert (found := new.run(later)) == old.run(later)
    assert found


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (replace(SEEDED[0], layout=SUPPRESS_BUFFER), "'plain' cannot be seeded, because its operator keeps more"),
        (SPECS[5], "'joined' cannot be seeded, because it keeps several values"),
    ],
)
def test_stores_that_hold_more_than_their_entries_are_refused_and_begin_empty_beside_others(
    tmp_path: Path, spec: StoreSpec, message: str
) -> None:
    with pytest.raises(
        ConfigurationError, match=f"{message}.*; take '{spec.name}' out of seeds, so that it begins empty"
    ):
        seed_of(spec)
    seeded, storage = replace(SEEDED[0], name="seeded"), Storage.from_uri(tmp_path / "state")
    (manifest,) = sown(storage, seeded, [[Entry("a", 7, 0)]]).values()
    state = TaskState(
        [seeded, spec],
        supplier("memory"),
        application_id="app",
        task_id=manifest.task_id,
        local_dir=tmp_path / "local",
        storage=storage,
        fingerprint=manifest.fingerprint,
    )
    with state:
        stores: Any = state.open(manifest)
        stores["seeded"].put("b", 8)
        after = state.commit()
    assert {key: value for key, value, _ in read_rows(storage, after, seeded)} == {"a": 7, "b": 8}
    assert list(read_rows(storage, after, spec)) == []


@pytest.mark.parametrize(
    ("spec", "entries", "message"),
    [
        (SEEDED[0], [Entry(None, 1, 0)], "seed of store 'plain': the entry .* has no key"),
        (SEEDED[0], [Entry("a", None, 0)], "the key 'a' has no value"),
        (SEEDED[0], [Entry(b"a", 1, 0)], "the key b'a' cannot be stored"),
        (SEEDED[1], [Entry("a", "1", 0)], "the value of 'a' cannot be stored"),
        (SEEDED[1], [Entry("a", 1, 0), Entry("a", 1, 1)], "the entry of 'a' is there twice"),
        (SEEDED[2], [Entry("a", 1, 5), Entry("a", 2, 5)], "the entry of 'a' is there twice"),
        (SEEDED[3], [Entry("a", 1, 5)], "the key 'a' has no window"),
        (SEEDED[3], [Entry("a", 1, 5, 10, 21)], "from 10 to 21 is not 10 ms long"),
        (SEEDED[5], [Entry("a", 1, 5, 10, None)], "the key 'a' has no window"),
    ],
)
def test_entries_that_cannot_be_put_are_refused(spec: StoreSpec, entries: list[Entry], message: str) -> None:
    with pytest.raises(RecordError, match=message):
        list(seed_of(spec).tables(entries))


def test_an_entry_that_is_there_twice_is_found_even_far_apart_and_leaves_no_file(tmp_path: Path) -> None:
    storage = Storage.from_uri(tmp_path)
    with pytest.raises(RecordError, match="is there twice; keep one of them"):
        sown(storage, SEEDED[0], [[Entry("a", 1, 0)], [Entry("a", 1, 0)]])
    assert not list(tmp_path.rglob("*.parquet"))
    (manifest,) = sown(storage, SEEDED[0], [[Entry("a", 1, 0)]]).values()
    assert list(read_rows(storage, manifest, SEEDED[0])) == [("a", 1, None)]


class Query:
    """The driver's part, without Spark; the stores of the shape are plain."""

    def __init__(self, directory: Path) -> None:
        self.storage = Storage.from_uri(directory)

    def start(
        self, names: str, seeded: Mapping[str, str] | None = None, *, dies: bool = False, dropped: Collection[str] = ()
    ) -> EvolutionRecord:
        """Start a job whose stores are called by letters, some of which have keys to begin with."""
        specs = [replace(SEEDED[0], name=name) for name in names]
        seeds = None if seeded is None else Seeds(frozenset(seeded), self._sowing(seeded, dies=dies))
        fingerprint = f"{names}/{PARTITIONS}"
        history = History.of(self.storage, "app", "out").begun(
            fingerprint, shape(specs), frozenset() if seeds is None else seeds.stores
        )
        target = Target(fingerprint, shape(specs), Declared(dropped=dropped))
        return evolve(history, Committed(None, []), target, {}, in_process, seeds=seeds)

    def _sowing(self, seeded: Mapping[str, str], *, dies: bool) -> Any:
        def sow(sowing: Sowing) -> dict[str, Manifest]:
            seeds = {name: seed_of(replace(SEEDED[0], name=name)) for name in sowing.stores}
            rows = (table for name in seeds for table in seeds[name].tables([Entry(key, 1, 0) for key in seeded[name]]))
            written = dict(write_seeds(sowing, sorted_rows(rows)))
            if dies:
                raise OSError("killed")
            return written

        return sow

    def keys(self, record: EvolutionRecord, store: str) -> str:
        spec = replace(SEEDED[0], name=store)
        found = (read_rows(self.storage, manifest, spec) for manifest in record.bases.values())
        return "".join(sorted(key for rows in found for key, *_ in rows))


@pytest.fixture
def query(tmp_path: Path) -> Query:
    return Query(tmp_path)


def test_a_job_begins_with_seeds_once_whenever_the_driver_dies(query: Query) -> None:
    for _ in range(2):
        with pytest.raises(OSError, match="killed"):
            query.start("xy", {"x": "abc"}, dies=True)
    record = query.start("xy", {"x": "abc"})
    assert (record.generation, record.seeded) == (1, frozenset("x"))
    assert (query.keys(record, "x"), query.keys(record, "y")) == ("abc", "")
    assert query.start("xy", {"x": "abc"}, dies=True) == record
    assert query.start("xy") == record


def test_a_new_store_is_seeded_when_the_state_is_carried_over_and_goes_on_with_it(query: Query) -> None:
    query.start("x", {"x": "abc"})
    record = query.start("xyz", {"x": "no more", "y": "de"})
    assert [query.keys(record, name) for name in "xyz"] == ["abc", "de", ""]
    assert record.seeded == {"x", "y"}
    assert query.start("wxyz", {"y": "de"}).seeded == {"x", "y"}


def test_seeds_that_come_too_late_are_refused(query: Query) -> None:
    query.start("x")
    for names in ("x", "xy"):
        with pytest.raises(StateConflictError, match=r"the stores \['x'\] have begun without seeds"):
            query.start(names, {"x": "abc"})
    assert query.keys(query.start("x"), "x") == ""
    assert query.keys(query.start("y", {"y": "abc"}, dropped=["x"]), "y") == "abc"


def test_seeds_that_come_too_late_for_state_of_a_release_without_records_are_taken_out(query: Query) -> None:
    query.start("x")
    with pytest.raises(StateConflictError, match=r"began without seeds, .* for \['x'\] .*; take them out"):
        _older_state(query).start("x", {"x": "abc"})
    assert query.start("x").seeded == frozenset()


def _older_state(query: Query) -> Query:
    """Return state of a release that kept no records."""
    for file in list(query.storage.list("app/evolution/out")):
        query.storage.delete(file.path)
    sown(query.storage, SEEDED[0], [[Entry("a", 1, 0)]])
    return query


def test_a_record_with_seeds_has_a_version_of_its_own() -> None:
    record = EvolutionRecord(1, "print", shape(SEEDED), seeded=frozenset("ab"))
    assert '"evolution":2' in record.to_json()
    assert EvolutionRecord.from_json(record.to_json()) == record
    assert '"evolution":1' in replace(record, seeded=frozenset()).to_json()
    with pytest.raises(FormatError, match="damaged"):
        EvolutionRecord.from_json(record.to_json().replace('"seeded":["a"', '"seeded":["c"'))


def test_stores_keyed_by_another_serde_than_records_go_where_records_go() -> None:
    spec = replace(SEEDED[0], key_serde=INT64)
    seed = replace(seed_of(spec), shape=shape_of([spec], PARTITIONS, record_key_serde="string").stores[0])
    seed = replace(seed, shape=replace(seed.shape, key_serde="json"), spec=replace(spec, key_serde=BYTES))
    tables = list(seed.tables([Entry(b'"JFK"', 1, 0)]))
    assert tables[0]["task"].to_pylist() == [f"0_{partition_of(b'JFK', PARTITIONS)}"]
    assert seed.spec.kind is StoreKind.KEY_VALUE
    unknown = replace(seed, shape=replace(seed.shape, record_key_serde="mine"))
    with pytest.raises(ConfigurationError, match=r"'json'.*'mine'.*; give the input and the store one serde for their"):
        list(unknown.tables([Entry(b'"JFK"', 1, 0)]))
    one = replace(unknown, shape=replace(unknown.shape, key_serde="mine"))
    (table,) = one.tables([Entry(b"JFK", 1, 0)])
    assert table["task"].to_pylist() == tables[0]["task"].to_pylist()
