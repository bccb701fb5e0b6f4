"""Late rows: counted under their verb, kept with how late they were, and taken by the grace that they say."""

from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millpond.adapters.spark import Millpond
from millpond.processors import SessionWindows, SlidingWindows, TimeWindows
from millpond.processors.verbs import KeyContext, KeyedProcessor, aggregates
from tests.spark.test_order import files, finished

pytestmark = pytest.mark.spark

SCHEMA = "k string, ts timestamp, v int"
RIGHT = "k string, at timestamp, w int"
EARLY, CLOCK = ("a", "00:10", 1), ("other", "20:00", 2)
ON_TIME = ("a", "19:58", 3)
LATE = ("a", "00:12", 4)
"""19 min 48 s behind the clock."""
BEHIND = timedelta(minutes=19, seconds=48)


class PassOn(KeyedProcessor):
    """Each row as it comes."""

    def process(self, key: Any, row: Mapping[str, Any], context: KeyContext) -> Iterator[dict[str, Any]]:
        yield {"v": row["v"]}


Build = Callable[[Millpond, DataFrame, DataFrame, str], DataFrame]


def windowed(windows: Callable[[str], Any], emit: Any = "updates") -> Build:
    def build(pond: Millpond, rows: DataFrame, _: DataFrame, grace: str) -> DataFrame:
        calls = {"n": aggregates.count(), "v": aggregates.max("v")}
        return pond.aggregate(rows, calls, by="k", time="ts", window=windows(grace), emit=emit, name="verb")

    return build


def joined(how: Any) -> Build:
    def build(pond: Millpond, rows: DataFrame, right: DataFrame, grace: str) -> DataFrame:
        return pond.stream_join(
            rows, right, on="k", left_time="ts", right_time="at", within="5 seconds", grace=grace, how=how, name="verb"
        )

    return build


def as_of(how: Any) -> Build:
    def build(pond: Millpond, rows: DataFrame, right: DataFrame, grace: str) -> DataFrame:
        return pond.asof_join(rows, right, on="k", left_time="ts", right_time="at", history=grace, how=how, name="verb")

    return build


VERBS: dict[str, tuple[Build, str, str, timedelta]] = {
    # The reason, the input of the late row, and by how much ten seconds are too short.
    "tumbling": (
        windowed(lambda grace: TimeWindows("5 seconds", grace=grace), "final"),
        "dropped-late",
        "input",
        timedelta(minutes=19, seconds=50) - timedelta(seconds=15) + timedelta(microseconds=1),
    ),
    "hopping": (
        windowed(lambda grace: TimeWindows("10 seconds", advance="5 seconds", grace=grace)),
        "dropped-late",
        "input",
        timedelta(minutes=19, seconds=55) - timedelta(seconds=20) + timedelta(microseconds=1),
    ),
    "sliding": (
        windowed(lambda grace: SlidingWindows("5 seconds", grace=grace)),
        "dropped-late",
        "input",
        BEHIND - timedelta(seconds=10),
    ),
    "session": (
        windowed(lambda grace: SessionWindows("1 second", grace=grace), "final"),
        "dropped-late",
        "input",
        BEHIND - timedelta(seconds=11),
    ),
    "stream_join inner": (joined("inner"), "dropped-late", "left", BEHIND - timedelta(seconds=15)),
    "stream_join left": (joined("left"), "dropped-late", "left", BEHIND - timedelta(seconds=15)),
    "apply": (
        lambda pond, rows, _, grace: pond.apply(
            rows, PassOn(), key="k", time="ts", schema="v int", lateness=grace, name="verb"
        ),
        "dropped-late",
        "input",
        BEHIND - timedelta(seconds=10),
    ),
    "latest": (
        lambda pond, rows, _, grace: pond.latest(rows, key="k", time="ts", history=grace, name="verb"),
        "dropped-expired",
        "input",
        BEHIND - timedelta(seconds=10),
    ),
    "table_join": (
        lambda pond, rows, right, grace: pond.table_join(
            rows, right, on="k", left_time="ts", right_time="at", history=grace, name="verb"
        ),
        "dropped-expired",
        "left",
        BEHIND - timedelta(seconds=10),
    ),
}


