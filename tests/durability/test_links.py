"""Links that others put in place of our files are not followed out of the directories that a user has named."""

import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pytest

from millpond.adapters.spark.worker.local_directories import beside, query_directory
from millpond.errors import DurabilityError, MillpondError, StoreError
from millpond.stores.backend import own_files
from millpond.stores.backend.registry import supplier
from millpond.stores.durability import DurabilityPolicy, Manifest, Storage
from millpond.stores.durability.checking.copy_verification import copies_of, discard_copy, verify_copies
from millpond.stores.durability.copies.catchup_log import CatchupLog, Commit
from millpond.stores.durability.copies.clean_shutdown import CleanShutdownMarker, seal_path
from millpond.stores.durability.copies.lease import LEASE_FILE, Lease
from millpond.stores.durability.copies.upgrade_mode import UpgradeMode
from millpond.stores.durability.manifests.claim import claimed_by
from millpond.stores.encoding.serdes import INT64, STRING
from millpond.stores.evolution.history import History
from millpond.stores.evolution.shape import Shape
from millpond.stores.specs.directory import delete_local_copy
from millpond.stores.specs.store_spec import StoreKind, StoreSpec
from tests.durability import one_store
from tests.durability.keeping_schemas import evolve_schemas
from tests.durability.one_store import COUNTS
from tests.durability.tables import check_table

TIMESTAMPED: Final = StoreSpec("counts", StoreKind.TIMESTAMPED_KEY_VALUE, STRING, INT64)
RUN: Final = "a" * 32
PLAN: Final = f"{'9f' * 16}/1"
REFUSED, REPLACED = "refused by name", "replaced, the target untouched"
MISSED: Final = "as if nothing were there"

SOMEBODYS: Final = "somebody else's, and longer than the note of a lease"


class Scenario(NamedTuple):
    """Directories as a job has left them, and what is then done.

    Attributes:
        root: which of the two directories is looked at.
        make: makes them, below a directory.
        act: opens what is there.
        extra: names that are not there, but might be: a process that died may have left such.
    """

    root: str
    make: Callable[[Path], Any]
    act: Callable[[Path, Any], Any]
    extra: tuple[str, ...] = ()


def commit(state: Any, spec: StoreSpec, manifest: Manifest | None, number: int) -> Manifest:
    store = state.open(manifest)["counts"]
    for name in range(9):
        store.put(f"k{name}", number, *((number,) if spec.kind.stamped else ()))
    made: Manifest = state.commit()
    return made


def run(place: Path, engine: str, spec: StoreSpec, manifest: Manifest | None, commits: int, **options: Any) -> Manifest:
    """Make so many commits by a new process, as it were."""
    with one_store.task(place, engine, spec, fingerprint=PLAN, run=RUN, lease_timeout=0.0, **options) as state:
        for number in range(commits):
            manifest = commit(state, spec, manifest, number)
        assert manifest is not None
        return manifest


def running(engine: str, spec: StoreSpec, commits: int, **options: Any) -> Callable[[Path, Any], Any]:
    """Return a function that goes on from a manifest in a directory, by so many commits."""
    return lambda place, manifest: run(place, engine, spec, manifest, commits, **options)


def at_rest(engine: str) -> Scenario:
    return Scenario("local", lambda place: run(place, engine, COUNTS, None, 2), running(engine, COUNTS, 1))


def of_another_release(engine: str) -> Scenario:
    """Return a plain copy that becomes a timestamped one at once."""
    names = (".counts.removing", ".counts-v2.building", ".counts-v2.preparing", ".counts-v2.prepared")
    return Scenario(
        "local",
        lambda place: run(place, engine, COUNTS, None, 2),
        running(engine, TIMESTAMPED, 1),
        tuple(f"app/0_0/{engine}/{name}" for name in names),
    )


def in_preparation(engine: str, share: float) -> Scenario:
    """Return a new format that is being prepared, with commits that wait if the share of time is none."""
    policy = DurabilityPolicy(prepared_rows=2, prepared_share=share)
    options: dict[str, Any] = {"policy": policy, "upgrade_mode": UpgradeMode.IN_PLACE}

    def make(place: Path) -> Manifest:
        return run(place, engine, TIMESTAMPED, run(place, engine, COUNTS, None, 1), 3, **options)

    return Scenario("local", make, running(engine, TIMESTAMPED, 4, **options))


