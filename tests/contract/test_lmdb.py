"""The peculiarities of LMDB: its map, its readers and its processes."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lmdb
import pytest

from millpond.adapters.lmdb import LmdbBackend, LmdbSupplier, translate_errors
from millpond.errors import BackendError, BackendInUseError, CorruptStoreError, InvalidKeyError, StoreFullError
from millpond.stores.testing import Child
from millpond.stores.testing.child import report, wait_for_parent

SMALL = LmdbSupplier(map_size=2**15)


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[LmdbBackend]:
    with SMALL.open(tmp_path) as backend:
        yield backend


def rows(first: int, past: int, size: int = 1000) -> dict[bytes, bytes | None]:
    return {b"%06d" % number: bytes(size) for number in range(first, past)}


def map_size(backend: LmdbBackend) -> int:
    size: int = backend._env.info()["map_size"]
    return size


def test_the_map_grows_as_often_as_one_write_needs_it(backend: LmdbBackend) -> None:
    assert map_size(backend) == 2**15
    backend.write(rows(0, 5000))
    assert map_size(backend) >= 2**22
    assert len(list(backend.scan())) == 5000


def test_scans_that_are_open_while_the_map_grows_show_what_they_showed(backend: LmdbBackend) -> None:
    backend.write(rows(0, 20))
    untouched, begun, backwards = backend.scan(), backend.scan(), backend.scan(b"000005", b"000015", reverse=True)
    next(begun)
    next(backwards)
    before = map_size(backend)
    backend.write(rows(10, 3000, 900))
    assert map_size(backend) > before
    assert list(untouched) == list(rows(0, 20).items())
    assert list(begun) == list(rows(1, 20).items())
    assert list(backwards) == list(rows(5, 14).items())[::-1]


def test_a_directory_opens_with_a_map_as_large_as_its_data(tmp_path: Path) -> None:
    with SMALL.open(tmp_path) as backend:
        backend.write(rows(0, 2000))
    with SMALL.open(tmp_path) as backend:
        assert len(list(backend.scan())) == 2000
        backend.write(rows(2000, 4000))
        assert len(list(backend.scan())) == 4000


def grow_beside(directory: Path) -> None:
    """Write more than the parent's map holds, in a child."""
    with SMALL.open(directory) as backend:
        report("open")
        wait_for_parent()
        backend.write(rows(100, 3000))
        report("grown")
        wait_for_parent()
        report(len(list(backend.scan())))


def test_a_map_that_another_process_has_grown_is_followed_by_readers_and_writers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[2])
    with SMALL.open(tmp_path) as backend, Child(grow_beside, tmp_path) as child:
        backend.write(rows(0, 10))
        scan = backend.scan()
        next(scan)
        assert child.read() == "open"
        child.let_go_on()
        assert child.read() == "grown"
        assert len(list(backend.scan())) == 10, "a snapshot moves only at an own write or flush"
        assert backend.get(b"000100") is None
        backend.flush()
        assert backend.get(b"000100") == bytes(1000)
        assert len(list(scan)) == 9
        backend.write(rows(3000, 6000))
        child.let_go_on()
        assert child.read() == "5910"
        assert child.wait() == 0


def test_an_idle_backend_holds_no_snapshot(backend: LmdbBackend, tmp_path: Path) -> None:
    backend.write(rows(0, 10))
    backend.get(b"000001")
    assert _snapshots(backend) == 1
    backend.write(rows(0, 10))
    assert _snapshots(backend) == 0
    backend.get(b"000001")
    backend.flush()
    assert _snapshots(backend) == 0


def test_pages_are_used_again_while_the_same_rows_are_written_and_read(backend: LmdbBackend) -> None:
    for number in range(300):
        backend.write(rows(0, 50))
        backend.get(b"000001")
        if number == 50:
            after_fifty = backend._size_of_file()
    assert backend._size_of_file() <= after_fifty * 1.2


def test_a_scan_frees_its_snapshot_when_it_ends(backend: LmdbBackend) -> None:
    backend.write(rows(0, 100))
    scan = backend.scan()
    next(scan)
    backend.write(rows(0, 10))
    assert _snapshots(backend) == 1
    list(scan)
    del scan
    assert _snapshots(backend) == 0


def test_readers_of_killed_processes_are_cleared_at_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[2])
    with Child(read_and_wait, tmp_path) as child:
        assert child.read() == "reading"
        child.kill()
    with SMALL.open(tmp_path) as backend:
        assert str(child.pid) not in backend._env.readers()


def read_and_wait(directory: Path) -> None:
    """Hold a snapshot until the end, in a child."""
    backend = SMALL.open(directory)
    backend.get(b"a")
    report("reading")
    wait_for_parent()


def _snapshots(backend: LmdbBackend) -> int:
    """Return how many reader slots hold a snapshot: LMDB shows a dash in place of the number where there is none."""
    lines = backend._env.readers().splitlines()[1:]
    return sum(line.split()[-1] != "-" for line in lines if line.strip())


@pytest.mark.parametrize("key", [b"", b"x" * 512])
def test_keys_that_lmdb_does_not_take_are_invalid_keys(backend: LmdbBackend, key: bytes) -> None:
    with pytest.raises(InvalidKeyError, match="takes keys of 1 to 511 bytes"):
        backend.write({b"a": b"1", key: b"2"})
    assert list(backend.scan()) == []


