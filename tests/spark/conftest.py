"""One SparkSession for all tests of the Spark adapter, and the streams that they run."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, SparkSession

ROCKSDB_PROVIDER = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

RunStream = Callable[..., list[tuple[Any, ...]]]


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session of two cores whose tasks may fail three times."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2, 4]")
        .appName("millpond-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.python.authenticate.socketTimeout", "60s")  # on a machine that is busy with other tests
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.streaming.stateStore.providerClass", ROCKSDB_PROVIDER)
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


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
