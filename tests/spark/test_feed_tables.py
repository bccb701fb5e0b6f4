"""Change feeds as tables on Spark: what is kept is what the feed describes, whatever files there are and times say."""

from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from millpond.adapters.spark import Millpond
from millpond.errors import ConfigurationError
from tests.spark.test_verbs import Job

pytestmark = pytest.mark.spark

ORDERS = "id int, customer string, since timestamp, at timestamp, op string"
NOTES = "id int, note string, ts timestamp"
START = datetime(2026, 6, 1)
SHOWN = ["id", "customer", "since"]


def changes(seed: int, count: int = 60) -> list[tuple[Any, ...]]:
    """Return changes of a few orders, each of which is due before or after it is told of."""
    chance = Random(seed)
    return [
        (chance.randrange(9), chance.choice("ab"), str(START + timedelta(minutes=chance.randrange(120))),
         str(START + timedelta(minutes=number)), chance.choice(["upsert", "upsert", "delete"]))
        for number in range(count)
    ]  # fmt: skip


def there(given: list[tuple[Any, ...]]) -> dict[int, tuple[Any, ...]]:
    last = {row[0]: row for row in given}
    return {row[0]: (row[1], datetime.fromisoformat(row[2])) for row in last.values() if row[-1] == "upsert"}


def left(rows: DataFrame) -> dict[int, tuple[Any, ...]]:
    """Return the table that changes leave."""
    last = {row["id"]: row for row in sorted(rows.collect(), key=lambda row: row["sequence"])}
    return {key: (row["customer"], row["since"]) for key, row in last.items() if row["op"] == "upsert"}


def joined(pond: Millpond, orders: DataFrame, notes: DataFrame, time: str | Column, **options: Any) -> DataFrame:
    """Return the orders that there are as a side of a join."""
    latest = pond.latest(orders, key="id", time="at", history="10 days", op="op", name="latest")
    return pond.table_join(
        latest, notes, on="id", left_time=time, right_time="ts", how="left", name="joined", **options
    )


@pytest.mark.parametrize("shared", [True, pytest.param(False, marks=pytest.mark.exhaustive)])
@pytest.mark.long
def test_many_files_and_restarts_leave_what_the_feed_describes(
    spark: SparkSession, tmp_path: Path, shared: bool
) -> None:
    job, given, come = Job(spark, tmp_path), changes(1), 0
    notes = job.arrive("notes", job.rows(NOTES, (1, "one", str(START))))
    for _ in range(3):
        for _ in range(4):
            orders = job.arrive("orders", job.rows(ORDERS, *given[come : come + 5]))
            come += 5
        options = {} if shared else {"history": "10 minutes"}
        rows = joined(job.pond(), orders, notes, "since", **options)
        job.run(rows)
        written = job.spark.read.schema(rows.schema).parquet(f"{job.directory}/out")
        assert left(written) == there(given[:come])


def test_static_feeds_are_the_tables_that_they_describe(spark: SparkSession, tmp_path: Path) -> None:
    job = Job(spark, tmp_path)
    given, pond = changes(2), job.pond()
    orders, notes = job.rows(ORDERS, *given), job.rows(NOTES, (1, "one", str(START)))
    assert left(joined(pond, orders, notes, F.col("since").cast("timestamp"))) == there(given)
    feed = pond.latest(orders, key="id", time="at", history="10 days", op="op", name="one")
    again = pond.latest(feed, key="id", time="since", history="1 minute", name="two")
    assert left(again) == there(given)
    now = job.rows("id int, ts timestamp", *((number, str(START + timedelta(days=1))) for number in range(9)))
    met = pond.asof_join(now, feed, on="id", left_time="ts", right_time="since", history="1 minute", name="met")
    assert {row["id"]: (row["customer"], row["since"]) for row in met.collect()} == there(given)


def test_deletes_of_a_feed_meet_rows_of_a_stream_and_are_of_its_own_key_alone(
    spark: SparkSession, tmp_path: Path
) -> None:
    job, minute = Job(spark, tmp_path), [str(START + timedelta(minutes=number)) for number in range(9)]
    # The second order is late enough to let the first one expire, at eight minutes.
    given = [(1, "a", minute[5], minute[1], "upsert"), (2, "a", minute[5], minute[8], "upsert")]
    pond, orders = job.pond(), job.rows(ORDERS, *given)
    living: dict[str, Any] = {"history": "1 day", "ttl": "7 minutes", "expired": "delete"}
    feed = pond.latest(orders, key="id", time="at", op="op", **living)
    seen = job.rows("id int, ts timestamp", (1, minute[5]), (1, minute[8]))
    met = pond.stream_join(feed, seen, on="id", left_time="since", right_time="ts", within="1 minute", name="met")
    assert sorted((row["op"], row["ts"].minute) for row in met.collect()) == [("delete", 8), ("upsert", 5)]
    names = job.rows("customer string, ts timestamp", ("a", minute[5]))
    given_times: dict[str, Any] = {"on": "customer", "left_time": "since", "right_time": "ts"}
    with pytest.raises(ConfigurationError, match="write left_key='id'"):
        pond.table_join(feed, names, **given_times)
    named = pond.table_join(feed, names, left_key="id", name="named", **given_times)
    assert left(named) == {2: ("a", datetime.fromisoformat(minute[5]))}
