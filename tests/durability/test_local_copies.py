"""Local copies: they prove themselves, heal, and never poison what is durable."""

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any, NoReturn

import pytest

from millpond.adapters.rocksdb import RocksDbSupplier
from millpond.errors import (
    BackendInUseError,
    BackendUnavailableError,
    CorruptFileError,
    CorruptStoreError,
    DurabilityError,
    FormatError,
    MissingFileError,
    StoreFullError,
    UnreadableRowError,
)
from millpond.stores.backend.memory import MemoryBackend, MemorySupplier
from millpond.stores.durability import DurabilityPolicy, Manifest, Storage, TaskState, read_rows
from millpond.stores.durability.copies.clean_shutdown import CleanShutdownMarker
from millpond.stores.encoding.keys import DATA
from millpond.stores.encoding.serdes import BYTES, INT64
from millpond.stores.evolution.conversion import CONVERTIBLE
from millpond.stores.specs.location import StoreLocation
from millpond.stores.specs.store_spec import StoreKind, StoreSpec
from tests.durability.one_store import COUNTS, add, content, key, task

PERSISTENT = ["lmdb", "rocksdb"]
EVERY = ["memory", *PERSISTENT]


def durable(directory: Path, manifest: Manifest) -> dict[str, int]:
    rows = read_rows(Storage.from_uri(directory / "state"), manifest, COUNTS)
    return {name: value for name, value, _ in rows}


def copy_of(directory: Path, local: str = "local") -> Path:
    """Return the directory of the only local copy."""
    (found,) = (path for path in (directory / local / "app" / "0_0").glob("*/counts"))
    return found


@pytest.fixture
def manifest(tmp_path: Path) -> Manifest:
    with task(tmp_path, "memory", local="elsewhere") as state:
        return add(state, add(state, None, range(60)), range(40))


def expected(keys: int = 60, twice: int = 40) -> dict[str, int]:
    return {key(number): 2 if number < twice else 1 for number in range(keys)}


def survives(directory: Path, backend: str, manifest: Manifest, damage: Callable[[Path], object]) -> None:
    """Check that the copy is right although it was damaged while nobody had it open."""
    with task(directory, backend) as state:
        assert content(state, manifest) == expected()
        state.close()
        damage(copy_of(directory))
        assert content(state, manifest) == expected()


def test_a_flipped_bit_in_a_copy_without_checksums_never_comes_out(tmp_path: Path, manifest: Manifest) -> None:
    chosen = random.Random(9)
    with task(tmp_path, "lmdb") as state:
        assert content(state, manifest) == expected()
        for _ in range(60):
            path = copy_of(tmp_path) / "data.mdb"
            data = bytearray(path.read_bytes())
            data[chosen.randrange(len(data))] ^= 1 << chosen.randrange(8)
            path.write_bytes(data)
            assert content(state, manifest) == expected()


def test_a_flipped_bit_in_a_manifest_does_not_keep_rocksdb_reading_for_ever(
    tmp_path: Path, manifest: Manifest, caplog: pytest.LogCaptureFixture
) -> None:
    def flip(copy: Path) -> None:
        (path,) = copy.glob("MANIFEST-*")
        data = bytearray(path.read_bytes())
        data[6] ^= 4  # the type of the first record: a whole one is now one of a recycled log
        path.write_bytes(data)

    survives(tmp_path, "rocksdb", manifest, flip)
    assert "has changed since it was closed" in caplog.text


def test_of_a_copy_whose_engine_has_checksums_large_files_are_its_own_to_vouch_for(tmp_path: Path) -> None:
    seal = CleanShutdownMarker(tmp_path / "copy", checked_by_engine=True, limit=1 << 30)
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "large").write_bytes(bytes(1 << 21))
    (tmp_path / "copy" / "small").write_bytes(b"small")
    seal.closed()
    (tmp_path / "copy" / "large").write_bytes(b"." * (1 << 21))
    assert seal.fault() is None
    assert seal.proven
    (tmp_path / "copy" / "small").write_bytes(b"smell")
    assert seal.fault() == "its file small has changed since it was closed"
    seal.opened()
    assert seal.take_off() is None


def test_files_in_folders_of_a_copy_are_compared_too(tmp_path: Path) -> None:
    seal = CleanShutdownMarker(tmp_path / "copy", checked_by_engine=False, limit=1 << 30)
    (tmp_path / "copy" / "folder").mkdir(parents=True)
    for name in ("file", "folder/file"):
        (tmp_path / "copy" / name).write_bytes(b"content")
    seal.closed()
    assert seal.fault() is None
    (tmp_path / "copy" / "folder" / "file").write_bytes(b"contend")
    assert seal.fault() == "its file folder/file has changed since it was closed"


