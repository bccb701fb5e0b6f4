"""A store's rows as a user looks at them, and what is said where there are none to look at."""

import pickle
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from millpond.adapters.inspect import StateInspector
from millpond.adapters.inspect.text import TextSerde
from millpond.adapters.spark import SparkStreams
from millpond.errors import ConfigurationError, FormatError
from millpond.processors import Consumed, Materialized, Produced, StreamsBuilder, Topology
from millpond.stores.encoding.serdes import serde

pytestmark = pytest.mark.spark

DDL = "key string, value long, timestamp long"


def totals(value_serde: str = "msgpack") -> Topology:
    """Return how many values a key has had, and their sum."""
    builder = StreamsBuilder()
    numbers = builder.stream("numbers", Consumed("string", "int64"))
    sums = numbers.group_by_key().aggregate(
        lambda: {"count": 0, "sum": 0},
        lambda _, number, total: {"count": total["count"] + 1, "sum": total["sum"] + number},
        Materialized("sums", value_serde=value_serde),
    )
    sums.to_stream().to("totals", Produced(schema="key string, count long, sum long"))
    return builder.build()


class Job:
    """A job on its own directory, and its checkpoint."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self._spark = spark
        self._directory = directory
        self.checkpoint, self.state = str(directory / "checkpoint"), str(directory / "state")

    def streams(self, topology: Topology | None = None, **options: Any) -> SparkStreams:
        given = {"application_id": "job", "state_dir": self.state, "partitions": 2, **options}
        return SparkStreams(topology or totals(), backend="memory", **given)

    def run(self, *rows: tuple[Any, ...], streams: SparkStreams | None = None, checkpoint: str = "") -> None:
        """Run one micro-batch with these rows."""
        self._spark.createDataFrame(rows, DDL).coalesce(1).write.mode("append").parquet(str(self._directory / "in"))
        numbers = self._spark.readStream.schema(DDL).parquet(str(self._directory / "in"))
        output = (streams or self.streams()).transform({"numbers": numbers}).writeStream.format("noop")
        output = output.option("checkpointLocation", checkpoint or self.checkpoint)
        output.trigger(availableNow=True).start().awaitTermination()


@pytest.fixture
def job(spark: SparkSession, tmp_path: Path) -> Job:
    return Job(spark, tmp_path)


@pytest.mark.first
def test_structs_are_taken_out_of_whole_rows_and_shown_as_structs(spark: SparkSession, tmp_path: Path) -> None:
    """By a sink without a schema; a store's rows are shown by the same code."""
    builder = StreamsBuilder()
    visits = Consumed("string", "struct<page:string,millis:long>")
    builder.stream("visits", visits).repartition().to("out")
    ddl = "key string, page string, millis int, timestamp long"
    rows = spark.createDataFrame([("a", "x", 7, 1), ("b", None, None, 2)], ddl)
    streams = SparkStreams(builder.build(), application_id="visits", state_dir=str(tmp_path), backend="memory")
    out = streams.transform({"visits": rows})
    assert dict(out.dtypes)["value"] == "struct<page:string,millis:bigint>"
    assert sorted((row.key, row.value.asDict()) for row in out.collect()) == [
        ("a", {"page": "x", "millis": 7}),
        ("b", {"page": None, "millis": None}),
    ]
    with pytest.raises(ConfigurationError, match="takes 'page' out of"):
        streams.transform({"visits": rows.withColumn("page", rows.millis)})


def test_values_whose_serde_spark_does_not_know_are_shown_as_json(job: Job) -> None:
    job.run(("a", 5, 1), ("a", 6, 2), ("b", 7, 3))
    rows = job.streams().read_store("sums", job.checkpoint)
    assert dict(rows.dtypes)["value"] == "string"
    assert sorted((row.key, row.value) for row in rows.collect()) == [
        ("a", '{"count":2,"sum":11}'),
        ("b", '{"count":1,"sum":7}'),
    ]
    typed = job.streams().read_store("sums", job.checkpoint, schema="key string, sum long")
    assert sorted(map(tuple, typed.collect())) == [("a", 11), ("b", 7)]
    with pytest.raises(ConfigurationError, match="leave out either schema or for_seeds"):
        job.streams().read_store("sums", job.checkpoint, schema="key string, sum long", for_seeds=True)
    seeds = job.streams().read_store("sums", job.checkpoint, for_seeds=True).collect()
    assert sorted((row.key, serde("msgpack").deserialize(bytes(row.value))["sum"]) for row in seeds) == [
        ("a", 11),
        ("b", 7),
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": [1, None, 0.5], 2: "ü"}, '{"a":[1,null,0.5],"2":"ü"}'),
        ("text", '"text"'),
        ({"raw": b"\x00\xff"}, '{"raw":"AP8="}'),
        ([date(2013, 1, 2), Decimal("1.50")], '["2013-01-02","1.50"]'),
        ({(1, 2): 3}, "{(1, 2): 3}"),
        ("\udc80", r'"\udc80"'),
    ],
)
def test_what_has_no_form_in_json_is_shown_as_python_writes_it(value: object, text: str) -> None:
    assert pickle.loads(pickle.dumps(TextSerde())).serialize(value).decode() == text


