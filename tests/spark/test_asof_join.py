"""``asof_join`` beside the ``ASOF JOIN`` that Spark's SQL has since 4.3, and beside queries with further conditions."""

from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millpond.adapters.spark import Millpond
from millpond.adapters.spark.verbs.frames import catalyst
from millpond.errors import ConfigurationError
from tests.spark.test_verbs import Job

pytestmark = pytest.mark.spark

START = datetime(2026, 1, 1)
AHEAD: dict[str, Any] = {"direction": "forward", "tolerance": "1 day", "grace": 0}
MATCHES: dict[str, dict[str, Any]] = {
    ">=": {"how": "left"},
    ">": {"how": "inner", "exact": False},
    "<=": {"how": "inner", **AHEAD},
    "<": {"how": "left", **AHEAD, "exact": False},
}
"""What Spark compares the times by, and the arguments that say so."""


@pytest.fixture
def sides(spark: SparkSession) -> tuple[DataFrame, DataFrame]:
    """Trades, and quotes of which no two have one key and time."""
    random, keys = Random(7), ["a", "b", None]
    trades = [(random.choice(keys), START + timedelta(seconds=random.randrange(40)), number) for number in range(60)]
    quotes = [(key, START + timedelta(seconds=second)) for key in keys for second in random.sample(range(40), 9)]
    left = spark.createDataFrame(trades, "symbol string, traded timestamp, number int").repartition(3)
    right = spark.createDataFrame(
        [(*quote, price) for price, quote in enumerate(quotes)], "symbol string, quoted timestamp, price int"
    )
    return left, right.repartition(3)


@pytest.mark.long
def test_static_rows_get_what_spark_gives_them_by_any_comparison(
    spark: SparkSession, sides: tuple[DataFrame, DataFrame], tmp_path: Path
) -> None:
    pond = Millpond(application_id="job", state_dir=f"{tmp_path}/state", partitions=2, backend="memory")
    trades, quotes = sides
    for number, (comparison, arguments) in enumerate(MATCHES.items()):
        ours = pond.asof_join(
            trades, quotes, on="symbol", left_time="traded", right_time="quoted", history="2 days",
            name=f"joined-{number}", **arguments,
        )  # fmt: skip
        join = f"{arguments['how']} ASOF JOIN quotes MATCH_CONDITION (trades.traded {comparison} quotes.quoted)"
        theirs = by_sql(spark, f"{join} USING (symbol)", trades=trades, quotes=quotes)
        columns = ["number", "price"]
        assert sorted(map(str, ours.select(columns).collect())) == sorted(map(str, theirs.select(columns).collect()))


def test_a_stream_on_the_right_side_is_for_asof_join_alone(
    spark: SparkSession, sides: tuple[DataFrame, DataFrame], tmp_path: Path
) -> None:
    trades, quotes = sides
    quotes.write.parquet(f"{tmp_path}/quotes")
    stream = spark.readStream.schema(quotes.schema).parquet(f"{tmp_path}/quotes")
    joined = by_sql(
        spark, "ASOF JOIN quotes MATCH_CONDITION (trades.traded >= quotes.quoted) USING (symbol)", trades=trades,
        quotes=stream,
    )  # fmt: skip
    with pytest.raises(AnalysisException, match="ASOF join with a streaming DataFrame/Dataset on the right"):
        joined.writeStream.format("noop").option("checkpointLocation", f"{tmp_path}/checkpoint").start()


CONDITIONS = [
    "price <= number",
    "bid < most",
    "bid >= most",
    "not (venue <=> kind)",
    "venue is null or venue = kind",
    "terms.least + 3 >= number - 20 and terms.least <= number and wide <> 4",
    "case when price > 20 then kind in ('x', venue) else bid is not null end",
    "fine",
    "quoted > timestamp_ntz'2026-01-01 00:00:10'",
    "false",
]
"""Comparisons of all kinds of columns of both sides, with nulls and NaN among them."""


