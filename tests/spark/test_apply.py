"""A processor of the user's own on a streaming DataFrame: timers, restarts, tasks, and the columns of its results."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from millpond.adapters.spark import Millpond
from millpond.errors import ConfigurationError
from millpond.processors.verbs import KeyContext, KeyedProcessor, Timer
from tests.spark.conftest import RunStream

pytestmark = pytest.mark.spark

SCHEMA = "user string, what string, clicks int, at timestamp"


class Visits(KeyedProcessor):
    """Counts the clicks of a user until there are none for five minutes."""

    def process(self, key: Any, row: dict[str, Any], context: KeyContext) -> Iterable[Mapping[str, Any]]:
        clicks = context.state.get(0) + row["clicks"]
        context.state.set(clicks)
        context.set_timer("5 minutes", "quiet")
        if row["clicks"] > 2:
            yield {"user": key, "what": "busy", "clicks": row["clicks"], "at": context.time}

    def on_timer(self, key: Any, timer: Timer, context: KeyContext) -> Iterable[Mapping[str, Any]]:
        yield {"user": key, "what": timer.name, "clicks": context.state.get(), "at": context.time}
        context.state.delete()


class Misspelled(KeyedProcessor):
    """Forgets a column, and has another."""

    def process(self, key: Any, row: dict[str, Any], context: KeyContext) -> Iterable[Mapping[str, Any]]:
        yield {"user": key, "what": "row", "click": 1, "at": context.time}


def clicks(spark: SparkSession) -> DataFrame:
    """Return clicks of three users, each at most two minutes late."""
    return spark.sql(
        "select concat('u', id % 3) as user, cast(id % 4 as int) as clicks, id div 8 as file, "
        "timestamp_seconds(1704103200 + 120 * id + if(id % 5 = 0, -119, 0) + 400 * (id div 9)) as ts from range(32)"
    )


@pytest.mark.slow
@pytest.mark.long
def test_results_depend_neither_on_tasks_nor_on_micro_batches_nor_on_a_restart(
    spark: SparkSession, tmp_path: Path, run_stream: RunStream
) -> None:
    given = clicks(spark)
    options: dict[str, Any] = {"key": "user", "time": "ts", "schema": SCHEMA, "lateness": "2 minutes"}

    def visits(rows: DataFrame, run: str, partitions: int, complete: DataFrame | None = None) -> DataFrame:
        pond = Millpond(application_id=run, state_dir=f"{tmp_path}/state", partitions=partitions, backend="lmdb",
                        complete=complete)  # fmt: skip
        return pond.apply(rows, Visits(), name="visits", **options)

    def arrived(files: str) -> DataFrame:
        for number in range(4):
            if str(number) in files:
                part = given.where(f"file = {number}").coalesce(1)
                part.write.mode("append").parquet(f"{tmp_path}/in")
        return spark.readStream.schema(given.schema).option("maxFilesPerTrigger", 1).parquet(f"{tmp_path}/in")

    expected = sorted(map(tuple, visits(given, "static", 1).collect()))
    timers = [row for row in expected if row[1] == "quiet"]
    assert sum(row[2] for row in timers) == sum(row.clicks for row in given.collect())
    assert len(timers) > 5
    done = spark.range(1)
    done.limit(0).write.parquet(f"{tmp_path}/signal")
    signal = spark.readStream.schema(done.schema).parquet(f"{tmp_path}/signal")
    before = run_stream(visits(arrived("01"), "four", 4, signal))
    assert len(before) < len(expected)
    rest = visits(arrived("23"), "four", 4, signal)
    run_stream(rest)
    done.write.mode("append").parquet(f"{tmp_path}/signal")
    assert run_stream(rest) == expected
    at_once = spark.readStream.schema(given.schema).parquet(f"{tmp_path}/in")
    assert run_stream(visits(at_once, "one", 1, signal), out="one", checkpoint="one-checkpoint") == expected


def test_a_result_without_an_announced_entry_fails_with_its_name(spark: SparkSession, tmp_path: Path) -> None:
    pond = Millpond(application_id="bad", state_dir=str(tmp_path), partitions=1, backend="memory")
    rows = pond.apply(clicks(spark), Misspelled(), key="user", time="ts", schema=SCHEMA, lateness="2 minutes")
    with pytest.raises(Exception, match=r"column 'clicks' is not an entry of .* did you mean 'click'"):
        rows.collect()


def test_columns_of_the_result_are_those_that_were_announced(spark: SparkSession, tmp_path: Path) -> None:
    user = T.StructField("user", T.StringType(), nullable=False, metadata={"of": "a site"})
    schema = T.StructType([user, T.StructField("clicks", T.IntegerType(), nullable=False)])
    pond = Millpond(application_id="site", state_dir=f"{tmp_path}/state", backend="memory")
    rows = pond.apply(clicks(spark), Visits(), key="user", time="ts", schema=schema, lateness="2 minutes")
    assert rows.schema == schema
    assert {row["user"] for row in rows.collect()} == {"u0", "u1", "u2"}


@pytest.mark.parametrize("schema", [{"total": "bigint"}, ["total"], None, "total: bigint; rest"])
def test_a_schema_that_spark_cannot_read_is_told_how_to_write_one(
    spark: SparkSession, tmp_path: Path, schema: Any
) -> None:
    pond = Millpond(application_id="bad", state_dir=str(tmp_path), partitions=1, backend="memory")
    call: dict[str, Any] = {"key": "user", "time": "ts", "lateness": "2 minutes"}
    with pytest.raises(ConfigurationError, match="is not Spark DDL: ") as refused:
        pond.apply(clicks(spark), Misspelled(), schema=schema, **call)
    assert "Py4J" not in str(refused.value)
    assert "Trace" not in str(refused.value)
    line = str(refused.value).partition("; write it as '")[2].partition("'")[0]
    assert pond.apply(clicks(spark), Misspelled(), schema=line, **call).columns == ["name", "total"]
