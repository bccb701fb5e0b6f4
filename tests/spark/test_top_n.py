"""``top_n`` on Spark: over several files, tasks and restarts, read as it is committed, edited and erased."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import Window as W
from pyspark.sql import functions as F

from millpond.adapters.edit import StateEditor, erase
from millpond.adapters.inspect import StateInspector
from millpond.adapters.spark import Millpond
from millpond.errors import ConfigurationError, StateConflictError
from millpond.processors import TimeWindows
from tests.spark.arriving import Arriving

pytestmark = pytest.mark.spark

DDL = "id long, game string, score double, at timestamp"


class Game(Arriving):
    """Scores of games, as files, and the query of the best of them."""

    def scores(self, first: int, *more: str) -> DataFrame:
        """Return forty scores, out of order, some of them null, NaN or of no game."""
        return self.spark.range(first, first + 40).selectExpr(
            "id",
            "CASE WHEN id % 5 < 4 THEN concat('game ', id % 5) END AS game",
            "CASE id % 11 WHEN 0 THEN NULL WHEN 1 THEN double('NaN') ELSE double(id * 7 % 13) END AS score",
            "timestamp_seconds(id * 37 % 100) AS at",
            *more,
        )

    def stream(self, ddl: str = DDL) -> DataFrame:
        return super().stream(ddl)

    def pond(self) -> Millpond:
        return Millpond(application_id="games", state_dir=self.state, partitions=3, backend="lmdb")

    def best(self, rows: DataFrame, pond: Millpond | None = None, **given: Any) -> DataFrame:
        asked = {"n": 3, "by": "game", "time": "at", "order": ["score", "id"], "descending": [True, False], **given}
        return (pond or self.pond()).top_n(rows, name="best", **asked)

    def take(self, rows: Sequence[Row]) -> None:
        places = [(row.game, row["rank"]) for row in rows]
        assert len(set(places)) == len(places)
        super().take(rows)

    def shown(self, *columns: str) -> dict[Any, tuple[Any, ...]]:
        """Return what a reader of the changes has in the end."""
        assert all(row["op"] == "upsert" for row in self.found)
        ordered = sorted(self.found, key=lambda row: row["sequence"])
        return {(row["game"], row["rank"]): tuple(row.get(name) for name in columns) for row in ordered}


def ranked(rows: DataFrame, *columns: str) -> dict[Any, tuple[Any, ...]]:
    """Return what Spark SQL gives."""
    window = W.partitionBy("game").orderBy(F.desc("score"), "id")
    found = rows.withColumn("rank", F.row_number().over(window)).where("rank <= 3").collect()
    return {(row["game"], row["rank"]): tuple(row[name] for name in columns) for row in found}


def test_it_gives_what_row_number_gives_over_files_and_restarts_and_is_read_edited_and_erased(
    spark: SparkSession, tmp_path: Path
) -> None:
    game = Game(spark, tmp_path)
    first = game.scores(0)
    game.arrive(first)
    game.run(game.best(game.stream()))
    assert game.shown("id") == ranked(first, "id")

    for changed in ({"n": 2}, {"descending": True}, {"order": "score", "descending": True}):
        with pytest.raises(StateConflictError, match=r"write (n=3|descending=|order=)"):
            game.best(game.stream(), **changed)
    second = game.scores(40, "concat('player ', id) AS player")
    game.arrive(second)
    pond = game.pond()
    game.run(game.best(game.stream(f"{DDL}, player string"), pond))
    both = first.withColumn("player", F.lit(None).cast("string")).unionByName(second)
    expected = ranked(both, "id", "player")
    assert game.shown("id", "player") == expected

    stored = pond.read_store("best", "top_n", game.checkpoint).collect()
    assert {(row.game, one["rank"]): (one["id"], one["player"]) for row in stored for one in row.top_n} == expected
    inspected = StateInspector.at(game.checkpoint, game.state).store("top_n").rows()
    assert {
        (row["key"]["game"], one["rank"]): (one["id"], one["player"])
        for row in (found for batch in inspected for found in batch.to_pylist())
        for one in row["value"]
    } == expected

    with StateEditor.at(game.checkpoint, game.state, by="ann") as edits:
        with pytest.raises(ConfigurationError, match=r"orders that are not shown, .* cannot be put; delete the key"):
            edits.put("top_n", [{"key": ["game 2"], "value": [], "timestamp": 0}])
        edits.delete("top_n", ["game 2"])
        edits.commit()
    report = erase(StateInspector.at(game.checkpoint, game.state), [["game 1"]], by="ann")
    assert report.rows == {"top_n": 1}
    third = game.scores(80, "concat('player ', id) AS player")
    game.arrive(third)
    game.run(game.best(game.stream(f"{DDL}, player string")))
    gone = "coalesce(game IN ('game 1', 'game 2'), false)"
    anew = ranked(third.where(gone), "id", "player")
    others = ranked(both.unionByName(third).where(f"NOT {gone}"), "id", "player")
    assert game.shown("id", "player") == anew | others


@pytest.mark.first
def test_final_rows_of_windows_are_those_of_a_batch(spark: SparkSession, tmp_path: Path) -> None:
    game = Game(spark, tmp_path)
    rows = game.scores(0)
    minute = TimeWindows("30 seconds", advance="15 seconds")
    found = game.best(rows, window=minute, emit="final").drop("at")
    window = W.partitionBy("game", "window").orderBy(F.desc("score"), "id")
    cut = rows.withColumn("window", F.window("at", "30 seconds", "15 seconds"))
    expected = cut.withColumn("rank", F.row_number().over(window)).where("rank <= 3").select(*found.columns)
    assert sorted(map(repr, found.collect())) == sorted(map(repr, expected.collect()))
