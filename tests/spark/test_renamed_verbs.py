"""Verbs that have other names, are gone, or are new: what is said, and that following it leads on with the state."""

import json
from collections.abc import Callable, Iterator, Mapping
from functools import reduce
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millpond.adapters.inspect.state_inspector import StateInspector
from millpond.adapters.spark import Evolution, Millpond
from millpond.errors import StateConflictError
from millpond.processors.verbs import KeyContext, KeyedProcessor, aggregates

pytestmark = pytest.mark.spark


class Tally(KeyedProcessor):
    """Counts the rows of each key."""

    def process(self, key: Any, row: Mapping[str, Any], context: KeyContext) -> Iterator[dict[str, Any]]:
        context.state.set(context.state.get(0) + 1)
        yield {"k": row["k"], "n": context.state.get()}


class Count(Tally):
    """The same under another name."""


TIMES: dict[str, Any] = {"left_time": "at", "right_time": "since"}

Verb = Callable[[Millpond, DataFrame, DataFrame, str], DataFrame]
VERBS: dict[str, Verb] = {
    "aggregate": lambda pond, left, _, name: pond.aggregate(
        left, {"s": aggregates.sum("a")}, by="k", time="at", name=name
    ),
    "latest": lambda pond, left, _, name: pond.latest(left, key="k", time="at", history="1 hour", name=name),
    "asof_join": lambda pond, left, right, name: pond.asof_join(
        left, right, on="k", history="1 hour", how="left", grace="1 minute", name=name, **TIMES
    ),
    "table_join": lambda pond, left, right, name: pond.table_join(left, right, on="k", name=name, **TIMES),
    "stream_join": lambda pond, left, right, name: pond.stream_join(
        left, right, on="k", within="1 hour", name=name, **TIMES
    ),
    "apply": lambda pond, left, _, name: pond.apply(
        left, Tally() if name.startswith("old") else Count(), key="k", time="at", schema="k string, n int", lateness=0,
        name=name,
    ),
}  # fmt: skip


class Job:
    """Queries of one application whose rows come in files."""

    def __init__(self, spark: SparkSession, place: Path) -> None:
        self.spark = spark
        self.place = place
        self.checkpoint = f"{place}/checkpoint"

    def bring(self, number: int) -> None:
        made = f"select k, timestamp'2024-01-01 10:0{number}' + make_interval(0, 0, 0, 0, 0, 0, id) as at, id as a"
        rows = self.spark.sql(f"{made} from (select id, 'k' || id % 7 as k from range({20 + number}))")
        rows.coalesce(1).write.mode("append").parquet(f"{self.place}/in")

    def pond(self, state: str = "state", **options: Any) -> Millpond:
        return Millpond(
            application_id="shop", state_dir=f"{self.place}/{state}", partitions=1, backend="lmdb", **options
        )

    @property
    def sides(self) -> tuple[DataFrame, DataFrame]:
        left = self.spark.readStream.schema("k string, at timestamp, a bigint").parquet(f"{self.place}/in")
        return left, left.selectExpr("k", "at as since", "a as b")

    def run(self, rows: DataFrame, checkpoint: str | None = None) -> set[str]:
        """Return what comes out of all files that have come since."""
        found: list[str] = []

        def keep(batch: DataFrame, number: int) -> None:
            found.extend(row.text for row in batch.collect())

        writer = rows.writeStream.option("checkpointLocation", checkpoint or self.checkpoint).foreachBatch(keep)
        writer.trigger(availableNow=True).start().awaitTermination()
        return set(found)


@pytest.fixture
def job(spark: SparkSession, tmp_path: Path) -> Job:
    job = Job(spark, tmp_path)
    job.bring(0)
    return job


