"""Upgrades of local copies in place, and back: nothing is lost, whatever is killed, and no step is a long one."""

import logging
import shutil
import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from millpond.errors import BackendUnavailableError, FormatError, StoreFullError
from millpond.stores.backend.contract import Backend, BackendSupplier
from millpond.stores.backend.memory import MemoryBackend
from millpond.stores.backend.registry import supplier
from millpond.stores.durability import DurabilityPolicy, Manifest, Storage, TaskState, read_rows
from millpond.stores.durability.copies.catchup_log import CatchupLog
from millpond.stores.durability.copies.preparation import Preparation
from millpond.stores.durability.copies.throttle import MigrationThrottle
from millpond.stores.durability.copies.upgrade_mode import UpgradeMode
from millpond.stores.encoding.keys import COMMIT_ROW
from millpond.stores.encoding.serdes import INT64, STRING
from millpond.stores.specs.location import StoreLocation
from millpond.stores.specs.store_spec import StoreKind, StoreSpec
from millpond.stores.testing import Fault, FaultPlan, FaultySupplier, Step
from tests.drawing import steps
from tests.durability import one_store
from tests.durability.one_store import content

PLAIN = StoreSpec("counts", StoreKind.KEY_VALUE, STRING, INT64)
TIMESTAMPED = replace(PLAIN, kind=StoreKind.TIMESTAMPED_KEY_VALUE)
SPECS = {
    "plain": PLAIN,
    "plain-checksums": replace(PLAIN, checksums=True),
    "timestamped": TIMESTAMPED,
    "timestamped-checksums": replace(TIMESTAMPED, checksums=True),
}
ENGINES = ["lmdb", "rocksdb"]
KEYS = [f"k{number}" for number in range(9)]

Content = dict[str, tuple[int, int]]


POLICY = DurabilityPolicy(max_deltas=4, retained_commits=50, retained_age=0, prepared_rows=2, prepared_share=1e9)
"""Every micro-batch copies two rows, and writes all that waits."""


def task(
    directory: Path,
    engine: str | BackendSupplier,
    spec: StoreSpec,
    *,
    in_place: bool = False,
    policy: DurabilityPolicy = POLICY,
) -> TaskState:
    mode = UpgradeMode.IN_PLACE if in_place else None
    return one_store.task(directory, engine, spec, policy=policy, upgrade_mode=mode)


def commit(state: TaskState, spec: StoreSpec, manifest: Manifest | None, puts: Content) -> Manifest:
    store: Any = state.open(manifest)["counts"]
    for key, (value, time) in puts.items():
        store.put(key, value, *((time,) if spec.kind.stamped else ()))
    return Manifest.from_json(state.commit().to_json())


def names(directory: Path) -> set[str]:
    """Return the store's directories."""
    return {path.name for path in (directory / "local" / "app" / "0_0").glob("*/*") if path.is_dir()}


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


OLD: Content = {key: (number, -1) for number, key in enumerate(KEYS)}


def upgraded(directory: Path, engine: str, new: StoreSpec) -> tuple[Manifest, Content, int]:
    """Return the manifest of a plain store upgraded in place, what is known by then, and after how many commits."""
    with task(directory, engine, PLAIN) as state:
        manifest = commit(state, PLAIN, None, OLD)
    known, count = dict(OLD), 0
    with task(directory, engine, new, in_place=True) as state:
        while not manifest.prepared:
            count += 1
            change = {KEYS[-count]: (100 + count, count)}
            manifest = commit(state, new, manifest, change)
            known |= change
            assert {name for name in names(directory) if not name.startswith(".")} == {"counts"}
            values = {key: value for key, (value, _) in content(state, manifest).items()}
            assert values == {key: value for key, (value, _) in known.items()}
    return manifest, known, count


@pytest.mark.parametrize("new", ["timestamped", "timestamped-checksums"])
def test_a_task_goes_on_in_the_old_format_until_the_restart_without_upgrade_from(
    tmp_path: Path, engine: str, new: str, caplog: pytest.LogCaptureFixture
) -> None:
    spec = SPECS[new]
    with caplog.at_level(logging.INFO, "millpond.stores.durability.state"):
        manifest, known, count = upgraded(tmp_path, engine, spec)
    assert count == 5, "nine rows, two a commit"
    assert manifest.prepared == ("counts",)
    assert len([line for line in caplog.messages if "is prepared for the new format" in line]) == 1
    with task(tmp_path, engine, spec, in_place=True) as state:
        assert set(content(state, manifest).values()) == {(value, -1) for value, _ in known.values()}
    with task(tmp_path, engine, spec) as state:
        assert content(state, manifest) == known
        assert names(tmp_path) == {spec.directory_name}
        after = commit(state, spec, manifest, {"k0": (1, 1)})
    assert after.prepared == ()
    assert '"millpond":2' in after.to_json()


