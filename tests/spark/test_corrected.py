"""``asof_join(emit="updates")`` on Spark: what its feed leaves is the join of all rows, in many files and restarts."""

from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millpond import Pond
from millpond.errors import ConfigurationError, StateConflictError
from tests.spark.test_asof_join import by_sql
from tests.spark.test_verbs import Job

pytestmark = pytest.mark.spark

TRADES, QUOTES = "symbol string, at timestamp, number int", "symbol string, since timestamp, price int, op string"
KEY = ["symbol", "at", "number"]


def moment(minute: float) -> str:
    return str(datetime(2026, 6, 1) + timedelta(minutes=minute))


def histories(seed: int) -> tuple[list[Any], list[Any]]:
    """Return trades and quotes of an hour, in any order."""
    random = Random(seed)
    trades = [(random.choice(["a", "b", None]), moment(random.randrange(60)), number) for number in range(40)]
    places = random.sample([(symbol, minute) for symbol in "ab" for minute in range(60)], 30)
    quotes = [
        (symbol, moment(minute), price, random.choice(["upsert", "upsert", "delete"]))
        for price, (symbol, minute) in enumerate(places)
    ]
    return trades, quotes


def left_of(changes: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Return what a feed leaves: number and price."""
    last = {tuple(row[name] for name in KEY): row for row in sorted(changes, key=lambda row: row["sequence"])}
    return sorted((row["number"], row["price"]) for row in last.values() if row["op"] == "upsert")


def test_streams_of_many_files_with_restarts_leave_the_join_of_all_rows(spark: SparkSession, tmp_path: Path) -> None:
    job, (trades, quotes) = Job(spark, tmp_path), histories(3)
    given: dict[str, Any] = {
        "on": "symbol", "left_time": "at", "right_time": "since", "right_op": "op", "history": "2 hours",
        "emit": "updates", "left_key": "number", "name": "priced",
    }  # fmt: skip
    for part in range(2):
        for some in range(2):
            job.arrive("trades", job.rows(TRADES, *trades[part * 20 + some * 10 : part * 20 + some * 10 + 10]))
            job.arrive("quotes", job.rows(QUOTES, *quotes[part * 15 + some * 7 : part * 15 + some * 7 + 7 + some]))
        pond = job.pond()
        sides = (job.stream("trades", job.rows(TRADES, *trades)), job.stream("quotes", job.rows(QUOTES, *quotes)))
        priced = pond.asof_join(*sides, **given)
        kept = pond.latest(priced, key=KEY, time="change_time", history="0 seconds", name="kept")
        job.run(kept)
    written = spark.read.schema(kept.schema).parquet(f"{tmp_path}/out").collect()
    found = left_of([row.asDict() for row in written])
    expected = by_sql(
        spark,
        "ASOF JOIN quotes MATCH_CONDITION (trades.at >= quotes.since) USING (symbol) WHERE op = 'upsert'",
        trades=job.rows(TRADES, *trades),
        quotes=job.rows(QUOTES, *quotes),
    )
    assert found == sorted(map(tuple, expected.collect()))
    tables = [rows.toArrow() for rows in (job.rows(TRADES, *trades), job.rows(QUOTES, *quotes))]
    assert left_of(in_this_process(tables, given)) == found
    (last, *_) = [row for row in written if row["op"] == "upsert"]
    told = pond.explain_match("priced", last, checkpoint=f"{tmp_path}/out-checkpoint")
    assert "the match is that of" in str(told)
    with pytest.raises(StateConflictError, match="how='inner' and not 'left'"):
        job.run(job.pond().asof_join(*sides, **{**given, "how": "left"}))
    with pytest.raises(StateConflictError, match="corrected"):
        job.run(job.pond().asof_join(*sides, **{**given, "emit": "final", "left_key": None}))


def in_this_process(tables: list[pa.Table], given: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what Pond makes of the same rows in other micro-batches."""
    found = []
    with Pond().in_batches.asof_join(tables[0].schema, tables[1].schema, **given) as join:
        for start in range(0, 40, 5):
            found += join.feed(left=tables[0].slice(start, 5), right=tables[1].slice(start, 5)).to_pylist()
    return found


def test_a_time_that_is_no_column_of_the_result_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    job = Job(spark, tmp_path)
    trades, quotes = histories(1)
    sides: list[DataFrame] = [job.rows(TRADES, *trades), job.rows(QUOTES, *quotes).drop("op")]
    options: dict[str, Any] = {"on": "symbol", "right_time": "since", "history": "2 hours", "emit": "updates"}
    with pytest.raises(ConfigurationError, match=r"which is no column of the result as it is.*give a column of left"):
        job.pond().asof_join(*sides, **options, left_time=F.col("at") + F.expr("interval 1 hour"), left_key="number")
    job.pond().asof_join(*sides, **options, left_time=sides[0]["at"], left_key="number")
