"""``over`` on Spark: what Spark's own ``over`` gives of static frames, over files, tasks, restarts and late rows."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from millpond.adapters.edit import erase
from millpond.adapters.inspect import StateInspector
from millpond.adapters.spark import Millpond
from millpond.errors import StateConflictError
from millpond.processors.verbs import aggregates as agg
from millpond.processors.verbs.aggregates import AggregateCall
from tests.spark.arriving import Arriving

pytestmark = pytest.mark.spark

DDL = "id long, shop string, at timestamp, amount decimal(10, 2)"
NAMED = {"key": "shop", "time": "at", "order": "id", "grace": "2 hours"}
FRAMES: dict[str, dict[str, Any]] = {"whole": {}, "last": {"last": 4}, "within": {"within": "20 minutes"}}
ONE_FRAME = [pytest.param(one, marks=[] if one == "last" else pytest.mark.long) for one in FRAMES]
"""What the others answer, ``tests/metamorphic`` and ``tests/processors`` show without Spark."""


def calls() -> dict[str, AggregateCall]:
    return {
        "number": agg.count(),
        "total": agg.sum("amount"),
        "odd": agg.sum(F.col("id") * 2, where="id % 2 = 1"),
        "shops": agg.count("shop"),
        "before": agg.lag("amount", 2),
    }


def sent(spark: SparkSession, first: int) -> DataFrame:
    """Return sixty rows of five shops, one of them null, each up to 10 minutes out of order."""
    return spark.range(first, first + 60).selectExpr(
        "id",
        "CASE WHEN id * 7 % 5 < 4 THEN concat('shop ', id * 7 % 5) END AS shop",
        "timestamp_seconds(id * 60 - id * 37 % 600) AS at",
        "CASE WHEN id % 7 > 0 THEN CAST(id / 4 AS decimal(10, 2)) END AS amount",
    )


def expected(rows: DataFrame, frame: str) -> list[Any]:
    """Return what Spark gives of all rows."""
    plain = Window.partitionBy("shop").orderBy("at", "id")
    theirs = {
        "whole": plain.rowsBetween(Window.unboundedPreceding, 0),
        "last": plain.rowsBetween(-3, 0),
        "within": Window.partitionBy("shop").orderBy(F.col("at").cast("long")).rangeBetween(-1_200, 0),
    }[frame]
    odd = F.sum(F.when(F.col("id") % 2 == 1, F.col("id") * 2))
    total = F.sum("amount").over(theirs).cast("decimal(20, 2)")
    return rows.select(
        "shop", "id", "at", "amount", F.count("*").over(theirs), total, odd.over(theirs),
        F.count("shop").over(theirs), F.lag("amount", 2).over(plain),
    ).orderBy("id").collect()  # fmt: skip


class Sender(Arriving):
    """Rows as files, and the query of what is shown beside them."""

    def __init__(self, spark: SparkSession, directory: Path, **given: Any) -> None:
        super().__init__(spark, directory)
        self.given = {**NAMED, **given}

    def shown(self, asked: Any = None, pond: Millpond | None = None, **given: Any) -> DataFrame:
        pond = pond or Millpond(application_id="shops", state_dir=self.state, partitions=3, backend="lmdb")
        return pond.over(self.stream(DDL), asked or calls(), name="shown", **{**self.given, **given})


@pytest.mark.parametrize(
    "frame", [pytest.param(one, marks=[] if one == "last" else pytest.mark.long) for one in FRAMES]
)
def test_a_static_frame_and_a_stream_with_a_restart_give_what_spark_gives(
    frame: str, spark: SparkSession, tmp_path: Path
) -> None:
    given = FRAMES[frame]
    sender = Sender(spark, tmp_path, **given)
    first, second = sent(spark, 0), sent(spark, 60)
    end = "1000L AS id", "'end' AS shop", "timestamp_seconds(100000) AS at", "CAST(0 AS decimal(10, 2)) AS amount"
    for rows in (first, second, spark.range(1).selectExpr(*end)):
        sender.arrive(rows)
        sender.run(sender.shown())
    answer = [tuple(row) for row in expected(first.unionByName(second), frame)]
    assert sorted((tuple(row.values()) for row in sender.found), key=lambda row: row[1]) == answer
    still = Millpond(application_id="static", state_dir=str(tmp_path / "static"), partitions=2)
    batch = still.over(first.unionByName(second), calls(), **{**NAMED, **given})
    assert batch.columns == ["shop", "id", "at", "amount", *calls()]
    assert [tuple(row) for row in batch.orderBy("id").collect()] == answer


def test_the_state_is_read_and_erased_and_other_frames_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    sender = Sender(spark, tmp_path, grace=0)
    row = "SELECT {}L AS id, 'a' AS shop, timestamp_seconds({}) AS at, CAST(1 AS decimal(10, 2)) AS amount"
    pond = Millpond(application_id="shops", state_dir=sender.state, partitions=3, backend="lmdb")
    for number in range(3):
        sender.arrive(spark.sql(row.format(number, number * 60)))
        sender.run(sender.shown(pond=pond))
        pond = Millpond(application_id="shops", state_dir=sender.state, partitions=3, backend="lmdb")
    assert [(row["number"], row["total"]) for row in sender.found] == [(1, 1), (2, 2)]
    sender.shown(pond=pond)
    (stored,) = pond.read_store("shown", "over", sender.checkpoint).collect()
    assert (stored.shop, stored.number, stored.total, stored.last_time.timestamp()) == ("a", 2, 2, 60)
    for given in ({"last": 3}, {"within": "1 hour"}):
        with pytest.raises(StateConflictError, match="shown"):
            sender.run(sender.shown(**given))
    erase(StateInspector.at(sender.checkpoint, sender.state), [["a"]], by="ann")
    sender.arrive(spark.sql(row.format(3, 180)))
    sender.arrive(spark.sql(row.format(4, 240)))
    sender.run(sender.shown())
    assert [(row["id"], row["number"]) for row in sender.found[2:]] == [(3, 1)]


@pytest.mark.parametrize(
    "frame", [pytest.param(one, marks=[] if one == "last" else pytest.mark.long) for one in FRAMES]
)
def test_results_that_come_go_and_have_other_names_at_a_restart_are_declared(
    frame: str, spark: SparkSession, tmp_path: Path
) -> None:
    """A renamed column as an argument of a result that goes on needs no more than is said of the column."""
    sender = Sender(spark, tmp_path, **FRAMES[frame], grace="30 minutes")
    first, second = sent(spark, 0), sent(spark, 60)
    sender.arrive(first, files=1)
    sender.run(sender.shown())
    before = len(sender.found)
    others = {
        "before": agg.lag("paid", 2), "double": agg.sum(F.col("id") * 2, where="id % 2 = 1"), "total": agg.sum("paid"),
        "even": agg.sum(F.col("id") * 2, where="id % 2 = 0"), "third": agg.lag("id", 3), "rows": agg.count(),
    }  # fmt: skip
    said = {"renamed": {"odd": "double", "amount": "paid"}, "dropped": ["number", "shops"]}

    def changed(**said: Any) -> DataFrame:
        pond = Millpond(application_id="shops", state_dir=sender.state, partitions=3, backend="lmdb")
        rows = spark.readStream.schema(DDL).parquet(f"{sender.directory}/in").withColumnRenamed("amount", "paid")
        return pond.over(rows, others, name="shown", **{**sender.given, **said})

    with pytest.raises(StateConflictError, match="has other calls than its state") as refused:
        changed(renamed={"amount": "paid"})
    line = "added=['double', 'even', 'third', 'rows'], renamed={'amount': 'paid'}, dropped=['number', 'odd', 'shops']"
    assert "if 'number' is called 'rows' now, 'odd' is called 'double' now: write " in str(refused.value)
    assert f"; or else write {line}" in str(refused.value)
    sender.arrive(second)
    sender.run(changed(added=["even", "third", "rows"], **said))
    end = "1000L AS id", "'end' AS shop", "timestamp_seconds(100000) AS at", "CAST(0 AS decimal(10, 2)) AS amount"
    sender.arrive(spark.range(1).selectExpr(*end))
    sender.run(changed())
    (*answer,) = expected(first.unionByName(second), frame)
    came = {row["id"] for row in sender.found[:before]}
    rows = sorted(sender.found[before:], key=lambda row: int(row["id"]))
    assert before
    assert [(row["id"], row["before"], row["double"], row["total"]) for row in rows] == [
        (row.id, row[8], row[6], row[5]) for row in answer if row.id not in came
    ]
    later = Window.partitionBy("shop").orderBy("at", "id")
    seen = first.unionByName(second).where(~F.col("id").isin(sorted(came)))
    asked = seen.select("id", F.lag("id", 3).over(later).alias("third")).orderBy("id").collect()
    assert [(row["id"], row["third"]) for row in rows] == [tuple(row) for row in asked]
    waited = {row.id for row in first.collect()} - came
    assert all(row["even"] is None for row in rows if row["id"] in waited)
    assert any(row["even"] for row in rows)


def test_explain_says_how_long_rows_wait_and_the_next_verb_waits_for_it(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pond = Millpond(application_id="shops", state_dir=str(tmp_path), partitions=2)
    shown = pond.over(sent(spark, 0), {"n": agg.count()}, key="shop", time="at", grace="5 minutes")
    pond.over(shown, {"of_all": agg.max("n")}, key="shop", time="at", ttl="1 day", name="again")
    pond.explain()
    text = capsys.readouterr().out
    assert "comes out  at most 5 min after its time" in text
    assert "grace      0 s of its own + 5 min for its inputs = 5 min" in text
    assert "until the clock is 1 d 5 min past its last row" in text
