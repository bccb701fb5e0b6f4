"""A damaged block of a RocksDB table: whatever is read is whole, or it is an error. Nothing ends early in silence."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.adapters.rocksdb import RocksDbBackend, RocksDbSupplier
from millpond.errors import CorruptStoreError, StoreClosedError
from millpond.stores.backend.engine import Entry
from tests.drawing import tries

# Nothing is cached, so every read meets the file as it is.
SUPPLIER = RocksDbSupplier(block_cache=0, compression="none")
ROWS = 12_000


def key(number: int) -> bytes:
    return b"%08d" % number


ENTRIES = [(key(number), random.Random(number).randbytes(100)) for number in range(ROWS)]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("damage")
    with SUPPLIER.open(directory) as backend:
        backend.load(ENTRIES)
    assert table(directory).stat().st_size > 1 << 20
    return directory


def table(directory: Path) -> Path:
    return max(directory.glob("*.sst"), key=lambda path: path.stat().st_size)


@contextmanager
def flipped(path: Path, at: int, bit: int = 0) -> Iterator[None]:
    """Within it, one bit of a file is wrong."""

    def flip() -> None:
        with path.open("r+b") as file:
            file.seek(at)
            (byte,) = file.read(1)
            file.seek(at)
            file.write(bytes((byte ^ 1 << bit,)))

    flip()
    try:
        yield
    finally:
        flip()


def place_of(path: Path, number: int) -> int:
    """Return the place of a row's value in the file."""
    return path.read_bytes().index(ENTRIES[number][1])


