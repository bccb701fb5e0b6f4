"""The streams that the tests of the Spark adapter run."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, SparkSession

RunStream = Callable[..., list[tuple[Any, ...]]]


@pytest.fixture
def run_stream(spark: SparkSession, tmp_path: Path) -> RunStream:
    """Runs a streaming DataFrame until its input is used up and gives all rows that its file sink has committed."""

    def run(rows: DataFrame, *, out: str = "out", checkpoint: str = "checkpoint") -> list[tuple[Any, ...]]:
        query = (
            rows.writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / checkpoint))
            .trigger(availableNow=True)
            .start(str(tmp_path / out))
        )
        query.awaitTermination()
        return sorted(tuple(row) for row in spark.read.schema(rows.schema).parquet(str(tmp_path / out)).collect())

    return run
