"""``asof_join`` beside the ``ASOF JOIN`` that Spark's SQL has since 4.3."""

from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from millpond.adapters.spark import Millpond

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


def by_sql(spark: SparkSession, join: str, **tables: DataFrame) -> DataFrame:
    """What Spark makes of a join of trades."""
    setting = "spark.sql.join.asofJoin.enabled"
    before = str(spark.conf.get(setting))
    for name, rows in tables.items():
        rows.createOrReplaceTempView(name)
    spark.conf.set(setting, "true")
    try:
        return spark.sql(f"SELECT number, price FROM trades {join}")
    finally:
        spark.conf.set(setting, before)
