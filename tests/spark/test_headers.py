"""Headers from a column, through tasks, into a column."""

from collections.abc import Iterable, Mapping
from functools import reduce
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millpond.adapters.spark import Millpond, SparkStreams
from millpond.errors import ConfigurationError
from millpond.processors import Consumed, Produced, StreamsBuilder, Topology
from millpond.processors.verbs import KeyContext, KeyedProcessor
from millpond.processors.verbs import aggregates as agg

pytestmark = pytest.mark.spark

PAIRS = "headers array<struct<key:string,value:binary>>"
SCHEMA = f"key string, value string, timestamp long, {PAIRS}"
ROWS = [
    ("a", "x", 1, [("trace", b"1"), ("trace", None)]),
    ("b", "y", 2, None),
    ("a", "z", 3, []),
    ("a", "x", 4, [("trace", b"4")]),
]


def topology() -> Topology:
    builder = StreamsBuilder()
    records = builder.stream("in", Consumed("string", "string", headers="headers"))
    kept = Produced(schema=f"key string, value string, {PAIRS}")
    records.filter(lambda key, value: value != "z").to("passed", kept)
    counted = Produced(schema=f"key string, value long, {PAIRS}")
    records.group_by(lambda key, value: value).count().to("counted", counted)
    return builder.build()


@pytest.mark.first
def test_headers_come_in_travel_and_go_out(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.createDataFrame(ROWS, SCHEMA).coalesce(1)
    streams = SparkStreams(topology(), application_id="headers", state_dir=str(tmp_path), partitions=2)
    passed = streams.transform({"in": frame}, sink="passed").collect()
    assert [(row.key, row.value, _pairs(row.headers)) for row in passed] == [
        ("a", "x", [("trace", b"1"), ("trace", None)]),
        ("b", "y", None),
        ("a", "x", [("trace", b"4")]),
    ]
    counted = streams.transform({"in": frame}, sink="counted").collect()
    assert sorted((row.key, row.value, str(_pairs(row.headers))) for row in counted) == [
        ("x", 1, "[('trace', b'1'), ('trace', None)]"),
        ("x", 2, "[('trace', b'4')]"),
        ("y", 1, "None"),
        ("z", 1, "None"),
    ]


def _pairs(headers: list[tuple[str, bytearray | None]] | None) -> list[tuple[str, bytes | None]] | None:
    return None if headers is None else [(name, None if data is None else bytes(data)) for name, data in headers]


def test_a_column_that_holds_no_headers_is_refused_and_a_header_without_a_name_too(
    spark: SparkSession, tmp_path: Path
) -> None:
    streams = SparkStreams(topology(), application_id="headers", state_dir=str(tmp_path), partitions=2)
    frame = spark.createDataFrame(ROWS, SCHEMA)
    with pytest.raises(ConfigurationError, match=r"column 'headers' of headers is of type map<string,binary>"):
        streams.transform({"in": frame.withColumn("headers", F.map_from_entries("headers"))}, sink="passed")
    nameless = spark.createDataFrame([("a", "x", 1, [(None, b"1")])], SCHEMA)
    with pytest.raises(Exception, match=r"column 'headers': bad value in row 0"):
        streams.transform({"in": nameless}, sink="passed").collect()


def test_dead_letters_have_the_headers_of_their_records(spark: SparkSession, tmp_path: Path) -> None:
    def sound(value: str) -> str:
        if value == "x":
            raise ValueError("bad value")
        return value

    builder = StreamsBuilder()
    records = builder.stream("in", Consumed("string", "string", headers="headers"))
    counted = records.map_values(sound).group_by_key().count()
    counted.to_stream().to("counted", Produced(schema="key string, value long"))
    streams = SparkStreams(
        builder.build(), application_id="left-out", state_dir=str(tmp_path), partitions=1, on_error="dead-letter"
    )
    rows = [*ROWS, (None, "keyless", 5, [("trace", b"5")])]
    frame = spark.createDataFrame(rows, SCHEMA).coalesce(1)
    assert streams.transform({"in": frame}).count() == 2
    letters = streams.dead_letters().orderBy("timestamp").collect()
    assert [(row.reason, row.value, _pairs(row.headers)) for row in letters] == [
        ("dropped-user-error", "x", [("trace", b"1"), ("trace", None)]),
        ("dropped-user-error", "x", [("trace", b"4")]),
        ("dropped-null-key", "keyless", [("trace", b"5")]),
    ]


class PassOn(KeyedProcessor):
    """Gives each row again, but for those whose headers are empty."""

    def process(self, key: Any, row: dict[str, Any], context: KeyContext) -> Iterable[Mapping[str, Any]]:
        if row["headers"] == []:
            raise ValueError("no headers")
        yield row | {"theirs": row["headers"]}


@pytest.mark.slow
def test_a_column_of_headers_comes_out_of_every_verb_as_it_went_in(spark: SparkSession, tmp_path: Path) -> None:
    headers = {1: [("trace", b"1"), ("trace", None), ("", b"\x00\xff")], 2: None, 3: []}
    given = spark.createDataFrame(list(headers.items()), f"id int, {PAIRS}").coalesce(1)
    left = given.withColumn("at", F.timestamp_seconds("id"))
    right = left.selectExpr("id", "headers AS theirs", "at AS since")
    pond = Millpond(
        application_id="verbs", state_dir=str(tmp_path), partitions=1, backend="memory", on_error="dead-letter"
    )
    both: dict[str, Any] = {"left_time": "at", "right_time": "since"}
    one: dict[str, Any] = {"key": "id", "time": "at"}
    retried = left.where("id = 2").withColumn("headers", F.expr("array(named_struct('key', 'retry', 'value', X'01'))"))
    results = {
        "as of": pond.asof_join(left, right, on="id", history="1 hour", **both),
        "streams": pond.stream_join(left, right, on="id", within="1 second", **both),
        "tables": pond.table_join(
            left.withColumn("foreign", F.col("id")), right, on={"foreign": "id"}, left_key="id", **both
        ),
        "latest": pond.latest(left.union(left).union(retried), history="1 hour", **one).withColumn(
            "theirs", F.col("headers")
        ),
        "aggregate": pond.aggregate(
            left, {"headers": agg.last("headers"), "theirs": agg.first("headers")}, by="id", time="at"
        ),
        "apply": pond.apply(
            left, PassOn(), schema=f"id int, {PAIRS}, {PAIRS.replace('headers', 'theirs', 1)}", lateness=0, **one
        ),
    }
    together = reduce(
        DataFrame.union, (rows.select(F.lit(v), "id", "headers", "theirs") for v, rows in results.items())
    )
    assert together.schema["headers"].dataType.simpleString() == PAIRS.split()[1]
    came = [(verb, number, _pairs(ours), _pairs(theirs)) for verb, number, ours, theirs in together.collect()]
    expected = [(verb, number, pairs, pairs) for verb in results for number, pairs in headers.items()]
    expected.remove(("apply", 3, [], []))
    expected.append(("latest", 2, [("retry", b"\x01")], [("retry", b"\x01")]))
    assert sorted(came, key=repr) == sorted(expected, key=repr)
    (letter,) = pond.dead_letters("PassOn-id").collect()
    assert '"headers":[]' in letter.value
    with pytest.raises(ConfigurationError, match="the columns 'headers' twice"):
        pond.asof_join(left, left.withColumnRenamed("at", "since"), on="id", history="1 hour", name="twice", **both)
