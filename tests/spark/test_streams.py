"""Topologies on DataFrames give what the in-process driver gives."""

import json
import os
import random
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, SparkSession

from millpond.adapters.spark import SparkStreams
from millpond.errors import ConfigurationError
from millpond.processors import (
    Consumed,
    JoinWindows,
    Materialized,
    Produced,
    StreamsBuilder,
    TimeWindows,
    Topology,
    TopologyDriver,
)
from tests.spark.orders import (
    SCHEMAS,
    Event,
    expected_totals,
    in_process,
    letter_counts,
    random_events,
    rated_orders,
    read_files,
    totals,
    write_file,
    write_files,
)

pytestmark = pytest.mark.spark

RunStream = Callable[..., list[tuple[Any, ...]]]


@pytest.mark.first
@pytest.mark.parametrize(
    ("backend", "budget"),
    [
        ("rocksdb", "64MiB"),
        pytest.param("lmdb", None, marks=pytest.mark.long),
        pytest.param("memory", "1 kB", marks=pytest.mark.long),
    ],
)
def test_a_chain_of_operators_gives_what_the_driver_gives(
    spark: SparkSession, tmp_path: Path, run_stream: RunStream, backend: str, budget: str | None
) -> None:
    events = random_events(1, 900)
    write_files(tmp_path / "in", events, 3)
    where: dict[str, Any] = {"application_id": "totals", "state_dir": str(tmp_path / "state"), "partitions": 3}
    streams = SparkStreams(rated_orders(), backend=backend, memory_budget=budget, **where)
    rows = streams.transform(read_files(spark, tmp_path / "in"), sink="totals")
    assert totals(run_stream(rows)) == expected_totals(events)


def test_records_reach_an_operator_past_one_that_does_not_read_them(spark: SparkSession, tmp_path: Path) -> None:
    rng = random.Random(7)
    words = [rng.choice(["Ale", "ant", "Bee", "bug", "cow"]) for _ in range(200)]
    frame = spark.createDataFrame(
        [(None, word, at) for at, word in enumerate(words)], "key string, value string, timestamp long"
    ).coalesce(1)
    streams = SparkStreams(letter_counts(), application_id="letters", state_dir=str(tmp_path / "state"), partitions=2)
    rows = streams.transform({"words": frame}).collect()
    with TopologyDriver(letter_counts()) as driver:
        driver.pipe_all("words", [(None, word, at) for at, word in enumerate(words)])
        assert sorted(tuple(row) for row in rows) == sorted((key, value) for key, value, _ in driver.read("letters"))


@pytest.mark.long
def test_the_backend_may_change_from_run_to_run(spark: SparkSession, tmp_path: Path, run_stream: RunStream) -> None:
    events = random_events(2, 600)
    for number, backend in enumerate(["lmdb", "memory", "rocksdb://?block_cache=8MiB"]):
        write_file(tmp_path / "in", number, events[number * 200 : (number + 1) * 200])
        spark.conf.set("spark.millpond.backend", backend)
        streams = SparkStreams(rated_orders(), application_id="moving", state_dir=str(tmp_path / "state"))
        rows = run_stream(streams.transform(read_files(spark, tmp_path / "in"), sink="totals"))
    spark.conf.unset("spark.millpond.backend")
    assert totals(rows) == expected_totals(events)


@pytest.mark.first
def test_static_dataframes_give_the_rows_of_one_sink(spark: SparkSession, tmp_path: Path) -> None:
    events = random_events(3, 400)
    frames = {topic: spark.createDataFrame(rows_of(topic, events), ddl).coalesce(1) for topic, ddl in SCHEMAS.items()}
    streams = SparkStreams(rated_orders(), application_id="static", state_dir=str(tmp_path / "state"), backend="lmdb")
    rows = [tuple(row) for row in streams.transform(frames, sink="rated").collect()]
    expected = in_process("rated", events)
    assert sorted(rows, key=str) == sorted(
        ((key, v["item"], v["amount"], v["rate"], at) for key, v, at in expected), key=str
    )


