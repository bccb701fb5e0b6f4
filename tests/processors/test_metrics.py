"""The measurements of tasks: each figure where it must have a known value."""

from collections.abc import Callable, Mapping
from pathlib import Path
from time import monotonic_ns
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from millpond.errors import UserFunctionError
from millpond.metrics import StoreMetric
from millpond.processors import (
    Batch,
    Columns,
    Consumed,
    Grouped,
    KStream,
    Materialized,
    StreamsBuilder,
    TimeWindows,
    TopologyDriver,
)
from millpond.processors.distribution.exchange import Blob, BlobWriter, partials_of
from millpond.processors.distribution.execution import Decoder, run_blobs, run_split
from millpond.processors.runtime.metrics import TaskMetric
from millpond.processors.runtime.tasks.task import Task
from millpond.stores.backend.memory import MemoryBackend
from millpond.stores.backend.transaction import Transaction
from millpond.stores.encoding.serdes import INT64, STRING
from millpond.stores.encoding.times import TimeUnit
from tests.processors.driving import text_topology

ROOT = Path(__file__).resolve().parents[2]


def driver_of(build: Callable[[KStream], Any]) -> TopologyDriver:
    return TopologyDriver(text_topology(lambda builder: build(builder.stream("in"))))


def counted(stream: KStream) -> Any:
    return stream.group_by_key().count(Materialized("counts"))


def figures(driver: TopologyDriver, task: str = "0_0") -> Mapping[str, int]:
    return driver.metrics()[task]


def test_records_are_counted_by_task_on_their_way_in_and_out() -> None:
    def words(stream: KStream) -> Any:
        by_word = stream.flat_map_values(str.split).select_key(lambda _, word: word)
        return by_word.group_by_key(Grouped("string", "string")).count(Materialized("words").with_caching())

    with driver_of(words) as driver:
        driver.pipe_all("in", [("k", "a b a", 1), ("k", "b c", 2)])
        records = {
            task: (found[TaskMetric.RECORDS_IN], found[TaskMetric.RECORDS_OUT])
            for task, found in driver.metrics().items()
        }
        assert records == {"0_0": (2, 5), "1_0": (5, 3)}
        driver.pipe("in", "k", "a", 3)
        assert [found["records.in"] for found in driver.metrics().values()] == [1, 1]


def test_stream_time_is_the_greatest_timestamp_and_the_lag_is_how_far_it_is_behind() -> None:
    with driver_of(counted) as driver:
        driver.pipe_all("in", [("k", "x", 5), ("k", "x", 40), ("k", "x", 20)])
        assert (figures(driver)["stream.time"], figures(driver)["stream.lag"]) == (40_000, -40_000)
        driver.advance_wall_clock(100)
        driver.pipe("in", "k", "x", 10)
        assert (figures(driver)["stream.time"], figures(driver)["stream.lag"]) == (40_000, 60_000)


def test_stream_time_that_a_store_keeps_outlives_the_task(tmp_path: Path) -> None:
    builder = StreamsBuilder(key_serde="string", value_serde="string")
    builder.table("in", materialized=Materialized.versioned("history", history_retention=100)).to_stream().to("out")
    topology = builder.build()
    for timestamp in (70, 30):
        with TopologyDriver(topology, backend="lmdb", local_dir=tmp_path) as driver:
            driver.pipe("in", "k", "x", timestamp)
            assert figures(driver)["stream.time"] == 70_000


def test_without_a_record_nothing_is_known_of_stream_time() -> None:
    with driver_of(counted) as driver:
        driver.advance_wall_clock(5)
        assert not {"stream.time", "stream.lag"} & figures(driver).keys()


@pytest.mark.parametrize(("timestamp", "shown"), [(2**62, 2**63 - 1), (7, 7_000)])
def test_times_stay_within_64_bits(timestamp: int, shown: int) -> None:
    builder = StreamsBuilder(key_serde="string", value_serde="string")
    builder.stream("in").to("out")
    (part,) = builder.build().subtopologies
    task = Task(part, {})
    task.reached(timestamp)
    task.measure_time(0, TimeUnit.MILLISECOND)
    assert task.metrics.figures["stream.time"] == shown
    assert -(2**63) <= task.metrics.figures["stream.lag"] < 0


def cached(stream: KStream) -> Any:
    return stream.group_by_key().count(Materialized("counts").with_caching())


def cached_windows(stream: KStream) -> Any:
    return stream.group_by_key().windowed_by(TimeWindows(10)).count(Materialized("counts").with_caching()).to_stream()


def cached_table(stream: KStream) -> Any:
    return stream.to_table(Materialized("latest").with_caching())