@pytest.fixture(scope="module")
def wide(spark: SparkSession) -> tuple[DataFrame, DataFrame]:
    """Trades and quotes with columns to compare."""
    random, keys, numbers = Random(5), ["a", "b", None], [None, float("nan"), 0.0, -0.0, 1.5, float("inf")]
    texts = [None, "x", "y", ""]
    trades = [
        (random.choice(keys), START + timedelta(seconds=random.randrange(40)), number, random.choice(numbers),
         random.choice(texts))
        for number in range(60)
    ]  # fmt: skip
    quotes = [
        (key, START + timedelta(seconds=second), random.randrange(60), random.choice(numbers), random.choice(texts),
         (random.randrange(30),), random.choice([None, 4, 2**40]), random.choice([True, False, None]))
        for key in keys for second in random.sample(range(40), 20)
    ]  # fmt: skip
    left = spark.createDataFrame(trades, "symbol string, traded timestamp_ntz, number int, most double, kind string")
    right = spark.createDataFrame(
        quotes,
        "symbol string, quoted timestamp_ntz, price int, bid double, venue string, terms struct<least: int>, "
        "wide bigint, fine boolean",
    )
    return left.coalesce(1), right.coalesce(1)


def matched(trades: DataFrame, quotes: DataFrame, where: str, passed: bool) -> dict[int, int]:
    """Return the price that each trade meets in the last 12 seconds, by Spark SQL."""
    condition = F.expr(where)
    pairs = trades.join(quotes, "symbol").where("quoted between traded - interval 12 seconds and traded")
    if passed:
        pairs = pairs.where(condition)
    newest = pairs.groupBy("number").agg(F.max_by(F.struct("price", condition.alias("fits")), "quoted").alias("met"))
    found = newest.where("met.fits").select("number", "met.price").collect()
    return {row["number"]: row["price"] for row in found}


@pytest.mark.first
def test_rows_that_fail_a_condition_are_passed_over_as_further_conditions_of_spark_do(
    spark: SparkSession, sides: tuple[DataFrame, DataFrame], tmp_path: Path
) -> None:
    pond = Millpond(application_id="job", state_dir=f"{tmp_path}/state", partitions=2, backend="memory")
    trades, quotes = sides
    ours = pond.asof_join(
        trades, quotes, on="symbol", left_time="traded", right_time="quoted", history="2 days", how="left",
        where=quotes["price"] <= trades["number"], otherwise="next", tolerance="1 day",
    )  # fmt: skip
    join = "LEFT ASOF JOIN quotes MATCH_CONDITION (trades.traded >= quotes.quoted)"
    on = "ON trades.symbol = quotes.symbol AND quotes.price <= trades.number"
    theirs = by_sql(spark, f"{join} {on}", trades=trades, quotes=quotes)
    columns = ["number", "price"]
    assert sorted(map(str, ours.select(columns).collect())) == sorted(map(str, theirs.select(columns).collect()))


def test_the_three_questions_of_the_page_have_its_answers(spark: SparkSession, tmp_path: Path) -> None:
    pond = Millpond(application_id="job", state_dir=f"{tmp_path}/state", partitions=1, backend="memory")
    prices = spark.createDataFrame(
        [("tea", price, datetime(2026, 1, 5, hour)) for price, hour in ((3, 10), (8, 11), (5, 12))],
        "product string, price int, since timestamp",
    )
    orders = spark.createDataFrame(
        [("tea", 4, datetime(2026, 1, 5, 11, 30))], "product string, most int, ordered timestamp"
    )

    def price(right: DataFrame, **given: Any) -> int | None:
        joined = pond.asof_join(
            orders, right, on="product", left_time="ordered", right_time="since", history="1 day", how="left", **given
        )
        found: int | None = joined.collect()[0]["price"]
        return found

    assert price(prices, where="price <= most", name="valid") is None
    assert price(prices, where="price <= most", otherwise="next", tolerance="1 day", name="last") == 3
    assert price(prices.where("price <= 4"), name="filtered") == 3


@pytest.mark.parametrize("otherwise", ["miss", "next"])
@pytest.mark.long
def test_static_rows_meet_what_spark_lets_them_meet_by_a_condition_on_both_sides(
    wide: tuple[DataFrame, DataFrame], tmp_path: Path, otherwise: Any
) -> None:
    pond = Millpond(application_id="job", state_dir=f"{tmp_path}/state", partitions=2, backend="memory")
    trades, quotes = wide
    conditions = CONDITIONS[otherwise == "next" :: 2]
    for where in conditions:
        expected = matched(trades, quotes, where, otherwise == "next")
        shown: dict[str, Any] = {}
        for how in ("left", "anti") if where == conditions[0] else ("left",):
            joined = pond.asof_join(
                trades, quotes, on="symbol", left_time="traded", right_time="quoted", history="2 days", how=how,
                tolerance="12 seconds", where=where, otherwise=otherwise, name=f"all-{how}",
            )  # fmt: skip
            shown[how] = joined.collect()
        assert {row["number"]: row["price"] for row in shown["left"] if row["quoted"]} == expected, where
        assert len(shown["left"]) == 60
        assert {row["number"] for row in shown.get("anti", [])} in ({*range(60)} - expected.keys(), set())