def texts(*queries: tuple[str, DataFrame]) -> DataFrame:
    """Return all of them as one, each row as text behind the name of what it is."""
    made = []
    for name, rows in queries:
        columns = [one for one in rows.columns if one != "sequence"]
        made.append(rows.select(F.concat(F.lit(f"{name} "), F.to_json(F.struct(*columns))).alias("text")))
    return reduce(DataFrame.unionAll, made)


def built(job: Job, pond: Millpond, prefix: str) -> DataFrame:
    return texts(*((kind, make(pond, *job.sides, f"{prefix}-{kind}")) for kind, make in VERBS.items()))


@pytest.mark.long
def test_verbs_of_all_kinds_go_on_under_other_names(job: Job) -> None:
    job.run(built(job, job.pond(), "old"))
    for name in ("checkpoint", "state"):
        copytree(job.place / name, job.place / f"{name}-2")
    job.bring(1)
    with pytest.raises(StateConflictError, match=r"none of the verb 'new-aggregate'.* renamed={'old-aggr"):
        built(job, job.pond(evolution=Evolution(job.checkpoint)), "new")
    pond, renamed = job.pond(), {f"old-{kind}": f"new-{kind}" for kind in VERBS}
    built(job, pond, "new")
    assert pond.plan(job.checkpoint).line == f"evolution=Evolution({job.checkpoint!r}, renamed={renamed})"
    evolution = Evolution(job.checkpoint, renamed=renamed)
    built(job, job.pond(evolution=evolution), "new")
    new = job.run(built(job, job.pond(evolution=evolution), "new"))
    assert new == job.run(built(job, job.pond("state-2"), "old"), f"{job.checkpoint}-2")
    pond = job.pond()
    built(job, pond, "new")
    assert pond.plan(job.checkpoint).line == ""


def chained(job: Job, pond: Millpond, first: str, last: str) -> DataFrame:
    left, _ = job.sides
    rows = pond.latest(left, key="k", time="at", history="1 hour", name=first).drop("op")
    return texts(("sums", pond.aggregate(rows, {"s": aggregates.sum("a")}, by="k", time="at", name=last)))


def sums(found: set[str]) -> set[int]:
    return {json.loads(text.removeprefix("sums "))["s"] for text in found}


def test_verbs_that_share_an_operator_are_renamed_and_dropped_and_nothing_runs_before_that_is_said(job: Job) -> None:
    job.run(chained(job, job.pond(), "latest", "sum"))
    job.bring(1)
    with pytest.raises(StreamingQueryException, match=r"there is no state of shop/latest in .*typo.* write that one"):
        job.run(chained(job, job.pond("typo"), "latest", "sum"))
    with pytest.raises(StreamingQueryException, match="holds the state of the verb 'sum'") as refused:
        job.run(chained(job, job.pond(), "latest", "sums"))
    assert "evolution=Evolution(checkpoint, dropped=['sum'])" in str(refused.value)
    with pytest.raises(StateConflictError, match=r"there is no state of shop/latest in .*typo"):
        chained(job, job.pond("typo", evolution=Evolution(job.checkpoint)), "latest", "sum")
    evolution = Evolution(job.checkpoint, renamed={"latest": "newest"}, dropped=["sum"])
    found = job.run(chained(job, job.pond(evolution=evolution), "newest", "sums"))
    assert sums(found) == {21, 24, 27, 30, 33, 36, 39}
    assert {view.application_id for view in StateInspector.at(job.checkpoint, f"{job.place}/state").stores()} == {
        "shop.newest",
        "shop.sums",
    }
    job.bring(2)
    assert sums(job.run(chained(job, job.pond(), "newest", "sums"))) == {63, 48, 54, 60, 66, 72, 78}


