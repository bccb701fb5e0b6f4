"""Following the advice of errors of durable state and local copies: the state goes on with the rows that it had."""

import errno
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from millpond.adapters.inspect.cleaning import Cleaning
from millpond.errors import (
    BackendError,
    BackendInUseError,
    CorruptFileError,
    DurabilityError,
    FormatError,
    MissingFileError,
    StoreClosedError,
    StoreError,
)
from millpond.stores.backend.registry import supplier
from millpond.stores.durability import DurabilityPolicy, Manifest, Storage, read_store, verify
from millpond.stores.durability.checking.inspection import DurableRows
from millpond.stores.durability.copies.lease import Lease
from millpond.stores.durability.manifests.garbage import collect_garbage
from millpond.stores.evolution.history import History
from millpond.stores.evolution.shape import Shape
from millpond.stores.specs import directory as directories
from tests.durability.one_store import COUNTS, add, content, key, task
from tests.durability.test_clocks import FORKS, Undated, aged, history

ROWS: Final = {key(0): 3, key(1): 3}
HOLD: Final = """
import sys, time
from pathlib import Path
from millpond.stores.durability.copies.lease import Lease
Lease(Path(sys.argv[1]), 5).acquire()
print("held", flush=True)
time.sleep(60)
"""


def committed(directory: Path, backend: str = "memory") -> list[Manifest]:
    """Return the manifests of three micro-batches."""
    manifests: list[Manifest] = []
    with task(directory, backend) as state:
        for _ in range(3):
            manifests.append(add(state, manifests[-1] if manifests else None, range(2)))
    return manifests


def file_of(directory: Path, manifest: Manifest, place: int = -1) -> Path:
    return directory / "state" / manifest.path(manifest.files[place])


def found(directory: Path, manifest: Manifest | None, **options: Any) -> dict[str, Any]:
    with task(directory, "memory", **options) as state:
        return content(state, manifest)


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 3)


@pytest.mark.parametrize(
    ("damage", "error", "advice"),
    [
        (Path.unlink, MissingFileError, "is gone, .* at commit 3 .*; put it back, or restart the query at a batch"),
        (cut, CorruptFileError, "is damaged: .*; put an undamaged copy back, or restart the query at a batch"),
    ],
)
def test_a_durable_file_is_put_back_or_the_query_restarts_before_it(
    damage: Callable[[Path], None], error: type[DurabilityError], advice: str, tmp_path: Path
) -> None:
    *_, before, manifest = committed(tmp_path)
    path = file_of(tmp_path, manifest)
    undamaged = path.read_bytes()
    damage(path)
    with pytest.raises(error, match=advice):
        found(tmp_path, manifest)
    assert found(tmp_path, before) == {key(0): 2, key(1): 2}
    path.write_bytes(undamaged)
    assert found(tmp_path, manifest) == ROWS


def test_what_a_link_leads_to_is_put_in_its_place_and_a_strangers_is_deleted(tmp_path: Path) -> None:
    manifest = committed(tmp_path)[-1]
    path = file_of(tmp_path, manifest)
    path.rename(tmp_path / "moved")
    path.symlink_to(tmp_path / "moved")
    with pytest.raises(DurabilityError, match=r"is a symbolic link, .*; put what it leads to in its place"):
        found(tmp_path, manifest)
    path.unlink()
    (tmp_path / "moved").rename(path)
    assert found(tmp_path, manifest) == ROWS
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "state").mkdir()
    stranger = tmp_path / "new" / "state" / "app"
    stranger.symlink_to(tmp_path)
    with pytest.raises(DurabilityError, match=f"{stranger} is a symbolic link, .* or delete it if it is a stranger's"):
        committed(tmp_path / "new")
    stranger.unlink()
    assert found(tmp_path / "new", committed(tmp_path / "new")[-1]) == ROWS


