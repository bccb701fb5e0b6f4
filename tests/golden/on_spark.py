"""Runs a golden case's topology on Spark: micro-batches as files, what comes out of each by micro-batch.

Rule of this module: it runs and judges nothing.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import cloudpickle
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import millpond.processors as dsl
from millpond.adapters.spark import SparkStreams
from millpond.processors.options.windowed_serdes import SessionWindowedSerde, TimeWindowedSerde
from millpond.stores.encoding.serdes import serde
from tests.golden import functions as named
from tests.golden.interpreter import Interpreter, Operator
from tests.golden.loader import Case
from tests.golden.sampling import MicroBatch, source_topics

cloudpickle.register_pickle_by_value(named)  # type: ignore[no-untyped-call]


class SparkInterpreter(Interpreter):
    """As ``Interpreter``, with sinks that have columns."""

    def op_to(self, operator: Operator) -> None:
        node = self._input(operator)
        type_ = self.types[operator["input"]]
        schema = f"key string, value {'bigint' if type_ == named.LONG else 'string'}, timestamp bigint, sequence bigint"
        if isinstance(serde(node.key_serde), TimeWindowedSerde | SessionWindowedSerde):
            schema += ", window_start bigint, window_end bigint"
        self.topics.append(operator["topic"])
        node.to(operator["topic"], dsl.Produced(node.key_serde, type_, schema=schema))


@dataclass
class SparkRun:
    """The output of one query to one sink.

    Attributes:
        rows: for each micro-batch that was committed, the sink's rows by their columns.
        error: the message with which the query failed.
    """

    rows: list[list[dict[str, Any]]] = field(default_factory=list)
    error: str | None = None


@dataclass(frozen=True)
class SparkJob:
    """The run of a case on Spark."""

    case: Case
    batches: Sequence[MicroBatch]
    partitions: int
    backend: str
    on_error: dsl.OnError

    def run(self, spark: SparkSession, directory: Path) -> dict[str, SparkRun]:
        """Run a query for each sink, one after the other.

        Raises:
            MillpondError: the topology is refused.
        """
        topology = SparkInterpreter(self.case.content).build()
        types = source_topics(self.case.content)
        for number, batch in enumerate(self.batches):
            for topic, records in batch.items():
                _write_file(directory / "in" / topic, number, records, types[topic])
        return {sink: self._run_sink(spark, directory, topology, sink) for sink in topology.sinks}

    def _run_sink(self, spark: SparkSession, directory: Path, topology: dsl.Topology, sink: str) -> SparkRun:
        streams = SparkStreams(
            topology,
            application_id=f"{self.case.family}-{self.case.name}",
            state_dir=str(directory / "state"),
            partitions=self.partitions,
            backend=self.backend,
            on_error=self.on_error,
        )
        result = SparkRun()

        def collect(rows: DataFrame, _: int) -> None:
            result.rows.append([row.asDict() for row in rows.collect()])

        query = (
            streams.transform(dict(self._inputs(spark, directory)), sink=sink)
            .writeStream.foreachBatch(collect)
            .option("checkpointLocation", str(directory / "checkpoint" / sink))
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            result.error = str(error)
        return result

    def _inputs(self, spark: SparkSession, directory: Path) -> Iterator[tuple[str, DataFrame]]:
        for topic, type_ in source_topics(self.case.content).items():
            reader = spark.readStream.schema(f"key string, value {type_}, timestamp bigint")
            yield topic, reader.option("maxFilesPerTrigger", 1).parquet(str(directory / "in" / topic))


def _write_file(directory: Path, number: int, records: Sequence[Any], type_: str) -> None:
    """Write a file that Spark reads after those of lower numbers."""
    directory.mkdir(parents=True, exist_ok=True)
    values = pa.int64() if type_ == "bigint" else pa.string()
    schema = pa.schema([("key", pa.string()), ("value", values), ("timestamp", pa.int64())])
    rows = [dict(zip(schema.names, record, strict=True)) for record in records]
    path = directory / f"{number:03d}.parquet"
    pq.write_table(pa.Table.from_pylist(rows, schema), path)
    os.utime(path, (1_000_000_000 + number, 1_000_000_000 + number))