@pytest.mark.slow
@pytest.mark.long
def test_a_verb_does_not_begin_empty_in_another_query_that_has_begun_without_it(job: Job) -> None:
    """It goes on where it has begun, begins in the other one under another name, and in a new one as before."""
    other, anew = f"{job.place}/other", f"{job.place}/anew"
    job.run(chained(job, job.pond(), "latest", "sum"))
    latest = job.pond().latest(job.sides[0], key="k", time="at", history="1 hour", name="latest")
    job.run(texts(("latest", latest)), other)
    job.bring(1)
    id_ = json.loads(Path(job.checkpoint, "metadata").read_text())["id"]
    said = f"the verb 'sum' of application 'shop' has state of the query {id_} in .*/state/shop.sum, .*empty in this"
    advice = "start it at the checkpoint with the former id in its file metadata, or, .*, give it another name"
    for _ in range(2):
        with pytest.raises(StreamingQueryException, match=f"{said} .*; {advice}"):
            job.run(chained(job, job.pond(), "latest", "sum"), other)
    assert sums(job.run(chained(job, job.pond(), "latest", "sum"))) == {42, 48, 54, 58, 60, 66, 72}
    assert sums(job.run(chained(job, job.pond(), "latest", "sums"), other)) == {21, 24, 27, 30, 33, 36, 39}
    for number, name, checkpoint in ((2, "sum", anew), (3, "sums", other), (4, "sum", anew)):
        job.bring(number)
        assert job.run(chained(job, job.pond(), "latest", name), checkpoint)


@pytest.mark.long
def test_a_verb_by_another_key_begins_with_the_rows_of_the_old_one_and_the_plan_tells_the_line(job: Job) -> None:
    def latest(pond: Millpond, *keys: str) -> DataFrame:
        rows = job.sides[0].selectExpr("k", "a % 2 as p", "at", "a")
        return texts(("latest", pond.latest(rows, key=keys, time="at", history="1 hour")))

    def bring(*rows: str) -> None:
        values = ", ".join(f"({row})" for row in rows)
        made = job.spark.sql(f"select * from values {values} as t(k, at, a)")
        made.selectExpr("k", "timestamp(at) as at", "a").write.mode("append").parquet(f"{job.place}/in")

    def out(rows: DataFrame) -> set[tuple[str, int]]:
        found = [json.loads(text.removeprefix("latest ")) for text in job.run(rows)]
        return {(row["k"], row["a"]) for row in found}

    assert len(out(latest(job.pond(), "k", "p"))) == 20
    pond = job.pond()
    latest(pond, "k")
    rekeyed = {"latest-k": "latest-k-p"}
    assert pond.plan(job.checkpoint).line == f"evolution=Evolution({job.checkpoint!r}, rekeyed={rekeyed})"
    bring("'k0', '2024-01-01 10:00:05', 100L", "'k1', '2024-01-01 10:00:30', 101L")
    pond = job.pond(evolution=Evolution(job.checkpoint, rekeyed=rekeyed))
    rows = latest(pond, "k")
    assert [row.change.value for row in pond.plan(job.checkpoint).rows] == [
        "begins with the rows of others, as declared"
    ]
    assert out(rows) == {("k1", 101)}
    bring("'k1', '2024-01-01 10:00:29', 102L", "'k2', '2024-01-01 10:00:31', 103L")
    assert out(latest(job.pond(), "k")) == {("k2", 103)}

    def total(pond: Millpond, rows: DataFrame) -> DataFrame:
        return pond.aggregate(rows, {"a": aggregates.sum("a")}, by="k", time="at", name="total")

    with pytest.raises(StateConflictError, match=r"rekeyed names the verb 'total', .* pond\.backfill\(\)"):
        total(job.pond(evolution=Evolution(job.checkpoint, rekeyed={"total": "latest-k"})), job.sides[0])
    pond = job.pond(evolution=Evolution(job.checkpoint, dropped=["latest-k"]))
    total(pond.backfill(), job.spark.read.parquet(f"{job.place}/in"))
    bring("'k2', '2024-01-01 10:00:40', 1000L")
    assert out(texts(("latest", total(pond, job.sides[0])))) == {("k2", 2 + 9 + 16 + 103 + 1000)}
