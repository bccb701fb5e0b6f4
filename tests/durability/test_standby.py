"""Standby: copies of a task that runs elsewhere are kept where the next worker looks, and no worker is disturbed."""

import os
import shutil
import subprocess
import tempfile
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millpond.errors import BackendInUseError, ConfigurationError, MissingFileError, StoreError
from millpond.metrics import StoreMetric
from millpond.stores.backend.contract import BackendSupplier
from millpond.stores.backend.own_files import no_link
from millpond.stores.backend.registry import supplier
from millpond.stores.durability import DurabilityPolicy, Manifest, Storage, TaskState
from millpond.stores.durability.copies.lease import LEASE_FILE, Lease, LeaseMark, lease_mark
from millpond.stores.durability.copies.standby import StandbyTask
from millpond.stores.durability.copies.warming import Warmed
from millpond.stores.encoding.serdes import INT64, STRING
from millpond.stores.specs.store_spec import StoreKind, StoreSpec
from millpond.stores.testing import Fault, FaultPlan, FaultySupplier, InjectedFault, Step
from tests.drawing import steps

COUNTS = StoreSpec("counts", StoreKind.TIMESTAMPED_KEY_VALUE, STRING, INT64)
OTHERS = StoreSpec("others", StoreKind.KEY_VALUE, STRING, INT64)
MEMORY = StoreSpec("memory", StoreKind.KEY_VALUE, STRING, INT64, backend="memory")
POLICY = DurabilityPolicy(max_deltas=3, min_delta_bytes=1 << 20, retained_commits=3, retained_age=0, retained_forks=0)
KEYS = 40
TICK = 0.012
"""Seconds after which a file's time of change is another one on any kernel."""


class Cluster:
    """One task that runs on one machine or the other, each with a ``local_dir`` of its own."""

    def __init__(self, directory: Path, engine: str, *specs: StoreSpec) -> None:
        self.directory = directory
        self.engine = engine
        self.specs = specs or (COUNTS, OTHERS, MEMORY)
        self.number = 0
        self.manifest: Manifest | None = None
        self.storage = Storage.from_uri(directory / "state")

    def task(self, machine: str) -> TaskState:
        return TaskState(
            self.specs,
            supplier(self.engine),
            application_id="app",
            task_id="0_0",
            local_dir=self.directory / machine,
            storage=self.storage,
            policy=POLICY,
            lease_timeout=0,
        )

    def batch(self, machine: str = "one") -> tuple[int, int]:
        """Run a micro-batch of a worker; return how many copies it has restored and rows read, without the memory's."""
        time.sleep(TICK)
        self.number += 1
        with self.task(machine) as state:
            stores: Any = state.open(self.manifest)
            taken = self._taken(state)
            for name, store in stores.items():
                for number in range(KEYS if self.number == 1 else 2):
                    key, time_ = f"key {number + self.number:02d}", (self.number,) if name == "counts" else ()
                    store.put(key, self.number, *time_)
            self.manifest = Manifest.from_json(state.commit().to_json())
        return taken

    @staticmethod
    def _taken(state: TaskState) -> tuple[int, int]:
        full, rows = (
            sum(state.metrics.figures.get(f"{store}:{metric}", 0) for store in ("counts", "others"))
            for metric in (StoreMetric.RESTORE_FULL, StoreMetric.RESTORE_ROWS)
        )
        return full, rows

    def standby(self, engine: BackendSupplier | None = None, **options: Any) -> StandbyTask:
        given: dict[str, Any] = {"specs": self.specs} | options
        return StandbyTask(
            supplier=engine or supplier(self.engine),
            application_id="app",
            task_id="0_0",
            local_dir=self.directory / "two",
            beside=self.directory / "beside",
            storage=self.storage,
            policy=POLICY,
            **given,
        )

    def follow(self, standby: StandbyTask) -> list[Warmed] | None:
        """Return a round."""
        standby.note()
        assert self.manifest is not None
        return standby.follow(self.manifest)

    def content(self, machine: str) -> dict[str, list[Any]]:
        with self.task(machine) as state:
            stores: Any = state.open(self.manifest)
            return {name: list(store.scan()) for name, store in stores.items()}

    def files(self, machine: str) -> dict[str, tuple[int, int]]:
        """Return the inode and the time of change of each file, which tell whether somebody has touched it."""
        root = self.directory / machine
        return {str(path): (path.stat().st_ino, path.stat().st_ctime_ns) for path in root.rglob("*") if path.is_file()}


