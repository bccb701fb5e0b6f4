"""``Pond`` gives what ``Millpond`` gives of static DataFrames."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from millpond import Pond
from millpond.adapters.spark import Millpond
from millpond.adapters.tables import ParquetTable
from millpond.processors import TimeWindows
from millpond.processors.verbs import KeyContext, KeyedProcessor, Timer
from millpond.processors.verbs import aggregates as agg

pytestmark = pytest.mark.spark

START = datetime(2026, 6, 1, 12, tzinfo=UTC)
LEFT = [(key, START + timedelta(seconds=second), second) for second, key in enumerate(["x", "y", None, "x", "x", "y"])]
RIGHT = [(key, START + timedelta(seconds=second), second) for key, second in [("x", 1), ("x", 4), ("y", 9), (None, 2)]]


class Quiet(KeyedProcessor):
    """Tells of each key how many rows had come whenever nothing comes for two seconds."""

    def process(self, key: Any, row: Mapping[str, Any], context: KeyContext) -> None:
        context.state.set(context.state.get(0) + 1)
        context.set_timer("2 seconds")

    def on_timer(self, key: Any, timer: Timer, context: KeyContext) -> list[dict[str, Any]]:
        return [{"k": key, "n": context.state.get(), "at": context.time}]


def answers(
    pond: Any, left: Any, right: Any, table: ParquetTable, field: Callable[[str], Any], results: Any
) -> dict[str, Any]:
    """Return what verbs give; ``field`` makes an expression of a column, ``results`` are the columns of ``Quiet``."""
    times = {"some": "t", "others": "u"}
    sides: dict[str, Any] = {"on": "k", "left_time": "t", "right_time": "u"}
    calls = {"n": agg.count(), "s": agg.sum("a"), "l": agg.last("a")}
    near = {**sides, "history": "1 hour", "how": "left", "where": field("b") <= field("a")}
    own: dict[str, Any] = {"before": field("a") * 1000, "after": "1 second", "at_most": "1 minute"}
    keys = pond.latest(left, key="k", time="t", history="1 hour").select(["k", "op", "sequence", "change_time"])
    return {
        "keys alone": pond.latest(keys, key="k", time="change_time", history="1 hour", name="keys"),
        "apply": pond.apply(left, Quiet(), key="k", time="t", schema=results, lateness=0),
        "latest": pond.latest(left, key="k", time="t", history="1 hour"),
        "aggregate": pond.aggregate(left, calls, by="k", time="t", window=TimeWindows("3 seconds"), emit="final"),
        "asof_join": pond.asof_join(left, right, **sides, history="1 hour", how="left"),
        "where": pond.asof_join(left, right, **near),
        "next": pond.asof_join(left, right, **near, otherwise="next", tolerance="5 seconds", name="next"),
        "stream_join": pond.stream_join(left, right, **sides, within="2 seconds", how="outer"),
        "own bounds": pond.stream_join(left, right, **sides, **own),
        "top_n": pond.top_n(left, 2, by="k", order=["a", "t"], descending=[True, False], time="t"),
        "deduplicate": pond.deduplicate(left, key="k", time="t", within="3 seconds", grace="1 minute"),
        "over": pond.over(left, {**calls, "p": agg.lag("a")}, key="k", time="t", last=2),
        "table_join": pond.table_join(left, right, **sides, how="left"),
        "multi_join": pond.multi_join({"some": left, "others": right}, on="k", time=times, how="outer"),
        "lookup_join": pond.lookup_join(left, table, **sides, how="left"),
    }


def plain(table: pa.Table) -> list[str]:
    """Return the rows, without the numbers of changes, which tasks count each for themselves."""
    names = [name for name in table.column_names if name != "sequence"]
    return sorted(repr([_micros(row[name]) for name in names]) for row in table.to_pylist())


def _micros(value: Any) -> Any:
    if isinstance(value, dict):
        return [_micros(one) for one in value.values()]
    return (value - START) // timedelta(microseconds=1) if isinstance(value, datetime) else value


def test_it_gives_what_millpond_gives_of_static_dataframes(spark: SparkSession, tmp_path: Path) -> None:
    left = spark.createDataFrame(LEFT, "k string, t timestamp, a long")
    right = spark.createDataFrame(RIGHT, "k string, u timestamp, b long")
    millpond = Millpond(application_id="static", state_dir=f"{tmp_path}/state", backend="memory", partitions=2)
    (tmp_path / "table").mkdir()
    pq.write_table(right.toArrow(), tmp_path / "table" / "right.parquet")
    table = ParquetTable(tmp_path / "table")
    text: pa.DataType = pa.string()
    made = answers(millpond, left, right, table, F.col, "k string, n long, at timestamp")
    there = {name: rows.toArrow() for name, rows in made.items()}
    results = pa.schema([("k", text), ("n", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    here = answers(Pond(), left.toArrow(), right.toArrow(), table, pc.field, results)
    assert {name: table.column_names for name, table in here.items()} == {
        name: table.column_names for name, table in there.items()
    }
    assert {name: plain(table) for name, table in here.items()} == {name: plain(table) for name, table in there.items()}
