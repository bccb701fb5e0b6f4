"""Directories that an engine refuses to open, read or write, and what the messages say to do about that."""

import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from millpond.adapters.lmdb import LmdbSupplier
from millpond.adapters.rocksdb import RocksDbSupplier
from millpond.errors import BackendError, BackendInUseError, StoreFullError
from millpond.stores.backend.contract import Backend, BackendSupplier, Entries
from millpond.stores.testing import Child
from millpond.stores.testing.programs import hold

ENGINES = [LmdbSupplier(), RocksDbSupplier()]
FREE_SOME = r"has no room left \(.*\); free some space on that file system"
MORE = r"has no address space left \(.*\); give a smaller map_size, or the process more \(ulimit -v\)"


def row(number: int, size: int = 100_000) -> dict[bytes, bytes | None]:
    return {b"%06d" % number: bytes(size)}


def filled(backend: Backend, size: int, message: str) -> int:
    """Return how many rows the backend takes until it refuses one."""
    written = 0

    def write() -> None:
        nonlocal written
        for number in range(1_000):
            backend.write(row(number, size))
            written += 1

    with pytest.raises(StoreFullError, match=message):
        write()
    return written


def keys(supplier: BackendSupplier, directory: Path) -> list[bytes]:
    with supplier.open(directory) as backend:
        return [key for key, _ in backend.scan()]


@contextmanager
def limited(what: int, limit: int) -> Iterator[Callable[[], None]]:
    """Within it, this process has no more than that; what it gives takes the limit away."""
    before = resource.getrlimit(what)

    def lift() -> None:
        resource.setrlimit(what, before)

    resource.setrlimit(what, (limit, before[1]))
    try:
        yield lift
    finally:
        lift()


def address_space() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


@pytest.mark.parametrize("supplier", ENGINES, ids=lambda one: one.name)
def test_a_full_disk_is_written_on_once_some_space_is_free(supplier: BackendSupplier, tmp_path: Path) -> None:
    with limited(resource.RLIMIT_FSIZE, 1 << 20) as make_room:
        backend = supplier.open(tmp_path)
        written = filled(backend, 100_000, FREE_SOME)
        with suppress(StoreFullError):
            backend.close()
        make_room()
        with supplier.open(tmp_path) as backend:
            backend.write(row(written))
    assert written > 0
    assert keys(supplier, tmp_path) == [b"%06d" % number for number in range(written + 1)]


def test_a_directory_is_made_once_some_space_is_free(tmp_path: Path) -> None:
    with limited(resource.RLIMIT_FSIZE, 0) as make_room:
        with pytest.raises(StoreFullError, match=FREE_SOME):
            RocksDbSupplier().open(tmp_path)
        make_room()
        with RocksDbSupplier().open(tmp_path) as backend:
            backend.write(row(0))
    assert keys(RocksDbSupplier(), tmp_path) == [b"000000"]


def test_a_map_fits_once_it_is_smaller(tmp_path: Path) -> None:
    with pytest.raises(StoreFullError, match=MORE):
        LmdbSupplier(map_size=1 << 50).open(tmp_path)
    with LmdbSupplier(map_size=1 << 20).open(tmp_path) as backend:
        backend.write(row(0))
    assert keys(LmdbSupplier(), tmp_path) == [b"000000"]


def test_a_map_that_has_grown_fits_once_the_process_has_more_address_space(tmp_path: Path) -> None:
    supplier = LmdbSupplier(map_size=1 << 20)
    with limited(resource.RLIMIT_AS, address_space() + (1 << 24)) as give_more:
        with supplier.open(tmp_path) as backend:
            written = filled(backend, 1 << 20, MORE)
        give_more()
        with supplier.open(tmp_path) as backend:
            backend.write(row(written, 1 << 26))
    assert written > 0
    assert keys(supplier, tmp_path) == [b"%06d" % number for number in range(written + 1)]


@pytest.mark.parametrize("supplier", ENGINES, ids=lambda one: one.name)
def test_what_this_process_has_open_opens_once_it_is_closed(supplier: BackendSupplier, tmp_path: Path) -> None:
    with supplier.open(tmp_path) as backend:
        backend.write(row(0))
        with pytest.raises(
            BackendInUseError, match=r"this process already; close that backend|this process \(\d+\); close it there"
        ):
            supplier.open(tmp_path)
    assert keys(supplier, tmp_path) == [b"000000"]


def test_what_another_process_has_open_opens_once_it_is_closed_there(tmp_path: Path) -> None:
    with Child(hold, RocksDbSupplier(), tmp_path) as child:
        child.read()
        with pytest.raises(BackendInUseError, match=rf"in use by process {child.pid}; close it there first"):
            RocksDbSupplier().open(tmp_path)
        child.let_go_on()
        child.read()
        child.let_go_on()
        child.wait()
        assert keys(RocksDbSupplier(), tmp_path) == [b"child"]


def test_what_is_read_by_too_many_is_read_once_some_scans_are_closed(tmp_path: Path) -> None:
    with LmdbSupplier().open(tmp_path) as backend:

        def read() -> Entries:
            backend.write({b"a": b"", b"b": b""})
            scan = backend.scan()
            next(scan)
            return scan

        scans = [read() for _ in range(1_024)]
        with pytest.raises(BackendInUseError, match=r"is read by too many at once \(.*\); close some of their scans"):
            read()
        del scans[:1]
        assert list(read()) == [(b"b", b"")]


def test_a_file_of_the_package_is_used_once_it_may_be_read(tmp_path: Path) -> None:
    (tmp_path / "rocksdict-config.json").mkdir()
    with pytest.raises(BackendError, match=r"cannot be used \(.*\); see that its files may be read and written"):
        RocksDbSupplier().open(tmp_path)
    (tmp_path / "rocksdict-config.json").rmdir()
    with RocksDbSupplier().open(tmp_path) as backend:
        backend.write(row(0))
    assert keys(RocksDbSupplier(), tmp_path) == [b"000000"]
