"""Stores become another kind when a query starts: what is declared, what is refused, and what a death leaves."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from millpond.errors import ConfigurationError, MillpondError, StateConflictError
from millpond.stores.backend.registry import supplier
from millpond.stores.durability import Manifest, Storage, TaskState
from millpond.stores.encoding.partitions import partition_of
from millpond.stores.encoding.serdes import STRING
from millpond.stores.evolution.evolving import Committed, Target, Work, evolve, preview
from millpond.stores.evolution.history import History
from millpond.stores.evolution.matching import Declared
from millpond.stores.evolution.previewing import Preview
from millpond.stores.evolution.shape import Shape, StoreShape
from millpond.stores.specs.store_spec import StoreKind, StoreSpec
from millpond.stores.testing import Fault, FaultPlan, FaultyStorage, FaultySupplier

PLAIN, STAMPED, VERSIONED = StoreKind.KEY_VALUE, StoreKind.TIMESTAMPED_KEY_VALUE, StoreKind.VERSIONED
TO_VERSIONED = Declared(converted={"prices": "versioned"})
NO_TIME: Any = "now"
KEYS = [f"key {number}" for number in range(12)]


def shape(kind: StoreKind, partitions: int = 2, name: str = "prices") -> Shape:
    return Shape(partitions, (StoreShape(0, name, kind, "string", "string", None, "string"),))


def spec_of(store: StoreShape) -> StoreSpec:
    retention = 100 if store.kind is VERSIONED else None
    return StoreSpec(store.name, store.kind, STRING, STRING, history_retention=retention)


def in_process(work: Work) -> list[Mapping[str, str]]:
    return list(map(work.run, range(work.units)))


class Query:
    """A query with one store, on an engine whose local copies stay from start to start."""

    def __init__(self, directory: Path, engine: str, kind: StoreKind, partitions: int = 2) -> None:
        self.directory, self.engine = directory, engine
        self.storage = Storage.from_uri(f"file://{directory}/state?sync=false")
        self.plan = FaultPlan()
        self.batch: int | None = None
        self.checkpoint: dict[int, Manifest] = {}
        self.start(shape(kind, partitions))

    @property
    def faulty(self) -> Storage:
        return FaultyStorage.over(self.storage, self.plan)

    def history(self, wanted: Shape) -> History:
        return History.of(self.faulty, "app", "out").begun(self._print(wanted), wanted)

    def start(self, wanted: Shape, declared: Declared | None = None) -> None:
        target = Target(self._print(wanted), wanted, declared or Declared())
        self.record = evolve(self.history(wanted), self._committed, target, {}, in_process)
        self.shape = wanted

    def told(self, wanted: Shape, declared: Declared) -> list[str]:
        return list(self.preview(wanted, declared).lines())

    def preview(self, wanted: Shape, declared: Declared) -> Preview:
        target = Target(self._print(wanted), wanted, declared)
        return preview(self.history(wanted), self._committed, target, in_process)

    def put(self, values: Mapping[str, str | None], time: int = 0) -> None:
        batch = 0 if self.batch is None else self.batch + 1
        checkpoint = dict(self.checkpoint)
        for place in range(self.shape.partitions):
            state = self._state(place)
            try:
                before = self.record.start_of(f"0_{place}", self.checkpoint.get(place), batch)
                store: Any = state.open(before)[self.shape.stores[0].name]
                for key, value in values.items():
                    if partition_of(key.encode(), self.shape.partitions) == place:
                        store.put(key, value, *((time,) if self.shape.stores[0].kind.stamped else ()))
                checkpoint[place] = state.commit()
            finally:
                state.close()
        self.batch, self.checkpoint = batch, checkpoint

    def content(self) -> dict[str, Any]:
        """Return what the store has after the last micro-batch, each key where its task looks for it."""
        found: dict[str, Any] = {}
        standing = History.of(self.storage, "app", "out").standing(list(self.checkpoint.values()), self.batch)
        for task, manifest in standing.manifests.items():
            place = int(task.partition("_")[2])
            state = self._state(place)
            store: Any = state.open(manifest)[self.shape.stores[0].name]
            store.check()
            rows = list(store.scan())
            assert {partition_of(key.encode(), self.shape.partitions) for key, _ in rows} <= {place}
            found.update(rows)
            state.close()
        return found

    @property
    def files(self) -> list[Path]:
        return sorted(path for path in (self.directory / "state").rglob("*") if path.is_file())

    @property
    def _committed(self) -> Committed:
        return Committed(self.batch, list(self.checkpoint.values()))

    def _print(self, wanted: Shape) -> str:
        return f"{wanted.stores[0].name}-{wanted.stores[0].kind.value}/{wanted.partitions}"

    def _state(self, place: int) -> TaskState:
        return TaskState(
            list(map(spec_of, self.shape.stores)),
            FaultySupplier(supplier(self.engine), self.plan),
            application_id="app",
            task_id=f"0_{place}",
            local_dir=self.directory / "local",
            storage=self.faulty,
            fingerprint=self.record.fingerprint,
        )


@pytest.fixture(params=["memory", "lmdb", "rocksdb"])
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_table_becomes_versioned_and_back_on_every_engine_with_other_partitions_and_names(
    tmp_path: Path, engine: str, caplog: pytest.LogCaptureFixture
) -> None:
    query = Query(tmp_path, engine, STAMPED)
    query.put(dict.fromkeys(KEYS, "old"), 10)
    query.start(shape(VERSIONED, 3, "history"), Declared({"prices": "history"}, converted={"history": "versioned"}))
    assert query.content() == dict.fromkeys(KEYS, ("old", 10, None))
    query.put(dict.fromkeys(KEYS[:4], "new"), 20)
    query.put({KEYS[0]: None}, 30)
    back = Declared({"history": "prices"}, converted={"prices": STAMPED.value})
    with pytest.raises(
        StateConflictError, match=r"'prices' loses 6 versions\. Nothing has been done.*accept_loss=True"
    ):
        query.start(shape(STAMPED, 2), back)
    accepted = Declared({"history": "prices"}, converted={"prices": STAMPED.value}, accept_loss=True)
    with caplog.at_level(logging.WARNING):
        query.start(shape(STAMPED, 2), accepted)
    assert "'prices' loses 6 versions" in caplog.text
    expected = {key: ("new", 20) if key in KEYS[:4] else ("old", 10) for key in KEYS[1:]}
    assert query.content() == expected
    query.put({KEYS[5]: "last"}, 40)
    generation = query.record.generation
    query.start(shape(STAMPED, 2), accepted)
    assert query.record.generation == generation == 2
    assert query.content() == expected | {KEYS[5]: ("last", 40)}


def test_timestamps_are_dropped_only_if_that_is_accepted_and_plain_values_become_timestamped(
    tmp_path: Path, engine: str
) -> None:
    query = Query(tmp_path, engine, STAMPED)
    query.put(dict.fromkeys(KEYS, "x"), 10)
    plain = {"prices": PLAIN.value}
    with pytest.raises(StateConflictError, match="'prices' loses 12 timestamps"):
        query.start(shape(PLAIN), Declared(converted=plain))
    query.start(shape(PLAIN), Declared(converted=plain, accept_loss=True))
    query.put({KEYS[0]: "y"})
    assert query.content() == dict.fromkeys(KEYS, "x") | {KEYS[0]: "y"}
    query.start(shape(STAMPED), Declared(converted={"prices": STAMPED.value}))
    assert query.record.generation == 2
    assert query.content() == {key: ("y" if key == KEYS[0] else "x", -1) for key in KEYS}


def test_values_without_a_time_become_versions_from_a_time_that_is_given(tmp_path: Path, engine: str) -> None:
    query = Query(tmp_path, engine, PLAIN)
    query.put(dict.fromkeys(KEYS, "x"))
    before = query.files
    with pytest.raises(
        StateConflictError, match=r"12 values of the store 'prices' have no known timestamp.*valid_from="
    ):
        query.start(shape(VERSIONED), TO_VERSIONED)
    assert query.files == before
    query.start(shape(VERSIONED), Declared(converted={"prices": "versioned"}, valid_from={"prices": 7}))
    query.put({KEYS[0]: "y"}, 9)
    assert query.content() == dict.fromkeys(KEYS, ("x", 7, None)) | {KEYS[0]: ("y", 9, None)}


@pytest.mark.parametrize(("before", "after"), [(STAMPED, VERSIONED), (VERSIONED, STAMPED), (VERSIONED, PLAIN)])
def test_a_partition_without_a_key_becomes_another_kind_where_its_empty_copy_is(
    tmp_path: Path, engine: str, before: StoreKind, after: StoreKind
) -> None:
    query = Query(tmp_path, engine, before)
    query.put({KEYS[0]: "x"}, 10)
    query.start(shape(after), Declared(converted={"prices": after.value}, accept_loss=True))
    query.put(dict.fromkeys(KEYS, "y"), 20)
    assert query.content().keys() == set(KEYS)


def test_what_would_be_done_and_lost_is_told_and_nothing_is_written(tmp_path: Path) -> None:
    query = Query(tmp_path, "memory", VERSIONED)
    query.put(dict.fromkeys(KEYS, "a"), 1)
    query.put(dict.fromkeys(KEYS[:3], "b"), 2)
    before = query.files
    assert query.told(shape(VERSIONED), Declared()) == ["nothing to do"]
    told = query.told(shape(PLAIN, 4), Declared(converted={"prices": PLAIN.value}))
    assert told[:2] == [
        "partitions: 2 -> 4",
        "store 'prices': continues 'prices' of sub-topology 0; "
        "versioned -> key-value, loses 3 versions and 12 timestamps",
    ]
    assert told[2:4] == [
        "sub-topologies that keep their files: none",
        "sub-topologies that are written anew: [0]",
    ]
    assert told[4].startswith("refused: stores that become another kind would lose")
    assert len(query.told(shape(PLAIN, 4), Declared(converted={"prices": PLAIN.value}, accept_loss=True))) == 4
    other = query.told(shape(VERSIONED, name="other"), Declared(dropped=["prices"]))
    assert other[1:3] == ["store 'other': begins empty", "store 'prices': dropped"]
    assert query.files == before


@pytest.mark.parametrize(
    ("declared", "error", "message"),
    [
        (
            Declared(),
            StateConflictError,
            r"declare that it becomes another kind: Evolution\(..., converted=\{'prices': ",
        ),
        (Declared(converted={"prices": "key-value"}), StateConflictError, "in the topology it is 'versioned'"),
        (Declared(converted={"prices": "table"}), ConfigurationError, "becomes 'table'; give one of "),
        (Declared(converted={"rates": "versioned"}), StateConflictError, r"converted names the stores \['rates'\]"),
        (Declared(valid_from={"prices": 5}), StateConflictError, "not declared to become versioned"),
        (
            Declared(converted={"prices": "versioned"}, valid_from={"prices": NO_TIME}),
            ConfigurationError,
            "valid_from of",
        ),
    ],
    ids=["undeclared", "other-kind", "no-kind", "no-store", "time-of-nothing", "no-time"],
)
def test_a_declaration_that_does_not_fit_is_refused(
    tmp_path: Path, declared: Declared, error: type[Exception], message: str
) -> None:
    query = Query(tmp_path, "memory", STAMPED)
    query.put(dict.fromkeys(KEYS, "x"), 1)
    with pytest.raises(error, match=message):
        query.start(shape(VERSIONED), declared)


def test_state_of_a_release_that_noted_no_kinds_is_not_converted(tmp_path: Path) -> None:
    query = Query(tmp_path, "memory", STAMPED)
    query.put(dict.fromkeys(KEYS, "x"), 1)
    for file in query.storage.list("app/evolution/out"):
        query.storage.delete(file.path)
    with pytest.raises(StateConflictError, match="nothing tells of which kinds the stores were"):
        query.start(shape(VERSIONED), TO_VERSIONED)


@pytest.mark.parametrize("fault", [Fault.ERROR, Fault.APPLIED])
def test_a_failure_at_any_step_and_one_more_start_lead_to_the_same_end(tmp_path: Path, fault: Fault) -> None:
    number = failures = 0
    while True:
        number += 1
        query = Query(tmp_path / f"{number}", "lmdb", STAMPED, 1)
        query.put(dict.fromkeys(KEYS, "old"), 10)
        query.plan = FaultPlan.at(number, fault)
        try:
            query.start(shape(VERSIONED, 2), TO_VERSIONED)
            query.put(dict.fromkeys(KEYS[:4], "new"), 20)
        except MillpondError:
            assert query.plan.met
            failures += 1
        met, query.plan = query.plan.met, FaultPlan()
        query.start(shape(VERSIONED, 2), TO_VERSIONED)
        query.put(dict.fromkeys(KEYS[:4], "new"), 20)
        assert query.record.generation == 1
        assert query.content() == {key: ("new", 20, None) if key in KEYS[:4] else ("old", 10, None) for key in KEYS}
        if not met:
            break
    assert failures > 5
