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

pytestmark = pytest.mark.spark

DDL = "id long, shop string, at timestamp, amount decimal(10, 2)"
NAMED = {"key": "shop", "time": "at", "order": "id", "grace": "2 hours"}
FRAMES: dict[str, dict[str, Any]] = {"whole": {}, "last": {"last": 4}, "within": {"within": "20 minutes"}}


def calls() -> dict[str, AggregateCall]:
    return {
        "number": agg.count(),
        "total": agg.sum("amount"),
        "odd": agg.sum(F.col("id") * 2, where="id % 2 = 1"),
        "shops": agg.count("shop"),
        "before": agg.lag("amount", 2),
    }


def sent(spark: SparkSession, first: int) -> DataFrame:
    """Sixty rows of five shops, one of them null, each up to 10 minutes out of order."""
    return spark.range(first, first + 60).selectExpr(
        "id",
        "CASE WHEN id * 7 % 5 < 4 THEN concat('shop ', id * 7 % 5) END AS shop",
        "timestamp_seconds(id * 60 - id * 37 % 600) AS at",
        "CASE WHEN id % 7 > 0 THEN CAST(id / 4 AS decimal(10, 2)) END AS amount",
    )


def expected(rows: DataFrame, frame: str) -> list[Any]:
    """What Spark gives of all rows."""
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


class Sender:
    """Rows as files, and the query of what is shown beside them."""

    def __init__(self, spark: SparkSession, directory: Path, **given: Any) -> None:
        self._spark = spark
        self.directory = directory
        self.state, self.checkpoint = str(directory / "state"), str(directory / "checkpoint")
        self.given = {**NAMED, **given}
        self.found: list[Any] = []

    def arrive(self, rows: DataFrame) -> None:
        rows.repartition(4).write.mode("append").parquet(f"{self.directory}/in")

    def shown(self, asked: Any = None, pond: Millpond | None = None, **given: Any) -> DataFrame:
        pond = pond or Millpond(application_id="shops", state_dir=self.state, partitions=3, backend="lmdb")
        rows = self._spark.readStream.schema(DDL).option("maxFilesPerTrigger", 2).parquet(f"{self.directory}/in")
        return pond.over(rows, asked or calls(), name="shown", **{**self.given, **given})

    def run(self, rows: DataFrame) -> None:
        def take(batch: DataFrame, _: int) -> None:
            self.found += batch.collect()

        writer = rows.writeStream.foreachBatch(take).option("checkpointLocation", self.checkpoint)
        writer.trigger(availableNow=True).start().awaitTermination()


@pytest.mark.parametrize("frame", FRAMES)
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
    assert sorted((tuple(row) for row in sender.found), key=lambda row: row[1]) == answer
    still = Millpond(application_id="static", state_dir=str(tmp_path / "static"), partitions=2)
    batch = still.over(first.unionByName(second), calls(), **{**NAMED, **given})
    assert batch.columns == ["shop", "id", "at", "amount", *calls()]
    assert [tuple(row) for row in batch.orderBy("id").collect()] == answer


def test_the_state_is_read_and_erased_and_other_calls_and_frames_are_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    sender = Sender(spark, tmp_path, grace=0)
    row = "SELECT {}L AS id, 'a' AS shop, timestamp_seconds({}) AS at, CAST(1 AS decimal(10, 2)) AS amount"
    pond = Millpond(application_id="shops", state_dir=sender.state, partitions=3, backend="lmdb")
    for number in range(3):
        sender.arrive(spark.sql(row.format(number, number * 60)))
        sender.run(sender.shown(pond=pond))
        pond = Millpond(application_id="shops", state_dir=sender.state, partitions=3, backend="lmdb")
    assert [(row.number, row.total) for row in sender.found] == [(1, 1), (2, 2)]
    sender.shown(pond=pond)
    (stored,) = pond.read_store("shown", "over", sender.checkpoint).collect()
    assert (stored.shop, stored.number, stored.total, stored.last_time.timestamp()) == ("a", 2, 2, 60)
    others: list[tuple[Any, dict[str, Any]]] = [
        ({**calls(), "total": agg.max("amount")}, {}), (calls(), {"last": 3}), (calls(), {"within": "1 hour"}),
    ]  # fmt: skip
    for asked, given in others:
        with pytest.raises(StateConflictError, match="shown"):
            sender.run(sender.shown(asked, **given))
    erase(StateInspector.at(sender.checkpoint, sender.state), [["a"]], by="ann")
    sender.arrive(spark.sql(row.format(3, 180)))
    sender.arrive(spark.sql(row.format(4, 240)))
    sender.run(sender.shown())
    assert [(row.id, row.number) for row in sender.found[2:]] == [(3, 1)]


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