def test_state_that_is_not_known_without_spark_is_read_by_spark(spark: SparkSession, job: Job) -> None:
    name = "spark.sql.streaming.stateStore.encodingFormat"
    spark.conf.set(name, "avro")
    try:
        job.run(("a", 5, 1), ("b", 7, 3))
    finally:
        spark.conf.unset(name)
    with pytest.raises(FormatError, match=r"=avro, and only unsaferow can be read without Spark; let Spark read it \("):
        StateInspector.at(job.checkpoint, job.state).stores()
    rows = job.streams().read_store("sums", job.checkpoint, schema="key string, sum long")
    assert sorted(map(tuple, rows.collect())) == [("a", 5), ("b", 7)]


def test_a_place_without_a_checkpoint_is_named_and_stays_as_it_is(job: Job) -> None:
    with pytest.raises(ConfigurationError, match=f"there is no checkpoint at {job.checkpoint}; give the query's"):
        job.streams().read_store("sums", job.checkpoint)
    assert not Path(job.checkpoint).exists()


def test_a_query_without_a_commit_has_no_rows_yet(job: Job) -> None:
    with pytest.raises(Exception, match="null key"):
        job.run((None, 1, 1))
    for batch_id in (None, 0):
        with pytest.raises(ConfigurationError, match=f"{job.checkpoint} has not committed a micro-batch yet"):
            job.streams().read_store("sums", job.checkpoint, batch_id=batch_id)


def test_a_batch_that_is_not_retained_is_refused_with_those_that_are(job: Job) -> None:
    job.run(("a", 1, 1))
    job.run(("a", 2, 2))
    for batch_id in (2, -1):
        with pytest.raises(ConfigurationError, match=f"has no micro-batch {batch_id}, only 0 to 1; .*minBatchesToRet"):
            job.streams().read_store("sums", job.checkpoint, batch_id=batch_id)


def test_a_checkpoint_of_another_topology_or_application_is_refused_and_its_own_is_read(job: Job) -> None:
    job.run(("a", 1, 1))
    other = job.streams(application_id="other")
    for streams in (job.streams(totals("json")), other):
        with pytest.raises(
            ConfigurationError, match=f"{job.checkpoint} is not that of a query of this .*'job'.*; give"
        ):
            streams.read_store("sums", job.checkpoint)
    job.run(("a", 2, 2), streams=other, checkpoint=f"{job.checkpoint}-other")
    for streams, checkpoint, stored in (
        (job.streams(), job.checkpoint, '{"count":1,"sum":1}'),
        (other, f"{job.checkpoint}-other", '{"count":2,"sum":3}'),
    ):
        rows = streams.read_store("sums", checkpoint).select("key", "value").collect()
        assert [tuple(row) for row in rows] == [("a", stored)]


def test_a_checkpoint_of_a_query_without_such_state_is_refused(spark: SparkSession, job: Job, tmp_path: Path) -> None:
    for aggregated in (False, True):
        numbers = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
        rows = numbers.groupBy("value").count() if aggregated else numbers
        checkpoint = str(tmp_path / f"plain-{aggregated}")
        output = rows.writeStream.format("noop").outputMode("update" if aggregated else "append")
        query = output.option("checkpointLocation", checkpoint).trigger(once=True).start()
        query.awaitTermination()
        with pytest.raises(ConfigurationError, match=f"{checkpoint} is not that of a query of this topology"):
            job.streams().read_store("sums", checkpoint)


def test_the_number_of_partitions_need_not_be_known(job: Job) -> None:
    job.run(("a", 1, 1))
    rows = job.streams(partitions=7).read_store("sums", job.checkpoint).select("key", "value")
    assert [tuple(row) for row in rows.collect()] == [("a", '{"count":1,"sum":1}')]
