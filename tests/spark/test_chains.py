"""Chains of verbs add up: what one verb holds back is not late for the next one."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millpond.adapters.spark import Millpond
from millpond.adapters.spark.verbs.frames.told_columns import BOUND, feed_in
from millpond.errors import ConfigurationError
from millpond.processors import SessionWindows, TimeWindows
from millpond.processors.verbs import KeyContext, KeyedProcessor, aggregates

pytestmark = [pytest.mark.spark, pytest.mark.slow]

MINUTE = 60_000_000
START = datetime(2024, 1, 1, 10)
ORDERS = "id int, shop string, sold timestamp"
PAYMENTS = "id int, paid timestamp"

Row = tuple[Any, ...]


class Feed:
    """Streams whose micro-batches are given, and what a chain of verbs makes of them."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self._spark = spark
        self.directory = directory

    def pond(self, **options: Any) -> Millpond:
        return Millpond(
            application_id="chain", state_dir=f"{self.directory}/state", partitions=1, backend="memory", **options
        )

    def static(self, columns: str, rows: Iterable[Row]) -> DataFrame:
        return self._spark.createDataFrame(list(rows), columns)

    def stream(self, name: str, columns: str, batches: Sequence[Sequence[Row]]) -> DataFrame:
        place = f"{self.directory}/{name}"
        for rows in batches:
            self.static(columns, rows).coalesce(1).write.mode("append").parquet(place)
        reader = self._spark.readStream.schema(columns).option("maxFilesPerTrigger", 1)
        return reader.parquet(place)

    def run(self, rows: DataFrame, each: Callable[[DataFrame], None] | None = None) -> list[Row]:
        """Return what comes out, micro-batch by micro-batch; ``each`` is told of each."""
        found: list[Row] = []

        def take(batch: DataFrame, _: int) -> None:
            if each is not None:
                each(batch)
            found.extend(map(tuple, batch.collect()))

        writer = rows.writeStream.foreachBatch(take)
        writer = writer.option("checkpointLocation", f"{self.directory}/checkpoint").trigger(availableNow=True)
        writer.start().awaitTermination()
        return found


@pytest.fixture
def feed(spark: SparkSession, tmp_path: Path) -> Feed:
    return Feed(spark, tmp_path)


def at(minute: float) -> datetime:
    return START + timedelta(minutes=minute)


def orders(*minutes: Sequence[float]) -> list[list[Row]]:
    """Return orders by micro-batch; the first order has the number 1."""
    batches: list[list[Row]] = []
    for batch in minutes:
        first = 1 + sum(map(len, batches))
        batches.append([(first + n, "a", at(minute)) for n, minute in enumerate(batch)])
    return batches


def held_back(feed: Feed, pond: Millpond) -> DataFrame:
    """Return a left join of orders with payments. The first order has none, so it comes out 15 minutes late."""
    sales = feed.stream("orders", ORDERS, orders([0, 0], [8], [16], [60]))
    payments = feed.stream("payments", PAYMENTS, [[(2, at(2))], [(3, at(8))], [(4, at(16))], [(5, at(60))]])
    return pond.stream_join(
        sales, payments, on="id", left_time="sold", right_time="paid", after="10 minutes", grace="5 minutes", how="left"
    )


def bounds(rows: DataFrame) -> dict[str, int]:
    """Return the bounds of all columns, and of the fields of windows, in minutes."""
    found = {field.name: field.metadata for field in rows.schema.fields}
    if "window" in rows.columns:
        found |= {f"window.{field.name}": field.metadata for field in rows.select("window.*").schema.fields}
    return {name: metadata[BOUND] / MINUTE for name, metadata in found.items() if BOUND in metadata}


def changed(rows: DataFrame) -> DataFrame:
    return rows.select("sold", "shop", "id").where("id > 0").alias("r").withColumnRenamed("sold", "ts").drop("id")


class InOrder(KeyedProcessor):
    """Hands on what it sees."""

    def process(self, key: Any, row: dict[str, Any], context: KeyContext) -> Iterable[Mapping[str, Any]]:
        yield {"shop": key, "id": row["id"], "seen": context.time}