def ended_process() -> int:
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def note_as_holder(directory: Path, process: int) -> None:
    """Have a lease say that another process had it last."""
    for path in directory.rglob(LEASE_FILE):
        path.write_text(f"{process:<31}\n")


@pytest.fixture(params=["lmdb", "rocksdb"])
def cluster(tmp_path: Path, request: pytest.FixtureRequest) -> Cluster:
    return Cluster(tmp_path, str(request.param))


def test_a_standby_follows_across_snapshots_and_whoever_takes_over_restores_nothing(cluster: Cluster) -> None:
    cluster.batch()
    standby = cluster.standby()
    assert cluster.follow(standby) == [Warmed("counts", True, KEYS), Warmed("others", True, KEYS)]
    snapshots = set()
    for _ in range(10):
        cluster.batch()
        assert cluster.follow(standby) == [Warmed("counts", False, 2), Warmed("others", False, 2)]
        assert standby.stood == cluster.manifest
        assert cluster.manifest is not None
        snapshots.add(cluster.manifest.snapshot)
    assert len(snapshots) > 2
    cluster.batch()
    cluster.batch()
    assert not list((cluster.directory / "beside").rglob("counts*"))
    assert cluster.batch("two") == (0, 8), "two micro-batches of two rows in two stores"
    assert cluster.content("two") == cluster.content("one") == cluster.content("anew")


def test_a_copy_is_at_most_as_far_behind_as_the_lag_says(cluster: Cluster) -> None:
    cluster.batch()
    standby = cluster.standby(lag=2)
    cluster.follow(standby)
    behind = []
    for _ in range(9):
        cluster.batch()
        assert cluster.follow(standby) is not None
        assert cluster.manifest is not None
        assert standby.stood is not None
        behind.append(cluster.manifest.sequence - standby.stood.sequence)
    assert behind == [1, 2, 0] * 3


def test_a_copy_that_a_worker_of_this_machine_carries_forward_is_left_alone(cluster: Cluster) -> None:
    cluster.batch("two")
    standby = cluster.standby()
    for _ in range(4):
        before = cluster.files("two")
        assert cluster.follow(standby) is None
        assert cluster.follow(standby) is None, "no micro-batch has come since"
        assert cluster.files("two") == before
        assert standby.stood is None
        assert cluster.batch("two") == (0, 0)


def test_a_copy_that_workers_have_left_follows_after_two_more_versions(cluster: Cluster) -> None:
    cluster.batch()
    standby = cluster.standby()
    cluster.follow(standby)
    cluster.batch("two")
    for _ in range(2):
        assert cluster.follow(standby) is None
        assert standby.stood is None
        cluster.batch("one")
    assert cluster.follow(standby) == [Warmed("counts", False, 4), Warmed("others", False, 4)]
    cluster.batch("one")
    assert cluster.follow(standby) == [Warmed("counts", False, 2), Warmed("others", False, 2)]


def test_a_new_standby_goes_on_at_once_with_what_one_that_has_died_has_left(cluster: Cluster) -> None:
    cluster.batch()
    cluster.follow(cluster.standby())
    cluster.batch()
    assert cluster.follow(cluster.standby()) is None, "its process lives: it may be a worker"
    note_as_holder(cluster.directory / "two", ended_process())
    assert cluster.manifest is not None
    assert cluster.standby().follow(cluster.manifest) == [Warmed("counts", False, 2), Warmed("others", False, 2)]


def test_a_held_lease_is_not_waited_for(cluster: Cluster) -> None:
    cluster.batch()
    lease = Lease(cluster.directory / "two/app/0_0", 0)
    lease.acquire()
    note_as_holder(cluster.directory / "two", ended_process())
    assert cluster.manifest is not None
    assert cluster.standby().follow(cluster.manifest) is None
    lease.release()
    note_as_holder(cluster.directory / "two", ended_process())
    assert cluster.standby().follow(cluster.manifest) is not None


