"""Timers by the wall clock fire in micro-batches that bring no records, at the time that the checkpoint has."""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, SparkSession

from millpond.adapters.spark import Millpond, SparkStreams
from millpond.adapters.spark.operator.map_side import SendSignal
from millpond.errors import ConfigurationError
from millpond.processors import (
    Consumed,
    Produced,
    PunctuationType,
    RecordProcessor,
    StreamsBuilder,
    Topology,
    TopologyDriver,
)
from millpond.processors.distribution.exchange import TICK
from millpond.processors.verbs import KeyContext, KeyedProcessor, Timer
from millpond.stores.encoding.serdes import INT64, STRING
from millpond.stores.specs.store_spec import StoreKind, StoreSpec
from tests.spark.conftest import RunStream

pytestmark = pytest.mark.spark


class Pulse(RecordProcessor):
    """Tells how many records its task has had, whenever a millisecond has passed."""

    def open(self) -> None:
        self.seen = self.context.store("seen")
        self.schedule(1, PunctuationType.WALL_CLOCK_TIME, self.tell)

    def process_record(self, key: Any, value: Any, timestamp: int) -> None:
        self.seen.put("seen", (self.seen.get("seen") or 0) + 1)

    def tell(self, now: int) -> None:
        self.forward(self.context.task_id, self.seen.get("seen") or 0, now)


class Reminder(KeyedProcessor):
    """Comes back to each row a millisecond later."""

    def process(self, key: Any, row: dict[str, Any], context: KeyContext) -> None:
        context.set_wall_clock_timer("1 millisecond", row["what"])

    def on_timer(self, key: Any, timer: Timer, context: KeyContext) -> Iterable[Mapping[str, Any]]:
        yield {"key": key, "what": timer.name}


def pulses(*, counted: bool = False) -> Topology:
    """Return a topology whose tasks tell; with ``counted``, an operator behind them counts how often and how much."""
    builder = StreamsBuilder(key_serde="string", value_serde="int64")
    rows = builder.stream("in", Consumed("string", "int64", key="key", value="value", timestamp="at"))
    told = rows.process(Pulse, stores=[StoreSpec("seen", StoreKind.KEY_VALUE, STRING, INT64)])
    told.to("out", Produced(schema="key string, value long, timestamp long"))
    if counted:
        counts = told.group_by(lambda _, seen: str(seen)).count()
        counts.to_stream().to("counts", Produced(schema="key string, value long"))
    return builder.build()


def arriving(spark: SparkSession, directory: Path, ddl: str, *, one_by_one: bool = False) -> DataFrame:
    """Return the rows of a directory; of one file in each micro-batch, or of all that are there."""
    directory.mkdir(exist_ok=True)
    reader = spark.readStream.schema(ddl)
    return (reader.option("maxFilesPerTrigger", 1) if one_by_one else reader).json(str(directory))


def arrives(directory: Path, **row: Any) -> None:
    directory.mkdir(exist_ok=True)
    (directory / f"{len(list(directory.iterdir()))}.json").write_text(json.dumps(row))


