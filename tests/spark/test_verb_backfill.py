"""Verbs on streams begin with the state of their backfills, and go on as those that have read everything."""

import signal
import subprocess
import sys
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millpond.adapters.spark import Millpond
from millpond.errors import ConfigurationError, StateConflictError
from millpond.processors import TimeWindows
from millpond.processors.verbs import aggregates
from millpond.stores.evolution.backfilling import Attempt
from tests.spark.conftest import RunStream
from tests.spark.killable_backfill import MOMENTS, VERBS, history, pond, rated, sums
from tests.spark.orders import random_events, read_files, write_file
from tests.spark.test_backfill import JOB, files

pytestmark = pytest.mark.spark

Frames = dict[str, DataFrame]


def verbs(some: Millpond, inputs: Frames) -> DataFrame:
    """Return a chain of verbs and one beside it, in which rows wait; the rows that come out, as text."""
    orders = inputs["orders"].withColumn("at", F.timestamp_seconds("at"))
    rates = inputs["rates"].select("who", F.timestamp_seconds("at").alias("since"), "rate")
    results = {
        "windows": some.aggregate(
            rated(some, inputs), {"orders": aggregates.count()}, by="item", time="at", emit="final", name="windows",
            window=TimeWindows("2 minutes", grace="1 minute"),
        ),
        "pairs": some.stream_join(
            orders, rates, on={"customer": "who"}, left_time="at", right_time="since", within="30 seconds", how="left",
            grace="1 minute", name="pairs",
        ),
    }  # fmt: skip
    shown = [rows.select(F.lit(name), F.to_json(F.struct("*"))) for name, rows in results.items()]
    return reduce(DataFrame.union, shown)


def turned(inputs: Frames) -> Frames:
    """Return the same rows, the last one first."""
    return {name: rows.orderBy(F.desc("at")).coalesce(1) for name, rows in inputs.items()}