def test_what_is_prepared_is_not_lost_by_a_restart_that_comes_too_early(tmp_path: Path, engine: str) -> None:
    with task(tmp_path, engine, PLAIN) as state:
        manifest = commit(state, PLAIN, None, OLD)
    with task(tmp_path, engine, TIMESTAMPED, in_place=True) as state:
        manifest = commit(state, TIMESTAMPED, manifest, {"k0": (7, 7)})
    with task(tmp_path, engine, TIMESTAMPED) as state:
        for number in range(4):
            assert set(dict(content(state, manifest))["k0"][1:]) == {-1}
            manifest = commit(state, TIMESTAMPED, manifest, {"k1": (number, number)})
        assert content(state, manifest) == OLD | {"k0": (7, 7), "k1": (3, 3)}
        assert names(tmp_path) == {"counts-v2"}


def test_a_plain_copy_of_what_was_timestamped_once_is_restored_with_the_timestamps_that_are_known(
    tmp_path: Path, engine: str
) -> None:
    with task(tmp_path, engine, TIMESTAMPED) as state:
        manifest = commit(state, TIMESTAMPED, None, {"k0": (0, 7)})
    shutil.rmtree(tmp_path / "local")
    with task(tmp_path, engine, PLAIN) as state:
        assert content(state, manifest) == {"k0": 0}
        manifest = commit(state, PLAIN, manifest, {"k1": (1, -1)})
    with task(tmp_path, engine, TIMESTAMPED, in_place=True) as state:
        assert content(state, manifest) == {"k0": (0, 7), "k1": (1, -1)}
        assert names(tmp_path) == {TIMESTAMPED.directory_name}


def test_a_directory_that_fell_behind_is_restored_with_the_timestamps_that_are_known(
    tmp_path: Path, engine: str
) -> None:
    manifest, known, _ = upgraded(tmp_path, engine, TIMESTAMPED)
    for hidden in (tmp_path / "local" / "app" / "0_0" / engine).glob(".*prepared*"):
        if hidden.is_dir():
            shutil.copytree(hidden, tmp_path / "kept")
            where = hidden
    with task(tmp_path, engine, TIMESTAMPED, in_place=True) as state:
        for number in range(9):
            manifest = commit(state, TIMESTAMPED, manifest, {"k0": (number, number)})
    shutil.rmtree(where)
    shutil.copytree(tmp_path / "kept", where)
    with task(tmp_path, engine, TIMESTAMPED, in_place=True) as state:
        assert content(state, manifest) == known | {"k0": (8, 8)}
        assert names(tmp_path) == {"counts-v2"}


def hidden(directory: Path) -> set[str]:
    """Return the names of what is prepared, its seal, and what waits."""
    return {path.name for path in (directory / "local" / "app" / "0_0").glob("*/.*") if "-v" in path.name}


@pytest.mark.parametrize("commits", [1, 9], ids=["in the middle", "prepared"])
def test_what_an_upgrade_has_prepared_is_deleted_once_the_job_asks_for_another_format(
    tmp_path: Path, engine: str, commits: int
) -> None:
    with task(tmp_path, engine, PLAIN) as state:
        manifest = commit(state, PLAIN, None, OLD)
    with task(tmp_path, engine, TIMESTAMPED, in_place=True) as state:
        for _ in range(commits):
            manifest = commit(state, TIMESTAMPED, manifest, {"k0": (7, -1)})
    kept, name = hidden(tmp_path), f".counts-v2.{'prepared' if commits == 9 else 'preparing'}"
    assert kept == {name, f".{name}.seal", ".counts-v2.backlog"}
    with task(tmp_path, engine, TIMESTAMPED, in_place=True) as state:
        content(state, manifest)
    assert hidden(tmp_path) == kept, "it is still asked for"
    with task(tmp_path, engine, PLAIN) as state:
        assert content(state, manifest) == {key: value for key, (value, _) in (OLD | {"k0": (7, -1)}).items()}
        assert hidden(tmp_path) == set()
        manifest = commit(state, PLAIN, manifest, {"k1": (8, -1)})
    with task(tmp_path, engine, TIMESTAMPED, in_place=True) as state:
        assert content(state, manifest) == OLD | {"k0": (7, -1), "k1": (8, -1)}
    assert names(tmp_path) == {"counts", ".counts-v2.preparing", ".counts-v2.backlog"}


