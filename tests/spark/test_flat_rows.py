"""Rows reach workers as flat columns, and workers see what an input is made of: no value, name or type changes."""

from collections.abc import Iterator
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from millpond.adapters.spark.rows.flat_rows import FlatRows
from millpond.adapters.spark.verbs.frame_rows import FrameRows
from millpond.adapters.spark.verbs.frames.inputs import RowInput
from millpond.processors.distribution.exchange import to_ipc
from millpond.processors.verbs import aggregates as agg

SCHEMA = (
    "k string, `x.y` long, timestamp timestamp, key struct<a: int, in: struct<b: string>>, tags array<string>, "
    "counts map<string, bigint>, local timestamp_ntz, day date, op string, column_0 int"
)


@pytest.fixture
def rows(spark: SparkSession) -> DataFrame:
    """Return rows whose columns have names that are also ours."""
    local = datetime(2024, 2, 29, 12, 30, 0, 1)
    whole = ("a", 1, local.replace(tzinfo=UTC), (1, ("b",)), ["t", None], {"n": 1}, local, local.date(), "upsert", 7)
    first: tuple[Any, ...] = (
        "b",
        None,
        datetime(1960, 1, 1, tzinfo=UTC),
        (None, None),
        [],
        {},
        datetime(1, 1, 1),
        date(1, 1, 1),
    )
    found = spark.createDataFrame([whole, (*first, "delete", 0), (None,) * 10], SCHEMA)
    return found.withColumn("months", F.expr("make_ym_interval(1, column_0)")).coalesce(1)


def seen(rows: FlatRows) -> pa.Table:
    """Return what a function in workers gets."""

    def packed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.RecordBatch.from_arrays([pa.array([to_ipc(pa.table(batch))])], ["blob"])

    blobs = rows.in_workers(packed, "blob binary").collect()
    return pa.concat_tables(pa.ipc.open_stream(one.blob).read_all() for one in blobs)


def struct(*names: str) -> Column:
    """Return columns in one, as Spark makes it."""
    months = (F.col("column_0") + 12).alias("months")
    return F.struct(*(months if name == "months" else F.col(f"`{name}`") for name in names))


@pytest.mark.parametrize("to_driver", [False, True])
def test_workers_see_what_spark_would_have_made(rows: DataFrame, to_driver: bool) -> None:
    values = ["k", "x.y", "timestamp", "key", "tags", "counts", "day", "months", "column_0"]
    read = RowInput(
        "rows", rows, ["k", "key"], values, "timestamp", F.col("op"), ["x.y", "column_0"], F.col("column_0") * 2
    )
    flat = read.selected()
    parts = {
        "key": struct("k", "key"),
        "value": struct(*values),
        "timestamp": F.unix_micros("timestamp"),
        "foreign": struct("x.y", "column_0"),
        "op": F.col("op"),
        "order": F.struct((F.col("column_0") * 2).alias("order")),
    }
    whole = FlatRows.of(rows.select(*(column.alias(name) for name, column in parts.items())))
    found, wanted = (one.to_arrow() if to_driver else seen(one) for one in (flat, whole))
    assert found.to_pylist() == wanted.to_pylist()
    assert found.schema.names == wanted.schema.names
    for name in ("key", "value", "foreign"):
        assert [(one.name, one.type) for one in found.schema.field(name).type] == [
            (one.name, one.type) for one in wanted.schema.field(name).type
        ]
    # Each column once, and then what is made of them: the operation and the order.
    assert len(flat.frame.columns) == len(values) + 2


@pytest.mark.parametrize(
    ("time", "last"),
    [
        ("timestamp", 1_709_209_800_000_001),
        ("local", 1_709_209_800_000_001),
        ("day", 1_709_164_800_000_000),
        ("timestamp + interval 1 second", 1_709_209_801_000_001),
    ],
)
def test_times_are_microseconds_whatever_their_type(rows: DataFrame, time: str, last: int) -> None:
    found = seen(RowInput("rows", rows.where("k = 'a'"), [], [], F.expr(time)).selected())
    assert found.to_pylist() == [{"key": {"present": True}, "value": {"present": True}, "timestamp": last}]


def test_a_date_beyond_all_microseconds_is_a_time_that_no_row_may_have(spark: SparkSession) -> None:
    rows = spark.sql("select date_from_unix_date(2000000000) day").coalesce(1)
    (found,) = seen(RowInput("rows", rows, [], [], "day").selected()).to_pylist()
    assert found["timestamp"] > 253_402_300_799_999_999


def test_calls_of_one_column_share_it(rows: DataFrame) -> None:
    calls = {"all": agg.sum("column_0"), "most": agg.max("column_0"), "late": agg.max("column_0", where="op = 'x'")}
    flat = FrameRows(rows.where("k = 'a'")).aggregated(["k"], "timestamp", calls, None).selected()
    (found,) = seen(flat).to_pylist()
    assert found["value"] == {"all": 7, "most": 7, "late": None}
    assert len(flat.frame.columns) == len(["k", "timestamp", "column_0", "late"])
