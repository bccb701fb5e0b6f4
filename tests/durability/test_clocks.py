"""No host's clock ages what a storage dates: whatever a host's says, nothing goes that somebody needs.

The table in ``clocks.md`` is what these tests have seen. ``MILLPOND_WRITE_TABLES=1`` writes it anew.
"""

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from typer.testing import CliRunner

from millpond.adapters.inspect.cleaning import Cleaning
from millpond.cli import app
from millpond.errors import BackendInUseError, DurabilityError, MissingFileError, StoreClosedError
from millpond.stores.durability import DurabilityPolicy, Manifest, Storage, TaskState, collect_garbage
from millpond.stores.durability.copies.lease import Lease
from millpond.stores.durability.storage import clock as clocks
from millpond.stores.durability.storage.clock import wall_clock_us
from tests.durability.one_store import add, content, task
from tests.durability.tables import check_table

OFFSETS: Final = (-48, -5, 0, 5, 7, 48)
"""By how many hours a host's clock is ahead of the storage's."""

Seen = dict[tuple[str, int], str]
"""By row and offset: what came of it."""

SIX_HOURS: Final[dict[str, Any]] = {"max_deltas": 2, "retained_commits": 5, "retained_forks": "6 hours"}
FORKS: Final = DurabilityPolicy(retained_age=0, **SIX_HOURS)
YOUNG: Final = DurabilityPolicy(retained_age="10 minutes", **SIX_HOURS)

HOUR: Final = 3600

real_time_ns: Final = time.time_ns