def test_what_has_not_begun_is_not_prepared(tmp_path: Path, engine: str) -> None:
    """As after an error between its making and its first write."""
    plan = FaultPlan.at(1, Fault.AWAY, Step.BACKEND_WRITE)
    place = StoreLocation.of(
        TIMESTAMPED,
        FaultySupplier(supplier(engine), plan),
        local_dir=tmp_path / "local",
        application_id="app",
        task_id="0_0",
    )
    preparation = Preparation(place, POLICY, MigrationThrottle(1))
    source = MemoryBackend()
    source.write({COMMIT_ROW: b"somewhere"})
    with pytest.raises(BackendUnavailableError):
        preparation.begin(source)
    preparation.close()
    assert not preparation.complete
    assert names(tmp_path) == {".counts-v2.preparing"}


def waiting(directory: Path, engine: str, spec: StoreSpec) -> CatchupLog:
    """Return the changes that wait to be written to the new directory of ``spec``."""
    backlog = CatchupLog(directory / "local" / "app" / "0_0" / engine / f".{spec.directory_name}.backlog")
    backlog.look()
    return backlog


UNHURRIED = replace(POLICY, prepared_share=0)
"""Nothing is done but what has to be."""


def test_a_micro_batch_without_time_leaves_the_new_directory_alone(tmp_path: Path, engine: str) -> None:
    with task(tmp_path, engine, PLAIN) as state:
        manifest = commit(state, PLAIN, None, OLD)
    plan = FaultPlan()
    with task(tmp_path, FaultySupplier(supplier(engine), plan), TIMESTAMPED, in_place=True, policy=UNHURRIED) as state:
        manifest = commit(state, TIMESTAMPED, manifest, {"k0": (1, 1)})
        for number in range(10):
            before = plan.steps.copy()
            manifest = commit(state, TIMESTAMPED, manifest, {"k1": (number, number)})
            assert {step: (plan.steps - before)[step] for step in (Step.BACKEND_OPEN, Step.BACKEND_WRITE)} == {
                Step.BACKEND_OPEN: 1,
                Step.BACKEND_WRITE: 1,
            }, "both are those of the directory in use"
    assert len(waiting(tmp_path, engine, TIMESTAMPED).waiting) == 11
    with task(tmp_path, engine, TIMESTAMPED, in_place=True) as state:
        while not manifest.prepared:
            manifest = commit(state, TIMESTAMPED, manifest, {})
    with task(tmp_path, engine, TIMESTAMPED) as state:
        assert content(state, manifest) == OLD | {"k0": (1, 1), "k1": (9, 9)}
        assert names(tmp_path) == {"counts-v2"}


def test_no_more_commits_wait_than_may_even_if_there_is_no_time(tmp_path: Path, engine: str) -> None:
    with task(tmp_path, engine, PLAIN) as state:
        manifest = commit(state, PLAIN, None, OLD)
    policy = replace(UNHURRIED, prepared_commits=3)
    with task(tmp_path, engine, TIMESTAMPED, in_place=True, policy=policy) as state:
        for number in range(10):
            manifest = commit(state, TIMESTAMPED, manifest, {"k0": (number, number)})
            assert 1 <= len(waiting(tmp_path, engine, TIMESTAMPED).waiting) <= 4, "the last one is its own"


def test_what_waits_is_used_by_the_restart(tmp_path: Path, engine: str) -> None:
    """Also what a snapshot has come after, so that the durable files alone lead nowhere from there."""
    manifest, known, _ = upgraded(tmp_path, engine, TIMESTAMPED)
    with task(tmp_path, engine, TIMESTAMPED, in_place=True, policy=UNHURRIED) as state:
        for number in range(9):
            manifest = commit(state, TIMESTAMPED, manifest, {f"k{number % 3}": (number, number)})
            assert manifest.prepared
    assert len(waiting(tmp_path, engine, TIMESTAMPED).waiting) > 5
    plan = FaultPlan()
    with task(tmp_path, FaultySupplier(supplier(engine), plan), TIMESTAMPED) as state:
        assert content(state, manifest) == known | {"k0": (6, 6), "k1": (7, 7), "k2": (8, 8)}
        assert names(tmp_path) == {"counts-v2"}
    assert plan.steps[Step.BACKEND_LOAD] == 0, "nothing was restored"


