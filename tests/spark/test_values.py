"""Rows of Spark's types go in, through stores and between tasks, and out, exactly; what cannot is refused at once."""

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession
from pyspark.sql import types as T
from pyspark.testing.objects import ExamplePointUDT

from millpond.adapters.spark import OnError, SparkStreams
from millpond.adapters.spark.rows.source import select_source
from millpond.errors import ConfigurationError
from millpond.processors import Consumed, Materialized, Produced, StreamsBuilder, Topology
from millpond.processors.rows.column_values import with_pairs
from millpond.stores.encoding.serdes import JsonSerde

pytestmark = pytest.mark.spark

RunStream = Callable[..., list[tuple[Any, ...]]]

COLUMNS = {
    "placed": "timestamp",
    "local": "timestamp_ntz",
    "due": "date",
    "price": "decimal(10,2)",
    "big": "decimal(38,0)",
    "items": "array<struct<name: string, price: decimal(10,2), at: timestamp>>",
    "tags": "map<string, array<map<date, decimal(5,3)>>>",
    "raw": "binary",
    "took": "interval day to second",
    "nothing": "date",
}
DDL = ", ".join(["key string", *(f"{name} {type_}" for name, type_ in COLUMNS.items())])


@pytest.fixture
def berlin(spark: SparkSession) -> Iterator[None]:
    """The session in a time zone in which an hour of 2024-10-27 comes twice."""
    conf = "spark.sql.session.timeZone"
    before = spark.conf.get(conf)
    spark.conf.set(conf, "Europe/Berlin")
    yield
    spark.conf.set(conf, str(before))


def row(key: str, later: timedelta) -> tuple[Any, ...]:
    placed = datetime(2024, 10, 27, 0, 30, 0, 123456, tzinfo=UTC) + later
    micros = later // timedelta(microseconds=1)
    items = [("tea", Decimal("12.50"), placed), (None, None, None)]
    tags = {"a": [{date(2024, 2, 29): Decimal("1.000")}, None], "b": None, "c": []}
    return (
        key,
        placed,
        datetime(2024, 10, 27, 2, 30, 0, 1),
        date(1969, 12, 31),
        Decimal("-20.00") + micros % 10,
        Decimal(10) ** 37 + micros,
        items,
        tags,
        b"\x00\xff",
        timedelta(days=-1) + later,
        None,
    )


def last_orders() -> Topology:
    """Return the last order of each customer, and the promise to the customer as of the first; no serde is named."""
    builder = StreamsBuilder()
    versioned = Materialized.versioned("promises", history_retention=timedelta(days=1))
    promises = builder.table("promises", Consumed(timestamp="placed"), versioned)
    orders = builder.stream("orders", Consumed(timestamp="placed"))
    joined = orders.join(promises, lambda order, promise: {**order, **{f"p_{name}": promise[name] for name in COLUMNS}})
    moved = joined.select_key(lambda key, _: key.upper())
    last = moved.group_by_key().aggregate(dict, _with_first_promise, Materialized("last"))
    promised = ", ".join(f"p_{name} {type_}" for name, type_ in COLUMNS.items())
    last.to_stream().to("out", Produced(schema=f"{DDL}, {promised}, timestamp timestamp"))
    return builder.build()


def _with_first_promise(_: str, order: dict[str, Any], last: dict[str, Any]) -> dict[str, Any]:
    return {**order, **{name: entry for name, entry in last.items() if name.startswith("p_")}}


def test_rows_of_every_type_go_through_a_join_and_an_aggregate_exactly_and_a_records_timestamp_has_milliseconds(
    spark: SparkSession, tmp_path: Path, run_stream: RunStream, berlin: None
) -> None:
    delays = {
        "promises": [timedelta(0)],
        "orders": [timedelta(microseconds=7), timedelta(microseconds=5000), timedelta(hours=1)],
    }
    for topic, some in delays.items():
        rows = [row(key, later) for later in some for key in "ab"]
        spark.createDataFrame(rows, DDL).coalesce(1).write.parquet(str(tmp_path / topic))
    inputs = {topic: spark.readStream.schema(DDL).parquet(str(tmp_path / topic)) for topic in delays}
    streams = SparkStreams(
        last_orders(), application_id="types", state_dir=str(tmp_path / "state"), partitions=2, backend="memory"
    )
    rows_out = streams.transform(inputs)
    run_stream(rows_out)
    found = spark.read.schema(rows_out.schema).parquet(str(tmp_path / "out"))
    read = {topic: spark.read.schema(DDL).parquet(str(tmp_path / topic)) for topic in delays}
    expected = (
        read["orders"]
        .selectExpr("upper(key) as key", *COLUMNS)
        .join(read["promises"].selectExpr("upper(key) as key", *(f"{name} as p_{name}" for name in COLUMNS)), "key")
        .selectExpr("*", "date_trunc('millisecond', placed) as timestamp")
    )
    assert found.schema == expected.schema
    assert sorted(map(str, found.collect())) == sorted(map(str, expected.collect()))
    assert found.count() == 6


