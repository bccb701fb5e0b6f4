"""Columns of results are taken apart in workers and put together by Spark, and no value, name or type changes."""

from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from millpond.adapters.spark import Millpond
from millpond.adapters.spark.rows.leaves import Leaves, has_leaves
from millpond.adapters.spark.rows.sink import arrow_schema
from millpond.processors import TimeWindows
from millpond.processors.verbs import aggregates

INNER = T.StructType([T.StructField("x.y", T.DoubleType()), T.StructField("leaf_0", T.StringType())])
COLUMNS = T.StructType([
    T.StructField("leaf_1", T.LongType()),
    T.StructField("pair", T.StructType([T.StructField("a", T.DecimalType(9, 2)), T.StructField("in", INNER)])),
    T.StructField("when", T.TimestampType()),
    T.StructField("millpond_counters", T.BinaryType()),
])  # fmt: skip
ROWS: list[tuple[Any, ...]] = [
    (1, (Decimal("1.50"), (2.0, "x")), datetime(2024, 1, 1, tzinfo=UTC), b"\0"),
    (2, None, None, None),
    (None, (None, None), datetime(1969, 12, 31, tzinfo=UTC), b""),
    (4, (Decimal("0.00"), (None, None)), datetime(2024, 7, 1, tzinfo=UTC), b"z"),
    (5, (None, (float("nan"), "")), None, b"z"),
]


@pytest.mark.parametrize("nested", [False, True])
def test_rows_are_the_same_again(spark: SparkSession, nested: bool) -> None:
    leaves = Leaves(COLUMNS, nested=nested)

    def apart(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            whole = pa.Table.from_batches([batch]).cast(arrow_schema(COLUMNS))
            yield from leaves.taken_apart(whole).to_batches()

    rows = spark.createDataFrame(ROWS, COLUMNS)
    found = leaves.put_together(rows.mapInArrow(apart, leaves.columns))
    assert found.schema == COLUMNS
    assert list(map(repr, sorted(found.collect(), key=repr))) == list(map(repr, sorted(rows.collect(), key=repr)))
    assert len(leaves.columns) == (4 if nested else 8)


@pytest.mark.parametrize(
    "type_",
    [
        T.ArrayType(T.LongType()),
        T.MapType(T.StringType(), T.LongType()),
        T.StructType([T.StructField("x", T.LongType(), nullable=False)]),
        T.StructType([T.StructField("x", T.LongType(), metadata={"of": "a user"})]),
        T.StructType([T.StructField("x", T.ArrayType(T.LongType()))]),
        T.VariantType(),
        T.NullType(),
    ],
    ids=str,
)
def test_what_has_no_leaves_is_known(type_: T.DataType) -> None:
    assert not has_leaves(T.StructType([T.StructField("a", T.LongType()), T.StructField("b", type_)]))


def test_only_results_without_leaves_take_one_more_way_to_python(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    schema = "k string, t timestamp, v long"
    rows = spark.readStream.schema(schema).parquet(str(tmp_path / "rows"))

    def ways(made: DataFrame) -> int:
        plan: str = made._jdf.queryExecution().analyzed().toString()
        return plan.count("MapInArrow")

    pond = Millpond(application_id="leaves", state_dir=str(tmp_path / "state"), backend="memory")
    calls = {"n": aggregates.count(), "most": aggregates.max("v")}
    windows = TimeWindows(60_000)
    assert ways(pond.aggregate(rows, calls, by="k", time="t", name="flat")) == 1
    assert ways(pond.aggregate(rows, calls, by="k", time="t", window=windows, emit="final", name="windows")) == 1
    assert ways(pond.aggregate(rows, {"all": aggregates.collect("v")}, by="k", time="t", name="lists")) == 2
