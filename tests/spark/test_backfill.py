"""A query begins with the state of a backfill, and goes on as one that has read everything."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, SparkSession
from pyspark.taskcontext import TaskContext

from millpond.adapters.spark import Checkpoint, Evolution, SparkStreams
from millpond.adapters.spark.copies.upkeep import QueryState
from millpond.errors import ConfigurationError, StateConflictError
from millpond.processors import (
    Consumed,
    EmitStrategy,
    Grouped,
    JoinWindows,
    Materialized,
    Produced,
    Repartitioned,
    StreamsBuilder,
    TimeWindows,
    Topology,
)
from millpond.stores.backend.registry import supplier
from millpond.stores.durability import Storage
from millpond.stores.evolution.backfilling import Attempt
from millpond.stores.testing import Fault, FaultPlan, FaultySupplier, Step
from tests.spark.conftest import RunStream
from tests.spark.killable_backfill import MOMENTS, history, streams
from tests.spark.orders import SCHEMAS, expected_totals, random_events, rated_orders, read_files, totals, write_file

pytestmark = pytest.mark.spark

DDL = "key string, value string, timestamp long"
JOB = Path(__file__).with_name("killable_backfill.py")


def orders(spark: SparkSession, events: Sequence[Any]) -> dict[str, DataFrame]:
    """Return events as static DataFrames."""
    return {
        topic: spark.createDataFrame([row for name, row in events if name == topic], ddl).coalesce(1)
        for topic, ddl in SCHEMAS.items()
    }


def files(directory: Path) -> list[str]:
    return sorted(str(path) for path in directory.rglob("*") if path.is_file())


def dying_at_first() -> Callable[[Step], Fault | None]:
    """Return a plan that kills the worker of each first attempt at a task, with its durable file and a copy written."""

    def choose(step: Step) -> Fault | None:
        context = TaskContext.get()
        first = context is not None and context.attemptNumber() == 0
        return Fault.DEATH if step is Step.BACKEND_WRITTEN and first else None

    return choose


@pytest.mark.slow
@pytest.mark.long
def test_a_chain_of_operators_goes_on_where_its_backfill_ended_although_each_task_was_run_twice(
    spark: SparkSession, tmp_path: Path, run_stream: RunStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = random_events(5, 300)
    first, rest = events[:200], events[200:]
    write_file(tmp_path / "in", 0, rest)
    state = tmp_path / "state"

    def job(backend: Any = "lmdb", **options: Any) -> SparkStreams:
        places: dict[str, Any] = {"state_dir": str(state), "local_dir": str(tmp_path / "local")}
        return SparkStreams(rated_orders(), application_id="job", backend=backend, **places, **options)

    def stream(**options: Any) -> DataFrame:
        return job(**options).transform(read_files(spark, tmp_path / "in"), sink="totals")

    def die(*_: object) -> None:
        raise OSError("killed before the record")

    with monkeypatch.context() as patch:
        patch.setattr(Attempt, "keep", die)
        with pytest.raises(OSError, match="killed before the record"):
            job().backfill(orders(spark, first), sink="totals")
    with pytest.raises(StateConflictError, match="whose backfill for 'totals' has begun and has not come to its end"):
        stream()

    flaky = FaultySupplier(supplier("lmdb"), FaultPlan(dying_at_first()))
    found = job(flaky).backfill(orders(spark, first), sink="totals")
    assert totals(map(tuple, found.collect())) == expected_totals(first)
    before = files(state)
    again = job().backfill(orders(spark, []), sink="totals")
    assert sorted(map(tuple, again.collect())) == sorted(map(tuple, found.collect()))
    assert files(state) == before

    rows = stream(evolution=Evolution(f"{tmp_path}/checkpoint"), partitions=3)
    assert again.schema == rows.schema
    told = [*map(tuple, again.collect()), *run_stream(rows)]
    assert totals(told) == expected_totals(events)

    query = QueryState(Checkpoint(spark, f"{tmp_path}/checkpoint"), Storage.from_uri(state))
    (repairs,) = [list(query.repairs(query.verify(), orphans=True))]
    assert {repair.what.rpartition(", ")[2] for repair in repairs} == {
        "which a backfill has left that did not come to its end"
    }
    for repair in repairs:
        repair.do()
    assert not list(query.repairs(query.verify(), orphans=True))
    assert totals(map(tuple, again.collect())) == expected_totals(first)
    assert query.verify().sound


TOPICS = ("words", "rows", "others", "left", "right")


def kinds() -> Topology:
    """Return operators in which something waits, joins of tables, and tasks behind others, on all backends."""
    builder = StreamsBuilder()
    words = builder.stream("words", Consumed("string", "string"))
    backends = {"rows": "rocksdb", "others": "memory", "left": "lmdb", "right": "rocksdb"}
    rows, others, left, right = (
        builder.table(name, Consumed("string", "string"), Materialized(name, backend=backend))
        for name, backend in backends.items()
    )
    final = words.group_by_key().windowed_by(TimeWindows(50, grace=20)).emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
    upper, near = words.map_values(str.upper), JoinWindows.of(15, grace=10)
    letters = words.group_by(lambda _, word: word[0], Grouped("string", "string")).count(Materialized("letters"))
    outputs = [
        final.count(Materialized("windows")).to_stream().map(lambda key, n: (key.key, f"window {key.start} {n}")),
        words.left_join(upper, lambda one, other: f"pair {one}{other}", windows=near),
        rows.join(others, lambda row, other: f"tables {row} {other}", Materialized("joined")).to_stream(),
        left.join(right, lambda row, other: f"foreign {row} {other}", foreign_key=FOREIGN.get).to_stream(),
        letters.to_stream().map_values(lambda count: f"letter {count}"),
    ]
    apart = [stream.repartition(Repartitioned("string", "string")) for stream in outputs]
    for stream in apart[1:]:
        apart[0] = apart[0].merge(stream)
    apart[0].to("out", Produced(schema="key string, value string, timestamp long"))
    return builder.build()


FOREIGN = {"x": "a", "y": "b", "z": "c"}


@pytest.mark.long
def test_what_waits_in_a_backfill_comes_out_of_the_stream(
    spark: SparkSession, tmp_path: Path, run_stream: RunStream
) -> None:
    first = [(key, word, at) for at, (key, word) in enumerate(zip("abcab" * 12, "xyxzzyx" * 9, strict=False))]
    rest = [(key, word, at + 60) for key, word, at in first[:40]]
    for number, some in enumerate((first, rest)):
        spark.createDataFrame(some, DDL).coalesce(1).write.parquet(f"{tmp_path}/{number}")

    def job(name: str) -> SparkStreams:
        return SparkStreams(kinds(), application_id=name, state_dir=f"{tmp_path}/state", partitions=2)

    def streamed(name: str, place: str) -> list[tuple[Any, ...]]:
        rows = spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).parquet(f"{tmp_path}/{place}")
        out = job(name).transform(dict.fromkeys(TOPICS, rows))
        return run_stream(out, out=f"out-{name}", checkpoint=f"checkpoint-{name}")

    static = dict.fromkeys(TOPICS, spark.read.parquet(f"{tmp_path}/0").coalesce(1))
    told = list(map(tuple, job("backfilled").backfill(static).collect()))
    then = streamed("backfilled", "1")
    assert {value.partition(" ")[0] for _, value, _ in told} == {"pair", "tables", "foreign", "letter"}
    assert {value for _, value, _ in then if value.startswith("window 0")} == {"window 0 20", "window 0 10"}
    write_in_turn(tmp_path)
    assert sorted([*told, *then]) == streamed("always", "all")


def write_in_turn(directory: Path) -> None:
    """Write the files of both parts into one directory, where Spark reads them one after the other."""
    (directory / "all").mkdir()
    for number in range(2):
        (source,) = (directory / str(number)).glob("*.parquet")
        target = directory / "all" / f"{number}.parquet"
        target.write_bytes(source.read_bytes())
        os.utime(target, (1_000_000_000 + number, 1_000_000_000 + number))


def counts() -> Topology:
    builder = StreamsBuilder()
    words = builder.stream("words", Consumed("string", "string")).group_by_key()
    counted = words.count(Materialized("counts"))
    counted.to_stream().to("totals", Produced(schema="key string, value long, sequence long"))
    builder.stream("plain", Consumed("string", "string")).to("copies", Produced(schema="key string, value string"))
    return builder.build()


@pytest.mark.slow
def test_seeds_come_before_a_backfill_and_its_results_go_where_the_user_says(
    spark: SparkSession, tmp_path: Path, run_stream: RunStream
) -> None:
    seeds = {"counts": spark.createDataFrame([("a", 100, 1), ("s", 7, 1)], "key string, value long, timestamp long")}
    options: dict[str, Any] = {"application_id": "seeded", "state_dir": f"{tmp_path}/state", "backend": "memory"}
    streams = SparkStreams(counts(), seeds=seeds, **options)
    words = spark.createDataFrame([("a", "", 2), ("b", "", 3)], DDL)
    told = streams.backfill({"words": words}, sink="totals", results=f"{tmp_path}/results")
    before = sorted(map(tuple, told.collect()))
    assert [row[:2] for row in before] == [("a", 101), ("b", 1)]
    assert not (tmp_path / "state/seeded/backfill").exists()
    spark.createDataFrame([(key, "", 9) for key in "abs"], DDL).coalesce(1).write.parquet(f"{tmp_path}/in")
    stream = spark.readStream.schema(DDL).parquet(f"{tmp_path}/in")
    rows = streams.transform({"words": stream}, sink="totals")
    after = run_stream(rows)
    assert [row[:2] for row in after] == [("a", 102), ("b", 2), ("s", 8)]
    assert max(row[2] for row in before) < min(row[2] for row in after)
    with pytest.raises(ConfigurationError, match=r"results are not at .*take backfill out: the state is there"):
        streams.backfill({"words": words}, sink="totals")


def test_backfills_that_make_no_sense_are_refused_and_leave_nothing(
    spark: SparkSession, tmp_path: Path, run_stream: RunStream
) -> None:
    streams = SparkStreams(counts(), application_id="job", state_dir=f"{tmp_path}/state", backend="memory")
    static = spark.createDataFrame([("a", "", 2)], DDL)
    spark.createDataFrame([("a", "", 2)], DDL).write.parquet(f"{tmp_path}/in")
    stream = spark.readStream.schema(DDL).parquet(f"{tmp_path}/in")
    with pytest.raises(ConfigurationError, match="a backfill takes inputs that have an end"):
        streams.backfill({"words": stream}, sink="totals")
    with pytest.raises(ConfigurationError, match="keeps no state for the sink 'copies'"):
        streams.backfill({"plain": static}, sink="copies")
    older = SparkStreams(
        counts(), application_id="job", state_dir=f"{tmp_path}/state", upgrade_from="0.1.0", upgrade_mode="in_place"
    )
    with pytest.raises(ConfigurationError, match=r"release 0\.1\.0 knows no state that was carried over"):
        older.backfill({"words": static}, sink="totals")
    assert not (tmp_path / "state").exists()
    run_stream(streams.transform({"words": stream}, sink="totals"))
    with pytest.raises(StateConflictError, match="that began without a backfill"):
        streams.backfill({"words": static}, sink="totals")


@pytest.mark.long
@pytest.mark.slow
def test_a_driver_that_is_killed_at_any_moment_of_a_backfill_comes_to_the_same_end(
    spark: SparkSession, tmp_path: Path, run_stream: RunStream
) -> None:
    events = random_events(6, 300)
    write_file(tmp_path / "history", 0, events[:200])
    write_file(tmp_path / "in", 0, events[200:])
    for moment in MOMENTS:
        died = subprocess.run([sys.executable, JOB, tmp_path, moment], capture_output=True, text=True, timeout=300)
        assert died.returncode in (9, -signal.SIGKILL), died.stderr
    before = files(tmp_path / "state")
    found = streams(tmp_path).backfill(history(spark, tmp_path), sink="totals").collect()
    assert set(files(tmp_path / "state")) - set(before) == {str(tmp_path / "state/killed/topology-evolved")}
    rows = run_stream(streams(tmp_path).transform(read_files(spark, tmp_path / "in"), sink="totals"))
    assert totals([*map(tuple, found), *rows]) == expected_totals(events)
