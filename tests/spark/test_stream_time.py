"""Stream time that a record of the year 2100 has moved is set back by a restart: exactly once, and with its commit."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from millpond.adapters.spark import Millpond
from millpond.processors import TimeWindows
from millpond.processors.verbs import aggregates as agg

pytestmark = pytest.mark.spark


def test_a_restart_sets_stream_time_back_once(spark: SparkSession, tmp_path: Path) -> None:
    def run(times: list[str], **options: Any) -> tuple[list[tuple[str, int]], Counter[str]]:
        """Return the windows that come out, and what the tasks count."""
        rows = spark.createDataFrame([(time,) for time in times], "at string").selectExpr("'k' as key", "timestamp(at)")
        rows.coalesce(1).write.mode("append").parquet(f"{tmp_path}/in")
        arriving = spark.readStream.schema(rows.schema).parquet(f"{tmp_path}/in")
        pond = Millpond(
            application_id="clicks", state_dir=f"{tmp_path}/state", partitions=1, backend="rocksdb", **options
        )
        window = TimeWindows("5 minutes", grace=0)
        counts = pond.aggregate(arriving, {"n": agg.count()}, by="key", time="at", window=window, emit="final")
        out: list[tuple[str, int]] = []
        query = (
            counts.selectExpr("date_format(window.start, 'HH:mm') as start", "n")
            .writeStream.foreachBatch(lambda batch, _: out.extend(map(tuple, batch.collect())))
            .option("checkpointLocation", f"{tmp_path}/checkpoint")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        counted: Counter[str] = Counter()
        for progress in query.recentProgress:
            for counts_of_task in progress.observedMetrics["millpond.aggregate-key.operator.0"].tasks:
                counted.update({name.rpartition(":")[2]: count for name, count in counts_of_task.items()})
        return out, counted

    early = ["2024-01-01 10:01:00Z", "2024-01-01 10:04:00Z", "2100-01-01 00:00:00Z"]
    first, _ = run(early, max_ahead=None)
    assert [count for _, count in first] == [2]
    reset = {"reset_stream_time": "2024-01-01T10:30:00Z"}
    second, counted = run(["2024-01-01 11:11:00Z", "2024-01-01 11:17:00Z"], **reset)
    assert [count for _, count in second] == [1]
    assert (counted["set-back"], counted["removed-beyond-reset"], counted["dropped-late"]) == (2, 1, 0)
    third, counted = run(["2024-01-01 11:14:00Z", "2024-01-01 11:22:00Z"], **reset)
    assert [count for _, count in third] == [1]
    assert (counted["set-back"], counted["removed-beyond-reset"], counted["dropped-late"]) == (0, 0, 1)