@pytest.mark.parametrize(
    ("ddl", "path", "type_"),
    [
        ("d date", "d", "date"),
        ("t timestamp", "t", "timestamp"),
        ("n timestamp_ntz", "n", "timestamp_ntz"),
        ("b binary", "b", "binary"),
        ("i interval day to second", "i", "interval day to second"),
        ("m map<date, int>", "m.key", "date"),
        ("items array<struct<name: string, price: decimal(10,2)>>", "items.element.price", "decimal(10,2)"),
    ],
)
def test_a_column_that_json_cannot_carry_is_refused_with_its_path_and_a_serde_that_can(
    spark: SparkSession, ddl: str, path: str, type_: str
) -> None:
    frame = spark.createDataFrame([], f"key string, timestamp long, x double, {ddl}")
    for keyed in (True, False):
        with pytest.raises(ConfigurationError) as refused:
            select_source(frame, "orders", Consumed("string", "json"), OnError.FAIL, keyed=keyed)
        assert refused.value.sentence == (
            f"topic 'orders': column {path!r} is of type {type_}, which the json serde cannot carry; cast it (to a "
            "string, for example) or leave it out of the DataFrame, or name a serde that can: "
            "Consumed(value_serde='msgpack')"
        )
    for carrier in ("msgpack", "pickle", None):
        select_source(frame, "orders", Consumed("string", carrier), OnError.FAIL, keyed=True)


@pytest.mark.parametrize(
    ("ddl", "path", "type_"),
    [
        ("v variant", "v", "variant"),
        ("c interval", "c", "interval"),
        ("m map<string, array<interval>>", "m.value.element", "interval"),
    ],
)
def test_a_column_that_the_default_serde_cannot_carry_is_refused(
    spark: SparkSession, tmp_path: Path, ddl: str, path: str, type_: str
) -> None:
    frames = {topic: spark.createDataFrame([], f"{DDL}, {ddl}") for topic in ("orders", "promises")}
    streams = SparkStreams(last_orders(), application_id="no", state_dir=str(tmp_path / "state"), backend="memory")
    expected = (
        f"column '{path}' is of type {type_}, which the msgpack serde cannot carry; cast it .* of the DataFrame \\["
    )
    with pytest.raises(ConfigurationError, match=expected):
        streams.transform(frames)
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("writer", ["msgpack", "json", "pickle", None])
def test_a_column_that_no_serde_ever_sees_is_refused(spark: SparkSession, writer: str | None) -> None:
    frame = spark.createDataFrame([], "key string, timestamp long, y array<interval year to month>")
    with pytest.raises(ConfigurationError, match=r"'y\.element' is of type interval year to month, which Spark cannot"):
        select_source(frame, "orders", Consumed("string", writer), OnError.FAIL, keyed=False)


def test_a_type_of_the_users_own_is_refused(spark: SparkSession) -> None:
    types: dict[str, T.DataType] = {"key": T.StringType(), "timestamp": T.LongType(), "point": ExamplePointUDT()}
    schema = T.StructType([T.StructField(name, type_) for name, type_ in types.items()])
    with pytest.raises(ConfigurationError, match="'point' is of type udt, which the msgpack serde cannot carry"):
        select_source(spark.createDataFrame([], schema), "x", Consumed("string", "msgpack"), OnError.FAIL, keyed=True)


def test_a_value_column_is_the_beginning_of_the_path(spark: SparkSession) -> None:
    frame = spark.createDataFrame([], "key string, timestamp long, v struct<a: struct<d: date>>")
    with pytest.raises(ConfigurationError, match=r"column 'v\.a\.d' is of type date"):
        select_source(frame, "orders", Consumed("string", "json", value="v"), OnError.FAIL, keyed=True)


def test_a_key_that_its_serde_cannot_carry_is_refused(spark: SparkSession) -> None:
    frame = spark.createDataFrame([], "key date, value string, timestamp long")
    with pytest.raises(
        ConfigurationError, match=r"column 'key' is of type date.*json.*Consumed\(key_serde='msgpack'\)"
    ):
        select_source(frame, "orders", Consumed("json", "string"), OnError.FAIL, keyed=True)
    select_source(frame, "orders", Consumed("msgpack", "string"), OnError.FAIL, keyed=True)


def test_a_serde_of_the_users_own_is_asked_for_nothing(spark: SparkSession) -> None:
    class Dates(JsonSerde):
        """One that knows more than its base."""

    frame = spark.createDataFrame([], "key string, value date, timestamp long")
    select_source(frame, "orders", Consumed("string", Dates()), OnError.FAIL, keyed=True)


def test_what_is_no_map_stays_as_it_is() -> None:
    type_ = pa.map_(pa.string(), pa.map_(pa.int64(), pa.int64()))
    entries = [None, {"a": {1: 2}}, [["b", [[3, 4]]]], "text", ["ab"], [["a"]], [["c", 5]]]
    assert with_pairs(entries, type_) == [
        None,
        [("a", [(1, 2)])],
        [("b", [(3, 4)])],
        "text",
        ["ab"],
        [["a"]],
        [("c", 5)],
    ]
    assert with_pairs(entries, pa.string()) is entries
    struct = pa.struct([("m", pa.list_(type_))])
    assert with_pairs([{"m": [[["a", None]]], "x": []}, 7], struct) == [{"m": [[("a", None)]], "x": []}, 7]