def prepared(engine: str) -> Scenario:
    """Return a new format that is prepared, and takes over."""
    options: dict[str, Any] = {"policy": DurabilityPolicy(prepared_share=1e9), "upgrade_mode": UpgradeMode.IN_PLACE}

    def make(place: Path) -> Manifest:
        manifest = run(place, engine, TIMESTAMPED, run(place, engine, COUNTS, None, 1), 3, **options)
        assert manifest.prepared
        return manifest

    return Scenario("local", make, running(engine, TIMESTAMPED, 1))


def durable_files() -> Scenario:
    """Return all that a query keeps, read and added to by a machine that has no copies."""
    schema = pa.schema([pa.field("rate", pa.string())])

    def make(place: Path) -> Manifest:
        storage = Storage.from_uri(place / "state")
        History.of(storage, "app", "sink").begun(PLAN, Shape(1, ()))
        evolve_schemas(storage, "app", "right", schema)
        manifest = run(place, "memory", COUNTS, None, 4)
        shutil.rmtree(place / "local")
        return manifest

    def act(place: Path, manifest: Manifest) -> None:
        storage = Storage.from_uri(place / "state")
        if claimed_by(storage, "app") is None or History.of(storage, "app", "sink").newest is None:
            raise DurabilityError("somebody has deleted what the query had written")
        evolve_schemas(storage, "app", "right", schema)
        run(place, "memory", COUNTS, manifest, 1)

    return Scenario("state", make, act)


def queries() -> Scenario:
    """Return the scenario of a job's queries, which have their copies on a machine."""

    def directories(place: Path) -> Iterator[Path]:
        directory = query_directory(place / "local", "sink", Storage.from_uri("/state"))
        yield from (directory, beside(directory))

    def make(place: Path) -> None:
        for directory in directories(place):
            directory.mkdir(parents=True)

    def act(place: Path, _: None) -> None:
        for directory in directories(place):
            Lease(directory / "app" / "0_0", 0.0).acquire()

    return Scenario("local", make, act)


SCENARIOS: Final = {
    "lmdb": at_rest("lmdb"),
    "rocksdb": at_rest("rocksdb"),
    "another-release": of_another_release("lmdb"),
    "in-preparation": in_preparation("lmdb", 1e9),
    "waiting": in_preparation("lmdb", 0),
    "prepared": prepared("lmdb"),
    "durable": durable_files(),
    "queries": queries(),
}


def shown(scenario: Scenario, path: str) -> str:
    """Return a path as the page writes it."""
    above = path.split("/")[:-1]
    if len(above) > 3 and scenario.root == "local" and not above[3].endswith(".backlog"):
        return f"`<local_dir>/{'/'.join([*above, ''])}`, each file of the engine"
    text = re.sub(r"@[0-9a-f]{16}", "@<16 digits>", path)
    text = re.sub(r"\d{12}", "<n>", re.sub(r"[0-9a-f]{32}", "<id>", text))
    return f"`<{scenario.root}_dir>/{text}`"


def files_of(directory: Path) -> dict[str, bytes | None]:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes() if path.is_file() else None
        for path in directory.glob("**/*")
    }


def moved(place: Path, target: Path) -> None:
    """Move what was there outside, whole: a reader that follows the link does not notice."""
    if place.exists():
        shutil.move(place, target)
    else:
        target.mkdir(parents=True)
        (target / "file").write_text(SOMEBODYS)


def gone(place: Path, target: Path) -> None:
    """Delete what was there, so the link leads to nothing."""
    if place.is_dir():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)


def outcome(scenario: Scenario, place: Path, path: str, manifest: Any, plant: Callable[[Path, Path], None]) -> str:
    """Return the outcome of a link in the place of ``path``."""
    outside = place / "outside"
    outside.mkdir()
    link, target = place / scenario.root / path, outside / "target"
    plant(link, target)
    link.symlink_to(target)
    before = files_of(outside)
    error: MillpondError | None = None
    try:
        scenario.act(place, manifest)
    except MillpondError as raised:
        error = raised
    assert files_of(outside) == before, "nothing outside is written"
    if error is not None and str(link) in str(error) and "symbolic link" in str(error):
        return REFUSED
    if target.exists():
        assert error is None, error
        assert not link.is_symlink(), "it has been followed"
    return MISSED if error is not None or link.is_symlink() else REPLACED


