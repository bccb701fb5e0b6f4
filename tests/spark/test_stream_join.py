"""Joins of streams beside those of Spark: rows out of order, a restart, rows that find nobody, and null keys."""

from collections.abc import Mapping
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millpond.adapters.spark import Evolution
from millpond.errors import StateConflictError
from millpond.processors.options.joins import JoinType
from millpond.processors.verbs.joins.stream_join import BOUNDS
from tests.spark.test_verbs import Job, in_order

pytestmark = pytest.mark.spark

LEFT, RIGHT = "k string, at timestamp, a int", "rk string, since timestamp, b int"

FILES: list[tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]] = [
    (
        [("x", "2024-01-01 10:00", 1), ("y", "2024-01-01 10:20", 2), (None, "2024-01-01 10:05", 3)],
        [("x", "2024-01-01 10:09", 1), (None, "2024-01-01 10:05", 2)],
    ),
    (
        [("x", "2024-01-01 10:02", 4), ("z", "2024-01-01 10:30", 5)],
        [("x", "2024-01-01 10:01", 3), ("y", "2024-01-01 10:50", 4), ("y", "2024-01-01 10:15", 5)],
    ),
    ([("end", "2024-01-02 00:00", 6)], [("over", "2024-01-02 00:00", 6)]),
]
"""By the time of the last rows all windows are over, and so are the watermarks of Spark."""

CLOSE = "k = rk and since between at - interval 10 minutes and at + interval 10 minutes"


def test_right_semi_and_anti_joins_of_streams_give_what_spark_gives(spark: SparkSession, tmp_path: Path) -> None:
    job = Job(spark, tmp_path)
    given: dict[str, Any] = {
        "on": {"k": "rk"}, "left_time": "at", "right_time": "since", "within": "10 minutes", "grace": "1 hour",
    }  # fmt: skip
    for count, (lefts, rights) in enumerate(FILES):
        left, right = job.arrive("left", job.rows(LEFT, *lefts)), job.arrive("right", job.rows(RIGHT, *rights))
        pond = job.pond()
        hows = ("right", "semi", "anti")
        joins = {how: pond.stream_join(left, right, **{**given, "how": how, "name": f"{how}-join"}) for how in hows}
        ours = shown(joins)
        if count != 1:
            job.run(ours)
    one, other = left.withWatermark("at", "1 hour"), right.withWatermark("since", "1 hour")
    streamed = {how: one.join(other, F.expr(CLOSE), how) for how in ("right", "semi")}
    theirs = shown({**streamed, "right": streamed["right"].withColumn("k", F.coalesce("k", "rk"))})
    job.run(theirs, "theirs")
    whole = job.rows(LEFT, *(row for rows, _ in FILES for row in rows))
    alone = whole.join(job.rows(RIGHT, *(row for _, rows in FILES for row in rows)), F.expr(CLOSE), "anti")
    expected = [*job.written(theirs, "theirs"), *in_order(shown({"anti": alone}))]
    found = job.written(ours)
    assert in_time(found) == in_time(expected)
    assert len(in_time(found)) == 7 + 3 + 2


EACH = "k = rk and since between at - make_dt_interval(0, 0, back) and at + make_dt_interval(0, 0, 0, ahead / 1000)"


