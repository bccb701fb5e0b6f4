"""Bad states of real queries, each named by what the query has told; and a query that is well."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from millpond.adapters.monitor import query_monitor
from millpond.adapters.monitor.diagnosis import thresholds
from millpond.adapters.monitor.overview import Overview
from millpond.adapters.monitor.query_monitor import QueryMonitor
from millpond.adapters.spark import SparkStreams, watch
from millpond.processors import Consumed, Materialized, StreamsBuilder

pytestmark = pytest.mark.spark

ROWS = 2_000
BATCHES = thresholds.IN_A_ROW
PATIENCE = 120.0


class Job:
    """A table of what came last for each key, with a task for each of two partitions.

    Args:
        spark: runs it.
        directory: where everything is.
        keys: the key of a row, by its number.
        values: likewise.
        batches: how many micro-batches there are.
        rows: how many rows each of them has.
        work: what is done to a value.
    """

    def __init__(
        self,
        spark: SparkSession,
        directory: Path,
        keys: Callable[[int], str] = lambda number: f"key {number % 500}",
        values: Callable[[int], int] = lambda number: number + 1,
        batches: int = BATCHES,
        rows: int = ROWS,
        work: Callable[[int], int] = lambda value: 1_000 // value,
    ) -> None:
        self._spark, self.directory, self._work = spark, directory, work
        (directory / "in").mkdir(parents=True)
        self._files = 0
        self.bring(keys, values, batches, rows)

    def bring(self, keys: Callable[[int], str], values: Callable[[int], int], batches: int, rows: int) -> None:
        """Bring so many micro-batches more."""
        directory = self.directory
        for batch in range(self._files, self._files + batches):
            numbers = range(batch * rows, (batch + 1) * rows)
            times = [time.time_ns() // 1_000_000] * rows
            columns: dict[str, list[Any]] = {
                "key": list(map(keys, numbers)),
                "value": list(map(values, numbers)),
                "timestamp": times,
            }
            file = directory / "in" / f"{batch}.parquet"
            pq.write_table(pa.table(columns), file)
            os.utime(file, (1_000_000_000 + batch,) * 2)
        self._files += batches

    def start(self, output: Callable[[DataFrame, int], None] | None = None, on_error: str = "fail") -> StreamingQuery:
        builder = StreamsBuilder()
        table = builder.table("clicks", Consumed("string", "int64"), Materialized("last"))
        table.to_stream().map_values(self._work).to("inverse")
        place = self.directory
        streams = SparkStreams(
            builder.build(),
            application_id="job",
            state_dir=f"{place}/state",
            local_dir=f"{place}/local",
            partitions=2,
            backend="lmdb",
            on_error=on_error,
        )
        source = self._spark.readStream.schema("key string, value long, timestamp long")
        rows = streams.transform({"clicks": source.option("maxFilesPerTrigger", 1).parquet(f"{place}/in")})
        writer = rows.writeStream.format("noop") if output is None else rows.writeStream.foreachBatch(output)
        return writer.option("checkpointLocation", f"{place}/checkpoint").trigger(availableNow=True).start()

    def seen(self, restarts: int = 0, *, ended: bool = True) -> Overview:
        """Return what is known of it, once it is known that it was started so often, and whether it has ended."""
        watched = QueryMonitor(f"{self.directory}/checkpoint", f"{self.directory}/state", f"{self.directory}/progress")
        until = time.monotonic() + PATIENCE
        while True:
            seen = watched.look()
            known = seen.run is not None and seen.restarts == restarts and (seen.run.ended is not None) is ended
            if known or time.monotonic() > until:
                return seen
            time.sleep(0.1)


@pytest.fixture(autouse=True)
def watching(spark: SparkSession, tmp_path: Path) -> Iterator[None]:
    listener = watch(spark, keep=f"{tmp_path}/progress")
    yield
    spark.streams.removeListener(listener)


def told(seen: Overview) -> list[str]:
    return [str(found.state) for found in seen.findings if found.state != "disk-nearly-full"]


@pytest.mark.long
def test_a_query_that_is_well_tells_of_its_tasks_and_its_time(spark: SparkSession, tmp_path: Path) -> None:
    job = Job(spark, tmp_path)
    job.start().awaitTermination()
    seen = job.seen()
    assert (told(seen), seen.restarts, seen.hot_keys) == ([], 0, ())
    assert seen.run is not None
    assert (seen.run.error, seen.run.started <= seen.run.seen) == (None, True)
    assert [(one.operator, one.task) for one in sorted(seen.work, key=lambda one: one.task)] == [
        ("operator.0", "0_0"),
        ("operator.0", "0_1"),
    ]
    assert sum(one.records_in for one in seen.work) == sum(one.records_out for one in seen.work) == ROWS
    for one in seen.work:
        assert 0 < one.open + one.process + one.commit <= one.took
        assert one.rows > 0 < one.size
        assert (one.state or 0) > 0
    assert {limit.what for limit in seen.limits} == {"disk"}
    assert sum(point.batches for point in seen.series.minutes) == BATCHES
    assert sum(point.rows for point in seen.series.days) == BATCHES * ROWS
    assert seen.series.minutes[-1].state == sum(one.state or 0 for one in seen.work)
    job.bring(lambda number: f"key {number % 500}", lambda number: number + 1, 1, ROWS)
    job.start().awaitTermination()
    assert told(job.seen(1)) == []


def test_a_key_that_most_records_have_is_named(spark: SparkSession, tmp_path: Path) -> None:
    job = Job(spark, tmp_path, keys=lambda number: "ann" if number % 100 else f"key {number}")
    job.start().awaitTermination()
    seen = job.seen()
    assert told(seen) == ["skewed-key"]
    assert seen.findings[0].figures.startswith("key ann has 9")
    (hot,) = seen.hot_keys
    assert (hot.key, hot.operator) == ("ann", "operator.0")
    assert hot.records == pytest.approx(ROWS * 0.99, rel=0.03)
    assert hot.task == max(seen.work, key=lambda one: one.records_in).task


def test_a_query_that_died_by_a_row_and_one_that_leaves_such_rows_out_have_poison(
    spark: SparkSession, tmp_path: Path
) -> None:
    job = Job(spark, tmp_path, values=lambda number: number % 100, batches=2)
    with pytest.raises(StreamingQueryException):
        job.start().awaitTermination()
    seen = job.seen()
    assert told(seen) == ["poison-rows"]
    assert "by UserFunctionError: operator " in seen.findings[0].figures
    assert "ZeroDivisionError" in seen.findings[0].figures
    assert (seen.batch, seen.open_batch) == (None, 0)
    job.start(on_error="skip").awaitTermination()
    seen = job.seen(1)
    assert (told(seen), seen.restarts) == (["poison-rows"], 1)
    assert "40 rows could not be used in the last 2 micro-batches; 40 of operator.0" in seen.findings[0].figures


@pytest.mark.long
def test_a_worker_without_memory_ends_the_query_by_that(spark: SparkSession, tmp_path: Path) -> None:
    job = Job(spark, tmp_path, batches=1, work=lambda value: len(bytes(value << 50)))
    with pytest.raises(StreamingQueryException):
        job.start().awaitTermination()
    seen = job.seen()
    assert told(seen) == ["executor-out-of-memory"]
    assert "MemoryError" in seen.findings[0].figures


@pytest.mark.long
@pytest.mark.parametrize("seed", range(5))
def test_queries_that_are_well_are_not_named(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    """Large and small micro-batches, backlogs, pauses and restarts, and a key that two of five rows have."""
    drawn = Random(seed)
    keys, hot, rows = drawn.choice([50, 5_000]), drawn.choice([0.0, 0.4]), drawn.choice([3, 300, 5_000])
    key = {number: "hot" if drawn.random() < hot else f"key {drawn.randrange(keys)}" for number in range(10 * 5_000)}
    job = Job(spark, tmp_path, keys=key.__getitem__, batches=drawn.randrange(1, 4), rows=rows)
    for restarts in range(3):
        job.start().awaitTermination()
        assert told(job.seen(restarts)) == []
        job.bring(key.__getitem__, lambda number: number + 1, drawn.randrange(1, 3), rows)


def test_a_sink_that_fails_and_one_that_does_not_return_are_named(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, reached, free = Job(spark, tmp_path, batches=2), threading.Event(), threading.Event()

    def fail(rows: DataFrame, batch: int) -> None:
        rows.collect()
        if batch == 1:
            raise RuntimeError("the table is gone")

    def hang(rows: DataFrame, _: int) -> None:
        rows.collect()
        reached.set()
        free.wait(PATIENCE)

    with pytest.raises(StreamingQueryException):
        job.start(fail).awaitTermination()
    seen = job.seen()
    assert told(seen) == ["query-died"]
    assert "the table is gone" in seen.findings[0].figures
    query = job.start(hang)
    assert reached.wait(PATIENCE)
    try:
        assert told(job.seen(1, ended=False)) == []
        monkeypatch.setattr(thresholds, "STUCK_TIMES", 0)
        monkeypatch.setattr(thresholds, "SILENCE", 10 * thresholds.MINUTE)
        seen = _later(job, thresholds.STUCK, monkeypatch)
        assert told(seen) == ["stuck-sink"]
        assert seen.findings[0].figures.startswith("all 2 tasks of micro-batch 1 were done 2 min ")
    finally:
        free.set()
        query.awaitTermination()


def _later(job: Job, millis: int, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return what is known of a running query so many milliseconds from now, if nothing happens until then."""
    monkeypatch.setattr(query_monitor, "time", lambda: time.time() + millis / 1000)
    watched = QueryMonitor(f"{job.directory}/checkpoint", None, f"{job.directory}/progress")
    return watched.look()