def seen(scenario: Scenario, directory: Path) -> dict[str, list[set[str]]]:
    """Return, for each path, what comes of a link to what was there, and of one to nothing."""
    template = directory / "template"
    manifest = scenario.make(template)
    root = template / scenario.root
    paths = [path.relative_to(root).as_posix() for path in sorted(root.glob("**/*"))]
    found: dict[str, list[set[str]]] = {}
    for number, path in enumerate([*paths, *scenario.extra]):
        outcomes = found.setdefault(shown(scenario, path), [set(), set()])
        for column, plant in enumerate((moved, gone)):
            place = directory / f"{number}-{column}"
            shutil.copytree(template, place)
            outcomes[column].add(outcome(scenario, place, path, manifest, plant))
    return found


def test_no_path_that_is_opened_leads_out_of_its_directory_by_a_link(tmp_path: Path) -> None:
    rows: dict[str, list[set[str]]] = {}
    for name, scenario in SCENARIOS.items():
        for path, outcomes in seen(scenario, tmp_path / name).items():
            known = rows.setdefault(path, [set(), set()])
            for all_of_them, these in zip(known, outcomes, strict=True):
                all_of_them |= these
    told = [[path, *(" or ".join(sorted(each)) for each in outcomes)] for path, outcomes in sorted(rows.items())]
    assert not [row for row in told if MISSED in row[1]]
    check_table("links", ["in its place is a link", "to what was there, which is elsewhere now", "to nothing"], told)


def test_a_lease_that_is_a_link_is_refused_and_nothing_outside_is_written(tmp_path: Path) -> None:
    outside, task = tmp_path / "outside", tmp_path / "local" / "app" / "0_0"
    outside.write_text("somebody else's, and longer than the note of a lease")
    task.mkdir(parents=True)
    (task / LEASE_FILE).symlink_to(outside)
    with pytest.raises(StoreError, match="lease is a symbolic link, which is not followed"):
        Lease(task, 0).acquire()
    assert outside.read_text() == "somebody else's, and longer than the note of a lease"


def test_a_lease_that_is_a_link_to_nothing_makes_no_file(tmp_path: Path) -> None:
    outside, task = tmp_path / "outside", tmp_path / "task"
    task.mkdir()
    (task / LEASE_FILE).symlink_to(outside)
    with pytest.raises(StoreError, match="symbolic link"):
        Lease(task, 0).acquire()
    assert not outside.exists()


def test_a_local_directory_that_is_a_link_itself_is_used(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "local").symlink_to(tmp_path / "disk")
    lease = Lease(tmp_path / "local" / "app" / "0_0", 0)
    lease.acquire()
    lease.release()
    assert (tmp_path / "disk" / "app" / "0_0" / LEASE_FILE).is_file()


def test_both_directories_may_be_links_themselves(tmp_path: Path) -> None:
    for name in ("local", "state"):
        (tmp_path / "disk" / name).mkdir(parents=True)
        (tmp_path / name).symlink_to(tmp_path / "disk" / name)
    manifest = run(tmp_path, "lmdb", COUNTS, None, 2)
    run(tmp_path, "lmdb", COUNTS, manifest, 1)
    assert (tmp_path / "disk" / "local" / "app" / "0_0" / "lmdb" / "counts").is_dir()
    assert list((tmp_path / "disk" / "state" / "app" / "0_0").glob("*/*.parquet"))


def test_a_file_or_a_pin_in_whose_place_is_a_link_is_not_written_through(tmp_path: Path) -> None:
    storage, outside = Storage.from_uri(tmp_path / "state"), tmp_path / "outside"
    storage.put("app/note", b"ours")
    outside.write_text(SOMEBODYS)
    for name in ("one", "two", "three"):
        (tmp_path / "state" / "app" / name).symlink_to(outside)
    with (
        pytest.raises(DurabilityError, match="one is a symbolic link, which is not followed"),
        storage.writing("app/one"),
    ):
        pass
    storage.put("app/two", b"ours")
    assert (storage.read("app/two"), storage.is_link("app/two")) == (b"ours", False)
    storage.put_once("app/three", b"ours")  # there is something, so it stays, and whoever reads it is told
    with pytest.raises(DurabilityError, match="three is a symbolic link"):
        storage.read("app/three")
    storage.delete("app/three")
    assert outside.read_text() == SOMEBODYS


