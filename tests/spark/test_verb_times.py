"""Times of every kind in verbs on DataFrames: none, of before 1970, and of ever."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millpond.adapters.spark import Millpond
from millpond.processors import TimeWindows
from millpond.processors.verbs import aggregates

pytestmark = pytest.mark.spark


def pond(directory: Path, **options: Any) -> Millpond:
    given: dict[str, Any] = {"application_id": "times", "partitions": 2, "backend": "memory"}
    return Millpond(**given, state_dir=f"{directory}/state", **options)


def listed(rows: DataFrame) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, rows.collect()), key=repr)


def streamed(rows: DataFrame, directory: Path) -> list[tuple[Any, ...]]:
    """What a streaming query writes until its input is used up."""
    out, checkpoint = f"{directory}/out", f"{directory}/checkpoint"
    writer = rows.writeStream.format("parquet").option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).start(out).awaitTermination()
    return listed(rows.sparkSession.read.schema(rows.schema).parquet(out))


def arriving(rows: DataFrame, path: Path) -> DataFrame:
    """A stream of files, to which these rows are added as one."""
    rows.coalesce(1).write.mode("append").parquet(str(path))
    return rows.sparkSession.readStream.schema(rows.schema).parquet(str(path))


def test_left_rows_without_a_time_come_out_as_of_spark_joins(spark: SparkSession, tmp_path: Path) -> None:
    left = spark.sql("select * from values (1, timestamp'2024-01-01 10:00:00'), (1, null), (null, null) as (k, at)")
    right = spark.sql("select 1 as k, timestamp'2024-01-01 09:59:00' as since, 'v' as v")
    pairs = left.alias("a").join(right.alias("b"), F.expr("a.k = b.k and since <= at"), "left")
    expected = listed(pairs.select("a.k", "at", "since", "v"))
    given: dict[str, Any] = {"on": "k", "left_time": "at", "right_time": "since", "how": "left"}
    late = {**given, "left_time": F.col("at") + F.expr("interval 1 second"), "tolerance": "1 day", "grace": "1 minute"}
    verbs = pond(tmp_path)
    joined = [
        verbs.asof_join(left, right, history="1 hour", name="static", **given),
        verbs.asof_join(left, right, history="1 hour", name="near", **late),
        verbs.stream_join(left, right, within="1 hour", **given),
    ]
    assert [listed(rows) for rows in joined] == [expected] * 3
    for number in range(2):
        sides = arriving(left, tmp_path / "left"), arriving(right, tmp_path / "right")
        found = streamed(pond(tmp_path).asof_join(*sides, history="1 hour", name="arriving", **given), tmp_path)
        assert found == sorted(expected * (number + 1), key=repr)


def test_history_from_the_beginning_and_for_ever_is_that_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    left = spark.sql(
        "select 1 as k, at from values (timestamp'1899-12-31'), (timestamp'1969-12-31 23:59:59.999999'), "
        "(timestamp'1970-01-01 00:00:01'), (timestamp'2024-01-01') as (at)"
    )
    right = spark.sql(
        "select 1 as k, timestamp(since) as since, v from values ('0001-01-01', 'always'), ('1900-01-01', 'old'), "
        "('1969-12-31 23:59:59.999999', 'last'), ('2023-12-31', 'new'), ('9999-12-31', 'never') as (since, v)"
    )
    pairs = left.alias("a").join(right.alias("b"), F.expr("a.k = b.k and since <= at"))
    expected = listed(pairs.groupBy("at").agg(F.max_by("v", "since").alias("v")))
    given: dict[str, Any] = {"on": "k", "left_time": "at", "right_time": "since", "history": "0 days"}
    joined = pond(tmp_path).asof_join(left, right, **given, name="static").select("at", "v")
    assert listed(joined) == expected
    assert [row[1] for row in expected] == ["always", "last", "last", "new"]
    days = TimeWindows("2 days", advance="1 day")
    counted = pond(tmp_path).aggregate(left, {"n": aggregates.count()}, by="k", time="at", window=days, emit="final")
    sparks = left.groupBy("k", F.window("at", "2 days", "1 day").alias("window")).agg(F.count("*").alias("n"))
    assert listed(counted) == listed(sparks)
    for number in (1, 2):
        sides = arriving(left, tmp_path / "left"), arriving(right.where(f"{number} = 1"), tmp_path / "right")
        later = pond(tmp_path).asof_join(*sides, **given, how="left").select("at", "v")
        found = streamed(later, tmp_path)
        assert [row for row in found if row[1] == "new"] == [row for row in expected if row[1] == "new"] * number
