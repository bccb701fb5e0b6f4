"""``millpond state clean``: each kind of thing that may go, and what stays."""

import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from typer.testing import CliRunner

from millpond.adapters.inspect.cleaning import Cleaning
from millpond.cli import app
from millpond.errors import BackendInUseError, ConfigurationError, StateConflictError
from millpond.stores.backend.registry import supplier
from millpond.stores.cleaning.durable import StateCleaning
from millpond.stores.cleaning.leftover import Age
from millpond.stores.cleaning.named import Named
from millpond.stores.durability import DurabilityPolicy, Manifest, Storage, TaskState
from millpond.stores.durability.copies.lease import LEASE_FILE, Lease
from millpond.stores.encoding.serdes import INT64, STRING
from millpond.stores.evolution.history import History
from millpond.stores.evolution.shape import Shape
from millpond.stores.specs.store_spec import StoreKind, StoreSpec
from tests.inspect.checkpoints import Query

DAY = 86_400
SPEC = StoreSpec("counts", StoreKind.KEY_VALUE, STRING, INT64)
KEYS = [f"key-{number}" for number in range(20)]
RUN = uuid4().hex

HOLD = """
import fcntl, sys
file = open(sys.argv[1], "r+")
fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


def aged(directory: Path, days: float = 30) -> None:
    """Have everything below a directory, pins too, been written so many days ago."""
    for path in [*directory.rglob("*"), directory]:
        status = path.lstat()
        when = status.st_mtime - days * DAY
        os.utime(path, (when, when), follow_symlinks=False)


def put_all(stores: Any, mine: Any) -> None:
    for key in filter(mine, KEYS):
        stores["counts"].put(key, len(key))


class Place:
    """A state directory with a query's state, its checkpoint, and local copies of another task beside it."""

    def __init__(self, directory: Path) -> None:
        self.query = Query(directory, [SPEC])
        for _ in range(3):
            self.query.run(put_all)
        self.state, self.storage = self.query.state, self.query.storage
        History.of(self.storage, "app", "out").note_query("first")
        self.local = directory / "copies"
        self.queries = self.local / f"out@{self.storage.place}"

    def task(
        self, task_id: str, backend: str = "lmdb", *, commits: int = 2, policy: DurabilityPolicy | None = None
    ) -> Manifest:
        """Return a task with a local copy that has committed."""
        options: dict[str, Any] = {"application_id": "app", "task_id": task_id, "storage": self.storage}
        options["policy"] = policy
        with TaskState([SPEC], supplier(backend), local_dir=self.queries, fingerprint="9f/2", **options) as state:
            manifest: Manifest | None = None
            for value in range(commits):
                state.open(manifest)["counts"].put("key", value)  # type: ignore[attr-defined]
                manifest = state.commit()
        assert manifest is not None
        return manifest

    def old(self) -> "Place":
        aged(self.state)
        if self.local.exists():
            aged(self.local)
        return self

    def clean(self, *arguments: str, checkpoint: bool = True, local: bool = False) -> tuple[int, list[dict[str, Any]]]:
        """Return the exit code and the rows of the command."""
        given = ["--state-dir", str(self.state), *arguments]
        given += ["--checkpoint", str(self.query.checkpoint)] if checkpoint else []
        given += ["--local-dir", str(self.local)] if local else []
        result = CliRunner().invoke(app, ["state", "clean", "--json", *given])
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result.exit_code, [json.loads(line) for line in result.stdout.splitlines()]

    def verdicts(self, *arguments: str, **options: bool) -> dict[str, tuple[str, str]]:
        """Return the kind and the verdict of each thing, by its path below the directories."""
        rows = self.clean(*arguments, **options)[1]
        return {
            row["where"].removeprefix(f"{self.state}/").removeprefix(f"{self.local}/"): (row["what"], row["verdict"])
            for row in rows
        }

    def files(self) -> set[Path]:
        return {path for path in self.query.directory.rglob("*") if path.is_file()}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@contextmanager
def held_by_another_process(task: Path) -> Iterator[int]:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(task / LEASE_FILE)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdin is not None
        holder.stdout.readline()
        yield holder.pid
        holder.stdin.close()


def test_what_a_checkpoint_names_stays_and_what_attempts_have_left_goes(place: Place) -> None:
    newest = place.query.manifests[0]
    lineage = place.state / newest.directory
    lost = lineage / f"{2:012d}-{uuid4().hex}.delta.parquet"
    lost.write_bytes(b"cut o")
    draft = place.state / "app" / "evolution" / "out" / f"000001.json.{uuid4().hex}"
    draft.write_bytes(b"{")
    place.old()
    before = place.files()
    # Another checkpoint may need the attempt's file as long as nobody says that there is none.
    assert place.verdicts()[str(newest.directory)] == ("lost attempt", "stays")
    assert place.verdicts("--application", "app")[str(newest.directory)] == ("lost attempt", "may go")
    assert place.files() == before
    code, rows = place.clean("--application", "app", "--yes")
    assert code == 0
    gone = {row["what"] for row in rows if row["verdict"] == "deleted"}
    assert gone >= {"lost attempt", "draft"}
    assert before - place.files() >= {lost, draft}
    for manifest in place.query.manifests:
        assert all((place.state / manifest.path(file)).exists() for file in manifest.files)
    assert [row["verdict"] for row in place.clean("--application", "app")[1]] == ["stays"]


