"""Building a query writes nothing: what lasts is written with its first row, and refused then if another came first."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millpond.adapters.spark import Millpond, SparkStreams
from millpond.errors import ConfigurationError, DurabilityError, StateConflictError
from millpond.processors import SessionWindows, TimeWindows
from millpond.processors.verbs import KeyContext, KeyedProcessor, aggregates
from millpond.stores.durability import Storage
from tests.spark import small_query

pytestmark = pytest.mark.spark


class PassOn(KeyedProcessor):
    """Each row as it comes."""

    def process(self, key: Any, row: Mapping[str, Any], context: KeyContext) -> Iterator[dict[str, Any]]:
        yield {"a": row["a"]}


ASOF: dict[str, Any] = {"on": "k", "left_time": "at", "right_time": "since", "history": "1 hour"}
TIMES: dict[str, Any] = {"left_time": "at", "right_time": "since"}

Verb = Callable[[Millpond, DataFrame, DataFrame], DataFrame]
VERBS: dict[str, Verb] = {
    "asof_join": lambda pond, left, right: pond.asof_join(left, right, **ASOF),
    "asof_join with all": lambda pond, left, right: pond.asof_join(
        left, right, how="left", grace="1 minute", tolerance="1 minute", right_order="b", name="asof-all", **ASOF
    ),
    "stream_join": lambda pond, left, right: pond.stream_join(left, right, on="k", within="1 minute", **TIMES),
    "table_join": lambda pond, left, right: pond.table_join(left, right, on="k", history="1 hour", **TIMES),
    "table_join by foreign key": lambda pond, left, right: pond.table_join(
        left, right, on="k", left_key="a", how="left", name="by-foreign-key", **TIMES
    ),
    "latest": lambda pond, left, _: pond.latest(left, key="k", time="at", history=0, order="a"),
    "aggregate": lambda pond, left, _: pond.aggregate(left, {"s": aggregates.sum("a")}, by="k", time="at"),
    "aggregate of windows": lambda pond, left, _: pond.aggregate(
        left,
        {"s": aggregates.first(F.col("a") + 1)},
        by="k",
        time="at",
        order="a",
        window=TimeWindows("1 hour", grace=0),
        emit="final",
        name="windows",
    ),
    "aggregate of sessions": lambda pond, left, _: pond.aggregate(
        left, {"n": aggregates.count()}, by="k", time="at", window=SessionWindows("1 hour", grace=0), name="sessions"
    ),
    "apply": lambda pond, left, _: pond.apply(left, PassOn(), key="k", time="at", schema="a bigint", lateness=0),
}


def pond(place: Path) -> Millpond:
    return Millpond(application_id="job", state_dir=str(place), partitions=1, backend="lmdb")


@pytest.fixture
def sides(spark: SparkSession, tmp_path: Path) -> tuple[DataFrame, DataFrame]:
    rows = spark.sql("select 'x' as k, timestamp'2024-01-01 10:00' as at, 1L as a")
    rows.coalesce(1).write.parquet(f"{tmp_path}/in")
    left = spark.readStream.schema(rows.schema).parquet(f"{tmp_path}/in")
    return left, left.selectExpr("k", "at as since", "a as b")


def content(place: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() if path.is_file() else b"" for path in place.rglob("*")}


def run(rows: DataFrame, checkpoint: Path) -> None:
    writer = rows.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()


@contextmanager
def unreachable() -> Iterator[None]:
    """The driver reaches no state meanwhile."""

    def refuse(self: Storage, directory: str) -> Any:
        raise DurabilityError("no route")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Storage, "_entries", refuse)
        yield


def together(queries: list[DataFrame]) -> DataFrame:
    """Return all of them as one."""
    return reduce(DataFrame.unionAll, (rows.select(F.lit(1)) for rows in queries))


def built(place: Path, sides: tuple[DataFrame, DataFrame]) -> list[DataFrame]:
    verbs = pond(place)
    return [make(verbs, *sides) for make in VERBS.values()]


def transformed(place: Path, rows: DataFrame) -> DataFrame:
    streams = SparkStreams(small_query.topology, application_id="job", state_dir=str(place), partitions=1)
    return streams.transform({"numbers": rows.selectExpr("k as key", "a as value", "unix_millis(at) as timestamp")})


@pytest.mark.first
def test_building_any_verb_or_topology_leaves_no_trace(sides: tuple[DataFrame, DataFrame], tmp_path: Path) -> None:
    state = tmp_path / "state"
    for name, make in VERBS.items():
        make(pond(state), *sides)
        assert content(state) == {}, name
    with pytest.raises(ConfigurationError):
        pond(state).latest(sides[0], key="nothing", time="at", history=0)
    transformed(state, sides[0])
    assert not state.exists()


def test_building_over_state_leaves_it_as_it_is_whatever_the_columns_are(
    sides: tuple[DataFrame, DataFrame], tmp_path: Path
) -> None:
    state, (left, right) = tmp_path / "state", sides
    run(together([VERBS[verb](pond(state), *sides) for verb in ("asof_join", "latest")]), tmp_path / "checkpoint")
    run(transformed(state, left), tmp_path / "topology")
    before = content(state)
    assert {path.name for path in before} >= {"input-schema-1.json", "right-key-schema-1.json", "000000.json"}
    more = F.when(F.col("k") == "x", "more")
    wider = left.withColumn("more", more), right.withColumn("still", more)
    built(state, wider)
    transformed(state, left)
    for changed in (left.withColumnRenamed("a", "c"), left.withColumn("a", F.lit("text"))):
        with pytest.raises(StateConflictError):
            pond(state).latest(changed, key="k", time="at", history=0, order="a" if "a" in changed.columns else "c")
    assert content(state) == before
    run(VERBS["latest"](pond(state), *wider), tmp_path / "another")
    assert {path.name for path in content(state).keys() - before.keys()} >= {"input-schema-2.json"}


def test_of_two_queries_with_different_columns_the_one_that_runs_first_goes_on(
    sides: tuple[DataFrame, DataFrame], tmp_path: Path
) -> None:
    state, (left, _) = tmp_path / "state", sides
    one, other = (VERBS["latest"](pond(state), rows, rows) for rows in (left, left.withColumn("a", F.lit("text"))))
    run(one, tmp_path / "one")
    before = content(state)
    with pytest.raises(StreamingQueryException, match="build the query again, and start one after the other"):
        run(other, tmp_path / "other")
    assert content(state) == before


@pytest.mark.long
def test_a_query_that_was_built_without_its_state_at_hand_compares_when_it_runs(
    sides: tuple[DataFrame, DataFrame], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    state, text = tmp_path / "state", sides[0].withColumn("a", F.lit("text"))
    with unreachable():
        verbs, streams = dict(zip(VERBS, built(state, sides), strict=True)), transformed(state, sides[0])
        changed = VERBS["latest"](pond(state), text, text)
    assert "is built without a look at its state: no route" in caplog.text
    run(together([verbs["latest"], streams]), tmp_path / "checkpoint")
    before = content(state)
    with pytest.raises(StreamingQueryException, match="build the query again"):
        run(changed, tmp_path / "changed")
    assert content(state) == before
    with unreachable():
        again = VERBS["latest"](pond(state), *sides)
    run(again, tmp_path / "again")
