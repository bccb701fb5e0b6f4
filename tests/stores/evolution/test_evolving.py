"""Evolving without Spark: what is written, what counts, and that a death at any step leads to the same end."""

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Barrier

import pytest

from millpond.errors import StateConflictError
from millpond.stores.backend.memory import MemorySupplier
from millpond.stores.durability import Manifest, Storage, TaskState, read_rows
from millpond.stores.encoding.partitions import partition_of
from millpond.stores.encoding.serdes import INT64, STRING
from millpond.stores.evolution.evolving import Committed, RunUnits, Target, Work, evolve
from millpond.stores.evolution.history import History
from millpond.stores.evolution.matching import Declared
from millpond.stores.evolution.shape import Shape, StoreShape
from millpond.stores.specs.store_spec import StoreKind, StoreSpec

KEYS = [f"key {number}" for number in range(20)]


def spec(name: str) -> StoreSpec:
    return StoreSpec(name, StoreKind.KEY_VALUE, STRING, INT64)


def shape(partitions: int, *names: str) -> Shape:
    stores = (StoreShape(0, name, StoreKind.KEY_VALUE, "string", "int64", None, "string") for name in names)
    return Shape(partitions, tuple(stores))


class Query:
    """A query without Spark: its checkpoint is a dict of manifests, by the place of the task in Spark's state."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.storage = Storage.from_uri(directory / "state")
        self.batch: int | None = None
        self.checkpoint: dict[int, Manifest] = {}

    @property
    def history(self) -> History:
        return History.of(self.storage, "app", "out")

    def start(
        self, shape: Shape, declared: Declared | None = None, run: RunUnits | None = None, *, anew: bool = False
    ) -> None:
        """Do what the driver does before a query starts."""
        fingerprint = f"{'-'.join(store.name for store in shape.stores)}/{shape.partitions}"
        history = self.history.begun(fingerprint, shape)
        target = Target(fingerprint, shape, declared or Declared())
        committed = Committed(self.batch, list(self.checkpoint.values()), lambda: self.batch)
        self.record = evolve(history, committed, target, {}, run or in_process, anew=anew)
        self.shape = shape

    def put(self, keys: Iterable[str], value: int) -> None:
        """Run one micro-batch: every store gets the value under the keys."""
        batch = 0 if self.batch is None else self.batch + 1
        places: dict[int, list[str]] = {}
        for key in keys:
            places.setdefault(partition_of(STRING.serialize(key), self.shape.partitions), []).append(key)
        for place, mine in places.items():
            before = self.record.start_of(f"0_{place}", self.checkpoint.get(place), batch)
            with self.state(place) as state:
                for store in state.open(before).values():
                    for key in mine:
                        store.put(key, value)  # type: ignore[attr-defined]
                self.checkpoint[place] = state.commit()
        self.batch = batch

    def state(self, place: int) -> TaskState:
        return TaskState(
            [spec(store.name) for store in self.shape.stores],
            MemorySupplier(),
            application_id="app",
            task_id=f"0_{place}",
            local_dir=self.directory / "local",
            storage=self.storage,
            fingerprint=self.record.fingerprint,
        )

    def content(self, store: str) -> dict[str, int]:
        """Return what a store has after the last micro-batch, each key where its task looks for it."""
        found: dict[str, int] = {}
        for task, manifest in self.history.standing(list(self.checkpoint.values()), self.batch).manifests.items():
            for key, value, _ in read_rows(self.storage, manifest, spec(store)):
                assert task == f"0_{partition_of(STRING.serialize(key), self.shape.partitions)}"
                assert key not in found
                found[key] = value
        return found


def in_process(work: Work) -> list[Mapping[str, str]]:
    """Run all units, one after the other."""
    return list(map(work.run, range(work.units)))


@pytest.fixture
def query(tmp_path: Path) -> Query:
    query = Query(tmp_path)
    query.start(shape(2, "counts"))
    query.put(KEYS, 1)
    return query


def test_state_goes_on_in_other_partitions_again_and_again_whatever_tasks_had_rows_meanwhile(query: Query) -> None:
    expected = dict.fromkeys(KEYS, 1)
    for value, partitions in enumerate((5, 3, 6, 1), 2):
        query.start(shape(partitions, "counts"))
        assert query.content("counts") == expected
        query.put(KEYS[:value], value)
        expected |= dict.fromkeys(KEYS[:value], value)
        assert query.content("counts") == expected
    assert query.record.generation == 4


def test_a_renamed_store_keeps_its_rows_and_a_new_one_begins_empty(query: Query) -> None:
    query.start(shape(2, "totals", "new"), Declared({"counts": "totals"}))
    assert query.content("totals") == dict.fromkeys(KEYS, 1)
    assert query.content("new") == {}
    query.put(KEYS[:3], 7)
    assert query.content("new") == dict.fromkeys(KEYS[:3], 7)
    with pytest.raises(StateConflictError, match=r"stores \['new'\], which the topology has not"):
        query.start(shape(2, "totals"))
    query.start(shape(2, "totals"), Declared(dropped=["new"]))
    assert query.content("totals") == dict.fromkeys(KEYS, 1) | dict.fromkeys(KEYS[:3], 7)


def test_of_jobs_that_carry_the_same_state_over_at_the_same_time_one_goes_on_and_all_others_are_refused(
    tmp_path: Path,
) -> None:
    together = Barrier(3)

    def carried(number: int, partitions: int) -> int | None:
        """Return in how many partitions a job goes on; None if it is refused."""
        job = Query(tmp_path / str(number))
        job.batch, job.checkpoint = checkpoints[number]

        def run(work: Work) -> list[Mapping[str, str]]:
            done = in_process(work)
            together.wait()
            return done

        try:
            job.start(shape(partitions, "counts"), run=run)
        except StateConflictError:
            return None
        assert job.content("counts") == dict.fromkeys(KEYS, 1)
        return partitions

    checkpoints = []
    for number in range(10):
        query = Query(tmp_path / str(number))
        query.start(shape(2, "counts"))
        query.put(KEYS, 1)
        checkpoints.append((query.batch, query.checkpoint))
    with ThreadPoolExecutor(3) as pool:
        for number in range(10):
            went_on = {one for one in pool.map(partial(carried, number), (3, 4, 5)) if one is not None}
            newest = History.of(Storage.from_uri(tmp_path / str(number) / "state"), "app", "out").newest
            assert newest is not None
            assert went_on == {newest.shape.partitions}


def test_a_job_that_commits_while_its_state_is_carried_over_goes_on_and_the_other_is_refused(query: Query) -> None:
    def run(work: Work) -> list[Mapping[str, str]]:
        done = in_process(work)
        query.put(KEYS[:3], 2)
        return done

    before = query.history.records
    with pytest.raises(StateConflictError, match="after micro-batch 0, another job committed micro-batch 1 in"):
        query.start(shape(5, "counts"), run=run)
    assert query.history.records == before
    query.put(KEYS[:1], 3)
    query.start(shape(5, "counts"))
    assert query.content("counts") == dict.fromkeys(KEYS, 1) | dict.fromkeys(KEYS[:3], 2) | {KEYS[0]: 3}


def test_nothing_is_done_if_nothing_has_changed(query: Query) -> None:
    query.start(shape(5, "counts"), Declared(dropped=["gone"]))
    before = query.record
    query.put(KEYS[:1], 2)
    query.start(shape(5, "counts"), Declared(dropped=["gone"]))
    assert query.record == before


def test_tasks_whose_stores_stay_keep_their_files(query: Query) -> None:
    first = dict(query.checkpoint)
    query.put(KEYS, 2)
    query.start(shape(5, "counts"))
    query.batch, query.checkpoint = 0, first
    query.start(shape(2, "counts"))
    assert query.record.generation == 2
    assert {task: one.files for task, one in query.record.bases.items()} == {
        f"0_{place}": one.files for place, one in first.items()
    }
    assert query.content("counts") == dict.fromkeys(KEYS, 1)


def test_a_query_that_is_set_back_gets_a_new_generation_from_where_it_stands(query: Query) -> None:
    first = dict(query.checkpoint)
    query.put(KEYS, 2)
    query.start(shape(5, "counts"))
    query.put(KEYS, 3)
    query.batch, query.checkpoint = 0, first
    with pytest.raises(StateConflictError, match="stands at another micro-batch"):
        query.put(KEYS, 4)
    query.start(shape(5, "counts"))
    assert query.record.generation == 2
    assert query.content("counts") == dict.fromkeys(KEYS, 1)
    query.put(KEYS[:2], 4)
    assert query.content("counts") == dict.fromkeys(KEYS, 1) | dict.fromkeys(KEYS[:2], 4)


class DeathError(Exception):
    """The death of the process that evolved."""


def dying(work: Work) -> Iterable[Mapping[str, str]]:
    """Run the first unit and die."""
    work.run(0)
    raise DeathError


@pytest.mark.parametrize("moment", ["before the record", "with the record", "in the first micro-batch"])
def test_a_death_at_any_moment_and_one_more_start_lead_to_the_same_end(query: Query, moment: str) -> None:
    if moment == "before the record":
        with pytest.raises(DeathError):
            query.start(shape(4, "counts"), run=dying)
    else:
        query.start(shape(4, "counts"))
    if moment == "in the first micro-batch":
        batch, checkpoint = query.batch, dict(query.checkpoint)
        query.put(KEYS, 9)
        query.batch, query.checkpoint = batch, checkpoint
    query.start(shape(4, "counts"))
    assert query.record.generation == 1
    query.put(KEYS[:4], 2)
    assert query.content("counts") == dict.fromkeys(KEYS, 1) | dict.fromkeys(KEYS[:4], 2)


def test_state_of_a_release_without_records_is_carried_over_as_far_as_its_files_tell(query: Query) -> None:
    for file in query.storage.list("app/evolution/out"):
        query.storage.delete(file.path)
    with pytest.raises(StateConflictError, match=r"stores \['counts'\], which the topology has not"):
        query.start(shape(5, "totals"))
    query.start(shape(5, "totals"), Declared({"counts": "totals"}))
    assert query.content("totals") == dict.fromkeys(KEYS, 1)


@pytest.mark.parametrize("partitions", [2, 3])
def test_a_query_that_goes_on_at_a_checkpoint_without_manifests_has_its_state_also_in_the_same_shape(
    query: Query, partitions: int
) -> None:
    query.put(KEYS[:1], 2)
    query.start(shape(partitions, "counts"), anew=True)
    query.checkpoint = {}
    expected = dict.fromkeys(KEYS, 1) | {KEYS[0]: 2}
    assert query.content("counts") == expected
    query.start(shape(partitions, "counts"))
    assert query.record.generation == 1
    query.put(KEYS[1:2], 3)
    assert len(query.checkpoint) == 1
    query.start(shape(partitions, "counts"))
    assert query.content("counts") == expected | {KEYS[1]: 3}
    query.start(shape(1, "counts"))
    assert query.content("counts") == expected | {KEYS[1]: 3}
