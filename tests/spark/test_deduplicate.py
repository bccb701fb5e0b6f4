"""``deduplicate`` on Spark: over several files, tasks and restarts, with rows that come out of order."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, SparkSession

from millpond.adapters.edit import erase
from millpond.adapters.inspect import StateInspector
from millpond.adapters.spark import Millpond
from millpond.errors import StateConflictError
from tests.spark.arriving import Arriving

pytestmark = pytest.mark.spark

DDL = "id long, shop string, at timestamp"
MINUTE = 60


def sent(spark: SparkSession, first: int, *more: str) -> DataFrame:
    """Return sixty rows of five shops, one of them null, each up to 10 minutes out of order."""
    return spark.range(first, first + 60).selectExpr(
        "id",
        "CASE WHEN id * 7 % 5 < 4 THEN concat('shop ', id * 7 % 5) END AS shop",
        "timestamp_seconds(id * 60 - id * 37 % 600) AS at",
        *more,
    )


def kept(rows: list[Any], within: int) -> list[int]:
    """Return the ids of the rows that are kept of all."""
    last: dict[Any, float] = {}
    found = []
    for row in sorted(rows, key=lambda row: (row.at, row.id)):
        time = row.at.timestamp()
        if row.shop not in last or time > last[row.shop] + within:
            last[row.shop] = time
            found.append(row.id)
    return sorted(found)


class Sender(Arriving):
    """Rows as files, and the query of the first ones."""

    def __init__(self, spark: SparkSession, directory: Path, **given: Any) -> None:
        super().__init__(spark, directory)
        self.given = {"key": "shop", "time": "at", "within": "7 minutes", "order": "id", **given}

    def pond(self, partitions: int = 3) -> Millpond:
        return Millpond(application_id="shops", state_dir=self.state, partitions=partitions, backend="lmdb")

    def firsts(self, ddl: str = DDL, pond: Millpond | None = None) -> DataFrame:
        return (pond or self.pond()).deduplicate(self.stream(ddl), name="firsts", **self.given)


def test_a_static_frame_and_a_stream_with_restarts_keep_the_same_rows(spark: SparkSession, tmp_path: Path) -> None:
    sender = Sender(spark, tmp_path, grace="2 hours")
    first, second = sent(spark, 0), sent(spark, 60, "id * 2 AS twice")
    sender.arrive(first)
    sender.run(sender.firsts())
    sender.arrive(second)
    pond = sender.pond()
    sender.run(sender.firsts(f"{DDL}, twice long", pond))
    end = spark.sql("SELECT 1000L AS id, 'end' AS shop, timestamp_seconds(100000) AS at, 0L AS twice")
    sender.arrive(end)
    sender.run(sender.firsts(f"{DDL}, twice long"))
    rows = first.unionByName(second.drop("twice")).collect()
    assert sorted(row["id"] for row in sender.found) == kept(rows, 7 * MINUTE)
    assert {row["id"]: row["twice"] for row in sender.found} == {
        row["id"]: row["id"] * 2 if row["id"] >= 60 else None for row in sender.found
    }

    still = Millpond(application_id="static", state_dir=str(tmp_path / "static"), partitions=2)
    batch = still.deduplicate(first.unionByName(second.drop("twice")), **sender.given)
    assert sorted(row.id for row in batch.collect()) == kept(rows, 7 * MINUTE)


def test_at_once_what_has_come_out_stays_and_the_state_is_read_and_erased(spark: SparkSession, tmp_path: Path) -> None:
    sender = Sender(spark, tmp_path)
    row = "SELECT {} AS id, 'a' AS shop, timestamp_seconds({}) AS at"
    for number, time in enumerate((600, 500, 1_020, 1_021, 1_000)):
        sender.arrive(spark.sql(row.format(f"{number}L", time)))
        pond = sender.pond()
        sender.run(sender.firsts(pond=pond))
    assert [row["id"] for row in sender.found] == [0, 3]
    stored = pond.read_store("firsts", "deduplicate", sender.checkpoint).collect()
    assert [(row.shop, row.kept_time.timestamp()) for row in stored] == [("a", 1_021)]
    sender.given["grace"] = "1 minute"
    with pytest.raises(StateConflictError):
        sender.firsts()
    del sender.given["grace"]
    erase(StateInspector.at(sender.checkpoint, sender.state), [["a"]], by="ann")
    sender.arrive(spark.sql(row.format("9L", 1_022)))
    sender.run(sender.firsts())
    assert [row["id"] for row in sender.found] == [0, 3, 9]


def test_explain_says_how_long_rows_wait_and_the_next_verb_waits_for_it(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pond = Sender(spark, tmp_path).pond()
    firsts = pond.deduplicate(sent(spark, 0), key="shop", time="at", within="1 hour", grace="5 minutes")
    pond.deduplicate(firsts, key="id", time="at", within="1 hour", name="again")
    pond.explain()
    text = capsys.readouterr().out
    assert "comes out  at most 5 min after its time" in text
    assert "within     1 h of its own + 5 min for its inputs = 1 h 5 min" in text
