"""A time to live of what verbs keep: over micro-batches and a restart with another one."""

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from millpond.adapters.spark import Millpond
from millpond.errors import ConfigurationError
from millpond.processors import TimeWindows
from millpond.processors.verbs import KeyContext, KeyedProcessor, aggregates

pytestmark = pytest.mark.spark

START = datetime(2024, 1, 1, 10)
COLUMNS = "id string, amount int, at timestamp"
LATEST: dict[str, Any] = {"key": "id", "time": "at", "history": 0}


def at(minute: float) -> datetime:
    return START + timedelta(minutes=minute)


def pond(directory: Path) -> Millpond:
    return Millpond(application_id="living", state_dir=f"{directory}/state", partitions=2)


def rows(spark: SparkSession, directory: Path, *batches: list[tuple[str, int, float]]) -> DataFrame:
    """Return a stream of rows, each of ``batches`` a micro-batch, which goes on with the next call."""
    for batch in batches:
        made = spark.createDataFrame([(key, amount, at(minute)) for key, amount, minute in batch], COLUMNS)
        made.coalesce(1).write.mode("append").parquet(f"{directory}/rows")
    return spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).parquet(f"{directory}/rows")


def in_order(batch: DataFrame) -> list[Any]:
    return sorted(batch.collect(), key=lambda row: (row.change_time, row.id))


def run(feed: DataFrame, directory: Path) -> list[Any]:
    found: list[Any] = []
    writer = feed.writeStream.foreachBatch(lambda batch, _: found.extend(in_order(batch)))
    query = writer.option("checkpointLocation", f"{directory}/checkpoint").trigger(availableNow=True).start()
    query.awaitTermination()
    return [(row.id, row.op, row.change_time) for row in found]


def test_the_latest_row_is_deleted_when_its_time_is_over(spark: SparkSession, tmp_path: Path) -> None:
    feed = rows(spark, tmp_path, [("a", 1, 0), ("b", 1, 5)], [("b", 1, 8), ("c", 1, 12)], [("a", 1, 13)])
    living = pond(tmp_path).latest(feed, **LATEST, ttl="10 minutes", expired="delete")
    assert run(living, tmp_path) == [
        ("a", "upsert", at(0)),
        ("b", "upsert", at(5)),
        ("b", "upsert", at(8)),
        ("a", "delete", at(10)),
        ("c", "upsert", at(12)),
        ("a", "upsert", at(13)),
    ]
    # With a longer one from now on, what would have expired lives on.
    feed = rows(spark, tmp_path, [("d", 1, 27)], [("d", 1, 33)])
    living = pond(tmp_path).latest(feed, **LATEST, ttl="20 minutes", expired="delete")
    assert run(living, tmp_path) == [
        ("d", "upsert", at(27)),
        ("b", "delete", at(28)),
        ("c", "delete", at(32)),
        ("a", "delete", at(33)),
        ("d", "upsert", at(33)),
    ]


@pytest.mark.parametrize("expired", [pytest.param("silent", marks=pytest.mark.long), "delete"])
def test_what_a_verb_sees_now_is_told_from_versions_that_were_replaced_deleted_or_have_expired(
    spark: SparkSession, tmp_path: Path, expired: str
) -> None:
    batches: list[list[tuple[str, int, float]]] = [
        [("a", 1, 0), ("b", 1, 5), ("c", 1, 6)], [("b", 2, 8), ("c", -1, 9), ("d", 1, 12)],
    ]  # fmt: skip
    feed = rows(spark, tmp_path, *batches).selectExpr("*", "if(amount < 0, 'delete', 'upsert') as op")
    living: dict[str, Any] = {**LATEST, "history": "1 day", "op": "op", "ttl": "10 minutes", "expired": expired}
    verbs = pond(tmp_path)
    run(verbs.latest(feed, **living, name="living"), tmp_path)
    shown = verbs.read_store("living", "latest", f"{tmp_path}/checkpoint")
    assert shown.columns == ["id", "amount", "at", "change_time", "valid_to"]
    shown = shown.drop("at")
    found = sorted(tuple(row) for row in shown.collect() if row.valid_to is None)
    assert found == [("b", 2, at(8), None), ("d", 1, at(12), None)]
    ended = sorted(tuple(row) for row in shown.where("valid_to is not null").collect())
    assert ended == [("a", 1, at(0), at(10)), ("b", 1, at(5), at(8)), ("c", 1, at(6), at(9))]
    named = rows(spark, tmp_path).selectExpr("*", "amount as valid_to")
    verbs = pond(tmp_path / "other")
    run(verbs.latest(named, **LATEST, name="named"), tmp_path / "other")
    shown = verbs.read_store("named", "latest", f"{tmp_path}/other/checkpoint")
    assert shown.schema["valid_to"].dataType.simpleString() == "int"