WIDE = StoreSpec("wide", StoreKind.KEY_VALUE, INT64, BYTES)
WIDTH = 300


def wide(directory: Path, cache: int) -> TaskState:
    """Return a task whose copy has a table that is too large for its seal. Each size of cache is a cache of its own."""
    return task(directory, RocksDbSupplier(compression="none", block_cache=cache), WIDE)


@pytest.mark.parametrize("place", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("read", ["scan", "scan in reverse", "check"])
def test_a_flipped_bit_in_a_large_table_is_refused_and_then_healed(tmp_path: Path, place: float, read: str) -> None:
    rows = {number: random.Random(number).randbytes(WIDTH) for number in range(6_000)}
    with wide(tmp_path, 1 << 20) as state:
        store: Any = state.open(None)["wide"]
        for key, value in rows.items():
            store.put(key, value)
        manifest = state.commit()
    shutil.rmtree(tmp_path / "local")
    with wide(tmp_path, 1 << 20) as state:
        state.open(manifest)
    path = max((tmp_path / "local").rglob("*.sst"), key=_size)
    data = bytearray(path.read_bytes())
    assert len(data) > 1 << 20
    data[data.index(rows[round(place * (len(rows) - 1))])] ^= 1
    path.write_bytes(data)
    with wide(tmp_path, 0) as state:
        store = state.open(manifest)["wide"]
        assert path.exists(), "the copy was restored before it could be read"
        with pytest.raises(CorruptStoreError, match=str(path)) as raised:
            _ = store.check() if read == "check" else list(store.scan(reverse=read != "scan"))
        state.rollback(raised.value)
        store = state.open(manifest)["wide"]
        store.check()
        assert dict(store.scan()) == rows


@pytest.mark.parametrize("size", [0, 4096, 5000, -4096])
def test_a_truncated_copy_is_restored(tmp_path: Path, manifest: Manifest, size: int) -> None:
    def truncate(copy: Path) -> None:
        path = copy / "data.mdb"
        os.truncate(path, size % path.stat().st_size)

    survives(tmp_path, "lmdb", manifest, truncate)


@pytest.mark.parametrize("backend", PERSISTENT)
def test_files_that_come_or_go_do_no_harm(tmp_path: Path, manifest: Manifest, backend: str) -> None:
    survives(tmp_path, backend, manifest, lambda copy: (copy / "stray").touch())
    survives(tmp_path, backend, manifest, lambda copy: max(copy.iterdir(), key=_size).unlink())


def _size(path: Path) -> int:
    return path.stat().st_size


def test_a_seal_that_makes_no_sense_is_none(tmp_path: Path, manifest: Manifest) -> None:
    for rubbish in ("", "{", "[]", '{"data.mdb":17}', '{"data.mdb":[1,null]}'):
        survives(tmp_path, "lmdb", manifest, lambda copy: _seal(copy).write_text(rubbish))  # noqa: B023


def _seal(copy: Path) -> Path:
    return copy.with_name(f".{copy.name}.seal")


def test_of_a_copy_beyond_the_limit_sizes_are_compared(
    tmp_path: Path, manifest: Manifest, caplog: pytest.LogCaptureFixture
) -> None:
    with task(tmp_path, "lmdb", policy=DurabilityPolicy(sealed_bytes=0)) as state:
        content(state, manifest)
        assert content(state, manifest) == expected()
        assert "restoring" not in caplog.text
        with (copy_of(tmp_path) / "data.mdb").open("ab") as file:
            file.write(b"more")
        assert content(state, manifest) == expected()
        assert "data.mdb has 20484 bytes, but had 20480 when it was closed" in caplog.text


DIES = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from tests.durability.one_store import task
from millpond.stores.durability import Manifest
state = task(Path(sys.argv[2]), sys.argv[3])
state.open(Manifest.from_json(sys.argv[4]))
next(Path(sys.argv[2], "local", "app", "0_0").glob("*/counts")).joinpath("mine").touch()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(("backend", "kept"), [("lmdb", False), ("rocksdb", True)])
def test_a_copy_whose_process_died_is_kept_only_if_its_engine_tells_what_it_lost(
    tmp_path: Path, manifest: Manifest, backend: str, kept: bool
) -> None:
    root = str(Path(__file__).parents[2])
    command = [sys.executable, "-c", DIES, root, str(tmp_path), backend, manifest.to_json()]
    assert subprocess.run(command, check=False).returncode == -9
    with task(tmp_path, backend) as state:
        assert content(state, manifest) == expected()
    assert (copy_of(tmp_path) / "mine").exists() is kept


DIES_OPENING = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from millpond.stores.durability import Manifest
from millpond.stores.durability.copies import local
from millpond.stores.specs.location import StoreLocation
from tests.durability.one_store import task
engine, moment, real = sys.argv[3], sys.argv[5], StoreLocation.open
def dies(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)
def opens_and_dies(place):
    real(place)
    dies()
StoreLocation.open = {"before": dies, "after": opens_and_dies}.get(moment, real)
if moment == "compared":
    local.CleanShutdownMarker._broken = dies
task(Path(sys.argv[2]), engine).open(Manifest.from_json(sys.argv[4]))
"""
"""A process that is killed while the files of a copy are compared, before its engine opens it, or right after."""


def dies_opening(directory: Path, backend: str, manifest: Manifest, moment: str) -> None:
    root = str(Path(__file__).parents[2])
    command = [sys.executable, "-c", DIES_OPENING, root, str(directory), backend, manifest.to_json(), moment]
    assert subprocess.run(command, check=False).returncode == -9


@pytest.mark.parametrize(
    ("backend", "moments", "kept"),
    [
        ("lmdb", ["compared", "compared", "compared"], True),
        ("lmdb", ["before"], False),
        ("rocksdb", ["compared", "after", "compared"], True),
        ("rocksdb", ["before"], True),
        ("rocksdb", ["before", "after"], False),
    ],
)
def test_a_copy_whose_opener_is_killed_costs_nothing_the_first_time_and_one_that_kills_is_opened_twice(
    tmp_path: Path, manifest: Manifest, backend: str, moments: list[str], kept: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with task(tmp_path, backend) as state:
        content(state, manifest)
    for moment in moments:
        dies_opening(tmp_path, backend, manifest, moment)
    with task(tmp_path, backend) as state:
        assert content(state, manifest) == expected()
        assert ("restoring" not in caplog.text) is kept
        assert content(state, manifest) == expected()
    for moment in moments:  # what has gone well leaves no trace
        dies_opening(tmp_path, backend, manifest, moment)
    caplog.clear()
    with task(tmp_path, backend) as state:
        assert content(state, manifest) == expected()
    assert ("restoring" not in caplog.text) is kept


@pytest.mark.parametrize("backend", PERSISTENT)
def test_a_copy_that_cannot_be_opened_now_is_there_when_it_can(
    tmp_path: Path, manifest: Manifest, backend: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(place: StoreLocation) -> NoReturn:
        raise error(f"{place.directory} cannot be opened now")

    with task(tmp_path, backend) as state:
        content(state, manifest)
        for error in (StoreFullError, BackendInUseError, BackendUnavailableError) * 2:
            with monkeypatch.context() as patch:
                patch.setattr(StoreLocation, "open", fails)
                with pytest.raises(error, match="cannot be opened now"):
                    state.open(manifest)
        assert content(state, manifest) == expected()
    assert "restoring" not in caplog.text


@pytest.mark.parametrize("backend", EVERY)
def test_a_failed_attempt_is_undone_where_it_stands(
    tmp_path: Path, manifest: Manifest, backend: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    with task(tmp_path, backend) as state:
        add(state, manifest, range(30, 70), amount=7)  # its manifest is lost
        assert content(state, manifest) == expected()
        assert "restoring" not in caplog.text
        again = add(state, manifest, range(30, 70), amount=5)
        assert content(state, again) == durable(tmp_path, again)


@pytest.mark.parametrize("backend", EVERY)
def test_an_attempt_that_lost_is_undone_and_what_won_is_replayed(
    tmp_path: Path, manifest: Manifest, backend: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    with task(tmp_path, backend) as state, task(tmp_path, "memory", local="other host") as other:
        add(state, manifest, range(30, 70), amount=7)
        won = add(other, add(other, manifest, range(50), amount=5), range(45, 80))
        assert content(state, won) == durable(tmp_path, won)
        assert "restoring" not in caplog.text


def test_a_failed_attempt_whose_file_is_gone_costs_a_restore(tmp_path: Path, manifest: Manifest) -> None:
    with task(tmp_path, "rocksdb") as state:
        lost = add(state, manifest, range(30, 70), amount=7)
        Path(tmp_path, "state", lost.path(lost.files[-1])).unlink()
        assert content(state, manifest) == expected()


class Lying(MemorySupplier):
    """Memory whose content can be changed behind everybody's back."""

    def open(self, directory: Path) -> MemoryBackend:
        self.__dict__["backend"] = super().open(directory)
        return self.__dict__["backend"]  # type: ignore[no-any-return]


def test_what_is_wrong_in_a_copy_does_not_become_durable_with_a_snapshot(tmp_path: Path, manifest: Manifest) -> None:
    lying: Any = Lying()
    with task(tmp_path, lying, policy=DurabilityPolicy(max_deltas=1)) as state:
        state.open(manifest)
        lost, changed = (_row(lying.backend, key) for key in (b"key 001", b"key 050"))
        lying.backend.write({lost: None, changed: bytes(8), DATA + b"stray": bytes(8)})
        after = add(state, manifest, range(3, 5))
    assert after.deltas == ()
    assert durable(tmp_path, after) == expected() | {"key 003": 3, "key 004": 3}


def _row(backend: Any, key: bytes) -> bytes:
    """Return the row of a key as the engine has it."""
    (row,) = (row for row, _ in backend.scan() if key in row)
    return bytes(row)


def unlink(path: Path) -> None:
    path.unlink()


def shorten(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


@pytest.mark.parametrize("backend", EVERY)
@pytest.mark.parametrize("damage", [unlink, shorten])
@pytest.mark.parametrize("place", [0, -1])
def test_a_proven_copy_heals_a_lineage_that_has_lost_a_file(
    tmp_path: Path, manifest: Manifest, backend: str, damage: Callable[[Path], None], place: int
) -> None:
    with task(tmp_path, backend) as state:
        content(state, manifest)
        damage(tmp_path / "state" / manifest.path(manifest.files[place]))
        state.open(manifest)
        healed = state.commit()
        assert healed.deltas == ()
        assert durable(tmp_path, healed) == expected()
        assert content(state, add(state, healed, range(3))) == expected() | dict.fromkeys(list(expected())[:3], 3)


def test_a_snapshot_heals_a_file_that_turns_out_to_be_damaged(tmp_path: Path, manifest: Manifest) -> None:
    with task(tmp_path, "rocksdb", policy=DurabilityPolicy(max_deltas=1)) as state:
        content(state, manifest)
        path = tmp_path / "state" / manifest.path(manifest.files[0])
        path.write_bytes(path.read_bytes()[:100] + b"?" + path.read_bytes()[101:])
        after = add(state, manifest, range(3))
    assert durable(tmp_path, after) == expected() | dict.fromkeys(list(expected())[:3], 3)


@pytest.mark.parametrize(("damage", "error"), [(unlink, MissingFileError), (shorten, CorruptFileError)])
def test_a_copy_that_nothing_proves_stands_in_for_no_file(
    tmp_path: Path, manifest: Manifest, damage: Callable[[Path], None], error: type[DurabilityError]
) -> None:
    with task(tmp_path, "lmdb", policy=DurabilityPolicy(sealed_bytes=0)) as state:
        content(state, manifest)
        damage(tmp_path / "state" / manifest.path(manifest.files[0]))
        with pytest.raises(error, match=r"nothing proves the local copies of \['counts'\]"):
            state.open(manifest)


@pytest.mark.parametrize("backend", EVERY)
def test_a_stored_row_that_cannot_be_read_makes_the_next_open_restore(
    tmp_path: Path, manifest: Manifest, backend: str
) -> None:
    with task(tmp_path, backend, exclusive=True) as state:
        store: Any = state.open(manifest)["counts"]
        engine: Any = next(iter(state._transactions.values())).backend
        engine.write({_row(engine, b"key 007"): b"short"})
        with pytest.raises(UnreadableRowError, match="'counts' holds a value that cannot be read") as caught:
            store.get("key 007")
        state.rollback(caught.value)
        assert content(state, manifest) == expected()


def kinds(directory: Path, backend: str, kind: StoreKind) -> TaskState:
    return task(directory, backend, replace(COUNTS, kind=kind, history_retention=100 if kind.versioned else None))


@pytest.mark.parametrize("backend", PERSISTENT)
@pytest.mark.parametrize("kind", [StoreKind.VERSIONED, StoreKind.KEY_VALUE])
def test_a_copy_of_another_kind_is_refused_where_the_manifest_continues_it_and_deleted_where_it_does_not(
    tmp_path: Path, backend: str, kind: StoreKind
) -> None:
    with kinds(tmp_path, backend, StoreKind.TIMESTAMPED_KEY_VALUE) as state:
        store: Any = state.open(None)["counts"]
        store.put("a", 1, 5)
        first = state.commit()
    copy = tmp_path / "local" / "app" / "0_0" / backend / "counts-v2"
    with kinds(tmp_path, backend, kind) as state, pytest.raises(FormatError, match="counts-v2"):
        state.open(first)
    assert copy.is_dir()
    with kinds(tmp_path, backend, kind) as state:
        store = state.open(None)["counts"]
        assert list(store.scan()) == []
    assert not copy.exists()


@pytest.mark.parametrize("backend", PERSISTENT)
def test_a_copy_of_another_kind_that_is_broken_is_not_opened_but_deleted(tmp_path: Path, backend: str) -> None:
    with kinds(tmp_path, backend, StoreKind.TIMESTAMPED_KEY_VALUE) as state:
        store: Any = state.open(None)["counts"]
        store.put("a", 1, 5)
        state.commit()
    copy = tmp_path / "local" / "app" / "0_0" / backend / "counts-v2"
    for file in copy.iterdir():
        file.write_bytes(b"no longer what it was")
    with kinds(tmp_path, backend, StoreKind.VERSIONED) as state:
        store = state.open(None)["counts"]
        assert store.get("a") is None
    assert not copy.exists()


@pytest.fixture
def bridged(tmp_path: Path, manifest: Manifest) -> Manifest:
    """The manifest of a snapshot that somebody else has written, four commits later than ``manifest``."""
    with task(tmp_path, "memory", local="elsewhere", policy=DurabilityPolicy(max_deltas=3)) as state:
        after = manifest
        for _ in range(4):
            after = add(state, after, range(3), 10)
        assert len(after.deltas) == 1
        assert after.bridge is not None
        return after


@pytest.mark.parametrize("backend", EVERY)
def test_a_copy_from_before_a_snapshot_follows_across_it(
    tmp_path: Path, manifest: Manifest, bridged: Manifest, backend: str
) -> None:
    with task(tmp_path, backend) as state:
        content(state, manifest)
        assert content(state, bridged) == durable(tmp_path, bridged)
        assert state.metrics.figures["counts:restore.rows"] == 4 * 3
        assert "counts:restore.full" not in state.metrics.figures
        assert content(state, manifest) == expected(), "a query that is set back"
        assert state.metrics.figures["counts:restore.full"] == 1


def test_a_bridge_that_is_gone_costs_a_restore(tmp_path: Path, manifest: Manifest, bridged: Manifest) -> None:
    assert bridged.bridge is not None
    with task(tmp_path, "rocksdb") as state:
        content(state, manifest)
        (tmp_path / "state" / bridged.path(bridged.bridge.deltas[-1])).unlink()
        assert content(state, bridged) == durable(tmp_path, bridged)
        assert state.metrics.figures["counts:restore.full"] == 1


@pytest.mark.parametrize("backend", EVERY)
def test_an_attempt_that_wrote_a_snapshot_and_failed_is_undone_where_it_stands(
    tmp_path: Path, manifest: Manifest, backend: str
) -> None:
    with task(tmp_path, backend, policy=DurabilityPolicy(max_deltas=1)) as state:
        content(state, manifest)
        assert not add(state, manifest, range(50, 70)).deltas
        assert content(state, manifest) == expected()
        assert "counts:restore.full" not in state.metrics.figures


@pytest.mark.parametrize("backend", PERSISTENT)
@pytest.mark.parametrize(("before", "after"), list(permutations(CONVERTIBLE, 2)))
def test_an_empty_copy_of_another_kind_is_in_nobodys_way(
    tmp_path: Path, backend: str, before: StoreKind, after: StoreKind
) -> None:
    with kinds(tmp_path, backend, before) as state:
        state.open(None)
    copies = tmp_path / "local" / "app" / "0_0" / backend
    (empty,) = copies.glob("counts*")
    time = [5] if after.stamped else []
    with kinds(tmp_path, backend, after) as state:
        store: Any = state.open(None)["counts"]
        store.put("a", 1, *time)
        manifest = state.commit()
    assert not empty.exists()
    with kinds(tmp_path, backend, after) as state:
        store = state.open(manifest)["counts"]
        assert [key for key, _ in store.scan()] == ["a"]
