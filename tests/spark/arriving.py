"""Rows that arrive as files, and the query of what a verb makes of them, micro-batch by micro-batch."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession


class Arriving:
    """A directory with files that arrive, and with the state and the checkpoint of the query.

    Attributes:
        spark: the session.
        directory: where all is.
        state, checkpoint: the state directory, and the checkpoint's.
        found: all rows that have come out.
    """

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self.spark = spark
        self.directory = directory
        self.state, self.checkpoint = str(directory / "state"), str(directory / "checkpoint")
        self.found: list[dict[str, Any]] = []

    def arrive(self, rows: DataFrame, files: int = 4) -> None:
        rows.repartition(files).write.mode("append").parquet(f"{self.directory}/in")

    def stream(self, ddl: str) -> DataFrame:
        """Return the rows, of two files in each micro-batch."""
        return self.spark.readStream.schema(ddl).option("maxFilesPerTrigger", 2).parquet(f"{self.directory}/in")

    def run(self, rows: DataFrame) -> None:
        """Run the query over all that has arrived."""

        def take(batch: DataFrame, _: int) -> None:
            self.take(batch.collect())

        writer = rows.writeStream.foreachBatch(take).option("checkpointLocation", self.checkpoint)
        writer.trigger(availableNow=True).start().awaitTermination()

    def take(self, rows: Sequence[Row]) -> None:
        """Take what came out in a micro-batch."""
        self.found += [row.asDict() for row in rows]