def seen(pond: Millpond, rows: DataFrame) -> DataFrame:
    return pond.apply(
        rows, InOrder(), key="shop", time="sold", schema="shop string, id int, seen timestamp", lateness="1 minute"
    )


@pytest.mark.long
def test_a_row_that_a_join_has_held_back_is_in_time_for_the_aggregate_behind_it(feed: Feed) -> None:
    pond = feed.pond()
    counts = pond.aggregate(
        changed(held_back(feed, pond)), {"orders": aggregates.count()}, by="shop", time="ts",
        window=TimeWindows("5 minutes"), emit="final",
    )  # fmt: skip
    assert feed.run(counts.select("window.start", "orders")) == [(at(0), 2), (at(5), 1), (at(15), 1)]


@pytest.mark.long
def test_a_processor_sees_what_a_join_has_held_back_in_the_order_of_time(feed: Feed) -> None:
    pond = feed.pond()
    rows = seen(pond, held_back(feed, pond))
    found = feed.run(rows)
    assert sorted(found[:2]) == [("a", 1, at(0)), ("a", 2, at(0))]
    assert found[2:] == [("a", 3, at(8)), ("a", 4, at(16))]
    assert bounds(rows) == {"seen": 31}


def test_a_bound_goes_with_the_column_and_not_with_what_is_computed_of_it(feed: Feed) -> None:
    joined = held_back(feed, feed.pond())

    def bound(rows: DataFrame, time: Any) -> float:
        again = feed.pond().aggregate(
            rows, {"n": aggregates.count()}, by="shop", time=time, window=TimeWindows("1 minute")
        )
        return bounds(again).get("window.end", 0)

    assert bound(joined, joined["sold"]) == 31
    assert bound(joined.alias("j").withColumn("n", F.lit(1)), F.col("j.sold")) == 31
    assert bound(joined.select("shop", F.struct(F.col("sold").alias("at")).alias("o")), F.col("o.at")) == 31
    assert bound(joined.select("shop", "paid").unionByName(joined.select("shop", "paid")), "paid") == 11
    assert bound(joined, F.col("sold") + F.expr("interval 1 second")) == 1


@pytest.mark.long
def test_windows_of_windows_lose_nothing_over_many_micro_batches(feed: Feed) -> None:
    random = Random(1)
    minutes = [[max(n - random.choice([0, 3, 6]), 0) for n in range(6 * b, 6 * b + 6)] for b in range(3)]
    batches = orders(*minutes, [200], [300])
    pond, again = feed.pond(), []
    for emit in ("final", "updates"):
        first = pond.aggregate(
            feed.stream(emit, ORDERS, batches), {"n": aggregates.count()}, by="shop", time="sold", name=emit,
            window=TimeWindows("4 minutes", advance="2 minutes", grace="9 minutes"), emit=emit,
        )  # fmt: skip
        told = first.select("shop", "window")  # each row of a feed as one that stays
        second = pond.aggregate(
            told, {"ends": aggregates.collect(F.col("window.end"))}, by="shop", time=F.col("window.end"),
            window=TimeWindows("2 minutes"), emit="final", name=f"{emit} again",
        )  # fmt: skip
        again.append(second.select(F.lit(emit), F.explode("ends")))
    found = feed.run(again[0].union(again[1]))
    touched = [{at(minute - minute % 2 + later) for minute in batch for later in (2, 4)} for batch in minutes]
    ends = {emit: sorted(end for name, end in found if name == emit and end < at(150)) for emit in ("final", "updates")}
    assert ends["final"] == sorted(set().union(*touched))
    assert ends["updates"] == sorted(end for batch in touched for end in batch)


def test_a_bound_goes_with_a_column_that_is_written_with_the_name_of_its_rows_or_in_other_letters(feed: Feed) -> None:
    sales, payments = (feed.static(columns, []) for columns in (ORDERS, PAYMENTS))
    for time in ("a.sold", "SOLD", "a.SOLD", "`sold`"):
        joined = feed.pond().stream_join(
            sales.alias("a"), payments, on="id", left_time=F.col(time), right_time="paid",
            after="10 minutes", grace="5 minutes", how="left",
        )  # fmt: skip
        assert bounds(joined) == {"sold": 15, "paid": 5}, time


