"""Roll over: copies that are warmed beside a running job are what a job has that began in the new format."""

import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millpond.errors import BackendInUseError, ConfigurationError, CorruptFileError, MissingFileError
from millpond.stores.backend.contract import BackendSupplier
from millpond.stores.backend.registry import supplier
from millpond.stores.durability import DurabilityPolicy, Manifest, Storage, TaskState
from millpond.stores.durability.copies.lease import Lease
from millpond.stores.durability.copies.upgrade_mode import UpgradeMode
from millpond.stores.durability.copies.warming import Warmed, warm
from millpond.stores.encoding.serdes import INT64, STRING
from millpond.stores.specs.store_spec import StoreKind, StoreSpec
from millpond.stores.testing import Fault, FaultPlan, FaultySupplier, InjectedFault, Step
from tests.drawing import steps

PLAIN = StoreSpec("counts", StoreKind.KEY_VALUE, STRING, INT64)
TIMESTAMPED = replace(PLAIN, kind=StoreKind.TIMESTAMPED_KEY_VALUE)
VERSIONED = StoreSpec("counts", StoreKind.VERSIONED, STRING, INT64, history_retention=1000)
OTHER = StoreSpec("others", StoreKind.KEY_VALUE, STRING, INT64)
PATHS = {
    "timestamped": (PLAIN, TIMESTAMPED),
    "checksums": (PLAIN, replace(PLAIN, checksums=True)),
    "both": (PLAIN, replace(TIMESTAMPED, checksums=True)),
    "without checksums": (replace(TIMESTAMPED, checksums=True), TIMESTAMPED),
    "versioned with checksums": (VERSIONED, replace(VERSIONED, checksums=True)),
}
ENGINES = ["lmdb", "rocksdb"]
KEYS = [f"k{number}" for number in range(6)]
POLICY = DurabilityPolicy(max_deltas=3, min_delta_bytes=1 << 20, retained_commits=2, retained_age=0, retained_forks=0)

Puts = dict[str, tuple[int, int]]


class Job:
    """One task that runs in ``directory``, and what is warmed for it there."""

    def __init__(self, directory: Path, engine: str, old: StoreSpec, new: StoreSpec) -> None:
        self.directory = directory
        self.engine = engine
        self.old = old
        self.new = new
        self.manifest: Manifest | None = None

    @property
    def storage(self) -> Storage:
        return Storage.from_uri(self.directory / "state")

    def task(self, spec: StoreSpec, local: str, engine: BackendSupplier | None = None, **options: Any) -> TaskState:
        return TaskState(
            [spec, OTHER],
            engine or supplier(self.engine),
            application_id="app",
            task_id="0_0",
            local_dir=self.directory / local,
            storage=self.storage,
            policy=POLICY,
            **options,
        )

    def batch(self, puts: Puts, spec: StoreSpec | None = None, local: str = "local", **options: Any) -> Manifest:
        """Return a micro-batch, by default of the running job."""
        spec = spec or self.old
        with self.task(spec, local, **options) as state:
            stores: Any = state.open(self.manifest)
            for key, (value, time) in puts.items():
                stores["counts"].put(key, value, *((time,) if spec.kind.stamped else ()))
                stores["others"].put(key, value)
            self.manifest = Manifest.from_json(state.commit().to_json())
        return self.manifest

    def warm(self, manifest: Manifest | None = None, engine: BackendSupplier | None = None) -> list[Warmed]:
        manifest = manifest or self.manifest
        assert manifest is not None
        specs, chosen = [self.new, OTHER], engine or supplier(self.engine)
        local_dir = self.directory / "warm"
        return warm(specs, chosen, manifest, local_dir=local_dir, storage=self.storage, lease_timeout=0)

    def content(self, local: str, engine: BackendSupplier | None = None) -> dict[str, list[Any]]:
        """Return all rows of a job that opens ``local`` with the new specs."""
        with self.task(self.new, local, engine) as state:
            return {name: list(store.scan()) for name, store in _any(state.open(self.manifest)).items()}

    def files(self, part: str) -> dict[str, bytes]:
        """Return all files below a directory."""
        root = self.directory / part
        return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def _any(stores: Any) -> dict[str, Any]:
    return dict(stores)


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def puts(number: int) -> Puts:
    return {KEYS[number % 5]: (number, number), KEYS[-1]: (-number, number)}


@pytest.mark.parametrize("path", PATHS)
def test_a_job_restarted_on_what_was_warmed_restores_nothing_and_has_what_a_job_has_that_began_so(
    tmp_path: Path, engine: str, path: str
) -> None:
    old, new = PATHS[path]
    job = Job(tmp_path, engine, old, new)
    for number in range(5):
        job.batch(puts(number))
    before = job.files("state"), job.files("local")
    assert [(one.store, one.restored) for one in job.warm()] == [("counts", True), ("others", True)]
    assert (job.files("state"), job.files("local")) == before
    for number in range(5, 7):
        job.batch(puts(number))
        counts, others = job.warm()
        assert others == Warmed("others", False, 2)
        assert (counts.restored, counts.rows >= 2) == (False, True)
        assert job.warm() == [Warmed("counts", False, 0), Warmed("others", False, 0)]
    job.batch(puts(7))
    plan = FaultPlan()
    assert job.content("warm", FaultySupplier(supplier(engine), plan)) == job.content("anew")
    assert plan.steps[Step.BACKEND_LOAD] == 0
    assert {path.name for path in (tmp_path / "warm/app/0_0" / engine).glob("[!.]*")} == {new.directory_name, "others"}


