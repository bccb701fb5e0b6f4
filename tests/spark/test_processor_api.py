"""A topology of the Processor API on Spark: stores, a global store, a choice of topics, stream time over restarts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, SparkSession

from millpond.adapters.spark import SparkStreams
from millpond.processors import (
    Batch,
    Produced,
    RecordMetadata,
    RecordProcessor,
    Topology,
    TopologyBuilder,
    TopologyDriver,
)
from millpond.stores.encoding.serdes import INT64, STRING
from millpond.stores.specs.store_spec import StoreKind, StoreSpec

pytestmark = pytest.mark.spark

ROWS = "key string, value string, timestamp long"
TOTALS = StoreSpec("totals", StoreKind.KEY_VALUE, STRING, INT64)
NAMES = StoreSpec("names", StoreKind.KEY_VALUE, STRING, STRING)
BATCHES = {
    "names": [[("t", "tea", 0), ("m", "milk", 0)], [("r", "rum", 30)], [("t", "black tea", 50)]],
    "orders": [
        [("ann", "t", 10), ("ben", "m", 20), ("ann", "m", 15)],
        [("ann", "r", 31), ("ben", "t", 5), ("cem", "t", 40)],
        [("ann", "t", 60), ("ben", "x", 61), ("dee", "t", 1)],
    ],
}


class Fill(RecordProcessor):
    """Fills the store of names."""

    def process_record(self, key: Any, value: Any, timestamp: int) -> None:
        self.context.store("names").put(key, value.upper())


class Order(RecordProcessor):
    """Forwards the name of what is ordered, how many orders its task's key has had, and stream time."""

    def open(self) -> None:
        self.context.declare(record_by_record=True)

    def process_record(self, key: Any, value: Any, timestamp: int) -> None:
        totals, names = self.context.store("totals"), self.context.store("names")
        total = (totals.get(key) or 0) + 1
        totals.put(key, total)
        metadata = self.context.record_metadata
        assert metadata is not None
        text = f"{names.get(value)} {total} {self.context.stream_time} {metadata.topic} {metadata.timestamp}"
        self.forward(key, text, timestamp)


def chosen(key: str, value: str, context: RecordMetadata) -> str:
    """Return the sink of an order, by its name and by where it came from."""
    return f"{context.topic} {'unknown' if value.startswith('None') else 'known'}"


def topology() -> Topology:
    builder = TopologyBuilder(value_serde="string")
    builder.add_global_store(NAMES, "names", Fill, name="fill")
    builder.add_source("source", "orders")
    builder.add_processor("order", Order, "source", stores=[TOTALS, "names"])
    written = Produced(schema=ROWS)
    builder.add_sink("sink", chosen, "order", produced=written, topics=["orders known", "orders unknown"])
    return builder.build()


def in_process() -> dict[str, list[Any]]:
    """Return what comes out with one task for all keys."""
    with TopologyDriver(topology()) as driver:
        for number in range(3):
            columns = {topic: zip(*batches[number], strict=True) for topic, batches in BATCHES.items()}
            driver.pipe_inputs({topic: Batch(*map(list, some)) for topic, some in columns.items()})
        return {sink: sorted(map(tuple, driver.read(sink))) for sink in topology().sinks}


def test_it_gives_over_restarts_what_it_gives_in_process(spark: SparkSession, tmp_path: Path) -> None:
    found: dict[str, list[Any]] = {sink: [] for sink in topology().sinks}

    def collecting(sink: str) -> Callable[[DataFrame, int], None]:
        return lambda rows, _: found[sink].extend(map(tuple, rows.collect()))

    for number in range(3):
        for topic, batches in BATCHES.items():
            frame = spark.createDataFrame(batches[number], ROWS)
            frame.coalesce(1).write.mode("append").parquet(str(tmp_path / topic))
        inputs = {topic: spark.readStream.schema(ROWS).parquet(str(tmp_path / topic)) for topic in BATCHES}
        streams = SparkStreams(
            topology(), application_id="by-hand", state_dir=str(tmp_path / "state"), partitions=1, backend="lmdb"
        )
        query = streams.start(
            inputs,
            sinks={sink: collecting(sink) for sink in found},
            checkpoint_location=str(tmp_path / "checkpoint"),
            trigger={"availableNow": True},
        )
        query.awaitTermination()
    assert {sink: sorted(rows) for sink, rows in found.items()} == in_process()
    assert ("dee", "TEA 1 40 orders 1", 1) in found["orders known"]
    assert ("ben", "None 3 61 orders 61", 61) in found["orders unknown"]


@pytest.mark.first
def test_one_of_the_topics_alone_and_every_task_finds_all_of_the_global_store(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = {topic: [row for batch in batches for row in batch] for topic, batches in BATCHES.items()}
    inputs = {topic: spark.createDataFrame(some, ROWS) for topic, some in rows.items()}
    streams = SparkStreams(topology(), application_id="known", state_dir=str(tmp_path), partitions=3, backend="memory")
    known = streams.transform(inputs, sink="orders known").collect()
    assert {row.value.split()[0] for row in known} == {"TEA", "MILK", "RUM", "BLACK"}
    assert len(known) == 8
