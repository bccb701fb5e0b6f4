"""Changed code on forks: unchanged, it differs in nothing; a change has its differences, and the original goes on."""

import shutil
import signal
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from millpond.adapters.spark import Evolution, Millpond
from millpond.adapters.spark.continuation.fork import Original
from millpond.adapters.spark.session.session import CHANGELOG_CONF
from millpond.errors import ConfigurationError, StateConflictError
from millpond.processors import TimeWindows
from millpond.processors.calls.reports.what_if import Side
from millpond.processors.verbs import aggregates as agg
from millpond.stores.durability import Storage
from tests.spark import killable_what_if
from tests.spark.apart import run_apart
from tests.spark.test_verbs import Job, job

__all__ = ["job"]

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROWS = "id int, k string, at timestamp, v int"
RATES = "k string, since timestamp, rate int"
PARTS = 3
"""Micro-batches."""

Query = Callable[[Millpond], DataFrame]
Made = Callable[[Millpond, DataFrame, DataFrame], DataFrame]
Drawn = Sequence[tuple[int, str | None, int, int]]


def clock(second: int) -> str:
    return f"2026-01-01 10:{second // 60:02}:{second % 60:02}"


def drawn(random: Random, rows: int) -> Drawn:
    """Return rows in any order, each with its number, key, second and value."""
    keys = ["a", "b", "c", None]
    return [(number, random.choice(keys), random.randrange(120), random.randrange(9)) for number in range(rows)]


def arriving(job: Job, rows: Drawn) -> tuple[DataFrame, DataFrame]:
    """Return these rows in several micro-batches, and rates of two keys."""
    shape = [(number, key, clock(second), value) for number, key, second, value in rows]
    for part in range(PARTS):
        job.arrive("rows", job.rows(ROWS, *shape[part::PARTS]))
    rates = job.rows(RATES, *((key, clock(second), second) for key in "ab" for second in range(0, 120, 17)))
    return job.stream("rows", job.rows(ROWS, shape[0])), job.arrive("rates", rates)


VERBS: Mapping[str, Made] = {
    "priced": lambda pond, rows, rates: pond.asof_join(
        rows, rates, on="k", left_time="at", right_time="since", history="1 hour", grace="20 seconds", how="left",
        name="priced",
    ),
    "windows": lambda pond, rows, _: pond.aggregate(
        rows, {"n": agg.sum("v"), "ids": agg.collect("id")}, by="k", time="at",
        window=TimeWindows("30 seconds", grace="1 minute"), name="windows",
    ),
    "running": lambda pond, rows, _: pond.over(
        rows, {"n": agg.sum("v"), "before": agg.lag("v")}, key="k", time="at", grace="30 seconds", order="id",
        name="running",
    ),
    "first": lambda pond, rows, _: pond.deduplicate(rows, key="k", time="at", within="20 seconds", name="first"),
    "top": lambda pond, rows, _: pond.top_n(rows, 2, by="k", time="at", order="v", name="top"),
    "near": lambda pond, rows, rates: pond.stream_join(
        rows, rates, on="k", left_time="at", right_time="since", within="5 seconds", grace="1 minute", name="near"
    ),
    "newest": lambda pond, rows, _: pond.latest(rows, key="k", time="at", history="1 hour", order="id", name="newest"),
}  # fmt: skip
"""Verbs by what they are called."""


def of_verbs(names: Sequence[str], rows: DataFrame, rates: DataFrame) -> Query:
    """Return a query of some of them, whose results are texts."""

    def query(pond: Millpond) -> DataFrame:
        made = {name: VERBS[name](pond, rows, rates) for name in names}
        shown = [one.select(F.lit(name).alias("verb"), F.to_json(F.struct("*"))) for name, one in made.items()]
        return reduce(DataFrame.unionAll, shown)

    return query


def files_below(directory: Path, *without: str) -> dict[str, bytes]:
    paths = [path for path in directory.rglob("*") if path.is_file()]
    names = {str(path.relative_to(directory)): path for path in paths}
    return {name: path.read_bytes() for name, path in names.items() if not name.startswith(without)}