@pytest.mark.parametrize("new", ["timestamped", "checksums", "both"])
def test_a_job_that_is_to_roll_over_goes_on_in_its_format_and_prepares_nothing(
    tmp_path: Path, engine: str, new: str
) -> None:
    def names() -> set[str]:
        return {path.name for path in (tmp_path / "local/app/0_0" / engine).iterdir() if path.is_dir()}

    job = Job(tmp_path, engine, *PATHS[new])
    job.batch(puts(1))
    job.batch(puts(2), job.new, upgrade_mode=UpgradeMode.IN_PLACE)
    assert ".prepar" in "".join(names())
    for number in range(3, 6):
        manifest = job.batch(puts(number), job.new, upgrade_mode=UpgradeMode.ROLL_OVER)
        assert manifest.prepared == ()
        assert names() == {"counts", "others"}
    job.warm()
    assert job.content("warm") == job.content("anew")
    job.content("local")
    assert names() == {job.new.directory_name, "others"}


def test_memory_has_no_copies_at_rest(tmp_path: Path) -> None:
    job = Job(tmp_path, "memory", *PATHS["timestamped"])
    job.batch(puts(1))
    assert job.warm() == []
    assert not (tmp_path / "warm").exists()
    job.new = replace(job.new, backend="lmdb")
    assert [one.store for one in job.warm()] == ["counts"]


@pytest.mark.parametrize(("before", "after"), [("memory", "lmdb"), ("lmdb", "rocksdb")])
def test_copies_of_another_backend_are_warmed_as_well(tmp_path: Path, before: str, after: str) -> None:
    job = Job(tmp_path, before, *PATHS["timestamped"])
    for number in range(3):
        job.batch(puts(number))
    job.engine = after
    job.warm()
    plan = FaultPlan()
    assert job.content("warm", FaultySupplier(supplier(after), plan)) == job.content("anew")
    assert plan.steps[Step.BACKEND_LOAD] == 0


def test_the_directory_of_the_running_job_is_refused_and_left_alone(tmp_path: Path, engine: str) -> None:
    job = Job(tmp_path, engine, *PATHS["timestamped"])
    manifest = job.batch(puts(1))
    before = job.files("local")
    with pytest.raises(ConfigurationError, match="counts is in another format"):
        warm([job.new], supplier(engine), manifest, local_dir=tmp_path / "local", storage=job.storage)
    assert job.files("local") == before
    assert job.warm()[0].restored


def test_two_processes_do_not_warm_one_task_at_once(tmp_path: Path, engine: str) -> None:
    job = Job(tmp_path, engine, *PATHS["timestamped"])
    job.batch(puts(1))
    lease = Lease(tmp_path / "warm/app/0_0", 0)
    lease.acquire()
    with pytest.raises(BackendInUseError, match="in use by process"):
        job.warm()
    lease.release()
    assert job.warm()[0].restored


def test_files_that_are_garbage_by_now_are_missing_and_a_newer_manifest_does_without(
    tmp_path: Path, engine: str
) -> None:
    job = Job(tmp_path, engine, *PATHS["timestamped"])
    old = job.batch(puts(1))
    job.warm()
    behind = job.batch(puts(2))
    for number in range(3, 20):
        job.batch(puts(number))
    with pytest.raises(MissingFileError):
        job.warm(behind)
    assert job.warm()[0].restored, "the deltas that it would take are gone"
    assert job.content("warm") == job.content("anew")
    shutil.rmtree(tmp_path / "warm")
    with pytest.raises(MissingFileError):
        job.warm(old)
    assert job.warm()[0].restored


def test_a_damaged_file_leaves_no_copy_behind(tmp_path: Path, engine: str) -> None:
    job = Job(tmp_path, engine, *PATHS["timestamped"])
    job.batch(puts(1))
    (file,) = (tmp_path / "state").rglob("*.parquet")
    whole = file.read_bytes()
    file.write_bytes(whole[:40] + bytes([whole[40] ^ 1]) + whole[41:])
    with pytest.raises(CorruptFileError):
        job.warm()
    file.write_bytes(whole)
    assert job.warm()[0].restored
    assert job.content("warm") == job.content("anew")


def test_a_query_that_was_set_back_is_followed_on_its_new_branch(tmp_path: Path, engine: str) -> None:
    job = Job(tmp_path, engine, *PATHS["timestamped"])
    job.batch(puts(0))
    before = job.batch(puts(1))
    job.batch(puts(2))
    job.warm()
    job.manifest = before
    job.batch(puts(3))
    assert [one.restored for one in job.warm()] == [False, False], "one commit beside can be undone"
    assert job.content("warm") == job.content("anew")