@contextmanager
def host(hours: float) -> Iterator[None]:
    """A host whose clock is ahead by so much."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "time_ns", lambda: real_time_ns() + int(hours * HOUR * 1e9))
        patch.setattr(time, "time", lambda: time.time_ns() / 1e9)
        yield


def aged(directory: Path, hours: float, pattern: str = "*") -> None:
    """Have files been written so many hours ago."""
    for path in directory.rglob(pattern):
        status = path.lstat()
        os.utime(path, (status.st_mtime - hours * HOUR,) * 2)


def history(state: TaskState, manifest: Manifest | None, commits: int) -> Manifest:
    for _ in range(commits):
        manifest = add(state, manifest, range(4))
    assert manifest is not None
    return manifest


def whether(done: bool, yes: str, no: str) -> str:
    return yes if done else no


def of_a_fork(directory: Path, hours: float) -> str:
    """Return a fork at the 10th commit, and the original goes on with 50 on that host."""
    fork = task(directory, "memory", local="fork", policy=FORKS)
    with task(directory, "memory", policy=FORKS) as original, fork:
        shared = history(original, None, 10)
        forked = add(fork, shared, range(4))
        with host(hours):
            history(original, shared, 50)
        try:
            with task(directory, "memory", local="elsewhere", policy=FORKS) as reader:
                return whether(set(content(reader, forked).values()) == {11}, "all there", "wrong rows")
        except MissingFileError:
            return "lost"


def of_a_dead_pin(directory: Path, hours: float) -> str:
    """Return a run that has not renewed its pin for 7 hours holds nothing back."""
    with task(directory, "memory", local="dead", policy=FORKS) as dead:
        shared = history(dead, None, 3)
        dead.open(shared)
    aged(directory / "state", 7)
    first = {file.name for file in shared.files}
    with host(hours), task(directory, "memory", policy=FORKS) as state:
        history(state, shared, 40)
    left = first & {path.name for path in (directory / "state").rglob("*.parquet")}
    return whether(not left, "deleted", "held back")


def of_young_files(directory: Path, hours: float) -> str:
    """Return what becomes of files that no manifest names any more, seconds after they were written."""
    with task(directory, "memory", policy=YOUNG) as state, host(hours):
        manifests = [history(state, None, 1)]
        for _ in range(40):
            manifests.append(add(state, manifests[-1], range(4)))
    there = {path.name for path in (directory / "state").rglob("*.parquet")}
    written = {file.name for manifest in manifests for file in manifest.files}
    return whether(written <= there, "all there", "lost")


def of_cleaned_files(directory: Path, hours: float, old: float) -> str:
    """Return what ``clean --yes`` says of a lineage that no checkpoint names, written so many hours ago."""
    with task(directory, "memory", fingerprint="9f/2") as state:
        manifest = history(state, None, 3)
    aged(directory / "state", old)
    with host(hours):
        arguments = ["--state-dir", str(directory / "state"), "--application", "app", "--older-than", "1 day", "--yes"]
        return cleaned(directory, arguments, (directory / "state" / manifest.directory).exists)


def of_cleaned_copies(directory: Path, hours: float, old: float) -> str:
    """Return what ``clean --yes`` says of a local copy that was closed so many hours ago."""
    query = directory / "copies" / "out@0123456789abcdef"
    with task(directory, "lmdb", local=str(query)) as state:
        history(state, None, 1)
    aged(directory / "copies", old)
    with host(hours):
        arguments = ["--local-dir", str(directory / "copies"), "--older-than", "1 day", "--yes"]
        return cleaned(directory, arguments, lambda: any(query.rglob("data.mdb")))


def cleaned(directory: Path, arguments: list[str], there: Callable[[], bool]) -> str:
    result = CliRunner().invoke(app, ["state", "clean", "--json", *arguments])
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert rows, result.output
    (verdict,) = {row["verdict"] for row in rows}
    assert there() == (verdict != "deleted")
    if verdict == "failed":
        assert result.exit_code == 1
        for row in rows:
            assert "the clock of this host is" in row["why"]
            assert "; set this host's clock and clean again" in row["why"]
        return "refused"
    return str(verdict)


def of_a_lease(directory: Path, hours: float) -> str:
    """Return a lease that somebody holds, and one that nobody does."""
    held, free = Lease(directory / "held", 0), Lease(directory / "free", 0)
    held.acquire()
    free.acquire()
    free.release()
    with host(hours):
        free.acquire()
        try:
            Lease(directory / "held", 0.01).acquire()
        except BackendInUseError:
            return "waited for"
        finally:
            held.release()
            free.release()
    return "taken twice"


def of_max_ahead(directory: Path, hours: float) -> str:
    """Return what becomes of times of now, of 23 hours ahead, and of 25, with a ``max_ahead`` of a day."""
    event_times = pytest.importorskip("millpond.processors.rows.event_times")
    unit = pytest.importorskip("millpond.stores.encoding.times").TimeUnit.MICROSECOND
    storage = Storage.from_uri(directory / "state")
    times = event_times.EventTimes(unit, timedelta(days=1) // timedelta(microseconds=1), storage)
    now = real_time_ns() // 1_000
    with host(hours):
        latest = times.latest(times.now())
    judged = [now + ahead * HOUR * 1_000_000 <= latest for ahead in (0, 23, 25)]
    return whether(judged == [True, True, False], "as without", "judged wrongly")


ROWS: Final[dict[str, Callable[[Path, float], str]]] = {
    "files that a fork needs, after 50 commits of the original": of_a_fork,
    "files that only a pin of 7 hours ago holds": of_a_dead_pin,
    "files that no manifest names, younger than `retained_age`": of_young_files,
    "`clean --yes`: durable files of 2 hours ago": lambda directory, hours: of_cleaned_files(directory, hours, 2),
    "`clean --yes`: durable files of 100 hours ago": lambda directory, hours: of_cleaned_files(directory, hours, 100),
    "`clean --yes`: a local copy of 2 hours ago": lambda directory, hours: of_cleaned_copies(directory, hours, 2),
    "`clean --yes`: a local copy of 100 hours ago": lambda directory, hours: of_cleaned_copies(directory, hours, 100),
    "a lease that somebody holds": of_a_lease,
    "times within `max_ahead`, and beyond": of_max_ahead,
}

NEVER: Final = {"lost", "wrong rows", "held back", "taken twice", "judged wrongly"}
"""What must never come of it."""


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """Return the outcome of each row at each offset."""
    found: Seen = {}
    for row, act in ROWS.items():
        for hours in OFFSETS:
            clocks._seen.clear()
            found[row, hours] = act(tmp_path_factory.mktemp("clock"), hours)
    clocks._seen.clear()
    return found


def test_no_clock_of_a_host_takes_anything_that_somebody_needs(seen: Seen) -> None:
    assert not {case: what for case, what in seen.items() if what in NEVER}


def test_nothing_young_is_cleaned_by_any_clock(seen: Seen) -> None:
    young = {what for (row, _), what in seen.items() if "of 2 hours ago" in row}
    assert young == {"stays", "refused"}


def test_what_is_old_is_cleaned_where_the_clocks_are_together(seen: Seen) -> None:
    assert {what for (row, hours), what in seen.items() if "of 100 hours ago" in row and not hours} == {"deleted"}


@pytest.mark.parametrize("clean", [of_cleaned_files, of_cleaned_copies])
def test_what_stays_as_the_hosts_clock_is_apart_goes_once_that_is_set(
    clean: Callable[[Path, float, float], str], tmp_path: Path
) -> None:
    assert clean(tmp_path, 48, 100) == "refused"
    clocks._seen.clear()
    assert clean(tmp_path, 0, 100) == "deleted"


def test_clocks_do_what_their_table_shows(seen: Seen) -> None:
    header = ["a host's clock is off by", *(f"{hours:+d} h" if hours else "0" for hours in OFFSETS)]
    check_table("clocks", header, [[row, *(seen[row, hours] for hours in OFFSETS)] for row in ROWS])


def test_a_clock_that_is_apart_is_told_with_both_directions(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with task(tmp_path, "memory", policy=FORKS) as state:
        with host(7):
            manifest = history(state, None, 20)
        with host(-48):
            history(state, manifest, 20)
    assert "the clock of this host is 7 hours ahead of the one that dates files in" in caplog.text
    assert "the clock of this host is 2 days behind the one that dates files in" in caplog.text


def test_clocks_a_minute_apart_are_together(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    storage = Storage.from_uri(tmp_path / "state")
    with host(1 / 60):
        assert wall_clock_us(storage) - time.time_ns() // 1_000 < 1_000_000
    assert not caplog.text


def test_a_clock_that_is_set_right_is_noticed_within_a_minute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage, passed = Storage.from_uri(tmp_path / "state"), 0.0
    monkeypatch.setattr(time, "monotonic", lambda: passed)
    with host(48):
        assert abs(wall_clock_us(storage) - real_time_ns() // 1_000) < 60_000_000
    assert abs(wall_clock_us(storage) - real_time_ns() // 1_000) < 60_000_000
    passed = 61.0
    with host(-48):
        assert abs(wall_clock_us(storage) - real_time_ns() // 1_000) < 60_000_000


def test_the_storages_time_goes_on_between_two_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage, passed = Storage.from_uri(tmp_path / "state"), 0.0
    monkeypatch.setattr(time, "monotonic", lambda: passed)
    with host(48):
        first = wall_clock_us(storage)
        passed = 30.0
        assert wall_clock_us(storage) - first == 30_000_000


class Undated(Storage):
    """A storage that does not say when its files were written."""

    def clock_ms(self, path: str) -> int:
        super().clock_ms(path)
        return 0


def test_a_storage_that_dates_no_files_loses_none(tmp_path: Path) -> None:
    with task(tmp_path, "memory", policy=FORKS) as state:
        manifest = history(state, None, 40)
    undated = Undated(str(tmp_path / "state"))
    with pytest.raises(DurabilityError, match=r"does not say when .*\.pin was written"):
        collect_garbage(undated, manifest, FORKS)
    assert abs(wall_clock_us(undated) - time.time_ns() // 1_000) < 60_000_000


def test_what_a_dead_process_wrote_to_see_the_time_is_a_draft_that_goes(tmp_path: Path) -> None:
    with task(tmp_path, "memory", fingerprint="9f/2") as state:
        history(state, None, 1)
    storage = Storage.from_uri(tmp_path / "state")
    for directory in ("", "app"):
        storage.put(clocks.probe(directory), b"")
    aged(tmp_path / "state", 100, "*.clock")
    found = Cleaning(storage, older_than="1 day").found().leftovers
    (beside,) = [one for one in found if one.where.endswith(".clock")]
    assert beside.delete is not None
    beside.delete()
    assert len(list((tmp_path / "state").rglob("*.clock"))) == 1


def test_a_lease_that_is_not_held_has_no_clock(tmp_path: Path) -> None:
    with pytest.raises(StoreClosedError, match=r"acquire it before clock_ms\(\)"):
        Lease(tmp_path, 0).clock_ms()
