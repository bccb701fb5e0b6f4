"""A job that begins with a backfill goes on as one that has run from its first record, whenever its process dies."""

from itertools import count
from pathlib import Path

import pytest

from millpond.errors import StateConflictError
from millpond.processors.distribution.shape_of import shape_of
from millpond.stores.evolution.backfilling import abandoned, begin
from millpond.stores.evolution.history import History
from millpond.stores.evolution.matching import Declared
from tests.evolution.job import APPLICATION, Job, Running
from tests.evolution.oracle import Record, Told
from tests.evolution.process import DeathError
from tests.evolution.topologies import SINK, STORES, Variant

ALL = Variant((), 2, moved=True).with_stores({what: what for what in STORES})
FIRST = [Record("a", 1, 3), Record("b", 2, 12), Record("a", None, 14), Record("c", 5, 25)]
THEN = [[Record("a", 7, 31), Record("d", 1, 33)], [Record("b", None, 40), Record("a", 8, 41)]]


def files(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}


def always(directory: Path, backend: str) -> list[list[Told]]:
    """Return the output of a job that takes everything in micro-batches."""
    job = Job(directory)
    job.start(Running(ALL, backend))
    told = [job.run(records) for records in (FIRST, *THEN)]
    job.stop()
    return told


@pytest.mark.parametrize(("backend", "stride"), [("memory", 1), ("lmdb", 7), ("rocksdb", 13)])
def test_whenever_the_process_dies_a_second_backfill_leads_to_the_same_end(
    tmp_path: Path, backend: str, stride: int
) -> None:
    expected = always(tmp_path / "always", backend)
    for step in count(1, stride):
        job, died = Job(tmp_path / str(step)), False
        try:
            told = job.backfill(Running(ALL, backend), FIRST, death=step)
        except DeathError:
            died = True
            told = job.backfill(Running(ALL, backend), FIRST)
        left = list(abandoned(History.of(job.storage, APPLICATION, SINK)))
        for directory in left:
            job.storage.delete_directory(directory)
        job.start(Running(ALL, backend))
        assert [told, *map(job.run, THEN)] == expected
        job.stop()
        if not died:
            assert not left
            return


def test_what_a_dead_attempt_has_left_is_known_once_another_counts(tmp_path: Path) -> None:
    job, root = Job(tmp_path), tmp_path / "state"
    with pytest.raises(DeathError):
        job.backfill(Running(ALL, "memory"), FIRST, death=25)
    dead = {name for name in files(root) if name.endswith(".parquet")}
    assert dead
    assert not list(abandoned(History.of(job.storage, APPLICATION, SINK)))
    told = job.backfill(Running(ALL, "memory"), FIRST)
    again = files(root)
    for directory in abandoned(History.of(job.storage, APPLICATION, SINK)):
        job.storage.delete_directory(directory)
    assert files(root) == again - dead
    assert job.backfill(Running(ALL, "memory"), []) == told
    assert files(root) == again - dead


@pytest.mark.parametrize("partitions", [2, 5])
def test_state_is_carried_over_right_after_a_backfill(tmp_path: Path, partitions: int) -> None:
    expected = always(tmp_path / "always", "lmdb")
    job, after = Job(tmp_path / "job"), Variant(ALL.names, partitions, moved=False)
    job.backfill(Running(ALL, "lmdb"), FIRST)
    job.start(Running(after, "lmdb"), Declared())
    assert History.of(job.storage, APPLICATION, SINK).records[-1].generation == 2
    told = [job.run(records) for records in THEN]
    job.stop()
    assert [sorted(one) for one in told] == [sorted(one) for one in expected[1:]]


def test_a_backfill_comes_too_late_for_a_job_that_has_begun(tmp_path: Path) -> None:
    job, plan = Job(tmp_path), ALL.plan()
    job.start(Running(ALL, "memory"))
    with pytest.raises(
        StateConflictError, match=r"'out', that began without a backfill.*call backfill before the stream is built"
    ):
        job.backfill(Running(ALL, "memory"), FIRST)
    job.run(FIRST)
    for file in job.storage.list(f"{APPLICATION}/evolution/{SINK}"):
        job.storage.delete(file.path)
    with pytest.raises(StateConflictError, match="that began without a backfill"):
        begin(History.of(job.storage, APPLICATION, SINK), plan.fingerprint, shape_of(plan))
    job.stop()


def test_of_two_attempts_at_once_one_counts(tmp_path: Path) -> None:
    job, plan = Job(tmp_path), ALL.plan()
    attempts = [begin(History.of(job.storage, APPLICATION, SINK), plan.fingerprint, shape_of(plan)) for _ in range(2)]
    assert attempts[1].keep([]).backfill == attempts[1].id
    with pytest.raises(StateConflictError, match="was written by another job at the same time"):
        attempts[0].keep([])
    assert History.of(job.storage, APPLICATION, SINK).backfill == attempts[1].id
