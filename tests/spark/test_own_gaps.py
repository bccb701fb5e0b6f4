"""Sessions with a gap of each row beside Spark's own ``session_window``."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millpond.adapters.spark import Evolution
from millpond.errors import StateConflictError
from millpond.processors import SessionWindows
from millpond.processors.verbs import aggregates
from tests.spark.test_verbs import Job, in_order

pytestmark = pytest.mark.spark

CALLS = {"n": aggregates.count(), "total": aggregates.sum("v")}
COLUMNS = "k string, at timestamp, v bigint, gap int"
RULE = (
    "case gap when 0 then interval '0' second when 1 then interval '-5' second when 2 then interval '3' second "
    "when 3 then interval '0.000001' second when 4 then interval '1' minute end"
)
TEXTS = (
    "case gap when 0 then '0 seconds' when 1 then '-5 seconds' when 2 then '3 seconds' when 3 then '1 microsecond' "
    "when 4 then '1 minute' end"
)
"""The same, as Spark's own function takes it."""


def drawn(spark: SparkSession, number: int) -> DataFrame:
    """Return rows on whole seconds, so that many of them just touch."""
    second = f"timestamp_seconds(1717200000 + pmod(hash(id), {2 * number}))"
    rows = f"select cast(id % 5 as string) k, {second} at, id v, cast(pmod(hash(id, 7), 6) as int) gap"
    return spark.sql(f"{rows} from range({number})").repartition(3)


def theirs(rows: DataFrame) -> DataFrame:
    sessions = rows.groupBy("k", F.session_window("at", F.expr(TEXTS)).alias("window"))
    return sessions.agg(F.count("*").alias("n"), F.sum("v").alias("total"))


def sessions(gap: Any = None, **given: Any) -> SessionWindows:
    return SessionWindows(F.expr(RULE) if gap is None else gap, **{"at_most": "1 minute", **given})


def test_sessions_are_those_of_session_window_with_a_rule(spark: SparkSession, tmp_path: Path) -> None:
    job, rows = Job(spark, tmp_path), drawn(spark, 4000)
    ours = job.pond().aggregate(rows, CALLS, by="k", time="at", window=sessions(), emit="final")
    found = in_order(ours)
    assert found == in_order(theirs(rows))
    assert len(found) > 500
    assert ours.columns == ["k", "window", "n", "total"]


@pytest.mark.parametrize(
    "backend", [pytest.param("memory", marks=pytest.mark.long), "lmdb", pytest.param("rocksdb", marks=pytest.mark.long)]
)
def test_many_files_in_one_micro_batch_and_a_restart_with_another_column_for_the_same_gaps(
    backend: str, spark: SparkSession, tmp_path: Path
) -> None:
    job, rows = Job(spark, tmp_path), drawn(spark, 600).cache()
    end = job.rows(COLUMNS, ("end", "2024-06-02 00:00", 0, 2), ("end", "2024-06-03 00:00", 0, 2))
    parts = [rows.where("v % 2 = 0"), rows.where("v % 2 = 1"), end.where("at < '2024-06-02 12:00'"), end]
    for number, part in enumerate(parts):
        part.repartition(4).write.mode("append").parquet(f"{tmp_path}/rows")
        stream = spark.readStream.schema(rows.schema).parquet(f"{tmp_path}/rows")
        gap = F.expr(RULE) if number % 2 else F.when(F.col("gap") < 5, F.expr(RULE))
        window = sessions(gap, grace="1 hour")
        ours = job.pond(backend=backend).aggregate(stream, CALLS, by="k", time="at", window=window, emit="final")
        job.run(ours)
    found = [row for row in job.written(ours) if row[0] != "end"]
    assert found == in_order(theirs(rows))


def test_at_most_is_kept_and_a_greater_gap_fails_the_query_or_is_left_out(spark: SparkSession, tmp_path: Path) -> None:
    job = Job(spark, tmp_path)
    rows = job.arrive(
        "rows", job.rows(COLUMNS, ("a", "2024-06-01 10:00", 1, 60_000), ("a", "2024-06-01 10:00", 2, 60_001))
    )

    def summed(on_error: str = "skip", **given: Any) -> DataFrame:
        window = sessions(F.col("gap"), **given)
        return job.pond(on_error=on_error).aggregate(rows, CALLS, by="k", time="at", window=window)

    with pytest.raises(Exception, match="column 'gap': more than at_most='1 minute' in row 1 of Spark"):
        job.run(summed("fail"))
    job.run(summed())
    assert [(row[2], row[3]) for row in job.written(summed())] == [(1, 1)]
    with pytest.raises(StateConflictError, match="at_most='1 minute' and not '2 minutes'"):
        job.run(summed(at_most="2 minutes"))


@pytest.mark.long
def test_a_result_that_is_added_gets_the_rows_so_far_that_are_in_sessions(spark: SparkSession, tmp_path: Path) -> None:
    job, rows = Job(spark, tmp_path), drawn(spark, 300).cache()
    stream = job.arrive("rows", rows)
    history, length = spark.read.parquet(f"{tmp_path}/rows"), {"max_length": "100 seconds"}

    def counted(calls: dict[str, Any], **given: Any) -> DataFrame:
        pond = job.pond(evolution=Evolution(f"{tmp_path}/out-checkpoint"))
        window = sessions(grace="1 hour", **length)
        return pond.aggregate(stream, calls, by="k", time="at", window=window, emit="final", name="counts", **given)

    job.run(counted({"n": CALLS["n"]}).withColumn("total", F.lit(None).cast("bigint")))
    for day in ("2024-06-02", "2024-06-03"):
        job.arrive("rows", job.rows(COLUMNS, ("end", f"{day} 00:00", 0, 2)))
    ours = counted(CALLS, added={"total": history})
    job.run(ours)
    found = [row for row in job.written(ours) if row[0] != "end"]
    static = job.pond(application_id="static").aggregate(
        rows, CALLS, by="k", time="at", window=sessions(**length), emit="final"
    )
    assert found == in_order(static)
    assert sum(row[2] for row in found) == rows.where("gap between 2 and 4").count()