def test_rows_of_a_feed_are_in_its_order_only_for_keys_with_its_own(feed: Feed) -> None:
    sales, payments = (feed.static(columns, []) for columns in (ORDERS, PAYMENTS))
    pond = feed.pond()
    newest = pond.latest(sales, key=["id", "shop"], time="sold", history="1 hour")
    renamed = newest.withColumnRenamed("shop", "store").withColumnRenamed("change_time", "changed")
    whole, other = feed_in(newest), feed_in(renamed)
    assert whole is not None
    assert whole.changes == ["op", "sequence", "change_time"]
    assert whole.orders(["id", "shop"])
    assert not whole.orders(["id"])
    assert other is not None
    assert other.changes == ["op", "sequence", "changed"]
    assert other.orders(["id", "sequence", "store"])
    lost = feed_in(newest.drop("shop"))
    assert lost is not None
    assert not lost.orders(["id"])
    users = sales.withColumnRenamed("sold", "change_time")
    joined = pond.asof_join(users, payments, on="id", left_time="change_time", right_time="paid", history="1 hour")
    assert feed_in(joined) is None
    assert feed_in(users.join(newest.select("id"), "id")) is None
    twice = newest.withColumn("again", F.col("sequence"))
    assert feed_in(twice) is None


@pytest.mark.long
def test_a_feed_that_files_hold_counts_in_its_order_however_they_are_read(feed: Feed, spark: SparkSession) -> None:
    sold = [[(key, f"{key}-{change}", at(key)) for key in range(5)] for change in range(6)]
    pond = feed.pond()
    newest = pond.latest(feed.stream("in", ORDERS, sold), key="id", time="sold", history="1 hour", name="newest")
    files = f"{feed.directory}/feed"
    feed.run(newest, lambda rows: rows.repartition(2).write.mode("append").parquet(files))
    written = spark.read.parquet(files)
    shuffled = written.orderBy(F.desc("sequence")).coalesce(1)
    again = [
        pond.latest(rows, key="id", time="change_time", history="1 hour", name=f"again-{place}")
        for place, rows in enumerate((written, shuffled, shuffled.repartition(3)))
    ]
    taken = [
        rows.groupBy("id").agg(F.max_by("shop", "sequence").alias("shop")).select(F.lit(place), "id", "shop")
        for place, rows in enumerate(again)
    ]
    last = pond.aggregate(shuffled, {"shop": aggregates.last("shop")}, by="id", time="change_time", name="last")
    expected = {(key, f"{key}-5") for key in range(5)}
    found = taken[0].union(taken[1]).union(taken[2]).union(last.select(F.lit(3), "id", "shop")).collect()
    assert sorted(map(tuple, found)) == sorted((place, *row) for place in range(4) for row in expected)


def test_what_a_verb_puts_out_is_the_input_of_any_other_as_it_is(feed: Feed) -> None:
    batches: list[list[Row]] = [
        [(1, "a", at(0)), (2, None, at(1)), (3, "b", at(1))],
        [(4, "a", at(2)), (5, None, at(3)), (6, "c", at(4))],
    ]
    deletes: list[list[Row]] = [[("a", "insert", at(0)), (None, "insert", at(0))], [("a", "delete", at(3))]]
    pond = feed.pond()
    kept = pond.latest(feed.stream("d", "shop string, what string, since timestamp", deletes), key="shop", time="since",
                       op="what", history="1 hour", name="kept")  # fmt: skip
    sold = pond.aggregate(feed.stream("s", ORDERS, batches), {"n": aggregates.count()}, by="shop", time="sold")
    times: dict[str, Any] = {"left_time": "change_time", "right_time": "change_time"}
    newest = pond.latest(sold, key="shop", time="change_time", history="1 hour")
    tables = pond.table_join(newest, kept, on="shop", how="outer", name="tables", **times)
    versions = pond.asof_join(newest, kept, on="shop", history="1 hour", tolerance="1 hour", how="left", **times)
    pairs = pond.stream_join(newest, kept, on="shop", within="1 hour", how="left", grace=0, name="pairs", **times)
    assert newest.columns == ["shop", "n", "op", "sequence", "change_time"]
    assert tables.columns == ["shop", "n", "since", "op", "sequence", "change_time"]
    assert versions.columns == pairs.columns == [*newest.columns, "since"]
    totals = pond.aggregate(tables, {"m": aggregates.max("n")}, by="shop", time="change_time", name="totals")
    found = feed.run(pond.latest(totals, key="shop", time="change_time", history="1 hour", name="end"))
    last = {shop: m for shop, m, *_ in found}
    assert last == {"a": 2, None: 2, "b": 1, "c": 1}