@pytest.mark.parametrize("build", [cached, cached_windows, cached_table])
@pytest.mark.parametrize("columns", [False, True])
def test_hits_are_the_updates_of_a_cache_that_were_not_forwarded(
    build: Callable[[KStream], Any], columns: bool
) -> None:
    with driver_of(build) as driver:
        keys, values, times = ["a", "b", "a", "a"], ["x"] * 4, [1, 2, 3, 4]
        as_columns = Columns(pa.array(keys), pa.array(values), np.array(times))
        driver.pipe_batch("in", as_columns if columns else Batch(keys, values, times))
        found = {name.rpartition(":")[2]: amount for name, amount in figures(driver).items() if "cache." in name}
        assert found == {"cache.updates": 4, "cache.hits": 2}
        assert len(driver.read("out")) == 2
        driver.advance_wall_clock(1)
        assert not any("cache." in name for name in figures(driver))


def test_what_keeps_no_updates_back_has_no_cache() -> None:
    with driver_of(counted) as driver:
        driver.pipe_all("in", [("a", "x", 1), ("a", "x", 2)])
        assert not any("cache." in name for name in figures(driver))


def test_a_commit_tells_the_rows_of_each_store_that_it_changes() -> None:
    with driver_of(counted) as driver:
        driver.pipe_all("in", [("a", "x", 1), ("b", "x", 2), ("a", "x", 3)])
        assert figures(driver)["counts:commit.rows"] == 2
        driver.pipe("in", "a", "x", 4)
        assert figures(driver)["counts:commit.rows"] == 1


def test_the_times_of_a_micro_batch_are_parts_of_it() -> None:
    with driver_of(cached) as driver:
        begin = monotonic_ns()
        driver.pipe_all("in", [(str(n), "x", n) for n in range(2_000)])
        whole = (monotonic_ns() - begin) // 1_000
        took = {name: amount for name, amount in figures(driver).items() if name.endswith("duration")}
        assert set(took) == {"process.duration", "flush.duration", "commit.duration", "counts:engine.duration"}
        assert took["process.duration"] > 0
        assert took["counts:engine.duration"] <= took["commit.duration"]
        parts = took["process.duration"] + took["flush.duration"] + took["commit.duration"]
        assert parts <= whole


def test_a_micro_batch_that_fails_has_no_figures() -> None:
    def broken(stream: KStream) -> Any:
        return stream.map_values(lambda value: 1 // int(value), value_serde="int64")

    with driver_of(broken) as driver:
        driver.pipe("in", "k", "1", 1)
        with pytest.raises(UserFunctionError):
            driver.pipe("in", "k", "0", 2)
        assert figures(driver) == {}


def blobs_of(times: list[int], input_: int) -> list[Blob]:
    columns: list[Any] = [
        pa.array([b"k"] * len(times)),
        pa.array([INT64.serialize(1)] * len(times)),
        pa.array(times, pa.int64()),
    ]
    return list(BlobWriter(0).cut(pa.table(columns, ["key", "value", "timestamp"]), 0, input_))


@pytest.mark.parametrize("partial", [False, True])
def test_a_task_that_gets_blobs_measures_records_times_and_its_stream_time(partial: bool) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", Consumed("string", "int64"))
    stream.group_by_key().count(Materialized("counts").with_caching()).to("out")
    (part,) = builder.build().subtopologies
    task = Task(part, {name: spec.open(Transaction(MemoryBackend())) for name, spec in part.stores.items()})
    blobs = blobs_of([30, 80, 50], partials_of(0) if partial else 0)
    outputs = list(run_blobs(task, blobs, {"in": Decoder("in", STRING, INT64)}, 0))
    assert len(outputs) == 1
    task.measure_time(100, TimeUnit.MICROSECOND)
    found = task.metrics.figures
    assert (found["records.in"], found["records.out"]) == (3, 1)
    assert (found["stream.time"], found["stream.lag"]) == (80, 20)
    assert found["process.duration"] > 0
    assert found["flush.duration"] >= 0


def test_a_split_is_measured_without_the_time_in_which_it_is_read() -> None:
    builder = StreamsBuilder(key_serde="string", value_serde="string")
    builder.stream("in").to("out")
    (part,) = builder.build().subtopologies
    task = Task(part, {})
    runs = [Batch(["a"], ["x"], [1]), Batch(["b", "c"], ["x", "y"], [2, 3])]
    assert len(list(run_split(task, "in", runs))) == 3
    found = task.metrics.figures
    assert (found["records.in"], found["records.out"]) == (3, 3)
    assert set(found) == {"records.in", "records.out", "process.duration", "flush.duration"}


def test_the_page_has_every_figure_once() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text()
    for name in (*TaskMetric, *StoreMetric):
        assert page.count(f"| `{name}` |") == 1
