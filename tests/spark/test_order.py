"""The same rows give the same answer in however many files, Spark partitions and tasks they come."""

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from millpond.adapters.spark import Millpond
from millpond.processors import TimeWindows
from millpond.processors.verbs import KeyContext, KeyedProcessor, aggregates

pytestmark = pytest.mark.spark

HOURS = 6
START = datetime(2026, 1, 1)
TOTAL = sum(500 + 100 * hour for hour in range(HOURS))
SCHEMA = "id int, k string, ts timestamp"


class PassOn(KeyedProcessor):
    """Each row as it comes."""

    def process(self, key: Any, row: Mapping[str, Any], context: KeyContext) -> Iterator[dict[str, Any]]:
        yield {"id": row["id"], "at": context.time}


def hourly_rows() -> Iterator[list[dict[str, Any]]]:
    """For each of six hours 500 rows and 100 more for each hour before it, in order, of three keys in turn."""
    number = 0
    for hour in range(HOURS):
        size = 500 + 100 * hour
        rows = []
        for i in range(size):
            moment = START + timedelta(hours=hour) + timedelta(hours=1) * i / size
            rows.append({"id": number, "k": "abc"[number % 3], "ts": moment})
            number += 1
        yield rows


@pytest.fixture(scope="module")
def hours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a file of each hour; the largest, which Spark packs first, is the last."""
    directory = tmp_path_factory.mktemp("hours")
    schema = pa.schema([("id", pa.int32()), ("k", pa.string()), ("ts", pa.timestamp("us", "UTC"))])
    for hour, rows in enumerate(hourly_rows()):
        pq.write_table(pa.Table.from_pylist(rows, schema), directory / f"{hour}.parquet")
    return directory


def finished(rows: DataFrame, directory: Path) -> tuple[list[Any], StreamingQuery]:
    """What a streaming DataFrame gives for all its input."""
    writer = rows.writeStream.format("parquet").option("checkpointLocation", str(directory / "checkpoint"))
    query = writer.trigger(availableNow=True).start(str(directory / "out"))
    query.awaitTermination()
    return rows.sparkSession.read.schema(rows.schema).parquet(str(directory / "out")).collect(), query


def quotes(rows: DataFrame) -> DataFrame:
    return rows.select(F.col("id").alias("quote"), "k", F.col("ts").alias("since"))


VERBS: dict[str, Callable[[Millpond, Callable[[], DataFrame]], DataFrame]] = {
    "aggregate": lambda pond, rows: pond.aggregate(
        rows(),
        {"n": aggregates.count()},
        by="k",
        time="ts",
        window=TimeWindows("10 minutes", grace="30 minutes"),
    ),
    "asof_join": lambda pond, rows: pond.asof_join(
        rows(), quotes(rows()), on="k", left_time="ts", right_time="since", history="1 hour"
    ),
    "stream_join": lambda pond, rows: pond.stream_join(
        rows(),
        quotes(rows()),
        on="k",
        left_time="ts",
        right_time="since",
        within="5 seconds",
        grace="30 minutes",
    ),
    "apply": lambda pond, rows: pond.apply(
        rows(), PassOn(), key="k", time="ts", schema="id int, at timestamp", lateness="0 seconds"
    ),
    "latest": lambda pond, rows: pond.latest(rows(), key="k", time="ts", history="1 hour"),
}


@pytest.mark.parametrize("verb", VERBS)
def test_files_of_one_hour_each_in_one_micro_batch_lose_no_row(
    spark: SparkSession, hours: Path, tmp_path: Path, verb: str
) -> None:
    pond = Millpond(application_id="hours", state_dir=str(tmp_path / "state"), partitions=2, backend="memory")

    def rows() -> DataFrame:
        return spark.readStream.schema(SCHEMA).parquet(str(hours))

    found, query = finished(VERBS[verb](pond, rows), tmp_path)
    assert len(query.recentProgress) == 1
    assert sum(row.n for row in found) if verb == "aggregate" else len(found) == TOTAL
    late = re.findall(r"(?:late|expired|retention)=(\d+)", str(query.lastProgress["observedMetrics"]))
    assert set(late) <= {"0"}