def test_an_as_of_join_of_two_feeds_goes_by_the_times_of_both_and_knows_deletes(feed: Feed) -> None:
    pond = feed.pond()
    sales = feed.static(ORDERS, [(1, "a", at(1)), (2, "a", at(3)), (3, "a", at(5)), (4, "a", at(30))])
    prices = feed.static(
        "shop string, what string, since timestamp",
        [("a", "insert", at(0)), ("a", "delete", at(2)), ("a", "update", at(4))],
    )
    left = pond.latest(sales, key="id", time="sold", history="1 hour", name="left side")
    right = pond.latest(prices, key="shop", time="since", op="what", history="1 hour", name="right side")
    found = pond.asof_join(
        left, right, on="shop", left_time="change_time", right_time="change_time", history="1 hour",
        tolerance="2 minutes", how="left",
    )  # fmt: skip
    assert found.columns == [*left.columns, "since"]
    assert {row.id: row.since for row in found.collect()} == {1: at(0), 2: None, 3: at(4), 4: None}


def test_columns_of_a_result_may_differ_in_case_alone(feed: Feed) -> None:
    sales = feed.static("id int, v int, sold timestamp", [])
    payments = feed.static("id int, V int, paid timestamp", [])
    joined = feed.pond().stream_join(
        sales, payments, on="id", left_time="sold", right_time="paid", within="1 minute", how="left", grace="1 minute"
    )
    assert joined.columns == ["id", "v", "sold", "V", "paid"]


@pytest.mark.parametrize(("by", "result"), [("Time", "Order"), ("Order", "Time"), ("time", "order")])
def test_an_aggregate_may_have_any_names(feed: Feed, by: str, result: str) -> None:
    rows = feed.static("k int, v int, sold timestamp", []).withColumnRenamed("k", by)
    calls = {result: aggregates.last("v")}
    assert result in feed.pond().aggregate(rows, calls, by=by, time="sold", order="v").columns


@pytest.mark.parametrize(
    ("order", "message"),
    [
        ("sqe", "'input' has no column 'sqe', .*; did you mean 'seq'"),
        ("collate('a', 'UTF8_LCASE')", "the order of 'input': column 'order' is of type string collate UTF8_L"),
    ],
)
def test_an_order_is_checked_where_it_is_written(feed: Feed, order: str, message: str) -> None:
    rows = feed.static("k int, seq int, sold timestamp", [])
    with pytest.raises(ConfigurationError, match=message):
        feed.pond().latest(
            rows, key="k", time="sold", history="1 hour", order=order if order == "sqe" else F.expr(order)
        )


@pytest.mark.long
def test_an_asof_join_waits_for_a_right_side_that_closes_its_windows_first(feed: Feed) -> None:
    pond = feed.pond()
    visits = feed.stream("visits", ORDERS, orders([0, 1], [6], [10], [9, 14], [30], [60]))
    sales = feed.stream("sales", ORDERS, orders([0], [4, 6, 5], [10, 4], [13, 12, 14, 8], [30], [60]))
    sessions = pond.aggregate(
        visits, {"visits": aggregates.count()}, by="shop", time="sold", emit="final",
        window=SessionWindows("3 minutes", grace="2 minutes"),
    )  # fmt: skip
    rows = pond.asof_join(
        sales, sessions, on="shop", left_time="sold", right_time=F.col("window.end"), history="1 hour", how="left"
    )
    found = feed.run(rows.select("sold", "visits"))
    # The sessions end at 4, 13 and 17. The first comes out when a time later than 6 is known, so an order at 4 waits.
    two, three = [4, 4, 5, 6, 8, 10, 12], [13, 14]
    assert sorted(found) == [(at(0), None), *((at(n), 2) for n in two), *((at(n), 3) for n in three), (at(30), 1)]
    assert bounds(rows) == {"sold": 2}, "the window of the right side, which is of any age, has no bound"