def test_a_place_that_is_no_directory_is_made_one(cluster: Cluster) -> None:
    cluster.batch()
    place = cluster.directory / "two" / "app" / "0_0"
    place.parent.mkdir(parents=True)
    place.write_text("not a directory")
    with pytest.raises(StoreError, match=rf"{place} .* be read: .*; make it a directory that this process may read"):
        cluster.follow(cluster.standby())
    place.unlink()
    place.mkdir()
    cluster.follow(cluster.standby())
    assert cluster.content("two") == cluster.content("one")


def test_a_worker_that_comes_while_a_copy_is_restored_does_not_wait_and_keeps_its_own(cluster: Cluster) -> None:
    cluster.batch()
    came: list[tuple[int, int]] = []

    def come(step: Step) -> None:
        if step is Step.BACKEND_LOAD and not came:
            came.append((0, 0))
            came[0] = cluster.batch("two")

    standby = cluster.standby(FaultySupplier(supplier(cluster.engine), FaultPlan(come)))
    assert cluster.follow(standby) is None
    assert came == [(2, 2 * KEYS)]
    assert not list((cluster.directory / "beside").rglob("counts*"))
    assert cluster.batch("two") == (0, 0)


def test_a_commit_that_spark_has_not_committed_yet_is_not_taken_back(cluster: Cluster) -> None:
    cluster.batch()
    cluster.batch("two")
    before = cluster.manifest
    cluster.batch("two")
    newest, cluster.manifest = cluster.manifest, before
    note_as_holder(cluster.directory / "two", ended_process())
    assert before is not None
    assert cluster.standby().follow(before) == [Warmed("counts", False, 0), Warmed("others", False, 0)]
    cluster.manifest = newest
    assert cluster.batch("two") == (0, 0)


def test_a_copy_that_is_damaged_is_replaced_by_a_whole_one(cluster: Cluster) -> None:
    cluster.batch()
    standby = cluster.standby()
    cluster.follow(standby)
    cluster.batch()
    for path in (cluster.directory / "two").rglob("data.mdb"):
        path.write_bytes(path.read_bytes()[:-4096])
    for path in (cluster.directory / "two").rglob("CURRENT"):
        path.write_bytes(b"MANIFEST-999999\n")
    warmed = cluster.follow(standby)
    assert warmed is not None
    assert all(copy.restored for copy in warmed)
    assert cluster.batch("two") == (0, 0)


def test_a_copy_in_another_format_than_the_jobs_is_refused_and_nothing_is_touched(cluster: Cluster) -> None:
    cluster.batch("two")
    before = cluster.files("two")
    for spec in (replace(COUNTS, kind=StoreKind.KEY_VALUE), replace(COUNTS, checksums=True)):
        with pytest.raises(ConfigurationError, match=r"counts-v2 is in another format.* \(--checksums, --topology\)"):
            cluster.follow(cluster.standby(specs=[spec, OTHERS]))
    assert cluster.files("two") == before
    cluster.batch("one")
    cluster.batch("one")
    standby = cluster.standby()
    assert cluster.follow(standby) is None, "a worker of that machine may have the task"
    cluster.batch("one")
    cluster.batch("one")
    warmed = cluster.follow(standby)
    assert warmed is not None
    assert not any(copy.restored for copy in warmed)
    assert cluster.batch("two") == (0, 0)


def test_a_copy_that_an_earlier_format_of_the_job_has_left_is_deleted_and_the_new_one_is_kept(cluster: Cluster) -> None:
    cluster.specs = (replace(COUNTS, kind=StoreKind.KEY_VALUE), OTHERS, MEMORY)
    with cluster.task("two") as state:
        stores: Any = state.open(None)
        stores["counts"].put("key", 1)
        cluster.manifest = Manifest.from_json(state.commit().to_json())
    cluster.specs = (COUNTS, OTHERS, MEMORY)
    standby = cluster.standby()
    for _ in range(3):
        cluster.batch("one")
        with pytest.raises(ConfigurationError, match="left by an earlier format of the job, delete it") as refused:
            cluster.follow(standby)
    shutil.rmtree(str(refused.value).partition(" is in another format")[0])
    while cluster.follow(standby) is None:
        cluster.batch("one")
        assert cluster.number < 8
    assert cluster.batch("two") == (0, 0)


