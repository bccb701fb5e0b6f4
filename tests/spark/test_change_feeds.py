"""Change feeds as inputs of topologies, and inputs that are complete."""

from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from millpond.adapters.spark import SparkStreams
from millpond.errors import ConfigurationError, RecordError
from millpond.processors import (
    Consumed,
    EmitStrategy,
    Materialized,
    Produced,
    StreamsBuilder,
    TimeWindows,
    Topology,
)

pytestmark = pytest.mark.spark

CHANGES = [
    ("a", "one", 1, "insert"),
    ("b", "two", 2, "C"),
    ("a", "one", 3, "update_preimage"),
    ("a", "three", 3, "update_postimage"),
    ("b", None, 4, "DELETE"),
]
SCHEMA = "key string, name string, timestamp long, op string"


def kept_table() -> Topology:
    builder = StreamsBuilder()
    builder.table("changes", Consumed(op="op"), Materialized("kept")).to(
        "out", Produced(schema="key string, name string, timestamp long, op string")
    )
    return builder.build()


def passed_on() -> Topology:
    builder = StreamsBuilder()
    builder.stream("changes", Consumed(op="op")).to("out", Produced(schema="key string, name string, op string"))
    return builder.build()


def test_a_delete_has_no_value_and_a_row_before_an_update_is_left_out(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.createDataFrame(CHANGES, SCHEMA).coalesce(1)
    streams = SparkStreams(kept_table(), application_id="kept", state_dir=str(tmp_path), partitions=1)
    assert [tuple(row) for row in streams.transform({"changes": frame}).collect()] == [
        ("a", "one", 1, "upsert"),
        ("b", "two", 2, "upsert"),
        ("a", "three", 3, "upsert"),
        ("b", None, 4, "delete"),
    ]
    without_state = SparkStreams(passed_on(), application_id="passed", state_dir=str(tmp_path))
    rows = without_state.transform({"changes": frame}).collect()
    assert [(row.name, row.op) for row in rows] == [
        ("one", "upsert"),
        ("two", "upsert"),
        ("three", "upsert"),
        (None, "delete"),
    ]


def test_an_unknown_operation_fails_or_is_left_out(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.createDataFrame([("a", "one", 1, "insert"), ("a", "two", 2, "truncate"), ("a", "x", 3, None)], SCHEMA)
    failing = SparkStreams(passed_on(), application_id="passed", state_dir=str(tmp_path))
    with pytest.raises(Exception, match=r"column 'op': the unknown operation 'truncate'.*: known are") as caught:
        failing.transform({"changes": frame.coalesce(1)}).collect()
    assert RecordError.__name__ in str(caught.value)
    skipping = SparkStreams(passed_on(), application_id="passed", state_dir=str(tmp_path), on_error="skip")
    assert [row.name for row in skipping.transform({"changes": frame}).collect()] == ["one"]


def test_operations_that_are_no_text_are_refused_at_once(spark: SparkSession, tmp_path: Path) -> None:
    streams = SparkStreams(passed_on(), application_id="passed", state_dir=str(tmp_path))
    with pytest.raises(ConfigurationError, match="column 'op' are of type bigint"):
        streams.transform({"changes": spark.range(1).selectExpr("'k' key", "'v' value", "id timestamp", "id op")})


def test_what_waits_comes_out_when_the_inputs_are_complete(spark: SparkSession, tmp_path: Path) -> None:
    builder = StreamsBuilder()
    words = builder.stream("words", Consumed("string", "string"))
    windows = words.group_by_key().windowed_by(TimeWindows(10, grace=1000))
    windows.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count(Materialized("counts")).to(
        "out", Produced(schema="key string, window_start long, value long")
    )
    streams = SparkStreams(builder.build(), application_id="windows", state_dir=str(tmp_path), partitions=2)
    frame = spark.createDataFrame(
        [("a", "x", 1), ("a", "y", 12), ("b", "z", 3)], "key string, value string, timestamp long"
    )
    assert streams.transform({"words": frame}).collect() == []
    rows = streams.transform({"words": frame}, complete=spark.range(1)).collect()
    assert sorted(map(tuple, rows)) == [("a", 0, 1), ("a", 10, 1), ("b", 0, 1)]