def test_bounds_are_the_same_on_streams_static_frames_and_in_a_backfill(feed: Feed) -> None:
    def counted(pond: Millpond, sales: DataFrame) -> DataFrame:
        return pond.aggregate(
            sales, {"n": aggregates.count()}, by="shop", time="sold", window=TimeWindows("4 minutes", grace="3 minutes")
        )

    def joined(pond: Millpond, sales: DataFrame, counts: DataFrame) -> DataFrame:
        return pond.stream_join(
            counts, sales, on="shop", left_time=counts["window"]["end"], right_time=F.col("SOLD"), how="outer",
            before="1 minute", after="2 minutes",
        )  # fmt: skip

    batches = orders([0], [1])
    sales = feed.static(ORDERS, [row for batch in batches for row in batch])
    pond = feed.pond()
    ponds = [feed.pond(), pond.backfill(), pond.backfill(), pond]
    for verbs, rows in zip(ponds, [sales, sales, sales, feed.stream("in", ORDERS, batches)], strict=True):
        counts = counted(verbs, rows)
        assert bounds(counts) == {"change_time": 7, "window.start": 7, "window.end": 7}
        pairs = joined(verbs, rows, counts.drop("op", "sequence"))
        assert bounds(pairs) == {"window.end": 9, "sold": 8}, "what is not the time of a side has no bound any more"
    assert pairs.columns == ["shop", "window", "n", "change_time", "id", "sold"]


def test_tables_remember_what_the_verbs_before_them_hold_back(feed: Feed) -> None:
    pond = feed.pond()
    sold = held_back(feed, pond)
    newest = pond.latest(sold, key="id", time="sold", history="1 hour")
    assert bounds(newest) == {"change_time": 15}
    others = feed.stream("others", PAYMENTS, [[]])
    changes = newest.withColumnRenamed("change_time", "changed").drop("sequence", "paid", "sold")
    table = pond.table_join(
        changes, others, on="id", left_time="changed", right_time="paid", left_op="op", history="1 hour"
    )
    assert bounds(table) == {"change_time": 15}


EXPLAINED = """\
stream_join-id (stream_join, left)
  clock      the newest time of left and right that earlier micro-batches have shown
  grace      5 min of its own + 0 s for its inputs = 5 min
  waits      a left row without a match, until its window and grace are over
  comes out  at most 15 min after its time
  bound      sold: 15 min
  bound      paid: 5 min
  keeps      the rows of both sides until their windows and graces are over

aggregate-shop (aggregate, final)
  operator   its own: 'stream_join-id' has another key: id
  clock      the newest time that earlier micro-batches have shown
  grace      0 s of its own + 15 min for its inputs = 15 min
  waits      for the end of its window, and the grace
  comes out  at most 35 min after its time
  bound      window.start: 35 min
  bound      window.end: 30 min
  keeps      each window until it and its grace are over

InOrder-shop (apply, InOrder)
  operator   its own: 'stream_join-id' has another key: id
  clock      the newest time that earlier micro-batches have shown
  lateness   1 min of its own + 15 min for its inputs = 16 min
  waits      each row for older ones, until its lateness is over; timers likewise, for their time
  comes out  at most 31 min after its time
  bound      seen: 31 min
  keeps      what the processor keeps in context.state for ever, until it deletes it, and timers until they fire
"""


def test_explain_tells_of_each_verb_what_it_adds_for_those_before_it(
    feed: Feed, capsys: pytest.CaptureFixture[str]
) -> None:
    pond = feed.pond()
    rows = held_back(feed, pond)
    pond.aggregate(
        rows, {"orders": aggregates.count()}, by="shop", time="sold", window=TimeWindows("5 minutes"), emit="final"
    )
    seen(pond, rows)
    pond.explain()
    assert capsys.readouterr().out == EXPLAINED
    pond.backfill().explain()
    assert capsys.readouterr().out == "\n"