def test_a_file_that_is_garbage_by_now_is_missing_and_the_next_round_does_without(cluster: Cluster) -> None:
    cluster.batch()
    old = cluster.manifest
    for _ in range(12):
        cluster.batch()
    standby = cluster.standby()
    assert old is not None
    with pytest.raises(MissingFileError):
        standby.follow(old)
    assert cluster.follow(standby) is not None
    assert cluster.batch("two") == (0, 0)


class Kill:
    """Duplicates what the standby writes at the n-th step, as a kill there would leave it."""

    def __init__(self, at: int, directory: Path) -> None:
        self.left = at
        self._directory = directory

    def __call__(self, step: Step) -> None:
        if step in (Step.BACKEND_GET, Step.BACKEND_SCAN):
            return
        self.left -= 1
        if self.left == 0:
            for part in ("two", "beside"):
                with suppress(FileNotFoundError):
                    shutil.copytree(self._directory / part, self._directory / f"killed {part}")


@pytest.mark.parametrize("warm", [False, True], ids=["restores", "catches up"])
def test_a_kill_at_any_step_leaves_what_a_worker_and_the_next_standby_go_on_with(cluster: Cluster, warm: bool) -> None:
    top, gone = cluster.directory, ended_process()
    for number in steps(cluster.engine):
        one = Cluster(top / str(number), cluster.engine, COUNTS)
        one.batch()
        if warm:
            one.follow(one.standby())
            one.batch()
            one.batch()
            note_as_holder(one.directory / "two", gone)
        kill = Kill(number, one.directory)
        assert one.manifest is not None
        one.standby(FaultySupplier(supplier(one.engine), FaultPlan(kill))).follow(one.manifest)
        if kill.left > 0:
            break
        for part in ("two", "beside"):
            shutil.rmtree(one.directory / part, ignore_errors=True)
            with suppress(FileNotFoundError):
                (one.directory / f"killed {part}").rename(one.directory / part)
        shutil.copytree(one.directory / "two", one.directory / "three")
        assert one.content("three") == one.content("anew")
        note_as_holder(one.directory / "two", gone)
        assert one.standby().follow(one.manifest) is not None
        assert not list((one.directory / "beside").rglob("counts*"))
        assert one.batch("two") == (0, 0)
        assert one.content("two") == one.content("anew")
    assert number > 5


@pytest.mark.parametrize("number", range(1, 5))
def test_a_death_while_copies_are_moved_in_leaves_what_is_whole_or_thrown_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    cluster, renamed, renames = Cluster(tmp_path, "lmdb"), Path.rename, []

    def rename(path: Path, target: Path) -> Path:
        renames.append(path)
        if len(renames) == number:
            raise KeyboardInterrupt
        return renamed(path, target)

    cluster.batch()
    monkeypatch.setattr(Path, "rename", rename)
    with pytest.raises(KeyboardInterrupt):
        cluster.follow(cluster.standby())
    monkeypatch.undo()
    shutil.copytree(tmp_path / "two", tmp_path / "three")
    assert cluster.content("three") == cluster.content("anew")
    note_as_holder(tmp_path / "two", ended_process())
    assert cluster.manifest is not None
    assert cluster.standby().follow(cluster.manifest) is not None
    assert cluster.batch("two") == (0, 0)


FAULTS = {
    "not done": lambda number: FaultPlan.at(number, Fault.ERROR, Step.BACKEND_OPEN, Step.BACKEND_LOAD),
    "half done": lambda number: FaultPlan.at(number, Fault.ERROR, Step.BACKEND_WRITE),
    "done": lambda number: FaultPlan.at(number, Fault.APPLIED, Step.BACKEND_WRITE, Step.BACKEND_CLOSE),
}