FAULTS: dict[str, Callable[[int], FaultPlan]] = {
    "not done": lambda number: FaultPlan.at(number, Fault.ERROR, Step.BACKEND_OPEN, Step.BACKEND_LOAD),
    "half done": lambda number: FaultPlan.at(number, Fault.ERROR, Step.BACKEND_WRITE),
    "done": lambda number: FaultPlan.at(number, Fault.APPLIED, Step.BACKEND_WRITE, Step.BACKEND_CLOSE),
}


@given(
    engine=st.sampled_from(ENGINES),
    path=st.sampled_from(sorted(PATHS)),
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("batch"), st.integers(0, 9)),
            st.tuples(st.just("warm"), st.integers(0, 3)),
            st.tuples(st.sampled_from(sorted(FAULTS)), st.integers(1, 4)),
            st.tuples(st.just("kill the job"), st.just(0)),
        ),
        max_size=10,
    ),
)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_whatever_happens_in_which_order_the_restarted_job_has_the_rows_of_its_manifest(
    engine: str, path: str, steps: list[tuple[str, int]]
) -> None:
    directory = Path(tempfile.mkdtemp())
    job = Job(directory, engine, *PATHS[path])
    manifests = [job.batch(puts(1))]
    for what, number in steps:
        if what == "batch":
            manifests.append(job.batch(puts(number)))
        elif what == "kill the job":
            shutil.rmtree(directory / "local", ignore_errors=True)
        else:
            faults = FAULTS[what](number) if what in FAULTS else FaultPlan()
            manifest = manifests[-1] if what in FAULTS else manifests[-1 - min(number, len(manifests) - 1)]
            with suppress(InjectedFault, MissingFileError):
                job.warm(manifest, FaultySupplier(supplier(engine), faults))
    assert job.content("warm") == job.content("anew")
    assert job.warm() == [Warmed("counts", False, 0), Warmed("others", False, 0)]
    job.batch(puts(5), job.new, "warm")
    assert job.content("warm") == job.content("anew")
    shutil.rmtree(directory)


class Kill:
    """Duplicates the warm directory at the n-th step, as a kill there would leave it."""

    def __init__(self, at: int, job: Job) -> None:
        self.left = at
        self._job = job

    def __call__(self, step: Step) -> None:
        if step in (Step.BACKEND_GET, Step.BACKEND_SCAN):
            return
        self.left -= 1
        if self.left == 0:
            shutil.copytree(self._job.directory / "warm", self._job.directory / "killed")


@pytest.mark.parametrize("warmed", [False, True], ids=["restores", "catches up"])
def test_a_kill_at_any_step_leaves_what_can_be_warmed_on_and_what_can_be_started_on(
    tmp_path: Path, engine: str, warmed: bool
) -> None:
    for number in steps(engine):
        job = Job(tmp_path / str(number), engine, *PATHS["timestamped"])
        job.batch(puts(1))
        if warmed:
            job.warm()
            job.batch(puts(2))
            job.batch(puts(3))
        kill = Kill(number, job)
        job.warm(engine=FaultySupplier(supplier(engine), FaultPlan(kill)))
        if kill.left > 0:
            break
        shutil.copytree(job.directory / "killed", job.directory / "started")
        assert job.content("started") == job.content("anew")
        shutil.rmtree(job.directory / "warm")
        (job.directory / "killed").rename(job.directory / "warm")
        job.warm()
        plan = FaultPlan()
        assert job.content("warm", FaultySupplier(supplier(engine), plan)) == job.content("anew")
        assert plan.steps[Step.BACKEND_LOAD] == 0
    assert number > 6


def test_a_record_says_plain_of_a_store_that_is_timestamped_by_now_and_nothing_is_warmed(
    tmp_path: Path, engine: str
) -> None:
    def recorded(spec: StoreSpec) -> list[Warmed]:
        assert job.manifest is not None
        local, chosen = tmp_path / f"warm as {spec.kind.value}", supplier(engine)
        return warm([spec, OTHER], chosen, job.manifest, local_dir=local, storage=job.storage, as_recorded=True)

    job = Job(tmp_path, engine, *PATHS["timestamped"])
    job.batch(puts(1))
    assert all(copy.restored for copy in recorded(PLAIN))
    job.batch({})
    job.batch({KEYS[0]: (5, -1)}, TIMESTAMPED)
    with pytest.raises(ConfigurationError, match=r"store 'counts' of application 'app' was 'key-value' .*--topology"):
        recorded(PLAIN)
    assert all(copy.restored for copy in job.warm()), "as a topology has it, which tells of timestamps"
    plan = FaultPlan()
    assert job.content("warm", FaultySupplier(supplier(engine), plan)) == job.content("anew")
    assert plan.steps[Step.BACKEND_LOAD] == 0
