"""``aggregate`` by grouping sets on Spark: as Spark SQL's of a batch, over files, tasks, restarts and edits."""

import re
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millpond.adapters.edit import StateEditor, erase
from millpond.adapters.inspect import StateInspector
from millpond.adapters.spark import Evolution, Millpond
from millpond.errors import StateConflictError
from millpond.processors import TimeWindows, cube, grouping_sets, rollup
from millpond.processors.options.grouping import By
from millpond.processors.verbs import aggregates as agg
from tests.spark.arriving import Arriving

pytestmark = pytest.mark.spark

DDL = "id long, k string, g int, at timestamp, v long"
CALLS = {"all_k": agg.grouping("k"), "n": agg.count(), "total": agg.sum("v"), "newest": agg.max("id")}
SETS = cube("k", "g")
KEY = ("k", "g", "grouping_id")


class Sales(Arriving):
    """Rows, as files, and the query of their totals."""

    def rows(self, first: int) -> DataFrame:
        """Return sixty rows, out of order, some of them with nulls in the columns of the key."""
        return self.spark.range(first, first + 60).selectExpr(
            "id",
            "CASE WHEN id % 5 < 4 THEN concat('k', id % 5) END AS k",
            "CASE WHEN id % 3 < 2 THEN int(id % 3) END AS g",
            "timestamp_seconds(id * 37 % 100) AS at",
            "nullif(id % 7, 3) AS v",
        )

    def stream(self, ddl: str = DDL) -> DataFrame:
        return super().stream(ddl)

    def pond(self, evolution: Evolution | None = None) -> Millpond:
        return Millpond(
            application_id="sales", state_dir=self.state, partitions=3, backend="lmdb", evolution=evolution
        )  # fmt: skip

    def totals(self, rows: DataFrame, pond: Millpond | None = None, by: By = SETS, **given: Any) -> DataFrame:
        asked = {"calls": CALLS, "by": by, "time": "at", "name": "totals", **given}
        return (pond or self.pond()).aggregate(rows, **asked)

    def shown(self, *columns: str) -> dict[Any, tuple[Any, ...]]:
        """Return what a reader of the changes has in the end."""
        ordered = sorted(self.found, key=lambda row: row["sequence"])
        return {tuple(row[name] for name in KEY): tuple(row.get(name) for name in columns) for row in ordered}


def by_spark(rows: DataFrame, sets: str, *columns: str) -> dict[Any, tuple[Any, ...]]:
    """Return what Spark SQL gives."""
    found = rows.sparkSession.sql(
        "SELECT k, g, grouping_id() AS grouping_id, grouping(k) AS all_k, count(*) AS n, sum(v) AS total, "
        f"max(id) AS newest FROM {{rows}} GROUP BY {sets}",
        rows=rows,
    ).collect()
    return {tuple(row[name] for name in KEY): tuple(row[name] for name in columns) for row in found}


@pytest.mark.parametrize(
    ("by", "sets"),
    [
        (cube("k", "g"), "CUBE (k, g)"),
        (rollup("k", "g"), "ROLLUP (k, g)"),
        (grouping_sets(["k", "g"]), "GROUPING SETS ((k), (g))"),
        (["k", cube("g")], "k, CUBE (g)"),
    ],
)
def test_static_frames_give_what_spark_sql_gives(spark: SparkSession, tmp_path: Path, by: By, sets: str) -> None:
    sales = Sales(spark, tmp_path)
    found = sales.totals(sales.rows(0), by=by)
    assert dict(found.dtypes)["grouping_id"] == "bigint"
    assert dict(found.dtypes)["all_k"] == "tinyint"
    rows = {tuple(row[name] for name in KEY): tuple(row[name] for name in CALLS) for row in found.collect()}
    assert rows == by_spark(sales.rows(0), sets, *CALLS)


