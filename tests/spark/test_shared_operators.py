"""Verbs of a chain that share an operator give the rows that they give in operators of their own."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import Row as SparkRow
from pyspark.sql import functions as F

from millpond.adapters.inspect.state_inspector import StateInspector
from millpond.adapters.spark import Evolution, Millpond
from millpond.adapters.spark.rows.arrow_expressions import Literal, Rows, Struct
from millpond.adapters.spark.verbs.frames import between
from millpond.adapters.spark.verbs.frames.catalyst import NotInArrowError, analyzed, selected
from millpond.adapters.spark.verbs.frames.inputs import RowInput
from millpond.errors import StateConflictError
from millpond.processors import TimeWindows
from millpond.processors.verbs import aggregates

pytestmark = pytest.mark.spark

START = datetime(2024, 1, 1)
ORDERS = "shop string, sold timestamp, amount int"
RATES = "shop string, since timestamp, rate double"
LAST = 600
"""A time, in minutes, behind all others."""

Row = tuple[Any, ...]
Chain = Callable[[Millpond, DataFrame, DataFrame], DataFrame]


def at(minute: float) -> datetime:
    return START + timedelta(minutes=minute)


class Job:
    """A chain of verbs on two streams, whose files are given.

    Args:
        spark: runs it.
        directory: where all its files are.
        chain: the verbs.
        options: of the ``Millpond``.
    """

    def __init__(self, spark: SparkSession, directory: Path, chain: Chain, **options: Any) -> None:
        self.spark = spark
        self.directory = directory
        self.chain = chain
        self.options = {"partitions": 2, "backend": "lmdb", "local_dir": f"{directory}/local", **options}
        self.checkpoint = f"{directory}/checkpoint"
        self.operators: set[int] = set()

    def bring(self, orders: Sequence[Row], rates: Sequence[Row], files: int = 2) -> None:
        for name, columns, rows in (("orders", ORDERS, orders), ("rates", RATES, rates)):
            frame = self.spark.createDataFrame(list(rows), columns)
            frame.repartition(files).write.mode("append").parquet(f"{self.directory}/in/{name}")

    def pond(self, **options: Any) -> Millpond:
        return Millpond(application_id="job", state_dir=f"{self.directory}/state", **{**self.options, **options})

    def rows(self, pond: Millpond) -> DataFrame:
        orders, rates = (
            self.spark.readStream.schema(columns).parquet(f"{self.directory}/in/{name}")
            for name, columns in (("orders", ORDERS), ("rates", RATES))
        )
        return self.chain(pond, orders, rates)

    def run(self, **options: Any) -> list[Row]:
        """Return what comes out of all that has been brought since the last run, which is one micro-batch."""
        found: list[Row] = []
        writer = self.rows(self.pond(**options)).writeStream.foreachBatch(
            lambda batch, _: found.extend(map(tuple, batch.collect()))
        )
        query = writer.option("checkpointLocation", self.checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()
        self.operators = {len(progress["stateOperators"]) for progress in query.recentProgress}
        return found


def valued(pond: Millpond, orders: DataFrame, rates: DataFrame) -> DataFrame:
    """Return orders with the rate that was valid, of those that are not small."""
    joined = pond.asof_join(
        orders, rates, on="shop", left_time="sold", right_time="since", history="1 hour", grace="5 minutes"
    )
    value = F.coalesce(joined.rate, F.lit(1.0)) * joined.amount
    return joined.where("amount > 2 and (rate is null or rate <> 2.5)").withColumn("value", value).drop("amount")


CALLS = {"n": aggregates.count(), "total": aggregates.sum("value"), "last": aggregates.last("rate")}


def windows(pond: Millpond, orders: DataFrame, rates: DataFrame) -> DataFrame:
    """Return what was sold in ten minutes, and from that in an hour."""
    short = pond.aggregate(
        valued(pond, orders, rates), CALLS, by="shop", time="sold", window=TimeWindows("10 minutes"), emit="final",
        name="short",
    )  # fmt: skip
    more = {"n": aggregates.sum("n"), "most": aggregates.max("total"), "last": aggregates.last("last")}
    return pond.aggregate(
        short.select("shop", F.col("window.start").alias("at"), "n", "total", "last"), more, by="shop", time="at",
        window=TimeWindows("1 hour"), emit="final", name="long",
    )  # fmt: skip


def totals(pond: Millpond, orders: DataFrame, rates: DataFrame) -> DataFrame:
    """Return all that was sold, and the newest total of each shop with what it was an hour before."""
    calls = {"n": aggregates.count(), "total": aggregates.sum("value")}
    sums = pond.aggregate(valued(pond, orders, rates), calls, by="shop", time="sold", name="sums")
    return pond.latest(sums, key="shop", time="change_time", history="1 day", name="newest").drop("sequence")


def drawn(random: Random) -> list[tuple[list[Row], list[Row]]]:
    """Return orders and rates of micro-batches, up to five minutes late, and in the end some of one shop, far apart."""
    shops = ["a", "b", "c", "d", None, "e"]
    batches = []
    for number in range(2):
        batch = [
            [(random.choice(shops), at(number * 60 + random.uniform(0, 65)), made()) for _ in range(count)]
            for count, made in ((40, lambda: random.randrange(9)), (20, lambda: random.choice([1.5, 2.5, None])))
        ]
        batches.append((batch[0], batch[1]))
    ends = [at(LAST + 200 * number) for number in range(3)]
    return batches + [([("a", end, 9)], [("a", end, 9.0)]) for end in ends]


@pytest.mark.slow
@pytest.mark.parametrize(("chain", "verbs"), [(windows, 3), (totals, 3)])
@pytest.mark.long
def test_a_chain_gives_the_same_rows_in_one_operator_as_in_several(
    spark: SparkSession, tmp_path: Path, chain: Chain, verbs: int
) -> None:
    random = Random(5)
    shared, apart = Job(spark, tmp_path / "one", chain), Job(spark, tmp_path / "more", chain, share_operators=False)
    found: list[list[Row]] = [[], []]
    for orders, rates in drawn(random):
        for job, rows in zip((shared, apart), found, strict=True):
            job.bring(orders, rates, random.randrange(1, 4))
            rows += job.run()
    assert (shared.operators, apart.operators) == ({1}, {verbs})
    early = [sorted(str(row) for row in rows if end(row) < at(LAST)) for rows in found]
    assert early[0] == early[1]
    assert len(early[0]) > 5


def end(row: Row) -> datetime:
    """Return the end of a row's window, or its time."""
    found = row[1].end if isinstance(row[1], SparkRow) else row[-1]
    assert isinstance(found, datetime)
    return found


