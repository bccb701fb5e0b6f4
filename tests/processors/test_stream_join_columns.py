"""Joins of two streams with a joiner of whole columns: results, counts and stores are those of objects."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millpond.errors import CorruptStoreError, TopologyError, UserFunctionError
from millpond.processors import (
    Batch,
    JoinWindows,
    KStream,
    Produced,
    StreamJoined,
    StreamsBuilder,
    Task,
    Topology,
    TopologyDriver,
)
from millpond.processors.options.order import Order
from millpond.processors.runtime.batches.columns import Columns, Records
from millpond.processors.streams import vectorized_window_join
from millpond.processors.streams.window_join import WindowJoin
from millpond.stores.backend.memory import MemoryBackend
from millpond.stores.backend.transaction import Transaction
from millpond.stores.encoding.keys import pack_time
from tests.drawing import tries
from tests.processors.test_stream_join_batches import (
    JOINS,
    MicroBatch,
    micro_batches,
    one_by_one,
    outcome,
    windows_of_all_shapes,
)


def pair(key: str | None, left: str | None, right: str | None) -> str:
    if "j" in (left or "") and "k" not in (right or ""):
        raise ValueError(left)
    return f"{key}:{left}-{right}"


def pairs(keys: Any, lefts: Any, rights: Any) -> Any:
    columns = (column.to_pylist() for column in (keys, lefts, rights))
    return pa.array(list(map(pair, *columns)), pa.string())


def two_topics(windows: JoinWindows, kind: str, order: Order = Order.ARRIVAL, *, vectorized: bool) -> Topology:
    builder = StreamsBuilder(key_serde="string", value_serde="string", order=order)
    left, right = builder.stream("left"), builder.stream("right")
    return built(builder, left, right, windows, kind, vectorized=vectorized)


def with_itself(windows: JoinWindows, kind: str, order: Order = Order.ARRIVAL, *, vectorized: bool) -> Topology:
    """Return a topology in which records of one position come to both sides."""
    builder = StreamsBuilder(key_serde="string", value_serde="string", order=order)
    stream = builder.stream("left").merge(builder.stream("right"))
    right = stream.filter(lambda keys, values: pc.match_substring(values.cast("string"), "k"), vectorized=True)
    return built(builder, stream, right, windows, kind, vectorized=vectorized)


def below_a_processor(windows: JoinWindows, kind: str, order: Order = Order.ARRIVAL, *, vectorized: bool) -> Topology:
    """Return a topology whose graph does not let the join gather its records."""
    builder = StreamsBuilder(key_serde="string", value_serde="string", order=order)
    left = builder.stream("left").flat_map_values(lambda value: [value, value])
    return built(builder, left, builder.stream("right"), windows, kind, vectorized=vectorized)


def built(
    builder: StreamsBuilder, left: KStream, right: KStream, windows: JoinWindows, kind: str, *, vectorized: bool
) -> Topology:
    joiner: Callable[..., Any] = pairs if vectorized else pair
    joined = JOINS[kind](left, right, joiner, StreamJoined(name="pairs"), windows=windows, vectorized=vectorized)
    joined.to("out", Produced("string", "string"))
    return builder.build()


BUILDS: Mapping[str, Callable[..., Topology]] = {
    "two topics": two_topics,
    "with itself": with_itself,
    "below a processor": below_a_processor,
}


def as_columns(inputs: MicroBatch) -> Iterator[tuple[str, Records]]:
    for topic, batch in inputs.items():
        keys, values = pa.array(batch.keys, pa.string()), pa.array(batch.values, pa.large_string())
        yield topic, Columns(keys, values, np.array(batch.timestamps, np.int64))


@settings(max_examples=tries(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from(list(BUILDS)),
    st.sampled_from(list(JOINS)),
    windows_of_all_shapes,
    micro_batches(),
    st.booleans(),
    st.sampled_from(Order),
)
def test_a_joiner_of_columns_gives_what_one_of_objects_gives_record_by_record(
    build: str, kind: str, windows: JoinWindows, inputs: list[MicroBatch], complete: bool, order: Order
) -> None:
    singly = [row for micro_batch in inputs for row in one_by_one(micro_batch, order)]
    expected = outcome(BUILDS[build](windows, kind, order, vectorized=False), singly, complete)
    with mock.patch.object(vectorized_window_join, "COLUMNS_FROM", 1):
        assert outcome(BUILDS[build](windows, kind, order, vectorized=True), inputs, complete) == expected


def long_inputs() -> list[MicroBatch]:
    """Return records of more than one micro-batch and segment, out of order, of which some meet and some do not."""
    inputs: list[MicroBatch] = []
    for start in range(0, 6000, 1500):
        times = range(start, start + 1500, 9)
        keys = [("a", "b\0", "", "d", "e")[time * 31 % 5] for time in times]
        late = [time - time % 5 * 90 for time in times]
        inputs.append({"left": Batch(keys, [None if time % 50 == 3 else f"x{time}" for time in times], late)})
        others = [None if time % 40 == 7 else key for key, time in zip(keys[::-1], times, strict=True)]
        inputs[-1]["right"] = Batch(others, [f"k{time}" for time in times], list(times))
    return inputs


@pytest.mark.parametrize("most_results", [1 << 16, 50])
@pytest.mark.parametrize("kind", list(JOINS))
@pytest.mark.parametrize("backend", ["memory", "lmdb", "rocksdb"])
def test_so_it_does_with_columns_and_across_restarts(
    backend: str, kind: str, most_results: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    windows = JoinWindows(before=400, after=300, grace=100)
    with TopologyDriver(two_topics(windows, kind, vectorized=False)) as driver:
        for micro_batch in long_inputs():
            for topic, batch in micro_batch.items():
                driver.pipe_batch(topic, batch)
        expected, counted = driver.read("out"), dict(driver.counters)
    monkeypatch.setattr(vectorized_window_join, "MOST_RESULTS", most_results)
    # Had it to be done record by record, it would be seen.
    monkeypatch.setattr(WindowJoin, "_process", None)
    came, counts = [], Counter[str]()
    lives = [long_inputs()] if backend == "memory" else [[micro_batch] for micro_batch in long_inputs()]
    for life in lives:
        topology = two_topics(windows, kind, vectorized=True)
        with TopologyDriver(topology, backend=backend, local_dir=tmp_path) as driver:
            for micro_batch in life:
                for topic, columns in as_columns(micro_batch):
                    driver.pipe_batch(topic, columns)
            came += driver.read("out")
            counts.update({name: count for name, count in driver.counters.items() if "dropped" in name})
            waiting = {name: count for name, count in driver.counters.items() if "dropped" not in name}
    assert came == expected
    assert {**counts, **waiting} == counted
    alone = {"inner": {False}, "semi": {False}, "anti": {True}}.get(kind, {True, False})
    assert {"None" in record.value for record in came} == alone


def test_several_records_of_one_key_and_time_wait_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectorized_window_join, "COLUMNS_FROM", 1)
    monkeypatch.setattr(WindowJoin, "_process", None)
    waiting, later = Batch(["k", "k", "l"], ["A", "B", "C"], [100, 100, 100]), Batch(["x"], ["X"], [200])
    with TopologyDriver(two_topics(JoinWindows.of(10), "left", vectorized=True)) as driver:
        for batch in (waiting, later):
            driver.pipe_inputs({"left": batch})
        assert [record.value for record in driver.read("out")] == ["k:A-None", "k:B-None", "l:C-None"]


@pytest.mark.parametrize("vectorized", [False, True])
def test_records_that_wait_come_out_at_completion_whichever_joiner_failed(vectorized: bool) -> None:
    inputs = {"left": Batch(["a", "b", "c"], ["x", "j", "x"], [3, 2, 1])}
    with TopologyDriver(two_topics(JoinWindows.of(9), "outer", vectorized=vectorized), on_error="skip") as driver:
        driver.pipe_inputs(inputs)
        driver.complete()
        assert [record.value for record in driver.read("out")] == ["c:x-None", "a:x-None"]
        assert driver.counters["pairs-this-join:dropped-user-error"] == 1


def test_without_a_policy_the_first_pair_that_fails_is_named() -> None:
    keys = ["a"] * 40
    inputs = {"left": Batch(keys, [*["x"] * 38, "j", "x"], list(range(40))), "right": Batch(["a"], ["y"], [39])}
    with TopologyDriver(two_topics(JoinWindows.of(10), "inner", vectorized=True)) as driver:
        with pytest.raises(UserFunctionError, match=r"pairs-other-join.*j \(key 'a', timestamp 39, value 'y'"):
            driver.pipe_inputs(inputs)
        driver.pipe("right", "a", "k", 3)
        assert driver.read("out") == []


@pytest.mark.parametrize(
    ("joiner", "message"),
    [
        (lambda lefts, rights: lefts[1:], "returned 0 values for 1 records"),
        (lambda lefts, rights: 5, "returned a int, of which Arrow makes no array"),
    ],
)
def test_a_joiner_that_returns_something_else_than_a_value_for_each_pair_is_refused(
    joiner: Callable[..., Any], message: str
) -> None:
    builder = StreamsBuilder(key_serde="string", value_serde="int64")
    left, right = builder.stream("left"), builder.stream("right")
    left.join(right, joiner, windows=JoinWindows.of(5), vectorized=True).to("out")
    keys, values, times = ["a"] * 30, [1] * 30, list(range(30))
    with TopologyDriver(builder.build()) as driver, pytest.raises(UserFunctionError, match=message):
        driver.pipe_inputs({"left": Batch(keys, values, times), "right": Batch(keys, values, times)})


def test_values_that_a_serde_has_no_columns_for_are_refused() -> None:
    builder = StreamsBuilder(key_serde="string", value_serde="msgpack")
    left, right = builder.stream("left"), builder.stream("right")
    with pytest.raises(TopologyError, match=r"joiner of columns, but values of the serde 'msgpack' have none.*struct"):
        left.join(right, pairs, windows=JoinWindows.of(5), vectorized=True)


def test_results_are_columns_if_the_joiner_takes_columns() -> None:
    (part,) = two_topics(JoinWindows.of(9), "left", vectorized=True).subtopologies
    task = Task(part, {name: spec.open(Transaction(MemoryBackend())) for name, spec in part.stores.items()})
    for topic, columns in as_columns(long_inputs()[0]):
        task.process(topic, columns)
    task.settle()
    assert {type(run) for run in task.take()["out"]} == {Columns}


def test_a_damaged_row_of_records_that_wait_is_named() -> None:
    topology = two_topics(JoinWindows.of(10), "left", vectorized=True)
    batch = Batch(["a"] * 30, ["x"] * 30, list(range(30)))
    with TopologyDriver(topology) as driver:
        driver.pipe_batch("left", batch)
        store = driver.store("pairs-waiting")
        store.put(pack_time(35) + pack_time(29) + b"\7a", b"\0\0\0\1x")
        store.transaction.commit()
        with pytest.raises(CorruptStoreError, match="has no side"):
            driver.pipe_batch("left", Batch(["a"] * 30, ["x"] * 30, list(range(100, 130))))
