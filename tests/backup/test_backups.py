"""Backups, restored queries and clones have what the original had, whatever it does and whichever process dies."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path
from random import Random
from shutil import copytree, rmtree
from signal import SIGKILL
from threading import Lock
from typing import Any

import pytest
from typer.testing import CliRunner

from millpond.adapters.backup import state_copy
from millpond.adapters.backup.backups import Backups
from millpond.adapters.backup.copied_files import copy_file
from millpond.adapters.backup.query_copy import QueryPlace, copy_query
from millpond.adapters.edit import StateEditor
from millpond.adapters.inspect import StateInspector
from millpond.adapters.inspect.cleaning import Cleaning
from millpond.cli import app
from millpond.errors import ConfigurationError, CorruptFileError, FormatError, MillpondError, MissingFileError
from millpond.stores.durability import Storage
from millpond.stores.durability.manifests.former_names import former_names
from millpond.stores.evolution.history import History
from tests.durability.object_store import SECRET, serving
from tests.inspect.checkpoints import SPECS, Query
from tests.inspect.test_state_inspector import KEYS, SNAPSHOTS, fill, filled, shown


def place_of(query: Query) -> QueryPlace:
    return QueryPlace(str(query.checkpoint), str(query.state))


def rows_of(place: QueryPlace, batch: int) -> dict[str, Any]:
    inspector = StateInspector.at(place.checkpoint, place.state_dir, specs=SPECS)
    return {view.name: shown(view) for view in inspector.stores(batch)}


def id_of(place: QueryPlace) -> str:
    return str(json.loads((Path(place.checkpoint) / "metadata").read_text())["id"])


def elsewhere(directory: Path, name: str = "elsewhere") -> QueryPlace:
    return QueryPlace.below(str(directory / name))


@pytest.mark.parametrize("snapshots", SNAPSHOTS)
def test_a_backup_is_the_query_after_its_micro_batch_whatever_comes_later(
    tmp_path: Path, snapshots: tuple[int, ...]
) -> None:
    query = filled(tmp_path / "query", snapshots)
    backups, original = Backups.at(str(tmp_path / "backups")), place_of(query)
    expected = [rows_of(original, batch) for batch in range(3)]
    last, earlier = backups.make(original), backups.make(original, 1)
    assert [one.copy.batch for one in backups.all()] == [2, 1]
    query.run(fill(1))
    rmtree(query.checkpoint)
    rmtree(query.state)
    for backup, name in ((last, "last"), (earlier, "earlier")):
        into = elsewhere(tmp_path, name)
        restored = backups.restore(into, backup.name)
        assert restored.files == backup.copy.files
        assert rows_of(into, restored.batch) == rows_of(backup.copy.place, restored.batch) == expected[restored.batch]
        assert StateInspector.at(into.checkpoint, into.state_dir).batches == [restored.batch]
        assert id_of(into) == "3f"
    assert backups.restore(original).batch == 1, "the last one that was made"


def test_a_clone_is_a_query_of_its_own(tmp_path: Path) -> None:
    query = filled(tmp_path / "query")
    into = elsewhere(tmp_path)
    expected = rows_of(place_of(query), 2)
    assert copy_query(place_of(query), into, same=False).batch == 2
    query.run(fill(0))
    assert rows_of(into, 2) == expected
    assert id_of(into) != "3f"


def test_a_clone_has_another_application_id_and_so_has_a_clone_of_it(tmp_path: Path) -> None:
    """Also in the bases of its records, which an edit has made."""
    query = filled(tmp_path / "query", (1,))
    with StateEditor.at(str(query.checkpoint), str(query.state), by="ann", why="a test", specs=SPECS) as edits:
        edits.delete("plain", KEYS[3])
        edits.commit()
    expected = rows_of(place_of(query), 2)
    place = place_of(query)
    for application_id in ("other", "third"):
        into = elsewhere(tmp_path, application_id)
        copied = copy_query(place, into, same=False, application_id=application_id)
        assert {path.partition("/")[0] for path in copied.files} == {application_id}
        assert {path.name for path in Path(into.state_dir).iterdir()} == {application_id}
        assert rows_of(into, 2) == expected
        inspector = StateInspector.at(into.checkpoint, into.state_dir)
        assert {view.application_id for view in inspector.stores()} == {application_id}
        found = {one.application_id for one in inspector.checkpoint.manifests(2)}
        assert found == {application_id}
        record = History.of(Storage.from_uri(into.state_dir), application_id, "out").newest
        assert record is not None
        assert {one.application_id for one in record.bases.values()} == {application_id}
        assert former_names(Storage.from_uri(into.state_dir), application_id) >= {"app"}
        cleaned = Cleaning(Storage.from_uri(into.state_dir), [inspector.checkpoint], applications=["*"]).found()
        assert not any(one.may_go for one in cleaned.leftovers)
        assert cleaned.fault is None
        place = into
    backup = Backups.at(str(tmp_path / "backups")).make(place)
    again = elsewhere(tmp_path, "again")
    Backups.at(str(tmp_path / "backups")).restore(again, backup.name)
    assert rows_of(again, 2) == expected
    for wrong, why in (("third", "is 'third', and that of the copy cannot be"), ("a/b", "application id")):
        with pytest.raises(ConfigurationError, match=why):
            copy_query(place, elsewhere(tmp_path, "wrong"), same=False, application_id=wrong)
    note = Path(again.checkpoint) / "millpond-clone.json"
    kept = note.read_text()
    note.write_text("{}")
    with pytest.raises(FormatError, match=r"millpond-clone\.json in the checkpoint is damaged, or of a later release"):
        rows_of(again, 2)
    note.write_text(kept)
    assert rows_of(again, 2) == expected


def test_of_two_who_copy_to_one_place_one_is_refused_and_the_other_has_a_whole_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second comes at any step of the first, to the same checkpoint, or to the same state directory alone."""
    query = Query(tmp_path / "query", [SPECS["plain"], SPECS["windows"]])
    query.run(fill_two(0))
    original = place_of(query)
    expected = inspected(original, 0)
    for steps in count(1):
        for same in (True, False):
            first = elsewhere(tmp_path, f"copy-{steps}-{same}")
            second = first if same else QueryPlace(f"{first.checkpoint}-of-another", first.state_dir)
            made: list[QueryPlace] = []
            with second_at(steps, partial(copied_to, original, second, made), monkeypatch) as done:
                copied_to(original, first, made)
            (whole,) = made
            assert whole == first or not same
            assert inspected(whole, 0) == expected
            assert {path.name for path in Path(first.state_dir).iterdir()} == {"app"}
            assert not (Path(whole.checkpoint) / "copying").exists()
        if len(done) < steps:
            break
    assert steps > 5