def test_a_condition_names_columns_as_the_two_dataframes_have_them(
    wide: tuple[DataFrame, DataFrame], tmp_path: Path
) -> None:
    """Also where a name is that of a column of both, of which the result has one."""
    pond = Millpond(application_id="job", state_dir=f"{tmp_path}/state", partitions=2, backend="memory")
    trades, quotes = wide
    named = quotes.select("symbol", "quoted", F.col("price").alias("number"))
    joined = pond.asof_join(
        trades, named, on="symbol", left_time="traded", right_time="quoted", history="2 days", how="semi",
        tolerance="12 seconds", where=named["number"] <= trades["number"],
    )  # fmt: skip
    expected = matched(trades, quotes, "price <= number", passed=False)
    assert {row["number"] for row in joined.collect()} == expected.keys()


def test_the_condition_of_a_stream_may_be_another_one_at_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    """Rows that wait go by the new one, and versions that failed the old one are there for it."""
    job = Job(spark, tmp_path)
    quotes = job.arrive("quotes", job.rows("k int, at timestamp, price int", *(
        (1, f"2024-01-01 10:0{minute}", price) for minute, price in enumerate([5, 9, 7, 20])
    )))  # fmt: skip
    trades = job.rows("k int, ts timestamp, most int", (1, "2024-01-01 10:03:30", 6), (1, "2024-01-01 10:02:30", 8))
    job.arrive("trades", trades)

    def joined(**given: Any) -> DataFrame:
        return job.pond().asof_join(
            job.stream("trades", trades), quotes, on="k", left_time="ts", right_time="at", history="1 hour",
            grace="5 minutes", tolerance="10 minutes", how="left", name="met", **given,
        ).select("most", "price")  # fmt: skip

    job.run(joined(where="price > most"))
    assert job.written(joined(where="price > most")) == []
    job.arrive("trades", job.rows("k int, ts timestamp, most int", (1, "2024-01-01 11:30", 0)))
    job.run(joined(where="price <= most", otherwise="next"))
    assert sorted(job.written(joined(where="price <= most", otherwise="next"))) == [(6, 5), (8, 7)]


def test_a_condition_that_is_none_is_refused(
    wide: tuple[DataFrame, DataFrame], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pond = Millpond(application_id="job", state_dir=f"{tmp_path}/state", partitions=2, backend="memory")
    given: dict[str, Any] = {"on": "symbol", "left_time": "traded", "right_time": "quoted", "history": "1 day"}
    refused: list[tuple[dict[str, Any], str]] = [
        ({"where": "price + 1"}, "where is 'price \\+ 1': that is of type int; give a condition"),
        ({"where": "prize < 1"}, "where is 'prize < 1': .*prize"),
        ({"where": 3}, "where is 3: that is none"),
        ({"where": "rand() < 0.5"}, r"of which Arrow does not evaluate all: .*rand"),
        ({"where": "sum(price) < 3"}, "of which Arrow does not evaluate all: Aggregate lies between"),
        ({"where": "fine", "otherwise": "next"}, "and nothing says how far; give tolerance="),
        ({"otherwise": "next"}, "otherwise is 'next', but there is no condition"),
    ]
    for arguments, message in refused:
        with pytest.raises(ConfigurationError, match=message):
            pond.asof_join(wide[0], wide[1], **given, **arguments)
    monkeypatch.setattr(catalyst, "analyzed", lambda frame: None)
    with pytest.raises(ConfigurationError, match="is not shown to a session of Spark Connect"):
        pond.asof_join(wide[0], wide[1], **given, where="fine")


def by_sql(spark: SparkSession, join: str, **tables: DataFrame) -> DataFrame:
    """Return what Spark makes of a join of trades."""
    setting = "spark.sql.join.asofJoin.enabled"
    before = str(spark.conf.get(setting))
    for name, rows in tables.items():
        rows.createOrReplaceTempView(name)
    spark.conf.set(setting, "true")
    try:
        return spark.sql(f"SELECT number, price FROM trades {join}")
    finally:
        spark.conf.set(setting, before)