def whole_or_refused(read: Callable[[], list[Entry]], expected: list[Entry]) -> bool:
    """Return whether it was refused."""
    try:
        found = read()
    except CorruptStoreError:
        return True
    assert found == expected
    return False


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("number", [0, ROWS // 2, ROWS - 1])
def test_a_scan_over_a_damaged_block_raises_and_one_beside_it_does_not(
    directory: Path, number: int, reverse: bool
) -> None:
    path = table(directory)
    far = (number + ROWS // 4) % ROWS
    beside = ENTRIES[far : far + 50]
    everything = ((None, None), (key(0), key(ROWS)), (key(number), None), (None, key(number + 1)))
    around = ((number, number + 1), (number - 3, number + 1), (number - 99, number + 99))
    with flipped(path, place_of(path, number)), SUPPLIER.open(directory) as backend:
        for start, stop in everything:
            with pytest.raises(CorruptStoreError, match=f"{directory} is damaged "):
                list(backend.scan(start, stop, reverse=reverse))
        for first, end in around:
            with pytest.raises(CorruptStoreError, match=str(path)):
                list(backend.scan(key(max(first, 0)), key(end), reverse=reverse))
        found = list(backend.scan(beside[0][0], beside[-1][0] + b"\0", reverse=reverse))
        assert found == (beside[::-1] if reverse else beside)


@settings(max_examples=tries(50), deadline=None)
@given(at=st.integers(0, 1 << 20), bit=st.integers(0, 7), around=st.integers(0, 300), other=st.integers(0, ROWS))
def test_wherever_a_bit_is_flipped_each_read_is_whole_or_refused(
    directory: Path, at: int, bit: int, around: int, other: int
) -> None:
    # From its beginning on, a table has nothing but blocks of rows.
    near = at * ROWS // table(directory).stat().st_size
    ranges = [(max(near - around, 0), near + around), (near, ROWS), (other, other + around), (0, other)]
    with flipped(table(directory), at, bit), SUPPLIER.open(directory) as backend:

        def refused(start: int, stop: int, step: int) -> bool:
            scan = backend.scan(key(start), key(stop), reverse=step < 0)
            return whole_or_refused(lambda: list(scan), ENTRIES[start:stop][::step])

        for step in (1, -1):
            for start, stop in ranges:
                refused(start, stop, step)
            assert refused(0, ROWS, step)


def test_a_scan_of_a_damaged_prefix_raises_and_those_of_others_are_whole(directory: Path) -> None:
    path, refused = table(directory), []
    with flipped(path, place_of(path, 5050)), SUPPLIER.open(directory) as backend:
        for hundred in range(ROWS // 100):
            prefix, expected = b"%06d" % hundred, ENTRIES[hundred * 100 : hundred * 100 + 100]
            for reverse in (False, True):
                scan = backend.scan(prefix, b"%06d" % (hundred + 1), reverse=reverse)
                if whole_or_refused(lambda: list(scan), expected[::-1] if reverse else expected):  # noqa: B023
                    refused.append((hundred, reverse))
    assert {(50, False), (50, True)} == set(refused)


@pytest.mark.parametrize("reverse", [False, True])
def test_damage_is_found_below_newer_rows_and_behind_deleted_ones(tmp_path: Path, reverse: bool) -> None:
    with SUPPLIER.open(tmp_path) as backend:
        backend.load(ENTRIES)
        path = table(tmp_path)
        backend.write({key(number) + b"+": b"new" for number in range(0, ROWS, 100)})
        backend.delete_range(key(3000), key(4000))
        backend.write({key(number): None for number in range(4000, 4100)})
    with SUPPLIER.open(tmp_path) as backend:
        expected = list(backend.scan(reverse=reverse))
        assert len(expected) == ROWS - 1100 + ROWS // 100 - 10
        assert list(backend.scan(key(3000), key(4000), reverse=reverse)) == []
    with flipped(path, place_of(path, 5000)), SUPPLIER.open(tmp_path) as backend:
        for start, stop in ((None, None), (key(3000), key(6000)), (key(4990), key(5010))):
            with pytest.raises(CorruptStoreError):
                list(backend.scan(start, stop, reverse=reverse))


@pytest.mark.parametrize("reverse", [False, True])
def test_rows_written_or_deleted_since_a_scan_began_are_no_damage(tmp_path: Path, reverse: bool) -> None:
    rows = ENTRIES[100:200]
    with SUPPLIER.open(tmp_path) as backend:
        backend.load(rows)
        scans = [backend.scan(reverse=reverse), backend.scan(key(50), key(250), reverse=reverse)]
        empty = backend.scan(key(50), key(60), reverse=reverse)
        begun = [[next(scan)] for scan in scans]
        backend.write({key(number): b"new" for number in (*range(50, 100), *range(200, 250))})
        backend.delete_range(key(150), key(250))
        for scan, found in zip(scans, begun, strict=True):
            assert found + list(scan) == (rows[::-1] if reverse else rows)
        assert list(empty) == []


@pytest.mark.parametrize("reverse", [False, True])
def test_a_snapshot_that_still_has_deleted_rows_is_refused_where_they_are_damaged(
    directory: Path, tmp_path: Path, reverse: bool
) -> None:
    with SUPPLIER.open(tmp_path) as backend:
        backend.load(ENTRIES)
    path = table(tmp_path)
    with flipped(path, place_of(path, ROWS // 2)), SUPPLIER.open(tmp_path) as backend:
        scan = backend.scan(reverse=reverse)
        next(scan)
        backend.delete_range(key(10), key(ROWS - 10))
        with pytest.raises(CorruptStoreError):
            list(scan)


@pytest.mark.parametrize(("last", "reverse"), [(5, False), (None, False), (ROWS - 5, True), (None, True)])
def test_a_scan_that_ended_before_a_row_that_can_be_read_has_met_damage_too(
    directory: Path, last: int | None, reverse: bool
) -> None:
    with SUPPLIER.open(directory) as backend:
        walk = backend._db.iter()
        with pytest.raises(CorruptStoreError, match=f"{directory} is damaged .a scan ended before the key b'0"):
            backend._prove_end(walk, key(0), reverse, None if last is None else key(last))
        backend._prove_end(walk, key(0), reverse, key(0 if reverse else ROWS - 1))
        if reverse:
            backend._prove_end(walk, key(100), reverse, key(100))


def reads(backend: RocksDbBackend, number: int) -> dict[str, Callable[[], object]]:
    return {
        "get": lambda: backend.get(key(number)),
        "get_many": lambda: backend.get_many([key(0), key(number)]),
        "last": lambda: backend.last(key(0), key(number + 1)),
        "scan": lambda: list(backend.scan()),
        "a long scan": lambda: list(backend.scan(key(100), key(number + 1))),
    }


@pytest.mark.parametrize("name", reads(SUPPLIER, 0))  # type: ignore[arg-type]
def test_every_read_of_damage_is_refused_and_the_error_does_not_keep_the_directory(directory: Path, name: str) -> None:
    path = table(directory)
    with flipped(path, place_of(path, ROWS // 2)):
        backend = SUPPLIER.open(directory)
        with pytest.raises(CorruptStoreError) as raised:
            reads(backend, ROWS // 2)[name]()
        backend.close()
        with SUPPLIER.open(directory) as again:
            assert again.get(key(0)) == ENTRIES[0][1]
    assert raised.value.__traceback__ is not None


def test_a_scan_that_is_open_when_its_backend_closes_does_not_keep_the_directory(directory: Path) -> None:
    backend = SUPPLIER.open(directory)
    scan = backend.scan(key(5), key(500))
    next(scan)
    backend.close()
    with SUPPLIER.open(directory):
        pass
    with pytest.raises(StoreClosedError):
        list(scan)