def test_a_storage_that_cannot_be_written_or_read_is_used_once_the_place_is_right(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("not a directory")
    with pytest.raises(DurabilityError, match=f"cannot write {tmp_path}/state/.*; check the free space, the perm"):
        committed(tmp_path)
    (tmp_path / "state").unlink()
    manifest = committed(tmp_path)[-1]
    path = file_of(tmp_path, manifest)
    path.rename(tmp_path / "moved")
    path.mkdir()
    with pytest.raises(DurabilityError, match=f"cannot read {path}: .*; check the permissions"):
        found(tmp_path, manifest)
    path.rmdir()
    (tmp_path / "moved").rename(path)
    assert found(tmp_path, manifest) == ROWS


def test_a_storage_without_dates_is_left_for_one_that_has_them(tmp_path: Path) -> None:
    with task(tmp_path, "memory", policy=DurabilityPolicy(max_deltas=2)) as state:
        manifest = history(state, None, 40)
    aged(tmp_path / "state", 7, "*.pin")
    with pytest.raises(
        DurabilityError, match="; put the state directory on one that does, such as s3://, gs:// or a p"
    ):
        collect_garbage(Undated(str(tmp_path / "state")), manifest, FORKS)
    files = len(list((tmp_path / "state").rglob("*.parquet")))
    collect_garbage(Storage.from_uri(tmp_path / "state"), manifest, FORKS)
    assert len(list((tmp_path / "state").rglob("*.parquet"))) < files


def test_an_undamaged_copy_of_an_evolution_record_is_put_back(tmp_path: Path) -> None:
    storage = Storage.from_uri(tmp_path)
    begun = History.of(storage, "app", "out").begun("topology/1", Shape(1, ()))
    path = tmp_path / "app" / "evolution" / "out" / "000000.json"
    undamaged = path.read_bytes()
    cut(path)
    with pytest.raises(FormatError, match=r"an evolution record is damaged .*; put an undamaged copy back"):
        History.of(storage, "app", "out")
    path.write_bytes(undamaged)
    assert History.of(storage, "app", "out").records == begun.records


def test_a_local_directory_in_use_is_free_once_its_process_has_ended_and_another_is_free_at_once(
    tmp_path: Path,
) -> None:
    manifest = committed(tmp_path)[-1]
    place = tmp_path / "local" / "app" / "0_0"
    with subprocess.Popen([sys.executable, "-c", HOLD, str(place)], stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None
            holder.stdout.readline()
            told = f"is in use by process {holder.pid} .*; end that process, or give this job another application id or"
            with pytest.raises(BackendInUseError, match=told):
                found(tmp_path, manifest, lease_timeout=0.05)
            assert found(tmp_path, manifest, local="elsewhere", lease_timeout=0.05) == ROWS
            another = Lease(place.parents[1] / "another" / "0_0", 0.05)
            another.acquire()
            another.release()
        finally:
            holder.kill()
    assert found(tmp_path, manifest, lease_timeout=0.05) == ROWS


def test_a_local_directory_is_used_once_it_can_be_written(tmp_path: Path) -> None:
    manifest = committed(tmp_path)[-1]
    shutil.rmtree(tmp_path / "local")
    (tmp_path / "local").write_text("not a directory")
    with pytest.raises(StoreError, match=r"cannot be used: .*; make it a directory that this process may write"):
        found(tmp_path, manifest)
    (tmp_path / "local").unlink()
    (tmp_path / "local").mkdir()
    assert found(tmp_path, manifest) == ROWS


def test_a_lease_tells_the_time_once_it_is_acquired(tmp_path: Path) -> None:
    lease = Lease(tmp_path, 0)
    with pytest.raises(StoreClosedError, match=r"is not held; acquire it before clock_ms\(\)"):
        lease.clock_ms()
    lease.acquire()
    assert lease.clock_ms() >= int(time.time()) * 1000 - 60_000
    lease.release()


def test_a_task_commits_once_a_batch_is_open(tmp_path: Path) -> None:
    with task(tmp_path, "memory") as state:
        with pytest.raises(StoreClosedError, match=r"has no batch open; call open\(manifest\) before commit\(\)"):
            state.commit()
        manifest = add(state, None, range(1))
    assert found(tmp_path, manifest) == {key(0): 1}


def test_durable_rows_are_changed_by_the_task_that_is_opened(tmp_path: Path) -> None:
    manifest = committed(tmp_path)[-1]
    storage = Storage.from_uri(tmp_path / "state")
    rows = DurableRows(storage, manifest, "counts", COUNTS.format_version)
    with pytest.raises(BackendError, match="the durable rows of store 'counts' are read only; open the task to change"):
        rows.write({b"\1a": b"1"})
    with task(tmp_path, "memory") as state:
        after = add(state, manifest, range(1))
    read: Any = read_store(storage, after, COUNTS)
    assert dict(read.scan()) == ROWS | {key(0): 4}


def failing(code: int) -> Callable[..., Any]:
    def fail(*given: Any, **_: Any) -> None:
        raise OSError(code, os.strerror(code), str(given[0]))

    return fail


def test_a_copy_that_cannot_be_deleted_is_deleted_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = committed(tmp_path, "lmdb")[-1]
    (copy,) = (tmp_path / "local").rglob("counts")
    (copy / "data.mdb").write_bytes(b"rubbish" * 1000)
    with monkeypatch.context() as patch:
        patch.setattr(directories, "rmtree", failing(errno.EBUSY))
        with (
            task(tmp_path, "lmdb") as state,
            pytest.raises(StoreError, match=f"the local copy in {copy} cannot be deleted: .*; delete it by hand"),
        ):
            state.open(manifest)
        shutil.rmtree(copy)
        with task(tmp_path, "lmdb") as state:
            assert content(state, manifest) == ROWS


def test_an_idle_copy_that_cannot_be_deleted_is_deleted_by_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed(tmp_path, "lmdb")
    query = tmp_path / "local"
    query.rename(tmp_path / "out")
    query.mkdir()
    (tmp_path / "out").rename(query / f"out@{Storage.from_uri(tmp_path / 'state').place}")
    aged(query, 1000)

    def delete_idle() -> None:
        (idle,) = (one for one in Cleaning(local_dirs=[query]).found().leftovers if one.may_go)
        assert idle.delete is not None
        idle.delete()

    (copy,) = query.rglob("counts")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", failing(errno.EACCES))
        with pytest.raises(StoreError, match=f"the idle copy {copy} cannot be deleted: .*; delete it by hand"):
            delete_idle()
    shutil.rmtree(copy)
    aged(query, 1000)
    delete_idle()
    assert list(query.iterdir()) == []


def test_a_copy_is_verified_once_there_is_room_to_duplicate_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = committed(tmp_path, "lmdb")[-1]
    storage, specs = Storage.from_uri(tmp_path / "state"), {"app": {"counts": COUNTS}}

    def check() -> list[Any]:
        return list(verify(storage, lambda: [manifest], specs=specs, local_dirs=[tmp_path / "local"]).findings)

    assert check() == []
    with monkeypatch.context() as patch:
        patch.setattr("millpond.stores.durability.checking.copy_verification.copytree", failing(errno.ENOSPC))
        with pytest.raises(StoreError, match=r"cannot be duplicated for reading: .*; check room and access"):
            check()
    assert check() == []


def test_local_directories_are_cleaned_once_a_directory_is_given(tmp_path: Path) -> None:
    committed(tmp_path, "lmdb")
    (tmp_path / "file").write_text("not a directory")
    with pytest.raises(
        StoreError, match=f"{tmp_path}/file cannot be read: .*; give a directory that this process may r"
    ):
        Cleaning(local_dirs=[tmp_path / "file"]).found()
    assert Cleaning(local_dirs=[tmp_path / "local"]).found().leftovers != []


@pytest.mark.parametrize("engine", ["lmdb", "rocksdb"])
def test_a_stores_directory_is_opened_once_it_can_be_read(
    tmp_path: Path, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = committed(tmp_path, engine)[-1]
    (copy,) = (tmp_path / "local").rglob("counts")
    with monkeypatch.context() as patch:
        patch.setattr("millpond.stores.specs.migration.links_below", failing(errno.EACCES))
        with (
            task(tmp_path, engine) as state,
            pytest.raises(StoreError, match=f"the directory {copy} of a store cannot be read: .*; check its access"),
        ):
            state.open(manifest)
    with task(tmp_path, engine) as state:
        assert content(state, manifest) == ROWS
    assert supplier(engine).persistent