@pytest.mark.slow
def test_a_verb_stays_in_the_operator_in_which_it_has_begun(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows have other keys, although nothing in the chain says so; no task takes those of another one."""
    columns = between.columns_of

    def of_another_shop(rows: RowInput, source: Any) -> Any:
        made = columns(rows, source)
        elsewhere = {**made.projection.columns, "key": Struct(["shop"], [Literal("b", pa.string())])}
        return replace(made, projection=replace(made.projection, columns=elsewhere))

    orders = [("a", at(minute), 5) for minute in range(0, 60, 7)]
    apart = Job(spark, tmp_path / "apart", windows)
    apart.bring(orders, [("a", at(0), 1.5)])
    apart.run(share_operators=False)
    apart.bring([("a", at(LAST), 5)], [("a", at(LAST), 1.5)])
    apart.run()
    assert apart.operators == {3}
    pond = apart.pond()
    apart.rows(pond)
    pond.explain()
    assert capsys.readouterr().out.count("operator   its own: it has begun there") == 2

    shared = Job(spark, tmp_path / "shared", windows)
    shared.bring(orders, [("a", at(0), 1.5)])
    shared.run()
    with pytest.raises(
        StateConflictError, match=r"'short' has begun in one operator with 'asof_join-shop', and cannot .*: share_op"
    ):
        shared.rows(shared.pond(share_operators=False))
    shared.chain = lambda pond, orders, rates: windows(pond, orders, rates.withColumn("rate", F.sqrt("rate")))
    shared.rows(shared.pond())  # what lies before the first verb is no part of it
    shared.bring([("a", at(LAST), 5)], [("a", at(LAST), 1.5)])
    with monkeypatch.context() as patched:
        patched.setattr(between, "columns_of", of_another_shop)
        with pytest.raises(StreamingQueryException, match=r"other keys .*: Millpond\(share_operators=False, evo"):
            shared.run()
    evolution = Evolution(shared.checkpoint, into=f"{tmp_path}/new")
    shared.checkpoint = evolution.location(shared.rows(shared.pond(share_operators=False, evolution=evolution)))
    shared.run(share_operators=False, evolution=evolution)
    assert shared.operators == {3}


@pytest.mark.long
def test_what_arrow_does_not_evaluate_keeps_operators_apart(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def chain(pond: Millpond, orders: DataFrame, rates: DataFrame) -> DataFrame:
        rows = valued(pond, orders, rates).withColumn("value", F.sqrt("value"))
        return pond.aggregate(rows, CALLS, by="shop", time="sold", name="sums")

    job = Job(spark, tmp_path, chain)
    pond = job.pond()
    job.bring([("a", at(0), 5)], [("a", at(0), 1.5)])
    job.rows(pond)
    pond.explain()
    assert "operator   its own: SQRT(value) lies between" in capsys.readouterr().out
    job.run()
    assert job.operators == {2}


@pytest.mark.long
def test_null_keys_that_a_join_keeps_are_in_many_tasks(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line that the reason gives is followed."""

    def chain(pond: Millpond, orders: DataFrame, rates: DataFrame) -> DataFrame:
        joined = pond.asof_join(
            orders, rates, on="shop", left_time="sold", right_time="since", history="1 hour", how="left"
        )  # fmt: skip
        joined = joined.where(F.col("shop").isNotNull()) if job.directory.name == "followed" else joined
        return pond.aggregate(joined, {"n": aggregates.count()}, by="shop", time="sold", name="sums").select(
            "shop", "n"
        )

    reason = "operator   its own: 'asof_join-shop' spreads null keys over its tasks; without them: "
    for name, said, operators, found in (
        ("plain", f"{reason}.where(F.col('shop').isNotNull())", 2, [(None, 2), ("a", 1)]),
        ("followed", "operator   that of asof_join-shop", 1, [("a", 1)]),
    ):
        job = Job(spark, tmp_path / name, chain)
        job.bring([("a", at(0), 5), (None, at(1), 5), (None, at(2), 5)], [("a", at(0), 1.5)])
        pond = job.pond()
        job.rows(pond)
        pond.explain()
        assert said in capsys.readouterr().out
        assert sorted(job.run(), key=str) == sorted(found, key=str)
        assert job.operators == {operators}


@pytest.mark.long
def test_a_chain_in_one_operator_goes_on_in_other_partitions(spark: SparkSession, tmp_path: Path) -> None:
    same, other = Job(spark, tmp_path / "same", windows), Job(spark, tmp_path / "other", windows)
    for partitions, (orders, rates) in zip((2, 3, 3, 1), drawn(Random(6)), strict=False):
        found = []
        for job, number in ((same, 2), (other, partitions)):
            job.bring(orders, rates)
            found.append(job.run(partitions=number, evolution=Evolution(job.checkpoint)))
            assert job.operators == {1}
        assert sorted(map(str, found[0])) == sorted(map(str, found[1]))
    assert found[0]


@pytest.mark.slow
def test_all_verbs_of_an_operator_can_be_looked_at(spark: SparkSession, tmp_path: Path) -> None:
    job = Job(spark, tmp_path, windows)
    job.bring([("a", at(minute), 5) for minute in range(0, 60, 7)], [("a", at(0), 1.5)])
    job.run()
    pond = job.pond()
    job.rows(pond)
    versions = pond.read_store("asof_join-shop", "right", job.checkpoint)
    assert versions.count() == 1
    assert versions.columns[-2:] == ["valid_from", "valid_to"]
    assert pond.read_store("short", "aggregate", job.checkpoint).count() > 0
    inspector = StateInspector.at(job.checkpoint, f"{tmp_path}/state")
    assert {store.application_id for store in inspector.stores()} == {"job.asof_join-shop", "job.short", "job.long"}


@pytest.mark.first
@pytest.mark.slow
def test_late_rows_and_dead_letters_are_those_of_their_verbs(spark: SparkSession, tmp_path: Path) -> None:
    def chain(pond: Millpond, orders: DataFrame, rates: DataFrame) -> DataFrame:
        rows = pond.aggregate(
            orders, {"amount": aggregates.sum("amount")}, by="shop", time="sold", window=TimeWindows("1 minute"),
            emit="final", name="minutes",
        )  # fmt: skip
        rows = rows.select("shop", F.when(F.col("amount") > 5, F.col("window.start")).alias("at"), "amount")
        return pond.aggregate(
            rows.where("shop <> 'none'"), {"n": aggregates.count()}, by="shop", time="at", name="sums"
        )  # fmt: skip

    job = Job(spark, tmp_path, chain, on_error="dead-letter")
    job.bring([("a", at(0), 9), ("a", at(1), 1), ("b", at(60), 9)], [])
    job.run()
    job.bring([("a", at(0), 9), ("c", at(120), 9)], [])
    job.run()
    pond = job.pond()
    late, letters = pond.late_rows("minutes").collect(), pond.dead_letters("sums").collect()
    assert [row.reason for row in late] == ["dropped-late"]
    assert [row.reason for row in letters] == ["dropped-bad-timestamp"]


EXPRESSIONS = [
    "i > 2", "i <= j", "d > e", "d >= e", "d < e", "d <= e", "d = e", "d <=> e", "i <=> j", "s < 'b'",
    "s in ('a', 'c')", "b and i > 1", "b or i > 1", "not b", "i is null",
    "s is not null", "i in (1, null)", "coalesce(i, j)", "i + j",
    "i - 1", "i * 2L", "d * 2", "d + e", "cast(i as double)", "cast(i as bigint)", "cast(f as double)",
    "case when i > 1 then 'x' when b then 'y' end", "case when i > 1 then i else j end", "if(b, d, e)", "n.a", "n.m.t",
    "named_struct('x', i, 'y', n)", "unix_micros(t)", "unix_date(day)", "t > timestamp'2024-01-01 00:00:01 UTC'",
    "day <= date'2024-01-02'", "w < timestamp_ntz'2024-01-02 00:00:00'", "d = 0.0D", "d <> 2.5", "'x'", "f > 1.5F",
]  # fmt: skip

TABLE = """
    select *, timestamp'2024-01-01 00:00:01.5 UTC' as t, date'2024-01-02' as day,
        timestamp_ntz'2024-01-01 12:00:00' as w,
        if(i > 1, null, named_struct('a', i, 'm', named_struct('t', timestamp'1900-01-01 00:00:00 UTC'))) as n
    from values
        (1, 2, 0.0D, -0.0D, 1.5F, 'a', true), (3, 2, double('NaN'), 1D, float('NaN'), 'b', false),
        (2, null, 1D, double('NaN'), null, null, true), (null, 7, double('NaN'), double('NaN'), -0.0F, 'c', null),
        (null, null, null, 5D, 2F, '', null) as (i, j, d, e, f, s, b)
"""


@pytest.mark.first
def test_arrow_answers_what_spark_does(spark: SparkSession) -> None:
    table = spark.sql(TABLE)
    source, rows = analyzed(table), table.toArrow()
    for expression in EXPRESSIONS:
        answered = table.selectExpr(f"{expression} as answer")
        (column,), _ = selected(analyzed(answered), source)
        made = Rows(rows).column(column)
        expected = answered.toArrow().column(0)
        assert str(made.to_pylist()) == str(expected.to_pylist()), expression


def test_what_spark_refuses_arrow_does_not_let_pass(spark: SparkSession) -> None:
    table = spark.sql("select * from values (2147483647), (1) as (i)")
    (column,), _ = selected(analyzed(table.selectExpr("i + 1")), analyzed(table))
    with pytest.raises(ValueError, match="overflow"):
        Rows(table.toArrow()).column(column)


@pytest.mark.parametrize(
    "expression",
    ["rand()", "current_date()", "s collate UTF8_LCASE = 'A'", "cast(s as int)", "i / 2", "upper(s)", "cast(d as int)"],
)
def test_what_arrow_may_answer_otherwise_is_left_to_spark(spark: SparkSession, expression: str) -> None:
    table = spark.sql("select 1 as i, 'a' as s, 1.5D as d")
    with pytest.raises(NotInArrowError):
        selected(analyzed(table.selectExpr(expression)), analyzed(table))
