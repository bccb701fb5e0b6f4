"""What is peculiar to the memory backend: how many bytes it says that its rows take."""

import tracemalloc
from random import Random
from typing import Any

import pytest

from millpond.stores.backend.memory import MemoryBackend


def test_rows_that_are_written_one_by_one_are_in_order_and_an_open_scan_shows_what_it_showed() -> None:
    backend = MemoryBackend()
    for key in (b"c", b"a", b"b"):
        backend.write({key: b"1"})
    scans = [backend.scan(), backend.scan(), backend.scan(reverse=True)]
    assert next(scans[1]) == (b"a", b"1")
    backend.write({b"b": b"2"})
    backend.write({b"aa": b"3"})
    backend.write({b"c": None})
    backend.write({b"d": None})
    assert list(backend.scan()) == [(b"a", b"1"), (b"aa", b"3"), (b"b", b"2")]
    before = [(b"a", b"1"), (b"b", b"1"), (b"c", b"1")]
    assert [list(scan) for scan in scans] == [before, before[1:], before[::-1]]


@pytest.mark.parametrize("old", [{}, {b"a": b"0"}])
def test_a_write_of_one_row_whose_value_has_no_length_changes_nothing(old: dict[bytes, bytes | None]) -> None:
    backend = MemoryBackend()
    backend.write(old)
    size = backend.memory_use()
    wrong: Any = {b"a": 5}
    with pytest.raises(TypeError):
        backend.write(wrong)
    assert dict(backend.scan()) == old
    assert backend.memory_use() == size


@pytest.mark.parametrize("size", [0, 20, 700])
@pytest.mark.parametrize("way", ["written", "loaded", "changed"])
def test_its_memory_use_is_what_python_allocates_for_its_rows_and_half_of_them_when_half_is_deleted(
    way: str, size: int
) -> None:
    rng, count = Random(size), 5_000
    backend = MemoryBackend()
    empty = backend.memory_use()
    tracemalloc.start()
    # One by one, so that nothing but the backend holds them.
    if way == "loaded":
        backend.load((b"key %08d" % number, rng.randbytes(size + number % 7)) for number in range(count))
    for number in range(count if way != "loaded" else 0):
        backend.write({b"key %08d" % number: rng.randbytes(size + number % 7 + (50 if way == "changed" else 0))})
    for number in range(count if way == "changed" else 0):
        backend.write({b"key %08d" % number: rng.randbytes(size + number % 7)})
    allocated, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    full = backend.memory_use()
    # What Python's allocator and the system's lose to alignment is not traced: some 20 bytes a row.
    assert allocated < full - empty < 1.02 * allocated + 25 * count
    backend.write({b"key %08d" % number: None for number in range(0, count, 2)})
    assert 0.4 * full < backend.memory_use() < 0.65 * full