def test_an_attempt_that_failed_is_taken_back_from_what_waits(tmp_path: Path, engine: str) -> None:
    with task(tmp_path, engine, PLAIN) as state:
        manifest = commit(state, PLAIN, None, OLD)
    with task(tmp_path, engine, TIMESTAMPED, in_place=True, policy=UNHURRIED) as state:
        manifest = commit(state, TIMESTAMPED, manifest, {"k0": (1, 1)})
        for number in range(3):
            commit(state, TIMESTAMPED, manifest, {f"k{number}": (50, 50), "new": (50, 50)})
            assert len(waiting(tmp_path, engine, TIMESTAMPED).waiting) in (1, 2)
        manifest = commit(state, TIMESTAMPED, manifest, {"k1": (2, 2)})
    with task(tmp_path, engine, TIMESTAMPED, in_place=True) as state:
        while not manifest.prepared:
            manifest = commit(state, TIMESTAMPED, manifest, {})
    with task(tmp_path, engine, TIMESTAMPED) as state:
        assert content(state, manifest) == OLD | {"k0": (1, 1), "k1": (2, 2)}
        assert names(tmp_path) == {"counts-v2"}


def harm_what_waits(copies: Path) -> None:
    path = min(copies.glob(".*.backlog/*.changes"))
    path.write_bytes(path.read_bytes()[:-1])


def lose_what_waits(copies: Path) -> None:
    min(copies.glob(".*.backlog/*.changes")).unlink()


def harm_the_directory(copies: Path) -> None:
    (directory,) = copies.glob(".*.preparing")
    for path in directory.iterdir():
        if path.is_file():
            path.write_bytes(b"nonsense")


def lose_the_directory(copies: Path) -> None:
    (directory,) = copies.glob(".*.preparing")
    shutil.rmtree(directory)


HARM = {path.__name__: path for path in (harm_what_waits, lose_what_waits, harm_the_directory, lose_the_directory)}


@pytest.mark.parametrize("when", ["while it is open", "at a restart"])
@pytest.mark.parametrize("harm", HARM)
@pytest.mark.parametrize("upgrade", ["plain-checksums", "timestamped"])
def test_damage_to_what_is_prepared_fails_no_micro_batch_and_loses_nothing(
    tmp_path: Path, engine: str, upgrade: str, harm: str, when: str
) -> None:
    spec = SPECS[upgrade]

    def values(found: dict[str, Any]) -> dict[str, int]:
        return {key: value[0] if isinstance(value, tuple) else value for key, value in found.items()}

    known = dict(OLD)
    with task(tmp_path, engine, PLAIN) as state:
        manifest = commit(state, PLAIN, None, OLD)
    state = task(tmp_path, engine, spec, in_place=True, policy=UNHURRIED)
    for number in range(3):
        known[f"k{number}"] = number, number
        manifest = commit(state, spec, manifest, {f"k{number}": known[f"k{number}"]})
    HARM[harm](tmp_path / "local" / "app" / "0_0" / engine)
    if when == "at a restart":
        state.close()
        state = task(tmp_path, engine, spec, in_place=True)
    for number in range(3, 15):
        known[f"k{number % 9}"] = number, number
        manifest = commit(state, spec, manifest, {f"k{number % 9}": known[f"k{number % 9}"]})
        assert values(content(state, manifest)) == values(known)
    state.close()
    with task(tmp_path, engine, spec, in_place=True) as state:
        for _ in range(12):
            manifest = commit(state, spec, manifest, {"k0": known["k0"]})
    with task(tmp_path, engine, spec) as state:
        assert content(state, manifest) == (known if spec.kind.stamped else values(known))
        assert names(tmp_path) == {spec.directory_name}


class Elsewhere(FaultySupplier):
    """An engine that cannot use new directories while it is in trouble."""

    def __init__(self, engine: str) -> None:
        super().__init__(supplier(engine), FaultPlan())
        vars(self).update(trouble=None)

    def open(self, directory: Path) -> Backend:
        trouble: Exception | None = vars(self)["trouble"]
        if trouble is not None and ".prepar" in directory.name:
            raise trouble
        return super().open(directory)