@pytest.mark.long
def test_windows_behind_a_verb_of_one_of_the_columns(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each of the three has an operator of its own, and rows go to the tasks of their new keys."""
    sales = Sales(spark, tmp_path)
    sales.arrive(sales.rows(0))
    pond, window = sales.pond(), TimeWindows("20 seconds", grace="100 seconds")
    latest = pond.latest(sales.stream(), key=["id", "k"], time="at", history="1 hour", name="latest")
    one = sales.totals(latest.drop("op", "sequence"), pond, by=["k", cube("id")], window=window, emit="final")
    ends = one.select("k", "n", F.col("window.end").alias("end"))
    two = pond.aggregate(
        ends, {"n": agg.sum("n")}, by="k", time="end", window=TimeWindows("60 seconds"), emit="final", name="two"
    )
    pond.explain()
    assert re.findall(r"operator +its own: (.*)", capsys.readouterr().out) == [
        "each of its rows has several keys, which are those of other tasks",
        "'totals' has another key: k, id, grouping_id",
    ]
    sales.run(two)
    for far in (10_000, 20_000, 30_000):
        late = sales.rows(0).selectExpr("id", "k", "g", f"timestamp_seconds({far}) AS at", "v").limit(1)
        sales.arrive(late)
        sales.run(two)
    found = {(row["k"], row["window"].start): row["n"] for row in sales.found}
    found = {place: n for place, n in found.items() if place[1] < datetime(1970, 1, 1, 1)}
    expected = (
        sales.rows(0)
        .groupBy("k", F.window("at", "20 seconds").alias("w"))
        .count()
        .groupBy("k", F.window("w.end", "60 seconds").alias("window"))
        .agg((2 * F.sum("count")).alias("n"))
    )
    assert found == {(row["k"], row["window"].start): row["n"] for row in expected.collect()}


def test_a_stream_gives_what_spark_sql_gives_over_restarts_and_is_read_edited_and_erased(
    spark: SparkSession, tmp_path: Path
) -> None:
    sales = Sales(spark, tmp_path)
    first = sales.rows(0)
    sales.arrive(first)
    sales.run(sales.totals(sales.stream()))
    assert sales.shown(*CALLS) == by_spark(first, "CUBE (k, g)", *CALLS)

    sets = r"by=grouping_sets\(\[\['k', 'g'\], \['k'\], \['g'\], \[\]\]\)"
    told = rf"with {sets} and not grouping_sets\(.*; write {sets} again, or give"
    with pytest.raises(StateConflictError, match=told):
        sales.totals(sales.stream(), by=rollup("k", "g"))
    with pytest.raises(StateConflictError, match="; write the grouping sets of k, g again, or give"):
        sales.totals(sales.stream(), by=["k", "g"], calls={name: CALLS[name] for name in ("n", "total", "newest")})
    with pytest.raises(StateConflictError, match="; write the columns k, g again, or give"):
        sales.totals(sales.stream(), by=cube("g", "k"))
    second = sales.rows(60)
    sales.arrive(second)
    again = grouping_sets([[], "k", ["k", "g"], "g"])
    pond = sales.pond(Evolution(sales.checkpoint))
    calls = {**CALLS, "least": agg.min("id")}
    added = {"least": first}
    sales.run(sales.totals(sales.stream(), pond, again, calls=calls, added=added))
    both = first.unionByName(second)
    expected = by_spark(both, "CUBE (k, g)", *CALLS)
    assert sales.shown(*CALLS) == expected
    least = {(row["k"], row["g"]): row["id"] for row in both.groupBy("k", "g").agg(F.min("id").alias("id")).collect()}
    assert {key[:2]: value for key, (value,) in sales.shown("least").items() if key[2] == 0} == least
    assert sales.shown("least")[None, None, 3] == (0,)

    stored = pond.read_store("totals", "aggregate", sales.checkpoint).collect()
    assert {tuple(row[name] for name in KEY): tuple(row[name] for name in CALLS) for row in stored} == expected
    inspected = StateInspector.at(sales.checkpoint, sales.state).store("aggregate").rows()
    rows = [row for batch in inspected for row in batch.to_pylist()]
    assert {tuple(row["key"].values()): row["value"]["n"] for row in rows} == {
        key: row[1] for key, row in expected.items()
    }

    with StateEditor.at(sales.checkpoint, sales.state, by="ann") as edits:
        edits.delete("aggregate", ["k1", None, 1])
        edits.commit()
    assert erase(StateInspector.at(sales.checkpoint, sales.state), [["k2", None, 1]], by="ann").rows == {"aggregate": 1}
    third = sales.rows(120)
    sales.arrive(third)
    sales.run(sales.totals(sales.stream(), by=again, calls=calls))
    anew = by_spark(third, "CUBE (k, g)", *CALLS)
    whole = by_spark(both.unionByName(third), "CUBE (k, g)", *CALLS)
    gone = [("k1", None, 1), ("k2", None, 1)]
    assert sales.shown(*CALLS) == {key: anew[key] if key in gone else row for key, row in whole.items()}