@pytest.mark.parametrize(
    ("backend", "changelogs", "verbs"),
    [
        ("lmdb", "true", ("priced", "near")),
        pytest.param("rocksdb", "false", ("priced", "running", "first"), marks=pytest.mark.long),
        pytest.param("memory", "true", ("windows", "top", "newest"), marks=pytest.mark.long),
    ],
)
def test_unchanged_code_differs_in_nothing_of_any_verb_and_the_original_stays_as_it_was(
    job: Job, backend: str, changelogs: str, verbs: Sequence[str]
) -> None:
    job.spark.conf.set(CHANGELOG_CONF, changelogs)
    try:
        query, pond = of_verbs(verbs, *arriving(job, drawn(Random(backend), 40))), job.pond(backend=backend)
        job.run(query(pond))
        before = files_below(job.directory)
        found = pond.what_if(query, query, f"{job.directory}/out-checkpoint", f"{job.directory}/forks", after=0)
    finally:
        job.spark.conf.set(CHANGELOG_CONF, "true")
    assert found.equal, str(found)
    assert found.rows.now > 0
    assert (found.after, found.until) == (0, PARTS - 1)
    assert {name.partition(".")[0] for name in found.state} == set(verbs)
    assert all(any(one.now for name, one in found.state.items() if name.startswith(f"{verb}.")) for verb in verbs)
    assert files_below(job.directory, "forks/") == before


@pytest.mark.parametrize(
    "backend", ["lmdb", pytest.param("rocksdb", marks=pytest.mark.long), pytest.param("memory", marks=pytest.mark.long)]
)
def test_a_changed_parameter_has_exactly_its_differences_while_the_original_goes_on(job: Job, backend: str) -> None:
    rows = [row for row in drawn(Random(backend), 30) if row[1] is not None]
    orders, rates = arriving(job, rows)

    def priced(tolerance: str) -> Query:
        how: dict[str, Any] = {"left_time": "at", "right_time": "since", "history": "1 hour", "how": "left"}
        return lambda pond: pond.asof_join(orders, rates, on="k", tolerance=tolerance, name="priced", **how)

    pond = job.pond(backend=backend)
    original = priced("1 hour")(pond)
    place = f"{job.directory}/out"
    query = original.writeStream.option("checkpointLocation", f"{place}-checkpoint").format("parquet").start(place)
    try:
        query.processAllAvailable()
        found = pond.what_if(
            priced("1 hour"), priced("5 seconds"), f"{place}-checkpoint", f"{job.directory}/forks", after=0, key="id"
        )
        late = (99, "b", 119, 1)
        job.arrive("rows", job.rows(ROWS, (99, "b", clock(119), 1)))
        query.processAllAvailable()
    finally:
        query.stop()
    seen = [row for part in range(1, PARTS) for row in rows[part::PARTS]]
    matched = {id_: second - second % 17 for id_, key, second, _ in seen if key in ("a", "b")}
    expected = {id_: matched[id_] for id_, key, second, _ in seen if id_ in matched and second % 17 > 5}
    assert (found.rows.now, found.rows.changed, found.rows.different) == (len(seen), len(seen), len(expected))
    assert {one.key["id"]: one.now["rate"] for one in found.rows.differences if one.now} == expected
    assert {one.changed["rate"] for one in found.rows.differences if one.changed} == {None}
    assert {(one.side, one.columns) for one in found.rows.differences} == {(Side.BOTH, ("since", "rate"))}
    assert all(one.equal for one in found.state.values())
    assert not found.equal
    assert "different  id=" in str(found)
    whole = {row.id: row.rate for row in job.spark.read.schema(original.schema).parquet(place).collect()}
    assert whole == {id_: second - second % 17 if key in ("a", "b") else None for id_, key, second, _ in [*rows, late]}


def test_state_and_results_that_changed_code_adds_are_told_and_what_a_restart_refuses_is_refused(job: Job) -> None:
    rows, _ = arriving(job, [(0, "a", 1, 1), (1, "a", 2, 2), (2, "b", 3, 3), (3, "a", 4, 5)])

    def totals(calls: Mapping[str, Any], name: str = "totals", **given: Any) -> Query:
        return lambda pond: pond.aggregate(rows, calls, by="k", time="at", name=name, **given)

    pond, place = job.pond(), f"{job.directory}/out-checkpoint"
    now = totals({"n": agg.sum("v")})
    job.run(now(pond))
    more = {"n": agg.sum("v"), "most": agg.max("v")}
    evolution = Evolution(place, renamed={"totals": "sums"})
    found = pond.what_if(
        now,
        totals(more, "sums", added=["most"]),
        place,
        f"{job.directory}/added",
        after=1,
        key="k",
        evolution=evolution,
    )
    assert found.rows.columns_changed == ("most",)
    assert (found.rows.only_now, found.rows.only_changed, found.rows.different) == (0, 0, 0)
    (state,) = found.state.items()
    assert state[0] == "sums.aggregate"
    assert (state[1].now, state[1].changed, state[1].columns_changed) == (2, 2, ("most",))
    other = totals({"n": agg.max("v")})
    with pytest.raises(StateConflictError, match="'n'"):
        pond.what_if(now, other, place, f"{job.directory}/refused", after=1, key="k")
    assert "max" not in str(files_below(job.directory / "state").keys())