def test_static_dataframes_leave_no_state_and_mind_none_that_is_there(
    spark: SparkSession, tmp_path: Path, run_stream: RunStream
) -> None:
    def counted(windows: TimeWindows) -> SparkStreams:
        builder = StreamsBuilder(key_serde="string", value_serde="int64")
        builder.stream("orders").group_by_key().windowed_by(windows).count(Materialized("counts")).to("out")
        places: dict[str, Any] = {"state_dir": str(tmp_path / "state"), "local_dir": str(tmp_path / "local")}
        return SparkStreams(builder.build(), application_id="counts", backend="lmdb", **places)

    ddl = "key string, value long, timestamp long"
    frame = spark.createDataFrame([("a", 1, 1), ("a", 2, 12)], ddl)
    assert counted(TimeWindows(20)).transform({"orders": frame}).count() == 2
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    frame.write.parquet(str(tmp_path / "in"))
    run_stream(
        counted(TimeWindows(10)).transform({"orders": spark.readStream.schema(ddl).parquet(str(tmp_path / "in"))})
    )
    kept = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert counted(TimeWindows(20)).transform({"orders": frame}).count() == 2
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == kept


def rows_of(topic: str, events: list[Event]) -> list[Any]:
    return [row for name, row in events if name == topic]


@pytest.mark.first
@pytest.mark.slow
def test_a_store_can_be_read_as_it_was_after_any_batch(
    spark: SparkSession, tmp_path: Path, run_stream: RunStream
) -> None:
    events = random_events(4, 400)
    write_files(tmp_path / "in", events, 2)
    streams = SparkStreams(rated_orders(), application_id="look", state_dir=str(tmp_path / "state"), backend="lmdb")
    run_stream(streams.transform(read_files(spark, tmp_path / "in"), sink="totals"))
    checkpoint = str(tmp_path / "checkpoint")
    for batch_id, seen in ((0, events[:200]), (1, events)):
        rates = streams.read_store(
            "rates", checkpoint, sink="totals", batch_id=batch_id, schema="key string, rate double, timestamp long"
        )
        expected = [(row["who"], row["rate"], row["at"]) for row in rows_of("rates", seen)]
        assert sorted(tuple(row) for row in rates.collect()) == sorted(expected)
    sums = streams.read_store("sums", checkpoint, sink="totals")
    latest = {item: value["orders"] for item, value, _ in in_process("totals", events)}
    assert {row.key: json.loads(row.value)[0] for row in sums.collect()} == latest
    with pytest.raises(ConfigurationError, match=r"has the stores \['rates', 'sums'\], not 'counts'"):
        streams.read_store("counts", checkpoint, sink="totals")


def stateless() -> Topology:
    builder = StreamsBuilder()
    numbers = builder.stream("numbers", Consumed("string", "int64"))
    numbers.filter(lambda _, number: number % 2 == 0).map_values(lambda number: number * 10).to("tens")
    return builder.build()


