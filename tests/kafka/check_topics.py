"""Topics through Spark into a topic: the table that comes out is the one that Kafka Streams makes there."""

import time
from pathlib import Path

from pyspark.sql import SparkSession

from millpond.adapters.spark import Millpond, SparkStreams
from millpond.processors import Produced
from tests.kafka.broker import Broker
from tests.kafka.client import Message, create_topics, latest, read, write
from tests.kafka.on_spark import SINK, read_topic, write_topic
from tests.kafka.records import random_records
from tests.kafka.topologies import topology
from tests.kafka.witness import live

PATIENCE = 60


def test_a_join_of_tables_with_tombstones_makes_the_table_of_kafka_streams(
    broker: Broker, spark: SparkSession, tmp_path: Path
) -> None:
    name, address = "table-table", broker.address
    records = random_records(5, name)
    create_topics(address, "left", "right", "out", "spark-out")
    write(address, records)
    inputs = {topic: read_topic(spark, address, topic, maxOffsetsPerTrigger=60) for topic in ("left", "right")}
    state = str(tmp_path / "state")
    streams = SparkStreams(topology(name, Produced(schema=SINK)), application_id="tables", state_dir=state)
    write_topic(streams.transform(inputs), address, "spark-out", tmp_path / "checkpoint")
    table = latest(read(address, "spark-out"))
    assert table
    with live(name, address, tmp_path / "witness"):
        give_up = time.monotonic() + PATIENCE
        while latest(read(address, "out")) != table and time.monotonic() < give_up:
            time.sleep(1)
        assert latest(read(address, "out")) == table, (tmp_path / "witness" / "log").read_text()


def test_the_latest_rows_of_a_verb_keep_times_order_headers_and_tombstones(
    broker: Broker, spark: SparkSession, tmp_path: Path
) -> None:
    create_topics(broker.address, "rows", "latest")
    values = [("a", "1", 10), ("b", "1", 10), ("a", "3", 30), ("a", "late", 20), ("c", "1", 10), ("b", None, 40)]
    write(broker.address, [("rows", Message(*row)) for row in values])
    rows = read_topic(spark, broker.address, "rows").selectExpr(
        "CAST(key AS STRING) AS id",
        "CAST(value AS STRING) AS value",
        "timestamp",
        "IF(value IS NULL, 'delete', 'upsert') AS op",
        "array(named_struct('key', 'was', 'value', value), named_struct('key', 'none', 'value', NULL)) AS headers",
    )
    pond = Millpond(application_id="latest", state_dir=str(tmp_path / "state"))
    newest = pond.latest(rows, key="id", time="timestamp", op="op", history="1 day")
    out = newest.selectExpr("id AS key", "IF(op = 'delete', NULL, value) AS value", "headers")
    write_topic(out, broker.address, "latest", tmp_path / "checkpoint")
    written = read(broker.address, "latest")
    assert latest(written) == {"a": "3", "c": "1"}
    headers = {message.key: message.headers for message in written}
    assert headers == {"a": (("was", b"3"), ("none", None)), "b": (), "c": (("was", b"1"), ("none", None))}
