"""Records keep their order on the way from the splits to the tasks."""

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.processors.distribution import exchange
from millpond.processors.distribution.exchange import (
    COMPLETE,
    Blob,
    BlobWriter,
    Run,
    gather,
    signal_blobs,
    to_record_batch,
)
from millpond.processors.options.order import Order

Queues = dict[tuple[int, int], list[int]]


def _table(first: int, timestamps: list[int], keys: list[Any] | None = None) -> pa.Table:
    values = [f"k{first + i}" for i in range(len(timestamps))]
    keys = values if keys is None else keys
    return pa.table(
        {"key": pa.array(keys, pa.string()), "value": values, "timestamp": pa.array(timestamps, pa.int64())}
    )


def _expected(queues: Queues) -> list[tuple[int, str, int]]:
    """Return a literal reading of the rule of the order of arrival, each split being a queue of its own."""
    waiting = {place: list(enumerate(times)) for place, times in sorted(queues.items())}
    taken = []
    while any(waiting.values()):
        place = min((place for place in waiting if waiting[place]), key=lambda place: waiting[place][0][1])
        i, timestamp = waiting[place].pop(0)
        taken.append((place[0], f"k{i}", timestamp))
    return taken


QUEUES = st.dictionaries(
    st.tuples(st.integers(0, 2), st.integers(0, 2)), st.lists(st.integers(0, 20), min_size=1, max_size=12), min_size=1
)


@settings(deadline=None)
@given(QUEUES, st.integers(1, 5), st.randoms(use_true_random=False))
def test_in_the_order_of_arrival_records_come_as_the_merge_takes_them_whatever_the_shuffle_did(
    queues: Queues, cut: int, shuffle: random.Random
) -> None:
    blobs: list[Blob] = []
    for (input_, split), times in queues.items():
        writer = BlobWriter(split * 10 + input_)
        for start in range(0, len(times), cut):
            blobs += writer.cut(_table(start, times[start : start + cut]), 0, input_)
    shuffle.shuffle(blobs)
    runs = list(gather(blobs, keep_order={1}, order=Order.ARRIVAL))
    batches = [(run.input, run.records.to_batch()) for run in runs]
    taken = [(i, key, time) for i, run in batches for key, time in zip(run.keys, run.timestamps, strict=True)]
    assert taken == _expected({(input_, split * 10 + input_): times for (input_, split), times in queues.items()})
    assert all(run.keys == run.values for _, run in batches)


def _shuffled(queues: Queues, cut: int, shuffle: random.Random, keys: dict[tuple[int, int], list[Any]]) -> list[Blob]:
    """Return blobs of at most ``cut`` records; equal splits of different inputs may meet."""
    blobs = list[Blob]()
    for (input_, split), times in queues.items():
        writer = BlobWriter(split)
        for start in range(0, len(times), cut):
            stop = start + cut
            blobs += writer.cut(_table(start, times[start:stop], keys[input_, split][start:stop]), 0, input_)
    shuffle.shuffle(blobs)
    return blobs


def columns_of(run: Run) -> tuple[list[Any], list[Any], list[int]]:
    batch = run.records.to_batch()
    return batch.keys, batch.values, batch.timestamps


def _taken(blobs: list[Blob], keep_order: set[int], order: Order) -> list[tuple[int, Any, str, int]]:
    runs = gather(blobs, keep_order, order=order)
    return [(run.input, *record) for run in runs for record in zip(*columns_of(run), strict=True)]


ORDERED_BY_TIME = [(Order.TIME, False), (Order.TIME, True), (Order.ARRIVAL, True)]
"""Orders, and whether the inputs are complete, that lead to the order of time."""


def _told(blobs: list[Blob], complete: bool, shuffle: random.Random) -> list[Blob]:
    """Return the blobs, and with ``complete`` two that tell of completion somewhere among them."""
    told = blobs + signal_blobs(COMPLETE, [0, 0] if complete else [])
    shuffle.shuffle(told)
    return told