@pytest.mark.long
def test_what_waits_in_verbs_comes_out_of_the_stream_and_a_backfill_that_died_between_verbs_goes_on(
    spark: SparkSession, tmp_path: Path, run_stream: RunStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = random_events(7, 240)
    parts = [events[:160], events[160:]]
    for directory, given in (("history", parts[:1]), ("rest", parts[1:]), ("all", parts)):
        for number, part in enumerate(given):
            write_file(tmp_path / directory, number, part)
    first, kept = turned(history(spark, tmp_path)), list[Attempt]()

    def die_at_the_second(attempt: Attempt, manifests: Any) -> Any:
        kept.append(attempt)
        if len(kept) == 2:
            raise OSError("killed before the record")
        return keep(attempt, manifests)

    keep = Attempt.keep
    with monkeypatch.context() as patch:
        patch.setattr(Attempt, "keep", die_at_the_second)
        with pytest.raises(OSError, match="killed before the record"):
            verbs(pond(tmp_path / "job").backfill(), first)
    live = read_files(spark, tmp_path / "rest")
    with pytest.raises(StateConflictError, match="whose backfill for 'windows' has begun and has not come to its end"):
        verbs(pond(tmp_path / "job"), live)
    before = files(tmp_path / "job/state/killed.rated")
    told = sorted(map(tuple, verbs(pond(tmp_path / "job").backfill(), first).collect()))
    assert files(tmp_path / "job/state/killed.rated") == before, "what has come to its end is not run again"
    assert {name for name, _ in told} == {"windows", "pairs"}
    rest = run_stream(verbs(pond(tmp_path / "job"), live))
    always = run_stream(verbs(pond(tmp_path / "always"), read_files(spark, tmp_path / "all")), out="o", checkpoint="c")
    assert sorted([*told, *rest]) == always


def test_a_backfill_of_a_verb_is_done_once_and_what_makes_no_sense_is_refused_and_leaves_nothing(
    spark: SparkSession, tmp_path: Path, run_stream: RunStream
) -> None:
    def rows(*values: int) -> DataFrame:
        return spark.createDataFrame([(value,) for value in values], "n int").selectExpr(
            "n % 2 as odd", "n", "timestamp_seconds(n) as at"
        )

    def sums_of(some: Millpond, given: DataFrame, name: str = "sums") -> DataFrame:
        return some.aggregate(given, {"n": aggregates.sum("n")}, by="odd", time="at", name=name)

    def newest(some: Millpond, given: DataFrame) -> DataFrame:
        return some.latest(given, key="odd", time="at", history="1 day", name="newest")

    def pairs(found: DataFrame) -> list[tuple[Any, ...]]:
        return sorted(map(tuple, found.select("odd", "n").collect()))

    whole = Millpond(application_id="job", state_dir=f"{tmp_path}/state", backend="memory", partitions=2)
    rows(7, 8).coalesce(1).write.parquet(f"{tmp_path}/in")
    stream = spark.readStream.schema(rows(1).schema).parquet(f"{tmp_path}/in")
    past = whole.backfill(results=f"{tmp_path}/results")
    refused: list[tuple[Callable[[], Any], str]] = [
        (lambda: newest(past, stream), "a backfill takes inputs that have an end, and those of the verb 'newest' are"),
        (lambda: whole.backfill(complete=stream), "complete is a streaming DataFrame; give a static one"),
        (lambda: newest(past, rows(1).withColumn("none", F.lit(None))), r"'newest': column 'none' is of type void"),
    ]
    for wrong, message in refused:
        with pytest.raises(ConfigurationError, match=message):
            wrong()
    assert not list((tmp_path / "state").rglob("evolution"))

    done = newest(past, rows(1, 3, 4))
    assert pairs(done) == [(0, 4), (1, 1), (1, 3)]
    assert (tmp_path / "results/newest").is_dir()
    with pytest.raises(ConfigurationError, match="has a verb called 'newest' already"):
        newest(past, rows(1))
    with pytest.raises(ConfigurationError, match="'newest' was made for its backfill, which commits nothing"):
        past.read_store("newest", "latest", f"{tmp_path}/checkpoint")
    there = files(tmp_path / "state")
    again = newest(whole.backfill(results=f"{tmp_path}/results"), rows(9).withColumn("n", F.lit("other columns")))
    assert pairs(again) == pairs(done)
    assert files(tmp_path / "state") == there
    with pytest.raises(ConfigurationError, match=r"results are not at .*take backfill out: the state is there"):
        newest(whole.backfill(), rows(1))

    assert [row[:2] for row in run_stream(newest(whole, stream))] == [(0, 8), (1, 7)]
    kept = whole.read_store("newest", "latest", f"{tmp_path}/checkpoint")
    assert pairs(kept) == sorted([*pairs(done), (0, 8), (1, 7)])
    run_stream(sums_of(whole, stream), out="sums", checkpoint="sums-checkpoint")
    there = files(tmp_path / "state")
    with pytest.raises(StateConflictError, match="'sums', that began without a backfill, so this one"):
        sums_of(whole.backfill(), rows(1).withColumn("n", F.lit("not a number")))
    assert files(tmp_path / "state") == there
    out = sums_of(whole.backfill(complete=spark.range(1)), rows(5, 6), "more sums")
    assert pairs(out) == [(0, 6), (1, 5)]


@pytest.mark.exhaustive
@pytest.mark.long
@pytest.mark.slow
def test_a_driver_that_is_killed_at_any_moment_of_the_backfills_of_verbs_comes_to_the_same_end(
    spark: SparkSession, tmp_path: Path, run_stream: RunStream
) -> None:
    events = random_events(8, 240)
    write_file(tmp_path / "history", 0, events[:160])
    write_file(tmp_path / "in", 0, events[160:])
    (tmp_path / "killed").mkdir()
    (tmp_path / "killed/history").symlink_to(tmp_path / "history")
    for verb in VERBS:
        for moment in MOMENTS:
            given: list[str | Path] = [sys.executable, JOB, tmp_path / "killed", moment, verb]
            died = subprocess.run(given, capture_output=True, text=True, timeout=300)
            assert died.returncode in (9, -signal.SIGKILL), died.stderr

    def whole(directory: Path) -> list[list[tuple[Any, ...]]]:
        matched = rated(pond(directory).backfill(), history(spark, tmp_path))
        found = sums(pond(directory).backfill(), matched).drop("sequence")
        live = sums(some := pond(directory), rated(some, read_files(spark, tmp_path / "in"))).drop("sequence")
        then = run_stream(live, out=f"{directory.name}-out", checkpoint=f"{directory.name}-checkpoint")
        return [*(sorted(map(tuple, rows.collect())) for rows in (matched, found)), then]

    after = whole(tmp_path / "killed")
    assert all(after)
    assert after == whole(tmp_path / "undisturbed")