def test_a_pair_is_deleted_when_the_time_of_a_side_is_over(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    batches: list[list[tuple[str, int, float]]] = [
        [("a", 1, 0), ("a", -1, 4), ("b", 1, 5)], [("b", -1, 8), ("a", -2, 12)], [("b", 2, 30)],
    ]  # fmt: skip
    feed = rows(spark, tmp_path, *batches)
    left, right = feed.where("amount > 0"), feed.where("amount < 0").selectExpr("id", "amount as less", "at as since")
    job = pond(tmp_path)
    living: dict[str, Any] = {"left_time": "at", "right_time": "since", "ttl": "10 minutes", "expired": "delete"}
    joined = job.table_join(left, right, on="id", **living)
    job.explain()
    assert "until the newest time of both sides is the ttl past its own" in capsys.readouterr().out
    assert run(joined, tmp_path) == [
        ("a", "upsert", at(4)),
        ("b", "upsert", at(8)),
        ("a", "delete", at(10)),
        ("b", "delete", at(15)),
    ]
    with pytest.raises(ConfigurationError, match=r"leave it out, and let rows expire before: left=pond.latest\(left, "):
        job.table_join(left, right, on="id", left_key="amount", name="foreign", **living)
    early = job.latest(left, key="amount", time="at", history="1 day", ttl="10 minutes", expired="delete", name="early")
    followed = {"left_time": "change_time", "right_time": "since", "left_key": "amount"}
    assert "less" in job.table_join(early, right, on="id", name="foreign", **followed).columns  # type: ignore[arg-type]


def test_an_aggregate_begins_anew_and_explain_says_what_ends_it(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    feed = rows(spark, tmp_path, [("a", 1, 0), ("b", 5, 9)], [("a", 2, 9)], [("b", 3, 20), ("a", 4, 18)])
    job = pond(tmp_path)
    totals = job.aggregate(feed, {"total": aggregates.sum("amount")}, by="id", time="at", ttl="10 minutes")
    job.explain()
    shown = capsys.readouterr().out
    assert "  ttl        10 min of its own + 0 s for its inputs = 10 min\n" in shown
    assert "  keeps      a result for each key, until the clock is the ttl past its last row" in shown
    found: list[Any] = []
    writer = totals.writeStream.foreachBatch(lambda batch, _: found.extend(batch.collect()))
    writer.option("checkpointLocation", f"{tmp_path}/c").trigger(availableNow=True).start().awaitTermination()
    assert sorted((row.change_time, row.id, row.total) for row in found) == [
        (at(0), "a", 1),
        (at(9), "a", 3),
        (at(9), "b", 5),
        (at(18), "a", 7),
        (at(20), "b", 3),
    ]


class Numbers(KeyedProcessor):
    """Numbers the rows of each key, as far as its state knows."""

    def process(self, key: Any, row: dict[str, Any], context: KeyContext) -> list[dict[str, Any]]:
        number = context.state.get(0) + 1
        context.state.set(number)
        return [{"id": key, "number": number, "seen": context.time}]


NUMBERS: dict[str, Any] = {
    "key": "id", "time": "at", "schema": "id string, number int, seen timestamp", "lateness": "1 minute",
}  # fmt: skip


def test_the_state_of_a_rule_is_gone_when_its_time_is_over_and_explain_says_when(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    batches: list[list[tuple[str, int, float]]] = [
        [("a", 1, 0), ("b", 1, 4)], [("a", 1, 9)], [("a", 1, 19), ("b", 1, 13.5)], [("z", 1, 60)],
    ]  # fmt: skip
    feed = rows(spark, tmp_path, *batches)
    job = pond(tmp_path)
    numbers = job.apply(feed, Numbers(), **NUMBERS, ttl="10 minutes")
    job.explain()
    shown = capsys.readouterr().out
    assert "  ttl        10 min of its own + 0 s for its inputs = 10 min\n" in shown
    assert "until it deletes it, or the clock is the ttl and the lateness past its last update" in shown
    found: list[Any] = []
    writer = numbers.writeStream.foreachBatch(lambda batch, _: found.extend(batch.collect()))
    writer.option("checkpointLocation", f"{tmp_path}/c").trigger(availableNow=True).start().awaitTermination()
    assert sorted((row.seen, row.id, row.number) for row in found) == [
        (at(0), "a", 1),
        (at(4), "b", 1),
        (at(9), "a", 2),
        (at(13.5), "b", 2),
        (at(19), "a", 1),
    ]


def test_a_ttl_is_refused_where_nothing_could_expire(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.createDataFrame([("a", 1, at(0))], COLUMNS)
    calls, job = {"n": aggregates.count()}, pond(tmp_path)
    kept: dict[str, Any] = {"by": "id", "time": "at"}
    with pytest.raises(ConfigurationError, match="leave out ttl, or give a window with another grace"):
        job.aggregate(frame, calls, **kept, window=TimeWindows("1 hour"), ttl="1 day")
    with pytest.raises(ConfigurationError, match="ttl is 0; give a length of time such as '30 days', or leave it out"):
        job.latest(frame, **LATEST, ttl=0)
    with pytest.raises(ConfigurationError, match="ttl is 0; give a length of time such as '30 days', or leave it out"):
        job.apply(frame, Numbers(), **NUMBERS, ttl=0)
    with pytest.raises(ConfigurationError, match="nothing expires; give ttl='30 days', or leave out expired"):
        job.latest(frame, **LATEST, expired="delete")
    with pytest.raises(ConfigurationError, match="expired is 'loud'; give 'silent' or 'delete'"):
        job.latest(frame, **LATEST, ttl="30 days", expired="loud")  # type: ignore[arg-type]
    assert job.latest(frame, **LATEST, ttl="30 days", expired="delete").count() == 1
