"""A query on Spark that goes on at another checkpoint, with one more operator, a new source, and without an old one."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, SparkSession

from millpond.adapters.spark import Checkpoint, SparkStreams
from millpond.adapters.spark.continuation.continuation import Continuation
from millpond.adapters.spark.continuation.continuing import EmptyRun, continue_checkpoint, source_occurrences
from millpond.adapters.spark.continuation.files import HadoopFiles
from millpond.errors import ConfigurationError, DurabilityError, StateConflictError
from millpond.processors import Consumed, Grouped, Materialized, Produced, StreamsBuilder, Topology, TopologyDriver

pytestmark = [pytest.mark.spark, pytest.mark.long]

DDL = "key string, value long, timestamp long"
OUTPUT = "key string, value long"
Row = tuple[str, int, int]


def counts_by_key() -> Topology:
    builder = StreamsBuilder()
    numbers, others = (builder.stream(topic, Consumed("string", "int64")) for topic in ("numbers", "others"))
    numbers.merge(others).group_by_key().count(Materialized("counts")).to_stream().to("out", Produced(schema=OUTPUT))
    return builder.build()


def counts_of_counts() -> Topology:
    """One operator more, a source more, which comes first, and one less."""
    builder = StreamsBuilder()
    letters, numbers = (builder.stream(topic, Consumed("string", "int64")) for topic in ("letters", "numbers"))
    counts = letters.merge(numbers).group_by_key().count(Materialized("counts"))
    by_parity = counts.to_stream().select_key(lambda _, count: f"parity {count % 2}", key_serde="string")
    parities = by_parity.group_by_key(Grouped("string", "int64")).count(Materialized("parities"))
    parities.to_stream().to("out", Produced(schema=OUTPUT))
    return builder.build()


@dataclass(frozen=True)
class FailingFiles(HadoopFiles):
    """Dies as soon as it is to write, copy or rename something of that name."""

    fatal: str = ""

    def write(self, path: str, text: str) -> None:
        self._check(path)
        super().write(path, text)

    def copy(self, source: str, target: str) -> None:
        self._check(target)
        super().copy(source, target)

    def rename(self, source: str, target: str) -> None:
        self._check(target)
        super().rename(source, target)

    def _check(self, path: str) -> None:
        if path.endswith(self.fatal):
            raise KeyboardInterrupt


@dataclass(frozen=True)
class Place:
    spark: SparkSession
    directory: Path

    def add(self, topic: str, rows: Sequence[Row]) -> None:
        self.spark.createDataFrame(rows, DDL).coalesce(1).write.mode("append").parquet(f"{self.directory}/{topic}")

    def frame(self, topology: Topology, application_id: str) -> DataFrame:
        streams = SparkStreams(
            topology,
            application_id=application_id,
            state_dir=f"{self.directory}/state",
            local_dir=f"{self.directory}/local",
            partitions=2,
            backend="lmdb",
        )
        stream = self.spark.readStream.schema(DDL)
        return streams.transform({topic: stream.parquet(f"{self.directory}/{topic}") for topic in topology.sources})

    def run(self, rows: DataFrame, checkpoint: str) -> dict[str, int]:
        """All micro-batches that there are to run, and the greatest number of each key of the output."""
        output = rows.writeStream.format("parquet").option("checkpointLocation", f"{self.directory}/{checkpoint}")
        output.trigger(availableNow=True).start(f"{self.directory}/out").awaitTermination()
        written = self.spark.read.schema(OUTPUT).parquet(f"{self.directory}/out")
        return {
            row.key: row.value for row in written.groupBy("key").agg({"value": "max"}).toDF("key", "value").collect()
        }

    def content(self, checkpoint: str) -> dict[str, bytes]:
        place = self.directory / checkpoint
        return {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()}


def rows_of(prefix: str, first: int, count: int) -> list[Row]:
    return [(f"{prefix} {number % 3}", number, number) for number in range(first, first + count)]


def greatest(topology: Topology, records: Sequence[tuple[str, Row]]) -> dict[str, int]:
    with TopologyDriver(topology) as driver:
        for topic, (key, value, timestamp) in records:
            driver.pipe(topic, key, value, timestamp)
        found: dict[str, Any] = {}
        for key, value, _ in driver.read("out"):
            found[key] = max(value, found.get(key, 0))
    return found


def test_a_query_goes_on_exactly_once_with_other_operators_and_sources(spark: SparkSession, tmp_path: Path) -> None:
    place = Place(spark, tmp_path)
    early = [("numbers", rows_of("n", 0, 4)), ("others", rows_of("o", 0, 5)), ("numbers", rows_of("n", 4, 4))]
    for topic, rows in early[:2]:
        place.add(topic, rows)
    place.run(place.frame(counts_by_key(), "before"), "old")
    place.add(*early[2])
    seen = place.run(place.frame(counts_by_key(), "before"), "old")
    assert seen == greatest(counts_by_key(), [(topic, row) for topic, rows in early for row in rows])
    untouched = place.content("old")

    later = [("numbers", rows_of("n", 8, 7)), ("letters", rows_of("l", 0, 6))]
    for topic, rows in later:
        place.add(topic, rows)
    frame = place.frame(counts_of_counts(), "after")
    assert source_occurrences(frame) == [0, 1]
    old, new = str(tmp_path / "old"), str(tmp_path / "new")

    with pytest.raises(StateConflictError, match=r"the state of \['before'\] in the checkpoint"):
        continue_checkpoint(frame, old, new, carried=())
    with pytest.raises(ConfigurationError, match=r"(?s)declare it by number.*0: FileStreamSource.*letters"):
        continue_checkpoint(frame, old, new, carried=("before",))
    for fatal in ("/state/1/0/3.zip", "/commits/1", "/new"):
        failing = FailingFiles(spark, fatal)
        with pytest.raises(KeyboardInterrupt):
            Continuation.between(failing, old, new).make([0, 1], 2, EmptyRun(frame), {0: None, 1: 0})
        assert not Continuation.between(failing, old, new).is_made()
    assert continue_checkpoint(frame, old, new, carried=("before",), sources={0: None, 1: 0}) == new
    assert place.content("old") == untouched
    assert Checkpoint(spark, new).newest() == (1, [])

    expected = greatest(counts_of_counts(), [(topic, row) for topic, rows in later for row in rows])
    assert place.run(frame, "new") == seen | expected
    made = place.content("new")
    assert continue_checkpoint(frame, old, new, carried=()) == new
    assert place.content("new") == made
    more = [("letters", rows_of("l", 6, 2)), ("numbers", rows_of("n", 15, 1))]
    for topic, rows in more:
        place.add(topic, rows)
    expected = greatest(counts_of_counts(), [(topic, row) for topic, rows in [*later, *more] for row in rows])
    assert place.run(place.frame(counts_of_counts(), "after"), "new") == seen | expected
    assert Checkpoint(spark, new).batches() == [1, 2, 3]
    assert {int(path.name) for path in (tmp_path / "out" / "_spark_metadata").glob("[0-9]")} == {0, 1, 2, 3}
    with pytest.raises(DurabilityError, match="cannot read"):
        HadoopFiles(spark).read(f"{old}/nothing")
