"""The peculiarities of the memory backend: the bytes that it says its rows take, and writes in any form."""

import tracemalloc
from collections.abc import Callable
from random import Random
from sys import getsizeof
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.stores.backend.column_changes import as_columns
from millpond.stores.backend.contract import Changes
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
@pytest.mark.parametrize("more", [{}, {b"": b"1", b"b": None}, {b"b": b"2", b"c": b"3"}])
def test_a_write_of_a_value_that_has_no_length_changes_nothing(
    more: dict[bytes, bytes | None], old: dict[bytes, bytes | None]
) -> None:
    backend = MemoryBackend()
    backend.write(old)
    size = backend.memory_use()
    wrong: Any = {**more, b"a": 5}
    with pytest.raises(TypeError):
        backend.write(wrong)
    assert dict(backend.scan()) == old
    assert backend.memory_use() == size


def without_table(backend: MemoryBackend) -> int:
    """Return the bytes of its rows, but for the dict's table, whose size depends on what there has been before."""
    return backend.memory_use() - getsizeof(backend._map)


def as_dict(changes: dict[bytes, bytes | None]) -> Changes:
    return changes


def as_column_changes(changes: dict[bytes, bytes | None]) -> Changes:
    return as_columns(changes) if changes else changes


rows = st.dictionaries(st.binary(min_size=1, max_size=2), st.none() | st.binary(max_size=3), max_size=20)


@given(st.lists(st.tuples(rows, st.sampled_from([as_dict, as_column_changes])), max_size=8))
def test_it_holds_what_was_written_in_any_form_and_counts_its_bytes(
    writes: list[tuple[dict[bytes, bytes | None], Callable[[dict[bytes, bytes | None]], Changes]]],
) -> None:
    backend, held = MemoryBackend(), dict[bytes, bytes]()
    for changes, form in writes:
        backend.write(form(changes))
        held |= {key: value for key, value in changes.items() if value is not None}
        held = {key: value for key, value in held.items() if changes.get(key, b"") is not None}
        assert list(backend.scan()) == sorted(held.items())
        assert list(backend.scan(reverse=True)) == sorted(held.items(), reverse=True)
        assert backend.entry_count() == len(held)
        assert backend.get_many(list(changes)) == [held.get(key) for key in changes]
        fresh = MemoryBackend()
        fresh.load(sorted(held.items()))
        assert without_table(backend) == without_table(fresh)


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