@pytest.mark.first
def test_a_topology_without_stores_needs_no_operator(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.createDataFrame([("a", 1, 5), (None, 2, 6), ("b", 4, 7)], "key string, value long, timestamp long")
    streams = SparkStreams(stateless(), application_id="tens", state_dir=str(tmp_path / "state"))
    rows = [(row.key, row.value, row.timestamp.timestamp()) for row in streams.transform({"numbers": frame}).collect()]
    assert sorted(rows, key=str) == [("b", 40, 0.007), (None, 20, 0.006)]
    assert not (tmp_path / "state").exists()


def counted_words(**consumed: Any) -> Topology:
    builder = StreamsBuilder()
    words = builder.stream("words", Consumed("string", "json", **consumed))
    words.group_by_key().count().to("counts", Produced(schema="key string, value long"))
    return builder.build()


BAD_WORDS = [
    (b"good", b'"x"', 1),
    (None, b'"null key"', 2),
    (b"\xff", b'"key is no text"', 3),
    (b"late", b'"negative time"', -4),
    (b"good", b"{no json", 5),
    (b"good", b'"y"', 6),
    (b"untimed", b'"null time"', None),
    (b"good", b'"the year 2100"', 4_102_444_800_000),
]


def words_frame(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(BAD_WORDS, "key binary, value binary, timestamp long").coalesce(1)


@pytest.mark.first
def test_unusable_records_are_left_out_and_counted(spark: SparkSession, tmp_path: Path, run_stream: RunStream) -> None:
    words_frame(spark).write.parquet(str(tmp_path / "in"))
    source = spark.readStream.schema("key binary, value binary, timestamp long").parquet(str(tmp_path / "in"))
    streams = SparkStreams(
        counted_words(), application_id="skip", state_dir=str(tmp_path / "state"), on_error="skip", backend="memory"
    )
    query = (
        streams.transform({"words": source})
        .writeStream.format("memory")
        .queryName("skipped_words")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert sorted(tuple(row) for row in spark.table("skipped_words").collect()) == [("good", 1), ("good", 2)]
    counted = [json.loads(progress.json)["observedMetrics"]["millpond.words"] for progress in query.recentProgress]
    columns = {
        "dropped_null_key": 1,
        "dropped_bad_key": 1,
        "dropped_bad_timestamp": 2,
        "dropped_future_timestamp": 1,
        "dropped_bad_value": 1,
    }
    counts = {column.replace("_", "-"): count for column, count in columns.items()}
    assert counted == [{**columns, "dropped_never_valid": 0, "dropped_no_gap": 0, "tasks": [counts]}]


@pytest.mark.first
def test_unusable_records_fail_the_query_with_topic_column_and_row(spark: SparkSession, tmp_path: Path) -> None:
    streams = SparkStreams(counted_words(), application_id="fail", state_dir=str(tmp_path / "state"), backend="memory")
    with pytest.raises(Exception, match=r"RecordError: topic 'words': column 'key': null key in row 1 of Spark"):
        streams.transform({"words": words_frame(spark)}).collect()


@pytest.mark.first
def test_nested_columns_and_nulls_of_every_type_come_out(spark: SparkSession, tmp_path: Path) -> None:
    ddl = "key string, n int, x double, ok boolean, d date, words array<string>, m map<string, long>, s struct<a: int>"
    builder = StreamsBuilder()
    last = builder.stream("rows", Consumed("string", "json", value="json")).group_by_key().reduce(lambda _, new: new)
    dates = {"date": date(2013, 1, 1), None: None}
    last.to_stream().map_values(lambda row: {**row, "d": dates[row.get("d")]}, value_serde="pickle").to(
        "out", Produced(schema=ddl, optional=("n", "x", "ok", "words", "m", "s"))
    )
    full = {"n": 1, "x": 0.5, "ok": True, "d": "date", "words": ["a", None], "m": {"b": 2}, "s": {"a": 3}}
    frame = spark.createDataFrame(
        [("full", json.dumps(full).encode(), 1), ("none", b"{}", 2)], "key string, json binary, timestamp long"
    )
    streams = SparkStreams(
        builder.build(), application_id="types", state_dir=str(tmp_path / "state"), partitions=1, backend="memory"
    )
    rows = sorted(streams.transform({"rows": frame}).collect())
    assert [row.asDict(recursive=True) for row in rows] == [
        {"key": "full", **full, "d": date(2013, 1, 1)},
        {"key": "none", **dict.fromkeys(full)},
    ]


@pytest.mark.slow
def test_a_value_that_its_column_cannot_hold_is_named(spark: SparkSession, tmp_path: Path) -> None:
    builder = StreamsBuilder()
    numbers = builder.stream("numbers", Consumed("string", "int64"))
    numbers.map_values(lambda number: "many").to("out", Produced(schema="key string, value long"))
    frame = spark.createDataFrame([("a", 1, 5)], "key string, value long, timestamp long")
    streams = SparkStreams(builder.build(), application_id="misfit", state_dir=str(tmp_path / "state"))
    with pytest.raises(
        Exception, match=r"InvalidValueError: sink 'out': column 'value' of type bigint cannot hold 'many'"
    ):
        streams.transform({"numbers": frame}).collect()


@pytest.mark.first
def test_windowed_results_show_their_window_and_late_records_are_reported(spark: SparkSession, tmp_path: Path) -> None:
    builder = StreamsBuilder(order="arrival")
    clicks = builder.stream("clicks", Consumed("string", "int64"))
    clicks.group_by_key().windowed_by(TimeWindows(10, grace=0)).count().to_stream().to("counts")
    rows = [("a", 1, 3), ("a", 1, 7), ("b", 1, 12), ("a", 1, 4), ("a", 1, 25)]
    pq.write_table(
        pa.table(dict(zip(("key", "value", "timestamp"), map(list, zip(*rows, strict=True)), strict=True))),
        tmp_path / "clicks.parquet",
    )
    source = spark.readStream.schema("key string, value long, timestamp long").parquet(str(tmp_path))
    streams = SparkStreams(
        builder.build(), application_id="late", state_dir=str(tmp_path / "state"), partitions=1, backend="memory"
    )
    query = (
        streams.transform({"clicks": source})
        .writeStream.format("memory")
        .queryName("window_counts")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    found = spark.sql("select key, unix_millis(window_start), unix_millis(window_end), value from window_counts")
    assert sorted(tuple(row) for row in found.collect()) == [
        ("a", 0, 10, 1),
        ("a", 0, 10, 2),
        ("a", 20, 30, 1),
        ("b", 10, 20, 1),
    ]
    reported = json.loads(query.recentProgress[0].json)["observedMetrics"]["millpond.operator.0"]["tasks"]
    assert [list(counts.values()) for counts in reported] == [[1]]
    assert all("late" in name for counts in reported for name in counts)


def test_every_progress_says_what_waits_until_nothing_does(spark: SparkSession, tmp_path: Path) -> None:
    builder = StreamsBuilder(key_serde="string", value_serde="string")
    windows = JoinWindows.of(10)
    pairs = builder.stream("left").left_join(builder.stream("right"), "{}-{}".format, windows=windows)
    pairs.to("pairs", Produced(schema="key string, value string"))
    (tmp_path / "in").mkdir()
    batches = [[("left", "a", 100), ("left", "b", 101)], [("right", "a", 102)], [("right", "z", 200)]]
    for number, records in enumerate(batches):
        rows = [{"topic": topic, "key": key, "value": topic, "timestamp": time} for topic, key, time in records]
        file = tmp_path / "in" / f"{number}.json"
        file.write_text("\n".join(map(json.dumps, rows)))
        os.utime(file, (number, number))
    schema = "topic string, key string, value string, timestamp long"
    arriving = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(str(tmp_path / "in"))
    inputs = {topic: arriving.where(f"topic = '{topic}'").drop("topic") for topic in ("left", "right")}
    streams = SparkStreams(builder.build(), application_id="wait", state_dir=str(tmp_path / "state"), partitions=1)
    writer = streams.transform(inputs).writeStream.format("memory").queryName("pairs")
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    assert sorted(map(tuple, spark.table("pairs").collect())) == [("a", "left-right"), ("b", "left-None")]
    reported = [json.loads(one.json)["observedMetrics"]["millpond.operator.0"] for one in query.recentProgress]
    assert [progress["waiting"] for progress in reported] == [2, 1, 0]
    assert [list(counts.values()) for progress in reported for counts in progress["tasks"]] == [[2], [1], [0]]


def test_changes_of_a_key_are_in_the_order_of_their_sequence_also_after_a_restart(
    spark: SparkSession, tmp_path: Path, run_stream: RunStream
) -> None:
    builder = StreamsBuilder()
    names = builder.table("names", Consumed("string", "string"), Materialized("names"))
    names.to_stream().to("changes", Produced(schema="key string, sequence long, op string, value string"))
    topology = builder.build()
    updates = [[("a", "x"), ("b", "y"), ("a", None)], [("b", None), ("a", "z")], [("b", "w"), ("a", None)]]
    (tmp_path / "in").mkdir()
    for number, rows in enumerate(updates):
        records = [{"key": key, "value": value, "timestamp": 5} for key, value in rows]
        file = tmp_path / "in" / f"{number}.parquet"
        pq.write_table(pa.Table.from_pylist(records), file)
        os.utime(file, (1_000_000_000 + number,) * 2)
        if number == 0:
            continue
        source = spark.readStream.schema("key string, value string, timestamp long").option("maxFilesPerTrigger", 1)
        streams = SparkStreams(topology, application_id="cdc", state_dir=str(tmp_path / "state"), backend="memory")
        found = run_stream(streams.transform({"names": source.parquet(str(tmp_path / "in"))}))
    for name in "ab":
        mine = [row for row in found if row[0] == name]
        expected = [(number, value) for number, rows in enumerate(updates) for key, value in rows if key == name]
        assert [(sequence >> 32, value) for _, sequence, _, value in mine] == expected
        assert [op for _, _, op, _ in mine] == ["delete" if value is None else "upsert" for _, value in expected]
        assert len({sequence for _, sequence, _, _ in mine}) == len(mine)