QUICK = ("tumbling", "latest")


@pytest.mark.parametrize(
    "verb", [*QUICK, *(pytest.param(one, marks=pytest.mark.long) for one in VERBS if one not in QUICK)]
)
def test_a_late_row_is_counted_and_kept_and_the_grace_that_it_says_takes_it(
    spark: SparkSession, tmp_path: Path, verb: str
) -> None:
    build, reason, input_, short_by = VERBS[verb]
    batches = [[EARLY, CLOCK], [ON_TIME, LATE]]

    def late_rows(directory: Path, grace: str) -> list[Any]:
        directory.mkdir()
        rows = files(spark, directory, "rows", batches, SCHEMA)
        right = files(spark, directory, "right", [[], []], RIGHT)
        pond = Millpond(application_id="job", state_dir=str(directory / "state"), partitions=4, backend="memory")
        _, query = finished(build(pond, rows, right, grace), directory)
        counts = str(query.recentProgress[-1]["observedMetrics"])
        assert (reason in counts) is (grace == "10 seconds")
        return pond.late_rows().collect()

    (late,) = late_rows(tmp_path / "short", "10 seconds")
    assert (late.name, late.input, late.reason, late.batch_id) == ("verb", input_, reason, 1)
    assert (late.late_by, late.short_by, late.needed) == (BEHIND, short_by, short_by + timedelta(seconds=10))
    assert late.clock - late.time == BEHIND
    (shown,) = (
        spark.createDataFrame([(late.key, late.row)], "key string, row string")
        .select(F.from_json("key", "k string")["k"], F.from_json("row", "v int")["v"])
        .collect()
    )
    assert tuple(shown) == ("a", 4)
    micros = late.needed // timedelta(microseconds=1)
    assert late_rows(tmp_path / "long", f"{-(-micros // 1_000)} milliseconds") == []


@pytest.mark.parametrize("late_side", ["left", "right"])
def test_a_join_of_streams_tells_late_rows_of_either_side(spark: SparkSession, tmp_path: Path, late_side: str) -> None:
    batches = [[EARLY, CLOCK], [ON_TIME, LATE]], [[], [ON_TIME]]
    left, right = batches if late_side == "left" else batches[::-1]
    rows, other = files(spark, tmp_path, "rows", left, SCHEMA), files(spark, tmp_path, "right", right, RIGHT)
    pond = Millpond(application_id="job", state_dir=str(tmp_path / "state"), partitions=3, backend="memory")
    found, _ = finished(joined("inner")(pond, rows, other, "10 seconds"), tmp_path)
    assert [row.k for row in found] == ["a"]
    assert [(row.input, row.late_by) for row in pond.late_rows("verb").collect()] == [(late_side, BEHIND)]


@pytest.mark.parametrize("how", ["left", pytest.param("inner", marks=pytest.mark.long)])
def test_an_asof_join_tells_rows_that_are_looked_up_beyond_the_history(
    spark: SparkSession, tmp_path: Path, how: str
) -> None:
    versions = [
        [("a", "00:05", 1), ("a", "00:11", 2)],
        [("other", "20:00", 3), ("a", "20:00", 4), ("a", "00:20", 5)],
        [],
    ]
    rows = files(spark, tmp_path, "rows", [[EARLY], [], [LATE]], SCHEMA)
    right = files(spark, tmp_path, "right", [versions[0], versions[1][:2], versions[1][2:]], RIGHT)
    pond = Millpond(application_id="job", state_dir=str(tmp_path / "state"), partitions=3, backend="memory")
    found, _ = finished(as_of(how)(pond, rows, right, "10 seconds"), tmp_path)
    assert sorted((row.v, row.w) for row in found) == [(1, 1), *([(4, None)] if how == "left" else [])]
    told = {(row.input, row.reason, row.late_by, row.needed) for row in pond.late_rows().collect()}
    expired = timedelta(minutes=19, seconds=40)
    assert told == {
        ("left", "beyond-history-retention", BEHIND, BEHIND),
        ("right", "dropped-expired", expired, expired),
    }