def test_a_fork_needs_nothing_of_the_original(job: Job) -> None:
    rows, _ = arriving(job, [(0, "a", 1, 1), (1, "b", 2, 2), (2, "a", 3, 3)])

    def totals(pond: Millpond) -> DataFrame:
        return pond.aggregate(rows, {"n": agg.sum("v")}, by="k", time="at", name="totals")

    place, state = job.directory / "out-checkpoint", job.directory / "state"
    job.run(totals(job.pond()))
    fork = Original.of(job.spark, str(place), Storage.from_uri(state), "job", 1).fork(f"{job.directory}/fork")
    shutil.rmtree(place)
    shutil.rmtree(state)
    found: list[tuple[str, int]] = []
    again = totals(job.pond(state_dir=fork.state_dir)).select("k", "n")
    writer = again.writeStream.foreachBatch(lambda batch, _: found.extend(map(tuple, batch.collect())))
    writer.option("checkpointLocation", fork.checkpoint).trigger(availableNow=True).start().awaitTermination()
    assert found == [("a", 4)]


def test_what_cannot_be_forked_is_refused_with_what_to_give(job: Job) -> None:
    rows, rates = arriving(job, [(0, "a", 1, 1), (1, "a", 2, 2), (2, "b", 3, 3), (3, "a", 4, 5)])

    def totals(pond: Millpond) -> DataFrame:
        return pond.aggregate(rows, {"n": agg.sum("v")}, by="k", time="at", name="totals")

    pond, place, forks = job.pond(), f"{job.directory}/out-checkpoint", f"{job.directory}/forks"
    job.run(totals(pond))

    def refused(words: str, changed: Query = totals, **given: Any) -> None:
        how: dict[str, Any] = {"checkpoint": place, "into": forks, "after": 1, "key": "k"}
        with pytest.raises(ConfigurationError, match=words):
            pond.what_if(totals, changed, **how | given)
        shutil.rmtree(forks, ignore_errors=True)

    refused("no micro-batch 7, only 0 to 2", after=7)
    refused("is the last one .* give after=... an earlier one, from 0 on", after=2)
    refused("within the checkpoint or the state directory", into=f"{job.directory}/state/forks")
    (job.directory / "forks" / "now").mkdir(parents=True)
    refused("something already exists at .*forks/now; delete it")
    refused("leave into=... out", evolution=Evolution(place, into=f"{place}-2"))
    refused("made with another Millpond; have it call", changed=lambda _: totals(job.pond()))
    refused("a static DataFrame; have it call", changed=lambda some: totals(some).sparkSession.range(1))
    refused("a change feed", key=())
    refused(
        "reads 2 sources, and the checkpoint has micro-batches of 1",
        changed=lambda some: some.asof_join(
            totals(some), rates, on="k", left_time="change_time", right_time="since", history="1 hour", name="more"
        ),
    )


@pytest.mark.long
@pytest.mark.parametrize(("backend", "fatal"), [("lmdb", 1), ("rocksdb", 2), ("memory", 3)])
def test_a_kill_in_the_middle_leaves_the_original_as_it_was(job: Job, backend: str, fatal: int) -> None:
    rows = [(0, "a", 1, 1), (1, "a", 2, 2), (2, "b", 3, 3), (3, "a", 4, 5)]
    arriving(job, rows)
    pond = killable_what_if.pond(job.directory, backend)
    job.run(killable_what_if.totals(pond, job.spark, job.directory))
    before = files_below(job.directory)
    script = str(Path(killable_what_if.__file__))
    assert run_apart(job.directory / "log", script, str(job.directory), backend, str(fatal)) == -signal.SIGKILL
    assert files_below(job.directory, "forks/", "log") == before
    assert (job.directory / "forks" / ("now" if fatal < PARTS - 1 else "changed")).exists()
    job.arrive("rows", job.rows(ROWS, (4, "b", clock(5), 7)))
    again = killable_what_if.totals(killable_what_if.pond(job.directory, backend), job.spark, job.directory)
    job.run(again)
    found = job.spark.read.schema(again.schema).parquet(f"{job.directory}/out").orderBy("sequence").collect()
    assert {row.k: row.n for row in found} == {"a": 8, "b": 10}