@pytest.mark.first
def test_all_tasks_fire_without_records_and_a_micro_batch_that_is_run_again_is_at_the_same_time(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = arriving(spark, tmp_path / "in", "key string, value long, at long")
    ticks = arriving(spark, tmp_path / "ticks", "tick int")
    streams = SparkStreams(
        pulses(), application_id="pulses", state_dir=f"{tmp_path}/state", partitions=2, backend="lmdb"
    )
    told = streams.transform({"in": rows}, ticks=ticks)

    def next_batch() -> dict[str, tuple[int, int]]:
        """Return what the tasks tell, and when."""
        out: list[Any] = []
        query = (
            told.writeStream.foreachBatch(lambda batch, _: out.extend(batch.collect()))
            .option("checkpointLocation", f"{tmp_path}/checkpoint")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        assert len(out) == len({row.key for row in out})
        return {row.key: (row.value, row.timestamp) for row in out}

    def time_of(batch: int) -> int:
        lines = (tmp_path / "checkpoint" / "offsets" / str(batch)).read_text().splitlines()
        return int(json.loads(lines[1])["batchTimestampMs"])

    arrives(tmp_path / "ticks", tick=0)
    assert next_batch() == {}
    arrives(tmp_path / "ticks", tick=1)
    assert next_batch() == {"0_0": (0, time_of(1)), "0_1": (0, time_of(1))}
    arrives(tmp_path / "in", key="a", value=1, at=1)
    arrives(tmp_path / "ticks", tick=2)
    fired = next_batch()
    assert sorted(fired.values()) == [(0, time_of(2)), (1, time_of(2))]
    for name in ("2", ".2.crc"):
        (tmp_path / "checkpoint" / "commits" / name).unlink()
    assert next_batch() == fired
    with TopologyDriver(pulses()) as driver:
        driver.advance_wall_clock(time_of(1) - time_of(0))
        driver.pipe("in", "a", 1, 1)
        driver.advance_wall_clock(time_of(2) - time_of(1))
        assert [(value, at + time_of(0)) for _, value, at in driver.read("out")] == [(0, time_of(1)), (1, time_of(2))]


@pytest.mark.slow
def test_a_query_of_several_sinks_may_begin_with_micro_batches_of_ticks_alone(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = arriving(spark, tmp_path / "in", "key string, value long, at long")
    for number in range(2):
        arrives(tmp_path / "ticks", tick=number)
    streams = SparkStreams(
        pulses(counted=True), application_id="pulses", state_dir=f"{tmp_path}/state", partitions=2, backend="lmdb"
    )

    def next_batches(ticks: DataFrame) -> dict[str, dict[int, list[Any]]]:
        """Return what is written to each sink, by micro-batch."""
        found: dict[str, dict[int, list[Any]]] = {"out": {}, "counts": {}}

        def writing(sink: str) -> Callable[[DataFrame, int], None]:
            return lambda batch, number: found[sink].update({number: sorted(map(tuple, batch.collect()))})

        streams.start(
            {"in": rows},
            sinks={sink: writing(sink) for sink in found},
            checkpoint_location=f"{tmp_path}/checkpoint",
            ticks=ticks,
            trigger={"availableNow": True},
        ).awaitTermination()
        return found

    ticks = arriving(spark, tmp_path / "ticks", "tick int", one_by_one=True)
    found = next_batches(ticks)
    told = {number: [(key, seen) for key, seen, _ in batch] for number, batch in found["out"].items()}
    assert told == {0: [], 1: [("0_0", 0), ("0_1", 0)]}
    assert found["counts"] == {0: [], 1: [("0", 1), ("0", 2)]}
    arrives(tmp_path / "in", key="a", value=1, at=1)
    found = next_batches(ticks)
    assert list(found["out"]) == [2]
    assert sorted(seen for _, seen, _ in found["out"][2]) == [1]
    assert found["counts"] == {2: [("1", 1)]}
    arrives(tmp_path / "ticks", tick=2)
    found = next_batches(ticks)
    assert sorted(seen for _, seen, _ in found["out"][3]) == [0, 1]
    assert found["counts"] == {3: [("0", 3), ("1", 2)]}


def test_a_tick_leaves_its_worker_to_the_next_one(spark: SparkSession) -> None:
    def process_that_sends(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in SendSignal(TICK, [0])(batches):
            yield pa.record_batch({"process": pa.array([os.getpid()], pa.int64())})

    tick = spark.range(0, 1, 1, numPartitions=1).mapInArrow(process_that_sends, "process long")
    processes = [row.process for _ in range(16) for row in tick.collect()]
    assert len(processes) == 16
    # Spark goes round among the idle ones, of which earlier queries leave some; one that is ended never comes again.
    assert len(set(processes)) < 16


def test_the_wall_clock_timers_of_a_keyed_processor_fire_without_rows(
    spark: SparkSession, tmp_path: Path, run_stream: RunStream
) -> None:
    rows = arriving(spark, tmp_path / "in", "key string, what string, at timestamp")
    ticks = arriving(spark, tmp_path / "ticks", "tick int")
    pond = Millpond(application_id="reminders", state_dir=f"{tmp_path}/state", partitions=2, backend="lmdb")
    reminders = pond.apply(
        rows, Reminder(), key="key", time="at", schema="key string, what string", lateness=0, ticks=ticks
    )
    arrives(tmp_path / "ticks", tick=0)
    assert run_stream(reminders) == []
    for key, what in (("a", "tea"), ("b", "rum")):
        arrives(tmp_path / "in", key=key, what=what, at="2024-01-01 10:00:00")
    assert run_stream(reminders) == []
    arrives(tmp_path / "ticks", tick=1)
    assert run_stream(reminders) == [("a", "tea"), ("b", "rum")]


def test_ticks_that_can_wake_nobody_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    rows = arriving(spark, tmp_path / "in", "key string, value long, at long")
    ticks = arriving(spark, tmp_path / "ticks", "tick int")
    builder = StreamsBuilder(key_serde="string", value_serde="int64")
    mapped = builder.stream("in", Consumed("string", "int64", key="key", value="value", timestamp="at"))
    mapped.to("out", Produced(schema="key string, value long"))
    options: dict[str, Any] = {"application_id": "refused", "state_dir": f"{tmp_path}/state", "partitions": 1}
    with pytest.raises(ConfigurationError, match="ticks is static"):
        SparkStreams(pulses(), **options).transform({"in": rows}, ticks=spark.range(1))
    still = spark.createDataFrame([], rows.schema)
    with pytest.raises(ConfigurationError, match="the inputs are static"):
        SparkStreams(pulses(), **options).transform({"in": still}, ticks=ticks)
    with pytest.raises(ConfigurationError, match="no task to wake"):
        SparkStreams(builder.build(), **options).transform({"in": rows}, ticks=ticks)