@pytest.mark.parametrize(
    ("engines", "code", "kind"),
    [
        (lmdb.CorruptedError, 0, CorruptStoreError),
        (lmdb.VersionMismatchError, 0, CorruptStoreError),
        (lmdb.MapFullError, 0, StoreFullError),
        (lmdb.DiskError, errno.ENOSPC, StoreFullError),
        (lmdb.Error, errno.EDQUOT, StoreFullError),
        (lmdb.Error, errno.EIO, BackendError),
        (lmdb.ReadersFullError, 0, BackendInUseError),
        (lmdb.LockError, errno.EAGAIN, BackendInUseError),
        (lmdb.BadTxnError, 0, BackendError),
    ],
)
def test_each_error_of_lmdb_becomes_one_of_millponds_that_names_the_directory(
    tmp_path: Path, engines: type[lmdb.Error], code: int, kind: type[BackendError]
) -> None:
    (tmp_path / "data.mdb").touch()
    error = engines("what the engine says")
    error.code = code  # type: ignore[misc]  # as the engine itself sets it
    with pytest.raises(BackendError, match=str(tmp_path)) as raised, translate_errors(tmp_path):
        raise error
    assert type(raised.value) is kind
    assert raised.value.__cause__ is error


@pytest.mark.parametrize(("code", "kind"), [(errno.ENOSPC, StoreFullError), (errno.EAGAIN, BackendInUseError)])
def test_an_error_that_has_the_systems_reason_in_words_only_is_understood(
    tmp_path: Path, code: int, kind: type[BackendError]
) -> None:
    with pytest.raises(BackendError) as raised, translate_errors(tmp_path):
        raise lmdb.Error(f"mdb_txn_commit: {os.strerror(code)}")
    assert type(raised.value) is kind


@pytest.mark.parametrize("key", [b"", b"x" * 512])
def test_a_write_of_one_row_with_a_key_that_lmdb_does_not_take_is_refused_as_one_of_many(
    backend: LmdbBackend, key: bytes
) -> None:
    with pytest.raises(InvalidKeyError, match="takes keys of 1 to 511 bytes"):
        backend.write({key: b"1"})
    assert list(backend.scan()) == []


@pytest.mark.parametrize("change", [{"a": b"1"}, {b"a": "1"}, {b"a": 1}, {"a": None}])
def test_a_write_of_one_row_that_is_not_bytes_is_refused_and_writes_nothing(backend: LmdbBackend, change: Any) -> None:
    backend.write({b"a": b"0"})
    with pytest.raises(TypeError, match="bytes"):
        backend.write(change)
    assert list(backend.scan()) == [(b"a", b"0")]


def test_a_row_that_is_larger_than_the_map_is_written_alone(backend: LmdbBackend) -> None:
    backend.write({b"a": bytes(2**20)})
    assert backend.get(b"a") == bytes(2**20)


@pytest.mark.parametrize("size", [100, 130, 160, 190])
def test_a_file_whose_last_pages_were_freed_as_soon_as_they_were_used_is_no_damaged_one(
    tmp_path: Path, size: int
) -> None:
    last: dict[bytes, bytes | None] = {}
    for number in range(6):
        with LmdbSupplier().open(tmp_path) as backend:
            added: dict[bytes, bytes | None] = {b"%03d%026d" % (number, i): bytes(8) for i in range(size)}
            backend.write(dict.fromkeys(last) | added)
            last = added
    with LmdbSupplier().open(tmp_path) as backend:
        assert dict(backend.scan()) == last


@pytest.mark.parametrize("size", [100, 130, 160, 190])
def test_no_write_leaves_the_file_shorter_than_lmdb_says_however_often_it_was_long_enough(
    tmp_path: Path, size: int
) -> None:
    last: dict[bytes, bytes | None] = {}
    with SMALL.open(tmp_path) as backend:
        for number in range(40):
            added: dict[bytes, bytes | None] = {b"%03d%026d" % (number, i): bytes(8) for i in range(size)}
            backend.write(dict.fromkeys(last) | added)
            assert os.stat(tmp_path / "data.mdb").st_size >= backend._size_of_file()
            backend.write({b"one": bytes(number * size)})
            assert os.stat(tmp_path / "data.mdb").st_size >= backend._size_of_file()
            last = added
    with SMALL.open(tmp_path) as backend:
        assert dict(backend.scan()) == last | {b"one": bytes(39 * size)}


def test_the_map_grows_for_single_rows_as_it_does_for_many(backend: LmdbBackend) -> None:
    before, held = map_size(backend), backend.scan()
    for key, value in rows(0, 500).items():
        backend.write({key: value})
    assert map_size(backend) > before
    assert list(held) == []
    for key in rows(0, 499):
        backend.write({key: None})
    assert dict(backend.scan()) == rows(499, 500)


def test_a_map_larger_than_the_address_space_says_what_to_give(tmp_path: Path) -> None:
    with pytest.raises(StoreFullError, match=r"has no address space left .*give a smaller map_size"):
        LmdbSupplier(map_size=2**62).open(tmp_path)