def test_deleting_a_copy_deletes_nothing_that_its_links_lead_to(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text(SOMEBODYS)
    for engine in ("lmdb", "rocksdb"):
        copy = tmp_path / engine
        supplier(engine).open(copy).close()
        (copy / "LOCK").unlink(missing_ok=True)
        (copy / "LOCK").symlink_to(tmp_path / "made")
        (copy / "000009.log").symlink_to(outside)
        delete_local_copy(supplier(engine), copy)
        assert not copy.exists()
    copy.symlink_to(tmp_path)
    with pytest.raises(StoreError, match="rocksdb is a symbolic link, which is not followed; delete it"):
        delete_local_copy(supplier("rocksdb"), copy)
    assert [path.name for path in tmp_path.iterdir() if not path.is_symlink()] == ["outside"]
    assert outside.read_text() == SOMEBODYS


@pytest.mark.parametrize("seal", [False, True])
def test_a_copy_is_verified_without_reading_what_its_links_lead_to(tmp_path: Path, seal: bool) -> None:
    manifest = run(tmp_path, "lmdb", COUNTS, None, 2)
    copy = tmp_path / "local" / "app" / "0_0" / "lmdb" / "counts"
    link = seal_path(copy) if seal else copy / "data.mdb"
    shutil.move(link, tmp_path / "outside")
    link.symlink_to(tmp_path / "outside")
    places = copies_of(tmp_path / "local", manifest)
    (finding,) = verify_copies(Storage.from_uri(tmp_path / "state"), manifest, places, lambda: manifest)
    assert link.name in finding.what
    assert "symbolic link" in finding.what
    discard_copy(copy)
    assert (tmp_path / "outside").is_file()


def test_a_system_that_cannot_refuse_links_when_it_opens_has_them_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_files, "_NO_FOLLOW", 0)
    (tmp_path / "outside").write_text(SOMEBODYS)
    (tmp_path / "link").symlink_to(tmp_path / "outside")
    with pytest.raises(OSError, match="a symbolic link, which is not followed"):
        own_files.no_link(str(tmp_path / "link"), os.O_RDONLY)
    os.close(own_files.no_link(str(tmp_path / "outside"), os.O_RDONLY))


def test_a_link_that_is_put_there_after_the_look_is_refused_by_the_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside, copy, backlog = tmp_path / "outside", tmp_path / "counts", CatchupLog(tmp_path / "backlog")
    outside.write_text(SOMEBODYS)
    copy.mkdir()
    backlog.begin(Commit(1, "ab"))
    monkeypatch.setattr(own_files, "is_link", lambda _: False)
    for name in (LEASE_FILE, ".counts.seal", "backlog/000000000002-ab.new"):
        (tmp_path / name).symlink_to(outside)
    with pytest.raises(StoreError, match="lease is a symbolic link"):
        Lease(tmp_path, 0).acquire()
    with pytest.raises(StoreError, match="levels of symbolic links"):
        backlog.append(Commit(2, "ab"), {b"k": b"v"})
    seal = CleanShutdownMarker(copy, checked_by_engine=True, limit=10)
    seal.opened()
    seal.closed()
    assert outside.read_text() == SOMEBODYS


@pytest.mark.parametrize("backend", ["lmdb", "rocksdb"])
def test_what_is_made_below_local_dir_is_for_its_user_alone_and_what_is_there_keeps_its_mode(
    tmp_path: Path, backend: str
) -> None:
    umask = os.umask(0o022)
    try:
        run(tmp_path / "new", backend, COUNTS, None, 1)
        (tmp_path / "old" / "local").mkdir(parents=True, mode=0o755)
        run(tmp_path / "old", backend, COUNTS, None, 1)
    finally:
        os.umask(umask)

    def mode(path: Path) -> int:
        return path.stat().st_mode & 0o777

    assert [mode(tmp_path / name / "local") for name in ("new", "old")] == [0o700, 0o755]
    for name in ("new", "old"):
        for path in (tmp_path / name / "local" / "app", tmp_path / name / "local" / "app" / "0_0"):
            assert mode(path) == 0o700
        assert mode(tmp_path / name / "local" / "app" / "0_0" / "lease") == 0o600
        assert mode(tmp_path / name / "local" / "app" / "0_0" / backend / ".counts.seal") == 0o600
