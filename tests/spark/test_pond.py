"""``Pond`` gives what ``Millpond`` gives of static DataFrames."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from millpond import Pond
from millpond.adapters.spark import Millpond
from millpond.processors import TimeWindows
from millpond.processors.verbs import aggregates as agg

pytestmark = pytest.mark.spark

START = datetime(2026, 6, 1, 12, tzinfo=UTC)
LEFT = [(key, START + timedelta(seconds=second), second) for second, key in enumerate(["x", "y", None, "x", "x", "y"])]
RIGHT = [(key, START + timedelta(seconds=second), second) for key, second in [("x", 1), ("x", 4), ("y", 9), (None, 2)]]


def answers(pond: Any, left: Any, right: Any) -> dict[str, Any]:
    sides: dict[str, Any] = {"on": "k", "left_time": "t", "right_time": "u"}
    calls = {"n": agg.count(), "s": agg.sum("a"), "l": agg.last("a")}
    return {
        "latest": pond.latest(left, key="k", time="t", history="1 hour"),
        "aggregate": pond.aggregate(left, calls, by="k", time="t", window=TimeWindows("3 seconds"), emit="final"),
        "asof_join": pond.asof_join(left, right, **sides, history="1 hour", how="left"),
        "stream_join": pond.stream_join(left, right, **sides, within="2 seconds", how="outer"),
        "table_join": pond.table_join(left, right, **sides, how="left"),
    }


def plain(table: pa.Table) -> list[str]:
    """The rows, without the numbers of changes, which tasks count each for themselves."""
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
    there = {name: rows.toArrow() for name, rows in answers(millpond, left, right).items()}
    here = answers(Pond(), left.toArrow(), right.toArrow())
    assert {name: table.column_names for name, table in here.items()} == {
        name: table.column_names for name, table in there.items()
    }
    assert {name: plain(table) for name, table in here.items()} == {name: plain(table) for name, table in there.items()}