@settings(deadline=None)
@given(QUEUES, st.integers(1, 5), st.randoms(use_true_random=False))
def test_in_the_order_of_time_and_once_inputs_are_complete_records_come_sorted_by_it(
    queues: Queues, cut: int, shuffle: random.Random
) -> None:
    keys: dict[tuple[int, int], list[Any]] = {place: [f"s{place[1]}"] * len(times) for place, times in queues.items()}
    in_order = [
        (place[0], f"s{place[1]}", f"k{i}", time)
        for place, times in sorted(queues.items())
        for i, time in enumerate(times)
    ]
    expected = sorted(in_order, key=lambda record: record[3])
    blobs = _shuffled(queues, cut, shuffle, keys)
    for order, complete in ORDERED_BY_TIME:
        assert _taken(_told(blobs, complete, shuffle), set(), order) == expected


@settings(deadline=None)
@given(QUEUES, st.integers(1, 5), st.randoms(use_true_random=False))
def test_inputs_that_keep_their_order_do_so_key_by_key(queues: Queues, cut: int, shuffle: random.Random) -> None:
    keys = {place: [shuffle.choice(["a", "b", None]) for _ in times] for place, times in queues.items()}
    expected = []
    for place, times in sorted(queues.items()):
        reached: dict[Any, int] = {}
        for i, (key, time) in enumerate(zip(keys[place], times, strict=True)):
            reached[key] = max(time, reached.get(key, 0))
            expected.append((time if place[0] == 0 else reached[key], (place[0], key, f"k{i}", time)))
    expected.sort(key=lambda entry: entry[0])
    blobs = _shuffled(queues, cut, shuffle, keys)
    for order, complete in ORDERED_BY_TIME:
        assert _taken(_told(blobs, complete, shuffle), {1, 2}, order) == [record for _, record in expected]


def test_blobs_that_tell_of_completion_have_no_records_and_travel_like_others() -> None:
    blobs = signal_blobs(COMPLETE, [5, 7])
    assert blobs == [Blob(5, COMPLETE, 0, 0, b""), Blob(7, COMPLETE, 0, 0, b"")]
    assert [Blob(*row.values()) for row in to_record_batch(blobs).to_pylist()] == blobs
    assert list(gather(blobs[:1])) == []


def test_records_become_objects_a_window_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "WINDOW_ROWS", 4)
    blobs = [*BlobWriter(0).cut(_table(0, list(range(10))), 0, 0), *BlobWriter(1).cut(_table(10, [4, 5]), 0, 1)]
    runs = list(gather(blobs))
    assert max(len(run.records) for run in runs) <= 4
    assert [key for run in runs for key in run.records.to_batch().keys if run.input == 0] == [
        f"k{i}" for i in range(10)
    ]


def test_large_records_become_objects_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "WINDOW_BYTES", 1000)
    table = pa.table({"key": ["k"] * 40, "value": ["x" * 100] * 40, "timestamp": list(range(40))})
    assert max(map(len, exchange.windows(table))) < 10


def test_scattered_records_reach_their_partitions_in_order() -> None:
    times = list(range(1000))
    partitions = np.array([i * 7 % 3 for i in times], dtype=np.uint32)
    blobs = list(BlobWriter(0).scatter(_table(0, times), partitions, [50, 60, 70], 0))
    for partition, task in enumerate((50, 60, 70)):
        runs = list(gather(blob for blob in blobs if blob.task == task))
        assert [time for run in runs for time in run.records.to_batch().timestamps] == [
            i for i in times if i * 7 % 3 == partition
        ]


def test_blobs_stay_near_their_limit() -> None:
    table = pa.table({"key": ["k"] * 400, "value": ["x" * 10_000] * 400, "timestamp": list(range(400))})
    blobs = list(BlobWriter(0).cut(table, 0, 0))
    assert 40 <= len(blobs) <= 50
    assert max(len(blob.records) for blob in blobs) < 1.2 * exchange.BLOB_BYTES


def test_a_record_larger_than_a_blob_travels_alone() -> None:
    table = pa.table({"key": ["a", "b"], "value": ["x" * 3_000_000] * 2, "timestamp": [1, 2]})
    assert len(list(BlobWriter(0).cut(table, 0, 0))) == 2