@pytest.mark.parametrize("trouble", [BackendUnavailableError("it is away"), StoreFullError("it is full")])
def test_a_new_directory_that_cannot_be_used_holds_up_nobody(
    tmp_path: Path, engine: str, trouble: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    with task(tmp_path, engine, PLAIN) as state:
        manifest = commit(state, PLAIN, None, OLD)
    known = dict(OLD)
    chosen = Elsewhere(engine)
    with task(tmp_path, chosen, TIMESTAMPED, in_place=True) as state:
        for number in range(20):
            in_trouble = 2 <= number < 5
            vars(chosen).update(trouble=trouble if in_trouble else None)
            known["k0"] = number, number
            caplog.clear()
            manifest = commit(state, TIMESTAMPED, manifest, {"k0": known["k0"]})
            assert caplog.text.count(f"is put off: {trouble}") == in_trouble, "a micro-batch tries once"
            assert "restoring" not in caplog.text
            assert content(state, manifest)["k0"][0] == number
    assert manifest.prepared
    with task(tmp_path, engine, TIMESTAMPED) as state:
        assert content(state, manifest) == known
        assert names(tmp_path) == {"counts-v2"}


class Unclosing(FaultySupplier):
    """An engine whose new directories fail while they are closed, by a plan."""

    def open(self, directory: Path) -> Backend:
        return super().open(directory) if ".prepar" in directory.name else self._supplier.open(directory)


def test_a_new_directory_that_fails_while_it_is_closed_is_begun_anew_by_the_next_micro_batch(tmp_path: Path) -> None:
    """The engine is one that does not check all its files itself."""
    engine = "lmdb"
    spec, known, count = SPECS["plain-checksums"], {key: value for key, (value, _) in OLD.items()}, 0
    with task(tmp_path, engine, PLAIN) as state:
        manifest = commit(state, PLAIN, None, OLD)
    plan = FaultPlan(lambda step: Fault.APPLIED if step is Step.BACKEND_CLOSE and count == 2 else None)
    with task(tmp_path, Unclosing(supplier(engine), plan), spec, in_place=True) as state:
        while not manifest.prepared and count < 9:
            count += 1
            known["k0"] = count
            manifest = commit(state, spec, manifest, {"k0": (count, count)})
    assert count == 2 + 5, "nine rows, two a commit"
    with task(tmp_path, engine, spec) as state:
        assert content(state, manifest) == known
        assert names(tmp_path) == {spec.directory_name}


def keep(local: Path, image: Path) -> None:
    """Duplicate a directory while engines have it open; the file that one deletes meanwhile is damage to be healed."""

    def copied(source: str, target: str) -> None:
        with suppress(FileNotFoundError):
            shutil.copy2(source, target)

    shutil.copytree(local, image, copy_function=copied)


class Kill:
    """Keeps the local directory as it is at the n-th step of a task, as a kill there would leave it."""

    def __init__(self, at: int, directory: Path) -> None:
        self._left = at
        self._directory = directory

    @property
    def done(self) -> bool:
        return self._left <= 0

    def step(self, step: Step | None = None) -> None:
        if step in _READS:
            return
        self._left -= 1
        if self._left == 0:
            keep(self._directory / "local", self._directory / "killed")

    def restored(self, to: Path) -> Path:
        shutil.copytree(self._directory / "killed", to / "local")
        shutil.copytree(self._directory / "state", to / "state")
        return to


_READS = (Step.BACKEND_GET, Step.BACKEND_SCAN, Step.BACKEND_LOAD)


@pytest.mark.parametrize("commits", [0, 1, 3, 4], ids=["begins", "goes on", "ends", "switches"])
def test_a_kill_at_any_step_loses_nothing(
    tmp_path: Path, engine: str, commits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, known = upgrading(tmp_path / "template", engine, commits)
    switching = commits == 4
    rename = Path.rename
    for number in steps(engine):
        directory = tmp_path / str(number)
        shutil.copytree(tmp_path / "template", directory)
        kill = Kill(number, directory)
        failing = FaultySupplier(supplier(engine), FaultPlan(kill.step))

        def noted(path: Path, target: Path, kill: Kill = kill) -> Path:
            kill.step()
            return rename(path, target)

        with monkeypatch.context() as patch:
            patch.setattr(Path, "rename", noted)
            with task(directory, failing, TIMESTAMPED, in_place=not switching) as state:
                after = commit(state, TIMESTAMPED, before, {"k2": (50, 50)})
        if not kill.done:
            break
        check_at(kill.restored(directory / "old"), engine, before, known)
        check_at(kill.restored(directory / "new"), engine, after, known | {"k2": (50, 50)})
    assert number > 5


def upgrading(directory: Path, engine: str, commits: int) -> tuple[Manifest, Content]:
    with task(directory, engine, PLAIN) as state:
        manifest = commit(state, PLAIN, None, dict(list(OLD.items())[:7]))
    known = dict(list(OLD.items())[:7])
    with task(directory, engine, TIMESTAMPED, in_place=True) as state:
        for number in range(commits):
            manifest = commit(state, TIMESTAMPED, manifest, {f"k{number}": (number, number)})
            known[f"k{number}"] = number, number
    return manifest, known


def check_at(directory: Path, engine: str, manifest: Manifest, known: Content) -> None:
    """Check that values are those of the manifest; with the new format in use, timestamps are, too."""
    with task(directory, engine, TIMESTAMPED, in_place=True) as state:
        found = content(state, manifest)
    assert {key: value for key, (value, _) in found.items()} == {key: value for key, (value, _) in known.items()}
    with task(directory, engine, TIMESTAMPED) as state:
        for _ in range(6):
            found = content(state, manifest)
            if found == known:
                break
            manifest = commit(state, TIMESTAMPED, manifest, {"k0": known["k0"]})
            known = known | {"k0": known["k0"]}
        assert found == known


class Upgrades(RuleBasedStateMachine):
    """Batches, lost attempts, kills, restarts in any format and in either way, against what was put."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.engine = "lmdb"
        self.name = "plain"
        self.state: TaskState | None = None
        self.manifest: Manifest | None = None
        self.known: Content = {}
        self.in_place = False
        self.values_only = False
        """Whether a plain store has left out timestamps that the durable files know."""

    @initialize(engine=st.sampled_from(ENGINES))
    def begin(self, engine: str) -> None:
        self.engine = engine

    def opened(self) -> TaskState:
        if self.state is None:
            self.state = task(self.directory, self.engine, SPECS[self.name], in_place=self.in_place)
        return self.state

    @rule(
        puts=st.dictionaries(st.sampled_from(KEYS), st.tuples(st.integers(0, 99), st.integers(0, 99)), max_size=4),
        kept=st.sampled_from([True, True, True, False]),
    )
    def batch(self, puts: Content, kept: bool) -> None:
        self.check()
        after = commit(self.opened(), SPECS[self.name], self.manifest, puts)
        if kept:
            stamped = SPECS[self.name].kind.stamped
            self.manifest = after
            self.known |= {key: (value, time if stamped else -1) for key, (value, time) in puts.items()}

    @rule(name=st.sampled_from(sorted(SPECS)), in_place=st.booleans())
    def restart(self, name: str, in_place: bool) -> None:
        self.stop()
        before = self.name, self.in_place
        self.name, self.in_place = name, in_place
        if SPECS[name].kind.stamped:
            return
        try:
            content(self.opened(), self.manifest)
        except FormatError:
            assert any(time != -1 for _, time in self.known.values())
            self.stop()
            self.name, self.in_place = before
        else:
            self.values_only = self.values_only or any(time != -1 for _, time in self.known.values())

    @rule()
    def kill(self) -> None:
        """Kill the task in the middle of a batch."""
        self.opened().open(self.manifest)
        local, image = self.directory / "local", self.directory / "image"
        keep(local, image)
        self.stop()
        shutil.rmtree(local)
        image.rename(local)

    @rule()
    def lose_the_machine(self) -> None:
        self.stop()
        shutil.rmtree(self.directory / "local", ignore_errors=True)

    @rule()
    def check(self) -> None:
        found = content(self.opened(), self.manifest)
        if not SPECS[self.name].kind.stamped:
            assert found == {key: value for key, (value, _) in self.known.items()}
            return
        assert {key: value for key, (value, _) in found.items()} == {k: value for k, (value, _) in self.known.items()}
        if SPECS[self.name].directory_name in names(self.directory) and not self.values_only:
            assert found == self.known
        assert all(time in (-1, self.known[key][1]) or self.values_only for key, (_, time) in found.items())

    @rule()
    def durable(self) -> None:
        if self.manifest is not None:
            rows = read_rows(Storage.from_uri(self.directory / "state"), self.manifest, PLAIN)
            assert {key: value for key, value, _ in rows} == {key: value for key, (value, _) in self.known.items()}

    def stop(self) -> None:
        if self.state is not None:
            self.state.close()
            self.state = None

    def teardown(self) -> None:
        self.stop()
        shutil.rmtree(self.directory)


TestUpgrades = Upgrades.TestCase
TestUpgrades.settings = settings(
    max_examples=12, stateful_step_count=14, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
