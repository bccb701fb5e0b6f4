"""Known mistakes are refused in the driver, before a query starts."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, SparkSession

from millpond.adapters.spark import OnError, SparkStreams
from millpond.adapters.spark.rows.source import select_source
from millpond.errors import ConfigurationError, StateConflictError, TopologyError, UnknownBackendError
from millpond.processors import Consumed, StreamsBuilder, Topology
from millpond.stores.durability import DurabilityPolicy
from tests.spark.orders import SCHEMAS, rated_orders

pytestmark = pytest.mark.spark

WORDS = "key string, value long, timestamp long"


def counts(consumed: Consumed | None = None) -> Topology:
    builder = StreamsBuilder()
    builder.stream("words", consumed or Consumed("string", "int64")).group_by_key().count().to("counts")
    return builder.build()


@pytest.fixture
def words(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([], WORDS)


@pytest.fixture
def streams(tmp_path: Path) -> Callable[..., SparkStreams]:
    def make(topology: Topology | None = None, **options: object) -> SparkStreams:
        given = {"application_id": "refused", "state_dir": str(tmp_path / "state"), **options}
        return SparkStreams(topology or counts(), **given)  # type: ignore[arg-type]

    return make


Make = Callable[..., SparkStreams]


def test_an_unknown_backend_is_refused(streams: Make, words: DataFrame, spark: SparkSession) -> None:
    with pytest.raises(UnknownBackendError, match="did you mean 'lmdb'"):
        streams(backend="lmbd").transform({"words": words})
    spark.conf.set("spark.millpond.backend", "cassandra")
    try:
        with pytest.raises(UnknownBackendError, match="'cassandra'"):
            streams().transform({"words": words})
    finally:
        spark.conf.unset("spark.millpond.backend")


def test_a_policy_that_retains_less_than_spark_is_refused(streams: Make, words: DataFrame, spark: SparkSession) -> None:
    policy = DurabilityPolicy(retained_commits=250)
    streams(policy=policy).transform({"words": words})
    spark.conf.set("spark.sql.streaming.minBatchesToRetain", "300")
    try:
        with pytest.raises(ConfigurationError, match=r"retains 250 commits, but .*minBatchesToRetain is 300.* to 600"):
            streams(policy=policy).transform({"words": words})
        streams().transform({"words": words})
    finally:
        spark.conf.unset("spark.sql.streaming.minBatchesToRetain")


def test_a_memory_budget_that_is_no_size_or_not_the_backends_is_refused(
    streams: Make, words: DataFrame, spark: SparkSession
) -> None:
    with pytest.raises(ConfigurationError, match="memory_budget is 'lots', but must be a size such as 4096, 256MiB"):
        streams(memory_budget="lots")
    for nothing in (0, "0 MiB", True, 0.5):
        with pytest.raises(ConfigurationError, match=r"memory_budget is .*; give bytes, or text such as '512MiB', or"):
            streams(memory_budget=nothing)
    with pytest.raises(ConfigurationError, match=r"has memory_budget=33554432, but .*leave out one of them"):
        streams(memory_budget="64MiB", backend="rocksdb://?memory_budget=32MiB").transform({"words": words})
    spark.conf.set("spark.millpond.memory_budget", "1MiB")
    try:
        with pytest.raises(ConfigurationError, match=r"'memory_budget' of the backend 'rocksdb' is 1048576, but must"):
            streams().transform({"words": words})
        streams(backend="lmdb").transform({"words": words})
        streams(memory_budget="64MiB").transform({"words": words})
        spark.conf.set("spark.millpond.memory_budget", "lots")
        with pytest.raises(ConfigurationError, match=r"spark\.millpond\.memory_budget is 'lots'"):
            streams().transform({"words": words})
    finally:
        spark.conf.unset("spark.millpond.memory_budget")


def test_wrong_options_are_refused(streams: Make) -> None:
    with pytest.raises(ConfigurationError, match="on_error is 'ignore'; give one of 'fail', 'skip'"):
        streams(on_error="ignore")
    with pytest.raises(ConfigurationError, match="max_ahead is '-1 day'; it must not be negative"):
        streams(max_ahead="-1 day")
    with pytest.raises(ConfigurationError, match="reset_stream_time is 'noon'; give a datetime, or text such as '2026"):
        streams(reset_stream_time="noon")
    with pytest.raises(ConfigurationError, match=r"reset_stream_time datetime.* has no time zone"):
        streams(reset_stream_time="2026-06-01T12:00:00")
    with pytest.raises(ConfigurationError, match="partitions must be 1 or more, not 0"):
        streams(partitions=0)
    with pytest.raises(ConfigurationError, match="the state directory is ''; give a path or a URI"):
        streams(state_dir="")
    with pytest.raises(ConfigurationError, match="application id 'a/b'"):
        streams(application_id="a/b")


def test_inputs_must_be_those_of_the_topology(streams: Make, words: DataFrame) -> None:
    with pytest.raises(ConfigurationError, match="no inputs"):
        streams().transform({})
    with pytest.raises(ConfigurationError, match=r"no DataFrame for the topics \['words'\]"):
        streams().transform({"sentences": words})
    with pytest.raises(ConfigurationError, match=r"reads the topics \['words'\], not \['sentences'\]"):
        streams().transform({"words": words, "sentences": words})


def test_streaming_and_static_inputs_do_not_mix(streams: Make, spark: SparkSession, tmp_path: Path) -> None:
    inputs = {topic: spark.createDataFrame([], ddl) for topic, ddl in SCHEMAS.items()}
    (tmp_path / "in").mkdir()
    inputs["orders"] = spark.readStream.schema(SCHEMAS["orders"]).parquet(str(tmp_path / "in"))
    with pytest.raises(ConfigurationError, match="some inputs are streaming"):
        streams(rated_orders()).transform(inputs, sink="totals")


def test_a_missing_column_is_named_with_those_there_are(streams: Make, words: DataFrame) -> None:
    with pytest.raises(ConfigurationError, match="no column 'word' for the key, only key, value, timestamp"):
        streams(counts(Consumed("string", "int64", key="word"))).transform({"words": words})
    with pytest.raises(ConfigurationError, match="no column 'at' for the timestamp"):
        streams(counts(Consumed("string", "int64", timestamp="at"))).transform({"words": words})


def test_a_column_of_a_type_that_its_serde_cannot_take_is_refused(streams: Make, words: DataFrame) -> None:
    with pytest.raises(ConfigurationError, match="column 'key' is of type string, which the int64 serde cannot take"):
        streams(counts(Consumed("int64", "int64"))).transform({"words": words})
    with pytest.raises(ConfigurationError, match="column 'value' is of type bigint, which the string"):
        streams(counts(Consumed("string", "string"))).transform({"words": words})
    with pytest.raises(ConfigurationError, match="timestamp column 'key' is of type string"):
        streams(counts(Consumed("string", "int64", timestamp="key"))).transform({"words": words})


def test_keys_that_decide_where_records_go_need_a_serde(words: DataFrame) -> None:
    with pytest.raises(ConfigurationError, match=r"topic 'words'.*no serde for keys; give one: Consumed\(key_serde"):
        select_source(words, "words", Consumed(), OnError.FAIL, keyed=True)
    select_source(words, "words", Consumed(), OnError.FAIL, keyed=False)


def test_a_session_with_another_state_store_provider_is_refused(
    streams: Make, words: DataFrame, spark: SparkSession
) -> None:
    conf = "spark.sql.streaming.stateStore.providerClass"
    before = spark.conf.get(conf)
    spark.conf.unset(conf)
    try:
        with pytest.raises(ConfigurationError, match=f"set {conf} to org.apache.*RocksDBStateStoreProvider"):
            streams().transform({"words": words})
    finally:
        spark.conf.set(conf, str(before))


def test_arrow_batches_that_cannot_hold_their_blobs_are_refused(
    streams: Make, words: DataFrame, spark: SparkSession
) -> None:
    rows, size = "spark.sql.execution.arrow.maxRecordsPerBatch", "spark.sql.execution.arrow.maxBytesPerBatch"
    spark.conf.set(rows, "1000000")
    spark.conf.set(size, "2147483647")
    try:
        with pytest.raises(ConfigurationError, match=f"{rows} is 1000000.*set it to 10922 or less"):
            streams().transform({"words": words})
        spark.conf.set(size, "64m")
        assert streams().transform({"words": words}).collect() == []
        spark.conf.set(size, "2147483647")
        spark.conf.set(rows, "10922")
        assert streams().transform({"words": words}).collect() == []
    finally:
        spark.conf.unset(rows)
        spark.conf.unset(size)


def test_the_sink_must_be_one_that_the_topology_has(streams: Make, spark: SparkSession) -> None:
    inputs = {topic: spark.createDataFrame([], ddl) for topic, ddl in SCHEMAS.items()}
    with pytest.raises(TopologyError, match=r"has the sinks \['rated', 'totals'\]; say which one"):
        streams(rated_orders()).transform(inputs)
    with pytest.raises(TopologyError, match="not 'sums'"):
        streams(rated_orders()).transform(inputs, sink="sums")


@pytest.mark.first
def test_another_topology_or_partition_count_on_the_same_state_is_refused(
    streams: Make, spark: SparkSession, tmp_path: Path
) -> None:
    spark.createDataFrame([("word", 1, 1)], WORDS).write.parquet(str(tmp_path / "in"))

    def arriving(ddl: str) -> DataFrame:
        return spark.readStream.schema(ddl).parquet(str(tmp_path / "in"))

    counted = streams(partitions=2).transform({"words": arriving(WORDS)}).writeStream.format("noop")
    counted = counted.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    counted.start().awaitTermination()
    streams(partitions=2).transform({"words": arriving(WORDS)})
    with pytest.raises(StateConflictError, match="another topology"):
        streams(partitions=3).transform({"words": arriving(WORDS)})
    inputs = {topic: arriving(ddl) for topic, ddl in SCHEMAS.items()}
    with pytest.raises(StateConflictError, match="another topology"):
        streams(rated_orders(), partitions=2).transform(inputs, sink="totals")
    streams(rated_orders(), partitions=2, application_id="other").transform(inputs, sink="totals")


def stateless() -> Topology:
    builder = StreamsBuilder()
    builder.stream("words", Consumed("string", "int64")).map_values(lambda count: count + 1).to("more")
    return builder.build()


@pytest.fixture
def bare_python(spark: SparkSession, tmp_path: Path) -> Iterator[Path]:
    """A Python without packages, which the session's workers run."""
    bare = tmp_path / "python-without-millpond"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    bare.chmod(0o755)
    chosen, spark.sparkContext.pythonExec = spark.sparkContext.pythonExec, str(bare)
    yield bare
    spark.sparkContext.pythonExec = chosen


@pytest.mark.parametrize("topology", [counts, stateless])
def test_workers_whose_python_lacks_millpond_are_refused_with_state_or_without(
    words: DataFrame, streams: Make, spark: SparkSession, bare_python: Path, topology: Callable[[], Topology]
) -> None:
    with pytest.raises(ConfigurationError, match=r"PYSPARK_PYTHON") as refused:
        streams(topology()).transform({"words": words})
    assert str(bare_python) in str(refused.value)
    assert "No module named" in str(refused.value)
    advised = refused.value.sentence.partition("to a Python with Millpond, such as ")[2]
    spark.sparkContext.pythonExec = advised.partition(",")[0]
    assert streams(topology()).transform({"words": words}).collect() == []


def test_a_topology_without_state_needs_no_state_store_provider(
    streams: Make, words: DataFrame, spark: SparkSession
) -> None:
    conf = "spark.sql.streaming.stateStore.providerClass"
    before = spark.conf.get(conf)
    spark.conf.unset(conf)
    try:
        assert streams(stateless()).transform({"words": words}).collect() == []
    finally:
        spark.conf.set(conf, str(before))
