"""Times of every kind in verbs on DataFrames: none, of before 1970, of ever, with a time zone and without one."""

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millpond.adapters.spark import Millpond
from millpond.errors import ConfigurationError, StateConflictError
from millpond.processors import CumulativeWindows, TimeWindows
from millpond.processors.verbs import aggregates

pytestmark = pytest.mark.spark


def pond(directory: Path, **options: Any) -> Millpond:
    given: dict[str, Any] = {"application_id": "times", "partitions": 2, "backend": "memory"}
    return Millpond(**(given | options), state_dir=f"{directory}/state")


def listed(rows: DataFrame) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, rows.collect()), key=repr)


def streamed(rows: DataFrame, directory: Path) -> list[tuple[Any, ...]]:
    """Return what a streaming query writes until its input is used up."""
    out, checkpoint = f"{directory}/out", f"{directory}/checkpoint"
    writer = rows.writeStream.format("parquet").option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).start(out).awaitTermination()
    return listed(rows.sparkSession.read.schema(rows.schema).parquet(out))


def arriving(rows: DataFrame, path: Path) -> DataFrame:
    """Return a stream of files, to which these rows are added as one."""
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


ZONE = "America/New_York"
WALL = ["timestamp_ntz'2024-01-01 00:00:00'", "date'2024-01-01'"]


@pytest.fixture
def far_from_utc(spark: SparkSession) -> Iterator[None]:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", ZONE)
    yield
    spark.conf.set("spark.sql.session.timeZone", str(before))


@pytest.mark.usefixtures("far_from_utc")
@pytest.mark.parametrize("since", WALL)
def test_times_with_and_without_a_zone_are_compared_as_spark_does_once_that_is_written(
    spark: SparkSession, tmp_path: Path, since: str
) -> None:
    instants = "timestamp'2024-01-01 04:59:59Z'", "timestamp'2024-01-01 05:00:00Z'"
    left = spark.sql(f"select 1 as k, at from values ({instants[0]}), ({instants[1]}) as (at)")
    right = spark.sql(f"select 1 as k, {since} as `valid from`, 'v' as v")
    pairs = left.alias("a").join(right.alias("b"), F.expr("a.k = b.k and `valid from` <= at"), "left")
    expected = listed(pairs.select("a.k", "at", "valid from", "v"))
    assert {row[3] for row in expected} == {"v", None}
    given: dict[str, Any] = {"on": "k", "left_time": "at"}
    type_ = right.schema["valid from"].dataType.simpleString()
    refused = (
        rf"compares left_time, a timestamp, with right_time, a {type_}, .* "
        r"write right_time=F.col\('`valid from`'\).cast\('timestamp'\) \["
    )
    cast = F.col("`valid from`").cast("timestamp")
    for verb, more in (("asof_join", {"history": 0}), ("stream_join", {"within": "1 day"}), ("table_join", {})):
        with pytest.raises(ConfigurationError, match=refused):
            getattr(pond(tmp_path), verb)(left, right, right_time="valid from", **given, **more)
    with pytest.raises(ConfigurationError, match=r"left_time=\(\.\.\.\)\.cast\('timestamp'\) \["):
        pond(tmp_path).table_join(right, left, on="k", left_time=F.col("`valid from`"), right_time="at")
    joined = pond(tmp_path).asof_join(left, right, right_time=cast, history="1 day", how="left", **given)
    assert listed(joined) == expected


@pytest.mark.usefixtures("far_from_utc")
def test_times_without_a_zone_come_out_without_one(spark: SparkSession, tmp_path: Path) -> None:
    # New York has no 02:30 on that day, and 01:30 twice on the other one.
    rows = spark.sql(
        "select k, at, date(at) as day, n from values (1, timestamp_ntz'2024-03-10 02:30:00.000001', 1), "
        "(1, timestamp_ntz'2024-03-10 02:59:59', 2), (1, timestamp_ntz'2024-11-03 01:30:00', 3) as (k, at, n)"
    )
    total, hour = {"total": aggregates.sum("n")}, TimeWindows("1 hour")
    found = pond(tmp_path).aggregate(rows, total, by="k", time="at", window=hour, emit="final")
    sparks = rows.groupBy("k", F.window("at", "1 hour").alias("window")).agg(F.sum("n").alias("total"))
    assert found.schema["window"].dataType.simpleString() == sparks.schema["window"].dataType.simpleString()
    assert listed(found) == listed(sparks)
    days = pond(tmp_path).aggregate(rows, total, by="k", time="day", window=TimeWindows("1 day"))
    assert listed(days.select("window.start", "change_time", "total").where("total = 3")) == [
        (datetime(2024, 11, 3), datetime(2024, 11, 3), 3),
        (datetime(2024, 3, 10), datetime(2024, 3, 10), 3),
    ]
    feed, other = rows.select("k", "at", "n"), rows.selectExpr("k", "day", "n as m")
    tables = pond(tmp_path).table_join(feed, other, on="k", left_time="at", right_time="day")
    (*_, last) = tables.orderBy("sequence").collect()
    assert (last.n, last.m, last.change_time) == (3, 3, datetime(2024, 11, 3, 1, 30))


