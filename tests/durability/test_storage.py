"""Storages, leases and claims."""

import errno
import os
import pickle
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Barrier

import pytest

from millpond.errors import (
    BackendInUseError,
    ConfigurationError,
    DurabilityError,
    MissingFileError,
    StateConflictError,
    StoreError,
)
from millpond.stores.durability import Storage, claim
from millpond.stores.durability.copies.lease import Lease


def write(storage: Storage, path: str, content: bytes) -> None:
    with storage.writing(path) as stream:
        stream.write(content)


@pytest.mark.parametrize("as_uri", [False, True])
def test_files_are_written_read_listed_and_deleted(tmp_path: Path, as_uri: bool) -> None:
    storage = Storage.from_uri(f"file://{tmp_path}/deep" if as_uri else tmp_path / "deep")
    write(storage, "a/b/one", b"1")
    write(storage, "a/b/two", b"22")
    assert storage.read("a/b/two") == b"22"
    listed = storage.list("a/b")
    assert [(file.path, file.size) for file in listed] == [("a/b/one", 1), ("a/b/two", 2)]
    assert all(abs(file.modified_ms / 1000 - time.time()) < 60 for file in listed)
    storage.delete("a/b/one")
    storage.delete("a/b/one")
    assert [file.path for file in storage.list("a/b")] == ["a/b/two"]
    assert storage.list("nowhere") == []


def test_a_place_that_nobody_knows_is_one_of_a_known_kind_instead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    advice = r"install fsspec \(pip install fsspec\) and its driver for it, or use a path, .* or abfs:// \["
    with pytest.raises(ConfigurationError, match=rf"'memory://place' is on no file system .*; {advice}"):
        Storage.from_uri("memory://place").list("")
    for place in (tmp_path / "path", f"file://{tmp_path}/uri"):
        storage = Storage.from_uri(place)
        write(storage, "a/one", b"1")
        assert storage.read("a/one") == b"1"


def test_a_place_that_only_fsspec_knows_is_there_once_that_is_installed() -> None:
    storage = Storage.from_uri("memory://place")
    storage.put_once("a/one", b"1")
    storage.put_once("a/one", b"2")
    assert (storage.read("a/one"), [file.path for file in storage.list("a")]) == (b"1", ["a/one"])
    storage.delete("a/one")
    assert storage.list("a") == []


@pytest.mark.parametrize("remote", [False, True])
def test_it_tells_the_sizes_of_the_files_that_are_there(tmp_path: Path, remote: bool) -> None:
    storage = Storage.from_uri("mock:///sizes" if remote else tmp_path)
    write(storage, "a/one", b"1")
    write(storage, "a/two", b"22")
    write(storage, "a/deep/three", b"333")
    assert storage.sizes("a", ["two", "three", "deep"]) == {"two": 2}
    assert storage.sizes("nowhere", ["one"]) == {}


def test_a_place_is_the_same_whatever_options_and_secrets_its_uri_has_and_no_other_place_is(tmp_path: Path) -> None:
    local = {Storage.from_uri(uri).place for uri in (tmp_path, f"file://{tmp_path}/", f"file://{tmp_path}?sync=false")}
    s3 = {Storage(uri).place for uri in ("s3://bucket/a", "s3://key:secret@bucket/a/", "s3://bucket/a?region=x")}
    azure = {Storage(f"abfs://{container}@account.net/a").place for container in ("one", "two")}
    others = {Storage(uri).place for uri in (f"{tmp_path}/a", "s3://bucket/b", "s3://other/a", "gs://bucket/a")}
    signs = {Storage(f"{tmp_path}/a{sign}b").place for sign in ("?", "#", "%20", " ")}
    assert Storage(f"file://{tmp_path}/a%20b").place in signs - others
    assert [len(places) for places in (local, s3, azure, others, signs)] == [1, 1, 2, 4, 4]
    assert len(local | s3 | azure | others) == 8


@pytest.mark.parametrize("place", ["local", "remote", "local without hard links"])
def test_a_file_that_is_written_once_stays_as_it_was_written_first(
    tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*_: object) -> None:
        raise OSError(errno.EPERM, "no hard links here")

    if place == "local without hard links":
        monkeypatch.setattr(os, "link", no_links)
    storage = Storage.from_uri("mock:///once" if place == "remote" else tmp_path)
    storage.put_once("a/one", b"first")
    storage.put_once("a/one", b"second")
    assert storage.read("a/one") == b"first"
    assert [file.path for file in storage.list("a")] == ["a/one"]


def test_all_who_write_a_file_once_at_the_same_time_read_the_same(tmp_path: Path) -> None:
    storage, together = Storage.from_uri(f"file://{tmp_path}?sync=false"), Barrier(4)

    def written(path: str, content: bytes) -> bytes:
        together.wait()
        storage.put_once(path, content)
        return storage.read(path)

    with ThreadPoolExecutor(4) as pool:
        for number in range(50):
            found = list(pool.map(partial(written, f"a/{number}"), (b"a", b"b", b"c", b"d")))
            assert len(set(found)) == 1, found
    assert len(storage.list("a")) == 50


def test_a_directory_is_listed_while_it_is_made(tmp_path: Path) -> None:
    storage, together = Storage.from_uri(f"file://{tmp_path}?sync=false"), Barrier(4)

    def met(directory: str, writes: bool) -> bool:
        together.wait()
        if writes:
            storage.put(f"{directory}/file", b"content")
        return f"{directory}/file" in {file.path for file in storage.list(directory)}

    with ThreadPoolExecutor(4) as pool:
        for number in range(600):
            found = list(pool.map(partial(met, f"{number}"), (True, False, True, False)))
            assert (found[0], found[2]) == (True, True)