@given(
    engine=st.sampled_from(["lmdb", "rocksdb"]),
    steps=st.lists(
        st.one_of(
            st.tuples(st.sampled_from(["one", "two"]), st.just(1)),
            st.tuples(st.just("follow"), st.integers(0, 2)),
            st.tuples(st.sampled_from(sorted(FAULTS)), st.integers(1, 4)),
            st.tuples(st.sampled_from(["back", "lose", "new standby"]), st.just(1)),
        ),
        max_size=10,
    ),
)
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_whatever_happens_in_which_order_a_worker_has_the_rows_of_its_manifest(
    engine: str, steps: list[tuple[str, int]]
) -> None:
    directory, gone = Path(tempfile.mkdtemp()), ended_process()
    cluster = Cluster(directory, engine)
    cluster.batch()
    standby, before = cluster.standby(), cluster.manifest
    for what, number in steps:
        if what in ("one", "two"):
            before = cluster.manifest
            cluster.batch(what)
        elif what == "follow":
            for _ in range(number):
                cluster.follow(standby)
        elif what == "back":
            cluster.manifest = before
        elif what == "lose":
            shutil.rmtree(directory / "two", ignore_errors=True)
        else:
            note_as_holder(directory, gone)
            standby = cluster.standby()
            if what in FAULTS:
                faulty = cluster.standby(FaultySupplier(supplier(engine), FAULTS[what](number)))
                with suppress(InjectedFault):
                    cluster.follow(faulty)
    assert cluster.content("two") == cluster.content("anew")
    cluster.batch("two")
    note_as_holder(directory, gone)
    last = cluster.standby()
    assert cluster.manifest is not None
    assert last.follow(cluster.manifest) == [Warmed("counts", False, 0), Warmed("others", False, 0)]
    shutil.rmtree(directory)


def test_a_mark_tells_who_had_a_lease_and_whether_that_process_lives(tmp_path: Path) -> None:
    assert lease_mark(tmp_path / "app") is None
    lease = Lease(tmp_path / "app", 0)
    lease.acquire()
    first = lease_mark(tmp_path / "app")
    assert first is not None
    assert (first.holder, first.ended) == (str(os.getpid()), False)
    lease.release()
    assert lease_mark(tmp_path / "app") == first
    time.sleep(TICK)
    lease.acquire()
    assert lease_mark(tmp_path / "app") != first
    lease.release()
    for holder, ended in ((ended_process(), True), (os.getppid(), False)):
        note_as_holder(tmp_path, holder)
        mark = lease_mark(tmp_path / "app")
        assert mark is not None
        assert (mark.holder, mark.ended) == (str(holder), ended)
    (tmp_path / "app" / LEASE_FILE).write_text("")
    mark = lease_mark(tmp_path / "app")
    assert mark is not None
    assert not mark.ended, "nothing tells who it was"


def test_a_process_of_another_user_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(process: int, signal: int) -> None:
        raise PermissionError(process)

    monkeypatch.setattr(os, "kill", refuse)
    assert not LeaseMark("7", 1, 1).ended


def test_a_lease_is_taken_also_if_its_directory_is_deleted_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def delete_first(path: str, flags: int) -> int:
        seen.append(path)
        if len(seen) == 1:
            shutil.rmtree(Path(path).parent)
        return no_link(path, flags)

    monkeypatch.setattr("millpond.stores.durability.copies.lease.no_link", delete_first)
    lease = Lease(tmp_path / "app" / "0_0", 0)
    lease.acquire()
    assert lease.held
    lease.release()


def test_who_waits_for_a_lease_looks_often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    times = iter(range(20))
    monkeypatch.setattr(time, "monotonic", lambda: next(times))
    holder = Lease(tmp_path, 0)
    holder.acquire()
    with pytest.raises(BackendInUseError):
        Lease(tmp_path, 15).acquire()
    holder.release()
    assert len(pauses) > 10
    assert pauses == sorted(pauses), "ever less often"
    assert max(pauses) <= 0.05
