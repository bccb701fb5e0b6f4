"""What is peculiar to the memory backend: how many bytes it says that its rows take."""

import tracemalloc
from random import Random

import pytest

from millpond.stores.memory import MemoryBackend


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