def test_a_storage_travels(tmp_path: Path) -> None:
    storage = Storage.from_uri(tmp_path)
    write(storage, "file", b"1")
    assert pickle.loads(pickle.dumps(storage)).read("file") == b"1"


def test_a_relative_path_means_the_same_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Storage.from_uri("state").uri == str(tmp_path / "state")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match="nowhere/file"):
        Storage.from_uri(tmp_path).read("nowhere/file")


def test_a_file_that_was_not_written_to_its_end_is_dropped(tmp_path: Path) -> None:
    storage = Storage.from_uri(tmp_path)

    def fail() -> None:
        with storage.writing("file") as stream:
            stream.write(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert storage.list("") == []


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the paths that are synced, in order."""
    paths: list[str] = []
    sync = os.fsync

    def noted(descriptor: int) -> None:
        paths.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    return paths


def test_a_finished_file_is_synced_and_so_is_the_way_to_it_whoever_made_it(tmp_path: Path, synced: list[str]) -> None:
    (tmp_path / "state" / "app").mkdir(parents=True)
    storage = Storage.from_uri(tmp_path / "state")
    write(storage, "app/one", b"1")
    way = [str(tmp_path / part) for part in ("state/app/one", "state/app", "state")]
    assert synced[:4] == [*way, str(tmp_path)]
    synced.clear()
    write(storage, "app/two", b"2")
    assert synced == [str(tmp_path / "state/app/two"), str(tmp_path / "state/app")]
    synced.clear()
    shutil.rmtree(tmp_path / "state")
    write(storage, "app/one", b"1")
    assert synced[:3] == way


def test_syncing_can_be_turned_off_for_a_local_directory(tmp_path: Path, synced: list[str]) -> None:
    storage = Storage.from_uri(f"file://{tmp_path}/state?sync=false")
    assert storage.uri == f"file://{tmp_path}/state"
    write(pickle.loads(pickle.dumps(storage)), "one", b"1")
    assert synced == []
    for value in ("maybe", ""):
        with pytest.raises(ConfigurationError, match=f"sync={value};"):
            Storage.from_uri(f"file://{tmp_path}?sync={value}")


def test_a_file_that_cannot_be_synced_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.EINVAL, "no such operation here")

    monkeypatch.setattr(os, "fsync", fail)
    storage = Storage.from_uri(tmp_path)
    with pytest.raises(DurabilityError, match="sync=false"):
        write(storage, "one", b"1")
    assert storage.list("") == []


def test_a_small_file_appears_whole(tmp_path: Path) -> None:
    storage = Storage.from_uri(tmp_path)
    storage.put("a/one", b"1")
    storage.put("a/one", b"2")
    assert storage.read("a/one") == b"2"
    assert len(storage.list("a")) == 1


def test_a_storage_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    with pytest.raises(DurabilityError, match="cannot write"):
        write(Storage.from_uri(tmp_path / "file"), "one", b"1")


@pytest.mark.parametrize("uri", ["", "unheard-of://host/path"])
def test_a_storage_that_nobody_knows_is_refused(uri: str) -> None:
    with pytest.raises(ConfigurationError, match="state directory"):
        Storage.from_uri(uri)


def test_hadoops_names_for_s3_are_understood() -> None:
    uri = "s3a://key:secret@bucket/prefix?region=eu-west-1&endpoint_override=localhost:1"
    assert Storage.from_uri(uri).uri == uri.replace("s3a", "s3", 1)


def test_a_lease_has_one_holder_at_a_time(tmp_path: Path) -> None:
    one, two = Lease(tmp_path / "task", 0.05), Lease(tmp_path / "task", 0.05)
    one.acquire()
    one.acquire()
    with pytest.raises(BackendInUseError, match=f"process {os.getpid()}"):
        two.acquire()
    one.release()
    one.release()
    two.acquire()
    assert (one.held, two.held) == (False, True)
    two.release()


def test_the_holder_is_named_whoever_held_the_lease_before(tmp_path: Path) -> None:
    (tmp_path / "lease").write_text("12345678901234567890\n")
    one, two = Lease(tmp_path, 0), Lease(tmp_path, 0)
    one.acquire()
    with pytest.raises(BackendInUseError, match=f"process {os.getpid()} and"):
        two.acquire()
    one.release()


HOLD = """
import sys, time
from pathlib import Path
from millpond.stores.durability.copies.lease import Lease
lease = Lease(Path(sys.argv[1]), 5)
lease.acquire()
print("held", flush=True)
time.sleep(60)
"""


def test_a_lease_ends_with_its_holder_however_that_ends(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "held\n"
            with pytest.raises(BackendInUseError, match=f"process {holder.pid}"):
                Lease(tmp_path, 0.05).acquire()
        finally:
            holder.kill()
    lease = Lease(tmp_path, 0.05)
    lease.acquire()
    lease.release()


def test_a_local_directory_that_cannot_be_made_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    with pytest.raises(StoreError, match="cannot be used"):
        Lease(tmp_path / "file" / "task", 1).acquire()


def test_one_topology_claims_an_application_again_and_again(tmp_path: Path) -> None:
    storage = Storage.from_uri(tmp_path)
    for _ in range(3):
        claim(storage, "app", "one")
    claim(storage, "other app", "two")
    assert len(storage.list("app")) == 1


def test_another_topology_is_refused_and_leaves_no_trace(tmp_path: Path) -> None:
    storage = Storage.from_uri(tmp_path)
    claim(storage, "app", "one")
    with pytest.raises(StateConflictError, match="another application id"):
        claim(storage, "app", "two")
    claim(storage, "app", "one")
    assert len(storage.list("app")) == 1