@pytest.mark.parametrize(
    "backend", [pytest.param("memory", marks=pytest.mark.long), "lmdb", pytest.param("rocksdb", marks=pytest.mark.long)]
)
@pytest.mark.long
def test_bounds_that_are_columns_are_those_of_each_left_row_also_after_a_restart(
    backend: str, spark: SparkSession, tmp_path: Path
) -> None:
    """A bound may be an interval or an integer; one that is null lets a row meet nobody."""
    job, columns = Job(spark, tmp_path), f"{LEFT}, back int, ahead bigint"
    minute, hows = 60_000, [how.value for how in JoinType]
    bounds: list[list[tuple[int, int | None]]] = [
        [(8, 9 * minute), (5, None), (0, 0)],
        [(1, 0), (20, -minute)],
        [(60, 60 * minute)],
    ]
    given: dict[str, Any] = {
        "on": {"k": "rk"}, "left_time": "at", "right_time": "since", "at_most": "1 hour", "grace": "1 hour",
        "before": F.make_dt_interval(mins="back"), "after": F.col("ahead"),
    }  # fmt: skip
    whole = [
        (*row, *own) for (rows, _), some in zip(FILES, bounds, strict=True) for row, own in zip(rows, some, strict=True)
    ]
    for count, (lefts, rights) in enumerate(FILES):
        rows = [row for row in whole if row[:3] in lefts]
        left, right = job.arrive("left", job.rows(columns, *rows)), job.arrive("right", job.rows(RIGHT, *rights))
        pond = job.pond(backend=backend)
        ours = shown(
            {how: pond.stream_join(left, right, **{**given, "how": how, "name": f"{how}-join"}) for how in hows}
        )
        if count != 1:
            job.run(ours)
    one, other = job.rows(columns, *whole), job.rows(RIGHT, *(row for _, rows in FILES for row in rows))
    theirs = {how: one.join(other, F.expr(EACH), how) for how in hows}
    theirs |= {how: theirs[how].withColumn("k", F.coalesce("k", "rk")) for how in ("right", "outer")}
    assert in_time(job.written(ours)) == in_time(in_order(shown(theirs)))
    assert not {*BOUNDS.values()} & {*ours.columns}


def test_a_row_with_a_bound_beyond_at_most_fails_the_query_or_is_left_out(spark: SparkSession, tmp_path: Path) -> None:
    rows = [("x", "2024-01-01 10:00", 1, 60), ("x", "2024-01-01 10:00", 2, 61), ("x", "2024-01-01 10:00", 3, 2**31 - 1)]
    job = Job(spark, tmp_path)
    left = job.arrive("left", job.rows(f"{LEFT}, ttl int", *rows))
    right = job.arrive("right", job.rows(RIGHT, ("x", "2024-01-01 10:30", 1)))

    own: dict[str, Any] = {"within": F.make_dt_interval(mins="ttl"), "at_most": "1 hour"}

    def joined(on_error: str, bounds: Mapping[str, Any] = own) -> DataFrame:
        pond = job.pond(on_error=on_error)
        return pond.stream_join(left, right, on={"k": "rk"}, left_time="at", right_time="since", **bounds)

    with pytest.raises(Exception, match="column 'millpond_before': more than at_most='1 hour' in row 1 of Spark"):
        job.run(joined("fail"))
    job.run(joined("skip"))
    assert [row[2] for row in job.written(joined("skip"))] == [1]
    with pytest.raises(StateConflictError, match=r"at_most='1 hour' and not none, .*, and cannot become others"):
        job.run(joined("skip", {"within": "1 hour"}))


def test_another_type_that_cannot_go_on_with_the_stores_is_refused_without_advice_to_carry_them_over(
    spark: SparkSession, tmp_path: Path
) -> None:
    job, (lefts, rights) = Job(spark, tmp_path), FILES[0]
    left, right = job.arrive("left", job.rows(LEFT, *lefts)), job.arrive("right", job.rows(RIGHT, *rights))

    def run(how: str, **declared: Any) -> None:
        given: dict[str, Any] = {"on": {"k": "rk"}, "left_time": "at", "right_time": "since", "within": "10 minutes"}
        name = "matches" if declared else "pairs"
        job.run(job.pond(**declared).stream_join(left, right, **{**given, "how": how, "name": name}))

    run("right")
    with pytest.raises(StateConflictError, match="call the verb with its former arguments") as refused:
        run("inner")
    assert "to carry the state over" not in str(refused.value)
    assert "evolution=Evolution(checkpoint, dropped=['pairs'])" in str(refused.value)
    run("inner", evolution=Evolution(str(tmp_path / "out-checkpoint"), dropped=["pairs"]))


def in_time(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return all but the last rows, which wait for others."""
    return sorted((row for row in rows if row[1] not in ("end", "over")), key=repr)


def shown(joins: Mapping[str, DataFrame]) -> DataFrame:
    """Return the rows of several joins, with the name of each."""
    nothing = F.lit(None).cast("int")
    parts = [
        rows.select(F.lit(how).alias("how"), "k", *(F.col(n) if n in rows.columns else nothing.alias(n) for n in "ab"))
        for how, rows in joins.items()
    ]
    return reduce(DataFrame.unionAll, parts)