def copied_to(original: QueryPlace, into: QueryPlace, made: list[QueryPlace]) -> None:
    """Copy a query, or be refused."""
    with suppress(ConfigurationError):
        copy_query(original, into, same=False)
        made.append(into)


@contextmanager
def second_at(steps: int, act: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Somebody else acts right after a step of storages; gives the steps."""
    done: list[int] = []
    lock = Lock()

    def followed(change: Callable[..., Any]) -> Callable[..., Any]:
        def step(*given: Any, **named: Any) -> Any:
            found = change(*given, **named)
            with lock:
                done.append(1)
                now = len(done) == steps
            if now:
                act()
            return found

        return step

    with monkeypatch.context() as patched:
        for name in ("put", "put_once"):
            patched.setattr(Storage, name, followed(getattr(Storage, name)))
        yield done


def test_a_query_that_goes_on_is_copied_as_it_is_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the first micro-batch that is tried, a file is deleted while others are copied."""
    query = filled(tmp_path / "query")
    gone = [query.manifests[0].files[-1]]
    path = query.manifests[0].path(gone[0])

    def meanwhile(source: Storage, place: str, target: Storage, there: str) -> int:
        if place == path and gone:
            gone.clear()
            query.run(fill(0))
            query.run(fill(1))
            raise MissingFileError("it is gone")
        return copy_file(source, place, target, there)

    monkeypatch.setattr(state_copy, "copy_file", meanwhile)
    into = elsewhere(tmp_path)
    assert copy_query(place_of(query), into, same=True).batch == 4
    assert rows_of(into, 4) == rows_of(place_of(query), 4)
    gone.append(query.manifests[0].files[-1])
    with pytest.raises(ConfigurationError, match=r"is gone, which the state after micro-batch 4 needs; choose a later"):
        copy_query(place_of(query), elsewhere(tmp_path, "no later one"), 4, same=True)


class Killed(BaseException):
    """The process is gone: it does nothing more."""


@contextmanager
def killed_after(steps: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """A process that may change so many things in storages; gives whether it was killed, and what it has done."""
    done: list[int] = []

    def dying(act: Callable[..., Any]) -> Callable[..., Any]:
        def step(*given: Any, **named: Any) -> Any:
            if len(done) >= steps:
                raise Killed
            done.append(1)
            return act(*given, **named)

        return step

    with monkeypatch.context() as patched:
        for name in ("writing", "put", "delete", "delete_directory"):
            patched.setattr(Storage, name, dying(getattr(Storage, name)))
        yield done


def test_whoever_dies_in_a_backup_leaves_the_one_before_and_the_next_one_tidies_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Query(tmp_path / "query", [SPECS["plain"], SPECS["windows"]])
    query.run(fill_two(0))
    directory = tmp_path / "backups"
    original = place_of(query)
    first = Backups.at(str(directory)).make(original)
    expected = inspected(original, 0)
    query.run(fill_two(1))
    copytree(directory, tmp_path / "before")
    for steps in count():
        backups = Backups.at(str(directory))
        with killed_after(steps, monkeypatch) as done:
            try:
                made = backups.make(original, keep=1)
            except Killed:
                made = None
        if made is not None:
            break
        assert len(done) == steps
        known = backups.all()
        assert known, "the one before, or the new one"
        into = elsewhere(tmp_path, f"restored-{steps}")
        batch = backups.restore(into).batch
        assert inspected(into, batch) == (expected if batch == 0 else inspected(original, 1))
        if known[-1].name == first.name:
            assert batch == 0
        again = backups.make(original, keep=1)
        assert [one.name for one in backups.all()] == [again.name]
        assert [path.name for path in directory.iterdir()] == [again.name]
        rmtree(directory)
        copytree(tmp_path / "before", directory)
    assert steps > 10


LOOP = """
import sys
from millpond.adapters.backup.backups import Backups
from millpond.adapters.backup.query_copy import QueryPlace
while True:
    Backups.at(sys.argv[3]).make(QueryPlace(*sys.argv[1:3]), keep=3)
"""


def back_up(original: QueryPlace, directory: str, random: Random, work: Callable[[], None]) -> None:
    """Run a process that makes one backup after another beside some work, and kill it at some moment of the third."""
    made = len(Backups.at(directory).all())
    command = [sys.executable, "-c", LOOP, original.checkpoint, original.state_dir, directory]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        until = time.monotonic() + 60
        while len(Backups.at(directory).all()) < min(made + 2, 3) and time.monotonic() < until:
            work()
        time.sleep(random.random() * 0.1)
        process.kill()
        _, said = process.communicate()
    assert (process.returncode, said) == (-SIGKILL, b"")


def test_backups_of_a_query_that_goes_on_are_whole_whenever_their_process_is_killed(tmp_path: Path) -> None:
    random = Random(3)
    query = Query(tmp_path / "query", [SPECS["plain"], SPECS["windows"]])
    original, directory = place_of(query), str(tmp_path / "backups")
    expected: dict[int, Any] = {}

    def work() -> None:
        query.run(fill_two(query.batch + 1))
        expected[query.batch] = inspected(original, query.batch)

    work()
    for number in range(2):
        back_up(original, directory, random, work)
        known = Backups.at(directory).all()
        assert known
        for place, backup in enumerate(known):
            into = elsewhere(tmp_path, f"restored-{number}-{place}")
            assert Backups.at(directory).restore(into, backup.name).batch == backup.copy.batch
            assert inspected(into, backup.copy.batch) == expected[backup.copy.batch]
    last = Backups.at(directory).make(original, keep=1)
    assert [path.name for path in Path(directory).iterdir()] == [last.name]


@pytest.mark.parametrize("same", [True, False], ids=["restored", "cloned"])
def test_whoever_dies_in_a_copy_leaves_no_checkpoint_or_a_whole_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, same: bool
) -> None:
    query = Query(tmp_path / "query", [SPECS["plain"], SPECS["windows"]])
    for number in range(2):
        query.run(fill_two(number))
    original = place_of(query)
    expected = inspected(original, 1)
    for steps in count():
        into = elsewhere(tmp_path, f"copy-{steps}")
        with killed_after(steps, monkeypatch):
            try:
                done = copy_query(original, into, same=same)
            except Killed:
                done = None
        if (Path(into.checkpoint) / "metadata").exists():
            assert inspected(into, 1) == expected
        if done is not None:
            break
        if Path(into.checkpoint).exists() or any(Path(into.state_dir).glob("*")):
            with pytest.raises(ConfigurationError, match="already"):
                copy_query(original, into, same=same)
        rmtree(tmp_path / f"copy-{steps}", ignore_errors=True)
        assert copy_query(original, into, same=same).batch == 1
        assert inspected(into, 1) == expected
    assert steps > 10


def fill_two(number: int) -> Callable[[Any, Any], None]:
    def change(stores: Any, mine: Callable[[str], bool]) -> None:
        for key in filter(mine, map(str, range(6))):
            stores["plain"].put(key, number)
            stores["windows"].put(key, number, 10 * number)

    return change


def inspected(place: QueryPlace, batch: int) -> dict[str, Any]:
    specs = {name: SPECS[name] for name in ("plain", "windows")}
    inspector = StateInspector.at(place.checkpoint, place.state_dir, specs=specs)
    return {view.name: shown(view) for view in inspector.stores(batch)}


def test_as_many_backups_are_kept_as_are_wanted(tmp_path: Path) -> None:
    query = filled(tmp_path / "query")
    directory = tmp_path / "backups"
    backups = Backups.at(f"{directory}/")
    made = [backups.make(place_of(query)) for _ in range(3)]
    assert backups.all() == made
    (directory / "somebody's own").mkdir()
    (directory / "20200101T000000.000Z").mkdir()
    (directory / "20200101T000000.000Z" / "checkpoint").write_text("interrupted")
    made.append(backups.make(place_of(query), keep=2))
    assert backups.all() == made[-2:]
    assert {path.name for path in directory.iterdir()} == {made[-2].name, made[-1].name, "somebody's own"}
    with pytest.raises(ConfigurationError, match="keep is 0; give at least 1"):
        backups.make(place_of(query), keep=0)


def test_what_a_backup_has_lost_is_told_before_anything_is_written(tmp_path: Path) -> None:
    query = filled(tmp_path / "query")
    backups = Backups.at(str(tmp_path / "backups"))
    backup = backups.make(place_of(query))
    lost = Path(backup.copy.place.state_dir) / next(iter(backup.copy.files))
    content = lost.read_bytes()
    into = elsewhere(tmp_path)

    def refused(error: type[MillpondError], why: str) -> None:
        with pytest.raises(error, match=why):
            backups.restore(into)
        assert not Path(into.checkpoint).parent.exists()

    lost.write_bytes(content[1:])
    refused(CorruptFileError, rf"has {len(content) - 1} bytes, and had {len(content)}; put it back, or restore another")
    lost.unlink()
    refused(MissingFileError, "is gone; put it back, or restore another backup, with --backup")
    mark = tmp_path / "backups" / backup.name / "backup.json"
    mark.write_text(mark.read_text().replace('"batch":2', '"batch":1'))
    refused(CorruptFileError, "it fails its checksum.*restore another backup, or delete this one")
    mark.unlink()
    refused(ConfigurationError, "has no backup that is complete; make one by millpond state backup")
    another = backups.make(place_of(query))
    lost = Path(another.copy.place.state_dir) / next(iter(another.copy.files))
    lost.unlink()
    refused(MissingFileError, "is gone; put it back")
    lost.write_bytes((query.state / lost.relative_to(another.copy.place.state_dir)).read_bytes())
    assert backups.restore(into).batch == 2
    mark.write_text("{}")
    assert backups.all() == [another]
    assert [*backups.damaged()] == [backup.name]
    listed = CliRunner().invoke(app, ["state", "backups", str(tmp_path / "backups")])
    assert listed.exit_code == 1
    assert listed.stdout.splitlines()[0] == str(another)
    assert listed.stdout.splitlines()[1].startswith(f"{backup.name}  {mark} is damaged (KeyError")
    listed = CliRunner().invoke(app, ["state", "backups", str(tmp_path / "backups"), "--json"])
    assert [json.loads(line)["name"] for line in listed.stdout.splitlines()] == [another.name, backup.name]
    with pytest.raises(CorruptFileError, match=f"{backup.name}/backup.json is damaged"):
        backups.restore(elsewhere(tmp_path, "damaged"), backup.name)
    made = backups.make(place_of(query), keep=2)
    assert backups.all() == [another, made], "what is damaged is none of those that are to stay"
    assert backups.damaged() == {}


def test_a_place_that_is_taken_or_within_the_original_is_refused(tmp_path: Path) -> None:
    query = filled(tmp_path / "query")
    original, into = place_of(query), elsewhere(tmp_path)
    backups = Backups.at(str(tmp_path / "backups"))
    backup = backups.make(original)
    with pytest.raises(ConfigurationError, match=f"no backup '2' that is complete; only {backup.name}"):
        backups.restore(into, "2")
    with pytest.raises(ConfigurationError, match=r"something already exists at .*; stop its query and move it away"):
        backups.restore(original)
    with pytest.raises(ConfigurationError, match="has state of application 'app' already; stop its query and move"):
        backups.restore(QueryPlace(into.checkpoint, original.state_dir))
    for within in (f"{original.checkpoint}/copy", f"{original.state_dir}/copy"):
        with pytest.raises(ConfigurationError, match="is within the checkpoint or the state directory that is copied"):
            copy_query(original, QueryPlace(into.checkpoint, within), same=False)
        with pytest.raises(ConfigurationError, match="is within the checkpoint"):
            Backups.at(within).make(original)
    with pytest.raises(ConfigurationError, match="there is no checkpoint at"):
        backups.make(into)
    assert not Path(into.checkpoint).parent.exists()
    assert backups.restore(into, backup.name).batch == 2
    expected = rows_of(original, 2)
    query.checkpoint.rename(tmp_path / "checkpoint before")
    query.state.rename(tmp_path / "state before")
    assert Backups.at(f"file://{tmp_path}/backups").restore(original).batch == 2
    assert rows_of(original, 2) == expected == rows_of(into, 2)


def test_backups_are_in_an_object_store_and_a_query_is_restored_there(tmp_path: Path) -> None:
    query = filled(tmp_path / "query", (1,))
    expected = rows_of(place_of(query), 2)
    with serving() as store:
        backups = Backups.at(store.uri("backups"))
        first, second = (backups.make(place_of(query), batch) for batch in (1, 2))
        assert backups.all() == [first, second]
        assert SECRET not in str(second)
        assert SECRET not in str(second.to_dict())
        kept = backups.make(place_of(query), keep=1)
        assert backups.all() == [kept]
        for into in (elsewhere(tmp_path), QueryPlace.below(store.uri("restored"))):
            assert backups.restore(into).batch == 2
            assert rows_of(into, 2) == expected
        with pytest.raises(ConfigurationError, match="is within the checkpoint or the state directory"):
            copy_query(
                QueryPlace.below(store.uri("restored")), QueryPlace.below(store.uri("restored/state")), same=True
            )
        clone = QueryPlace.below(store.uri("clone"))
        assert copy_query(QueryPlace.below(store.uri("restored")), clone, same=False).batch == 2
        assert rows_of(clone, 2) == expected
        metadata = Storage.from_uri(clone.checkpoint).read("state/0/_metadata/v2/0").decode()
        assert SECRET not in metadata