def of_two_years(spark: SparkSession, type_: str = "timestamp") -> DataFrame:
    """Return rows at many hours, those included in which clocks change."""
    hours = "make_interval(0, 0, 0, 0, cast(id * 7919 % 17520 as int), 30)"
    return spark.range(600).selectExpr("id % 3 as k", f"{type_}'2023-03-01 00:00:00' + {hours} as at", "id as n")


def truncated(rows: DataFrame, unit: str, length: str) -> DataFrame:
    """Return what Spark says of the windows of the calendar of its session."""
    start = F.date_trunc(unit, "at").cast(rows.schema["at"].dataType)
    window = F.struct(start.alias("start"), (start + F.expr(f"make_interval({length})")).alias("end"))
    return rows.groupBy("k", window.alias("window")).agg(F.sum("n").alias("total"))


UNITS = [
    ("day", "1 day", "0, 0, 0, 1"),
    ("week", "1 week", "0, 0, 1, 0"),
    ("month", "1 month", "0, 1"),
    ("quarter", "3 months", "0, 3"),
    ("year", "1 year", "1"),
]


@pytest.mark.usefixtures("far_from_utc")
@pytest.mark.parametrize(
    ("unit", "size", "length"),
    [pytest.param(*unit, marks=[] if unit[0] in ("week", "month") else pytest.mark.long) for unit in UNITS],
)
def test_windows_of_the_calendar_are_what_spark_truncates_times_to(
    spark: SparkSession, tmp_path: Path, unit: str, size: str, length: str
) -> None:
    given: dict[str, Any] = {"by": "k", "time": "at", "emit": "final"}
    total, own = {"total": aggregates.sum("n")}, {"week_start": "monday"} if unit == "week" else {}
    rows, local = of_two_years(spark), of_two_years(spark, "timestamp_ntz")
    found = pond(tmp_path).aggregate(rows, total, window=TimeWindows(size, zone=ZONE), **given)
    assert listed(found) == listed(truncated(rows, unit, length))
    shown = pond(tmp_path).aggregate(local, total, window=TimeWindows(size, **own), **given)
    assert shown.schema["window"].dataType.simpleString() == "struct<start:timestamp_ntz,end:timestamp_ntz>"
    assert listed(shown) == listed(truncated(local, unit, length))


@pytest.mark.usefixtures("far_from_utc")
@pytest.mark.parametrize(
    "backend", [pytest.param("memory", marks=pytest.mark.long), "lmdb", pytest.param("rocksdb", marks=pytest.mark.long)]
)
def test_months_go_on_after_a_restart_and_state_shows_their_ends(
    spark: SparkSession, tmp_path: Path, backend: str
) -> None:
    rows = of_two_years(spark)
    for number in range(2):
        verbs = pond(tmp_path, backend=backend)
        window = TimeWindows("1 month", zone=ZONE, grace="1000 days")
        source = arriving(rows, tmp_path / "rows")
        found = verbs.aggregate(source, {"total": aggregates.sum("n")}, by="k", time="at", window=window)
        updates = {row[:2]: row[2] for row in streamed(found, tmp_path)}
        expected = {row[:2]: (number + 1) * row[2] for row in listed(truncated(rows, "month", "0, 1"))}
        assert updates.keys() == expected.keys()
        stored = verbs.read_store("aggregate-k", "aggregate", f"{tmp_path}/checkpoint")
        assert {(row.k, row.window): row.total for row in stored.collect()} == expected


