"""A time-ordered buffer holds columns of records as it holds single ones, and either way finds what the other held."""

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from millpond.errors import CorruptStoreError
from millpond.processors.runtime.batches.batch import Batch
from millpond.processors.runtime.batches.columns import Columns
from millpond.processors.tables.time_ordered_buffer import BufferSpec, TimeOrderedBuffer
from millpond.stores.backend.memory import MemoryBackend
from millpond.stores.backend.transaction import Transaction
from millpond.stores.encoding.serdes import BYTES

GRACE = 5
SPEC = BufferSpec("waiting", GRACE, BYTES, BYTES)


def opened() -> Any:
    return SPEC.store_spec.open(Transaction(MemoryBackend()))


def columns(rows: list[tuple[bytes, bytes, int]]) -> Columns:
    keys, values, times = ([row[place] for row in rows] for place in range(3))
    return Columns(pa.array(keys, pa.binary()), pa.array(values, pa.binary()), np.array(times, np.int64))


def records(found: Any) -> list[tuple[bytes, bytes, int]]:
    batch = found.to_batch() if isinstance(found, Columns) else found
    return list(zip(batch.keys, batch.values, batch.timestamps, strict=True))


def one_by_one(buffer: TimeOrderedBuffer, rows: list[tuple[bytes, bytes, int]], time: int) -> list[Any]:
    found = records(buffer.pass_through(columns(rows).to_batch())[0]) if rows else []
    return found + records(buffer.advance(time))


@pytest.mark.parametrize("seed", range(30))
def test_columns_and_records_leave_alike_and_what_stays_has_the_same_bytes(seed: int) -> None:
    chance = random.Random(seed)
    stores = [opened() for _ in range(2)]
    time = 0
    for number in range(12):
        time = max(time, number * 3)
        size = chance.choice([0, 1, 2, 9])
        times = sorted(chance.randint(max(time - GRACE + 1, 0), time + 8) for _ in range(size))
        rows = [(chance.choice([b"", b"a", b"a\x00", b"b"]), b"%d" % place, at) for place, at in enumerate(times)]
        time = max([time, *times])
        buffers = [TimeOrderedBuffer(SPEC, store) for store in stores]
        single = one_by_one(buffers[0], rows, time)
        whole = chance.random() < 0.8
        found = records(buffers[1].move_columns(columns(rows), time)) if whole else one_by_one(buffers[1], rows, time)
        assert found == single
        assert buffers[0].waiting == buffers[1].waiting
        assert buffers[0].earliest == buffers[1].earliest
        held = [[(row[:-8], data) for row, data in store.scan()] for store in stores]
        assert held[0] == held[1]
    drained = [records(TimeOrderedBuffer(SPEC, store).drain()) for store in stores]
    assert drained[0] == drained[1]


def test_a_record_that_waits_and_is_damaged_is_told_and_nothing_has_changed() -> None:
    store = opened()
    buffer = TimeOrderedBuffer(SPEC, store)
    buffer.move_columns(columns([(b"a", b"one", 1)]), 1)
    ((row, _),) = list(store.scan())
    store.put(row, b"\x07")
    with pytest.raises(CorruptStoreError, match="the buffer has a damaged row"):
        buffer.move_columns(columns([(b"b", b"two", 50)]), 50)
    assert buffer.stream_time == 1
    assert [row for row, _ in store.scan()] == [row]


def test_a_record_that_waits_without_a_value_leaves_as_such() -> None:
    buffer = TimeOrderedBuffer(SPEC, opened())
    buffer.pass_through(Batch([b"a", b"b"], [None, b"one"], [1, 2]))
    assert records(buffer.move_columns(columns([]), 50)) == [(b"a", None, 1), (b"b", b"one", 2)]