def test_files_beyond_the_retention_go_without_a_word_of_the_user(place: Place) -> None:
    newest = place.task("0_7", commits=8, policy=DurabilityPolicy(max_deltas=1, retained_commits=16))
    place.old()
    named, policy = [Named("checkpoint", [[newest]])], DurabilityPolicy(retained_commits=3)
    age = Age(time.time_ns() // 1_000_000, DAY * 1000)
    (garbage,) = (
        one
        for one in StateCleaning(place.storage, named, lambda _: False, age, policy).leftovers()
        if one.what == "garbage"
    )
    assert garbage.delete is not None
    garbage.delete()
    kept = sorted({path.name[:12] for path in (place.state / newest.directory).glob("*.parquet")})
    assert kept == [f"{number:012d}" for number in range(5, 9)]


def test_the_deltas_of_a_bridge_are_no_lost_attempts(place: Place) -> None:
    newest = place.task("0_7", commits=4, policy=DurabilityPolicy(max_deltas=1, retained_commits=16))
    assert newest.bridge is not None
    place.old()
    age = Age(time.time_ns() // 1_000_000, DAY * 1000)
    named = [Named("checkpoint", [[newest]])]
    found = StateCleaning(place.storage, named, lambda _: True, age, DurabilityPolicy()).leftovers()
    assert [one for one in found if one.delete is not None and "attempt" in one.what] == []


def test_a_lineage_that_no_checkpoint_names_goes_once_it_is_old_and_unpinned(place: Place) -> None:
    other = place.task("0_7")
    young = place.verdicts("--application", "app")
    assert young[other.directory] == ("lineage", "stays")
    aged(place.state)
    assert place.verdicts()[other.directory] == ("lineage", "stays")  # nobody says that it is no other checkpoint's
    pin = place.state / other.directory / f"{1:012d}-{RUN}.pin"
    pin.touch()
    assert place.verdicts("--application", "app")[other.directory] == ("lineage", "stays")
    pin.unlink()
    aged(place.state)
    assert place.verdicts("--application", "app", "--yes")[other.directory] == ("lineage", "deleted")
    assert not (place.state / "app" / "0_7").exists()


def test_an_application_whose_checkpoint_is_gone_goes_as_a_whole(place: Place) -> None:
    gone = Query(place.query.directory / "gone", [SPEC], application_id="gone")
    gone.storage, gone.state = place.storage, place.state
    History.of(place.storage, "gone", "out").begun("9f/2", Shape(2, ()))
    gone.run(put_all)
    place.old()
    needed = place.files()
    assert place.verdicts("--application", "other")["gone"] == ("application", "stays")
    assert place.verdicts("--application", "g*")["gone"] == ("application", "may go")
    assert place.verdicts("--application", "g*", "--yes")["gone"] == ("application", "deleted")
    assert not (place.state / "gone").exists()
    assert {path for path in needed if "gone" not in path.parts} <= place.files()
    # An application that a checkpoint names stays, whatever the user says.
    assert place.verdicts("--application", "*", "--yes")["app"] == ("application", "stays")


def test_what_the_user_has_put_there_stays_with_all_around_it(place: Place) -> None:
    other = place.task("0_7")
    (place.state / other.directory / "notes.txt").write_text("mine")
    (place.state / "app" / "plans").mkdir()
    (place.state / "shopping").mkdir()
    place.old()
    before = place.files()
    verdicts = place.verdicts("--application", "*", "--yes")
    assert verdicts[other.directory] == ("lineage", "stays")
    assert verdicts["shopping"] == verdicts["app/plans"] == ("not Millpond's", "stays")
    assert before == place.files()


def test_rows_that_were_left_out_stay_until_the_user_deletes_them(place: Place) -> None:
    for path in ("app/late-rows", "job/dead-letters", "job/late-rows"):
        (place.state / path / "verb").mkdir(parents=True)
        (place.state / path / "verb" / "q-0000000000-task-0_0.parquet").write_bytes(b"rows")
    before = place.old().files()
    rows = place.clean("--application", "*", "--yes")[1]
    found = {row["where"].removeprefix(f"{place.state}/"): row for row in rows if row["what"] == "left out"}
    assert {where: (row["verdict"], row["bytes"]) for where, row in found.items()} == {
        "app/late-rows": ("stays", 4),
        "job/dead-letters": ("stays", 4),
        "job/late-rows": ("stays", 4),
    }
    assert not any(row["what"] == "not Millpond's" for row in rows)
    assert before == place.files()
    gone = place.clean("--application", "*", "--yes", checkpoint=False)[1]
    assert [row["why"] for row in gone if row["what"] == "application"] == [
        f"{place.state}/app/late-rows has rows that the job has left out; move it away first"
    ]


def test_versions_that_micro_batches_have_read_of_tables_elsewhere_stay(place: Place) -> None:
    versions = place.state / "job.priced" / "table-versions"
    (versions / "right").mkdir(parents=True)
    (versions / "right" / "q-0000000000").write_bytes(b"7")
    before = place.old().files()
    rows = place.clean("--application", "*", "--yes")[1]
    (found,) = [row for row in rows if row["where"] == str(versions)]
    assert (found["what"], found["verdict"], found["bytes"]) == ("application", "stays", 1)
    assert before == place.files()


def test_nothing_goes_where_something_is_damaged_or_a_link(place: Place, tmp_path: Path) -> None:
    other = place.task("0_7")
    place.old()
    record = place.state / "app" / "evolution" / "out" / "000000.json"
    whole = record.read_bytes()
    record.write_bytes(whole.replace(b"counts", b"counds"))
    assert place.verdicts("--application", "*", "--yes") == {"app": ("not Millpond's", "stays")}
    record.write_bytes(whole)

    (place.state / "app" / "0_8").symlink_to(place.state / "app" / "0_7")
    assert place.verdicts("--application", "*", "--yes") == {"app": ("not Millpond's", "stays")}
    (place.state / "app" / "0_8").unlink()

    state = next((place.query.checkpoint / "state" / "0").glob("*/2.changelog"))
    state.write_bytes(b"damaged")
    code, rows = place.clean("--application", "*", "--yes", local=True)
    assert code == 1
    assert {row["verdict"] for row in rows} == {"stays"}
    assert (place.state / other.directory).exists()


def test_what_is_written_after_it_was_found_stays(place: Place) -> None:
    other = place.task("0_7")
    place.old()
    cleaning = Cleaning(
        place.storage, [place.query.inspector().checkpoint], [place.local], ["app"], older_than="1 day"
    ).found()
    found = {str(one.what): one for one in cleaning.leftovers if one.may_go}
    assert set(found) == {"lineage", "local copy"}
    (place.state / other.directory / f"{9:012d}-{uuid4().hex}.delta.parquet").touch()
    os.utime(next(place.queries.rglob("data.mdb")))
    for one in found.values():
        assert one.delete is not None
        with pytest.raises(StateConflictError, match="meanwhile"):
            one.delete()
    assert len(list(place.queries.rglob("data.mdb"))) == 1
    assert (place.state / other.directory).exists()


@pytest.mark.parametrize("backend", ["lmdb", "rocksdb"])
def test_idle_copies_go_with_their_directories(place: Place, backend: str) -> None:
    manifest = place.task("0_7", backend)
    assert place.verdicts(local=True)[f"out@{place.storage.place}/app/0_7/{backend}/counts"] == ("local copy", "stays")
    place.old()
    before = place.files()
    path = f"out@{place.storage.place}/app/0_7/{backend}/counts"
    assert place.verdicts(local=True)[path] == ("local copy", "may go")
    assert place.files() == before
    assert place.verdicts("--yes", local=True)[path] == ("local copy", "deleted")
    assert list(place.local.iterdir()) == []
    options: dict[str, Any] = {"application_id": "app", "task_id": "0_7", "storage": place.storage}
    with TaskState([SPEC], supplier(backend), local_dir=place.queries, fingerprint="9f/2", **options) as state:
        assert state.open(manifest)["counts"].get("key") == 1  # type: ignore[attr-defined]


def test_copies_that_a_process_has_open_stay(place: Place) -> None:
    place.task("0_7")
    place.old()
    task = place.queries / "app" / "0_7"
    before = place.files()
    with held_by_another_process(task):
        verdicts = place.verdicts("--yes", local=True)
        assert verdicts[str(task.relative_to(place.local))] == ("local copy", "stays")
        assert place.files() == before
    found = Cleaning(local_dirs=[place.local]).found().leftovers
    (copy,) = (one for one in found if one.may_go)
    assert copy.delete is not None
    with held_by_another_process(task), pytest.raises(BackendInUseError):
        copy.delete()
    assert place.files() == before


def test_what_upgrades_and_deaths_have_left_goes_and_the_copy_in_use_stays(place: Place) -> None:
    place.task("0_7")
    place.old()
    backend = place.queries / "app" / "0_7" / "lmdb"
    for name in (".counts-v2.prepared", ".counts-v2.backlog", ".old.removing"):
        (backend / name).mkdir()
        (backend / name / "data").write_bytes(b"data")
    (backend / "..counts-v2.prepared.seal").write_text("{}")
    (backend / ".gone.seal").write_text("{}")
    aged(backend)
    for path in (backend / "counts").iterdir():
        os.utime(path)
    verdicts = {path.rpartition("/")[2]: found for path, found in place.verdicts("--yes", local=True).items()}
    assert verdicts["counts"] == ("local copy", "stays")
    assert verdicts["counts-v2"] == ("prepared format", "deleted")
    assert verdicts["old"] == verdicts["gone"] == ("remnant", "deleted")
    assert sorted(path.name for path in backend.iterdir()) == [".counts.seal", "counts"]


def test_files_and_links_that_no_engine_made_stay_in_local_directories(place: Place, tmp_path: Path) -> None:
    for task_id in ("0_5", "0_6", "0_7"):
        place.task(task_id)
    tasks = place.queries / "app"
    (tasks / "0_5" / "lmdb" / "counts" / "notes.txt").write_text("mine")
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "file").write_text("mine")
    (tasks / "0_6" / "lmdb" / "counts" / "link").symlink_to(mine)
    (tasks / "0_7" / "lmdb" / "link").symlink_to(mine)
    (tasks / "0_7" / "notes.txt").write_text("mine")
    (tasks / "0_8").symlink_to(tasks / "0_7")
    (place.local / "photos").mkdir()
    (place.local / "elsewhere").symlink_to(place.queries)
    place.old()
    aged(mine)
    (tasks / "0_7" / "none" / "counts").mkdir(parents=True)
    aged(tasks / "0_7" / "none")
    verdicts = {
        path.removeprefix(f"out@{place.storage.place}/app/"): verdict
        for path, (_, verdict) in place.verdicts("--yes", local=True).items()
    }
    assert {path for path, verdict in verdicts.items() if verdict == "deleted"} == {"0_7/lmdb/counts"}
    assert (mine / "file").read_text() == (tasks / "0_7" / "notes.txt").read_text() == "mine"
    for path in ("0_5/lmdb/counts/notes.txt", "0_6/lmdb/counts/link/file", "0_7/lmdb/link", "0_7/none/counts"):
        assert (tasks / path).exists()
    assert (place.local / "photos").exists()
    assert (place.local / "elsewhere").is_symlink()


def test_copies_that_may_stand_in_for_durable_files_stay(place: Place) -> None:
    manifest = place.query.manifests[0]
    options: dict[str, Any] = {"application_id": "app", "task_id": manifest.task_id, "storage": place.storage}
    with TaskState([SPEC], supplier("lmdb"), local_dir=place.queries, fingerprint="9f/2", **options) as state:
        state.open(manifest)
    place.old()
    path = f"out@{place.storage.place}/app/{manifest.task_id}/lmdb/counts"
    assert place.verdicts(local=True)[path] == ("local copy", "may go")
    (place.state / manifest.path(manifest.files[-1])).unlink()
    assert place.verdicts("--yes", "--application", "*", local=True)[path] == ("local copy", "stays")
    assert (place.local / path).is_dir()


def test_copies_of_other_state_directories_are_left_alone(place: Place, tmp_path: Path) -> None:
    place.task("0_7")
    place.old()
    elsewhere = Cleaning(Storage.from_uri(tmp_path / "elsewhere"), local_dirs=[place.local]).found().leftovers
    assert [one.may_go for one in elsewhere] == [False]
    alone = Cleaning(local_dirs=[place.local]).found().leftovers
    assert [one.may_go for one in alone] == [True]


def test_a_lease_that_was_retired_is_no_lease_for_who_waited(tmp_path: Path) -> None:
    holder, waiter = Lease(tmp_path / "0_0", 0.0), Lease(tmp_path / "0_0", 5.0)
    holder.acquire()
    opened = os.open(tmp_path / "0_0" / LEASE_FILE, os.O_RDWR)
    holder.retire()
    assert not (tmp_path / "0_0").exists()
    fcntl.flock(opened, fcntl.LOCK_EX)  # who was about to wait gets the lock of a file that is gone
    waiter.acquire()
    with pytest.raises(BackendInUseError):
        Lease(tmp_path / "0_0", 0.0).acquire()
    waiter.release()
    os.close(opened)


def test_what_makes_no_sense_is_refused(place: Place, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="nothing to be cleaned"):
        Cleaning()
    with pytest.raises(ConfigurationError, match="state_dir"):
        Cleaning(local_dirs=[tmp_path], applications=["app"])
    with pytest.raises(ConfigurationError, match="older_than"):
        Cleaning(place.storage, older_than="1 hour")
