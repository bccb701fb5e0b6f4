"""A small query of one task, whose state the tests look after."""

from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from millpond.adapters.spark import SparkStreams
from millpond.processors import Consumed, Materialized, Produced, StreamsBuilder

DDL = "key string, value long, timestamp long"
BATCHES = 3

builder = StreamsBuilder()
_numbers = builder.stream("numbers", Consumed("string", "int64"))
_counted = _numbers.group_by_key().count(Materialized("counts"))
_counted.to_stream().to("totals", Produced(schema="key string, value long"))
topology = builder.build()
del builder


def nowhere(rows: DataFrame) -> DataStreamWriter:
    """Write rows nowhere."""
    return rows.writeStream.format("noop")


class Query:
    """A query of one task, each of whose micro-batches counts one more record of every key.

    Args:
        spark: runs it.
        directory: where its state is.
        inputs: of another query, to be read; None for ``BATCHES`` files of its own.
        application_id: the job's name.
    """

    def __init__(
        self, spark: SparkSession, directory: Path, inputs: Path | None = None, application_id: str = "job"
    ) -> None:
        self._spark = spark
        self.directory = directory
        self.inputs = inputs or directory / "in"
        self.checkpoint = directory / "checkpoint"
        self.streams = SparkStreams(
            topology,
            application_id=application_id,
            state_dir=str(directory / "state"),
            local_dir=str(directory / "local"),
            partitions=1,
            backend="lmdb",
        )
        for batch in range(BATCHES if inputs is None else 0):
            self.bring(batch)

    def bring(self, batch: int) -> None:
        """Have one more record of every key arrive."""
        rows = self._spark.createDataFrame([(f"key {key}", key, batch) for key in range(10)], DDL)
        rows.coalesce(1).write.mode("append").parquet(str(self.inputs))

    def run(self, output: Callable[[DataFrame], DataStreamWriter] = nowhere) -> None:
        """Run all micro-batches that there are to run; ``output`` says where their rows go."""
        files = self._spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).parquet(str(self.inputs))
        writer = output(self.streams.transform({"numbers": files}))
        writer.option("checkpointLocation", str(self.checkpoint)).trigger(availableNow=True).start().awaitTermination()

    def counts(self) -> set[int]:
        rows = self.streams.read_store("counts", str(self.checkpoint)).collect()
        assert len(rows) == 10
        return {row.value for row in rows}