@pytest.mark.parametrize(
    ("size", "advance", "offset"), [("1 hour", "1 hour", "15 minutes"), ("7 hours", "3 hours", "2 hours 1 second")]
)
@pytest.mark.parametrize("type_", ["timestamp", "timestamp_ntz"])
def test_an_offset_is_the_start_time_of_sparks_windows(
    spark: SparkSession, tmp_path: Path, size: str, advance: str, offset: str, type_: str
) -> None:
    rows = of_two_years(spark, type_)
    windows = TimeWindows(size, advance=advance, offset=offset)
    found = pond(tmp_path).aggregate(
        rows, {"total": aggregates.sum("n")}, by="k", time="at", window=windows, emit="final"
    )
    theirs = rows.groupBy("k", F.window("at", size, advance, offset).alias("window")).agg(F.sum("n").alias("total"))
    assert listed(found) == listed(theirs)


@pytest.mark.parametrize(("type_", "final"), [("timestamp", True), ("timestamp_ntz", False)])
def test_cumulative_windows_are_those_of_their_size_up_to_the_end_of_each_step(
    spark: SparkSession, tmp_path: Path, type_: str, final: bool
) -> None:
    rows, verbs = of_two_years(spark, type_), pond(tmp_path)
    windows = CumulativeWindows("2 days", "6 hours", offset="5 hours", grace="1000 days")
    given: dict[str, Any] = {"by": "k", "time": "at", "emit": "final" if final else "updates"}
    source = rows if final else arriving(rows, tmp_path / "rows")
    found = verbs.aggregate(source, {"total": aggregates.sum("n")}, window=windows, **given)
    whole = rows.withColumn("start", F.window("at", "2 days", "2 days", "5 hours").start)
    stops = F.expr("sequence(start + interval 6 hours, start + interval 2 days, interval 6 hours)")
    held = whole.withColumn("end", F.explode(stops)).where("at < end")
    theirs = held.groupBy("k", F.struct("start", "end").alias("window")).agg(F.sum("n").alias("total"))
    if final:
        assert listed(found) == listed(theirs)
        return
    assert {row[:2]: row[2] for row in streamed(found, tmp_path)} == {row[:2]: row[2] for row in listed(theirs)}
    stored = verbs.read_store("aggregate-k", "aggregate", f"{tmp_path}/checkpoint")
    assert {(row.k, row.window): row.total for row in stored.collect()} == {row[:2]: row[2] for row in listed(theirs)}


@pytest.mark.usefixtures("far_from_utc")
def test_a_restart_keeps_to_the_kind_of_time_that_its_state_has(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.sql("select 1 as k, timestamp_ntz'2024-01-01 10:00:00' as at, 'v' as v")
    source = arriving(rows, tmp_path / "rows")

    def latest(verbs: Millpond, time: Any) -> DataFrame:
        return verbs.latest(source, key="k", time=time, history=0)

    verbs = pond(tmp_path)
    (found,) = streamed(latest(verbs, "at"), tmp_path)
    assert found[-1] == datetime(2024, 1, 1, 10)
    shown = verbs.read_store("latest-k", "latest", f"{tmp_path}/checkpoint")
    assert [row.change_time for row in shown.collect()] == [datetime(2024, 1, 1, 10)]
    with pytest.raises(
        StateConflictError, match=r"has time=.*TIMESTAMP.*were put with time='at'; write time='at' again"
    ):
        latest(pond(tmp_path), F.col("at").cast("timestamp"))
    kept = tmp_path / "state" / "times.latest-k"
    for file in kept.glob("*-expressions-*"):
        file.unlink()  # as of a release that has kept the kind of time alone
    with pytest.raises(
        StateConflictError,
        match=r"'input' is .*UTC.*, but the state of 'times.latest-k' .*\)\.cast\('timestamp_ntz'\), or",
    ):
        latest(pond(tmp_path), F.col("at").cast("timestamp"))
    latest(pond(tmp_path), F.col("at").cast("timestamp").cast("timestamp_ntz"))
    arriving(rows.selectExpr("k", "at", "'w' as v"), tmp_path / "rows")
    for file in [*kept.glob("*-expressions-*"), *kept.glob("*input-time*")]:
        file.unlink()  # as of an earlier release
    assert len(streamed(latest(pond(tmp_path), F.to_date("at")), tmp_path)) == 1


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
