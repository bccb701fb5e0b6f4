"""A session of Spark Connect, for a test of it: ``connect_job.py DIRECTORY`` prints what came out, as JSON.

``connect_job.py DIRECTORY fails`` ends with the failure of a streaming verb that nobody catches.

It is a process of its own because Connect and classic sessions do not mix in one. Where the workers' Python lacks
Millpond, what is said of that is all that comes out.
"""

import json
import logging
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

sys.path.insert(0, str(Path(__file__).parents[2]))

from millpond.adapters.spark import Millpond, SparkStreams, configure, watch
from millpond.errors import ConfigurationError
from millpond.processors import Consumed, Materialized, Produced, StreamsBuilder, TimeWindows, Topology
from millpond.processors.verbs import aggregates
from tests.spark.orders import SCHEMAS, random_events, rated_orders

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
PARTITIONS = "spark.sql.shuffle.partitions"
WORDS = "key string, value long, timestamp long"


def counts() -> Topology:
    builder = StreamsBuilder()
    words = builder.stream("words", Consumed("string", "int64"))
    words.group_by_key().count(Materialized("counts").with_caching()).to(
        "counts", Produced(schema="key string, value long")
    )
    return builder.build()


def stateless() -> Topology:
    builder = StreamsBuilder()
    builder.stream("words", Consumed("string", "int64")).filter(lambda _, value: value > 1).to(
        "big", Produced(schema="key string, value long")
    )
    return builder.build()


def job(topology: Topology, directory: Path, application_id: str) -> SparkStreams:
    return SparkStreams(topology, application_id=application_id, state_dir=str(directory / "state"), backend="lmdb")


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in frame.collect()), key=repr)


def refusal(call: Callable[[], object]) -> str:
    try:
        call()
    except ConfigurationError as error:
        return str(error)
    return "not refused"


def count_streaming(spark: SparkSession, directory: Path, words: str) -> dict[str, Any]:
    """Return what is written and stored once a query, new or old, has counted one more file of words."""
    (directory / "words").mkdir(exist_ok=True)
    file = pa.table({"key": list(words), "value": range(len(words)), "timestamp": range(len(words))})
    pq.write_table(file, directory / "words" / f"{words}.parquet")
    streams, checkpoint = job(counts(), directory, "words"), str(directory / "checkpoint")
    source = spark.readStream.schema(WORDS).parquet(str(directory / "words"))
    query = (
        streams.transform({"words": source})
        .writeStream.option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start(str(directory / "out"))
    )
    query.awaitTermination()
    stored = streams.read_store("counts", checkpoint).select("key", "value")
    return {"written": rows(spark.read.parquet(str(directory / "out"))), "stored": rows(stored)}


def join_static(spark: SparkSession, directory: Path) -> list[tuple[Any, ...]]:
    events = random_events(3, 60)
    frames = {
        topic: spark.createDataFrame([Row(**row) for name, row in events if name == topic], ddl)
        for topic, ddl in SCHEMAS.items()
    }
    return rows(job(rated_orders(), directory, "static").transform(frames, sink="rated"))


def verbs(spark: SparkSession, directory: Path) -> list[tuple[Any, ...]]:
    """Return two verbs in one plan, with one of Spark's own operations between them."""
    orders = spark.sql("select * from values (1, 'EUR', 10), (2, 'EUR', 20), (3, 'USD', 30) as t(id, currency, at)")
    rates = spark.sql("select * from values ('EUR', 5, 1.5d), ('EUR', 15, 2.5d) as t(currency, since, rate)")
    pond = Millpond(application_id="verbs", state_dir=str(directory / "state"), backend="lmdb")
    priced = pond.asof_join(
        orders,
        rates,
        on="currency",
        left_time=F.timestamp_seconds("at"),
        right_time=F.timestamp_seconds("since"),
        history="1 hour",
    )
    totals = pond.aggregate(
        priced.withColumn("price", F.col("id") * F.col("rate")),
        {"total": aggregates.sum(F.col("price"))},
        by="currency",
        time=F.timestamp_seconds("at"),
        window=TimeWindows("1 minute"),
        emit="final",
    )
    return rows(totals.select("currency", "total"))


def at_rows(spark: SparkSession) -> list[tuple[Any, ...]]:
    """Return a verb at the DataFrame that it is for."""
    orders: Any = spark.sql("select 'a' customer, id, timestamp_seconds(id) at from range(2)")
    return rows(orders.millpond.latest(key="customer", time="at", history="1 hour").select("customer", "id"))


def each_batch(spark: SparkSession, directory: Path) -> list[tuple[Any, ...]]:
    """Return what a function has written that gets the changes of a verb at a DataFrame, by micro-batch."""
    source: Any = spark.readStream.schema(WORDS).parquet(str(directory / "words"))
    timed: Any = source.withColumn("at", F.timestamp_seconds("timestamp"))
    pond = Millpond(application_id="batches", state_dir=str(directory / "state"), backend="lmdb")
    counted = timed.millpond(pond).aggregate({"times": aggregates.count()}, by="key", time="at")
    place = str(directory / "batches")

    def write(changes: DataFrame, _: int) -> None:
        changes.where("op = 'upsert'").write.mode("append").parquet(place)

    query = counted.writeStream.foreachBatch(write).option("checkpointLocation", str(directory / "batches-checkpoint"))
    query.trigger(availableNow=True).start().awaitTermination()
    return rows(spark.read.parquet(place).select("key", "times"))


def fail(spark: SparkSession, directory: Path) -> None:
    """Await a query of a verb with a row that has no time."""
    (directory / "untimed").mkdir()
    rows = pa.table({"customer": ["c1"], "at": pa.nulls(1, pa.timestamp("us", "UTC"))})
    pq.write_table(rows, directory / "untimed" / "0.parquet")
    source: Any = spark.readStream.schema("customer string, at timestamp").parquet(str(directory / "untimed"))
    pond = Millpond(application_id="fails", state_dir=str(directory / "state"), backend="memory")
    totals = source.millpond(pond).aggregate({"times": aggregates.count()}, by="customer", time="at", name="totals")
    written = totals.writeStream.format("noop").option("checkpointLocation", str(directory / "fails-checkpoint"))
    written.trigger(availableNow=True).start().awaitTermination()


class Lines(logging.Handler):
    """Keeps the messages that it gets, in whichever thread."""

    def __init__(self) -> None:
        super().__init__()
        self._messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self._messages.append(record.getMessage())

    def first(self, count: int) -> list[str]:
        """Return so many messages, waited for up to half a minute; fewer if they do not come."""
        deadline = time.monotonic() + 30
        while len(self._messages) < count and time.monotonic() < deadline:
            time.sleep(0.05)
        return self._messages[:count]


def partition_warnings(spark: SparkSession, transform: Callable[[], object]) -> list[str]:
    """Return the warnings of two calls with 200 shuffle partitions."""
    spark.conf.set(PARTITIONS, "200")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            transform()
            transform()
    finally:
        spark.conf.set(PARTITIONS, "2")
    return [f"{warning.category.__name__}: {warning.message}" for warning in caught]


def main(directory: Path) -> None:
    spark = configure(SparkSession.builder.remote("local[2]").config(PARTITIONS, "2")).getOrCreate()
    if sys.argv[2:] == ["fails"]:
        fail(spark, directory)
    words = spark.createDataFrame([("a", 1, 1), ("b", 2, 2)], WORDS)
    found: dict[str, Any] = {"session": type(spark).__module__}
    refused = refusal(lambda: job(stateless(), directory, "bare").transform({"words": words}))
    if refused != "not refused":
        print(json.dumps({**found, "bare workers": refused}))
        spark.stop()
        return
    found["stateless"] = rows(job(stateless(), directory, "stateless").transform({"words": words}))
    found["warnings"] = partition_warnings(spark, lambda: job(counts(), directory, "many").transform({"words": words}))
    listener, lines = watch(spark), Lines()
    logging.getLogger("millpond.spark.progress").addHandler(lines)
    logging.getLogger("millpond.spark.progress").setLevel(logging.INFO)
    found["first run"] = count_streaming(spark, directory, "aba")
    found["lines"] = lines.first(1)
    spark.streams.removeListener(listener)
    found["second run"] = count_streaming(spark, directory, "ca")
    found["join"] = join_static(spark, directory)
    found["verbs"] = verbs(spark, directory)
    found["at rows"] = at_rows(spark)
    found["each batch"] = each_batch(spark, directory)
    spark.conf.set(PROVIDER, "some.other.Provider")
    found["other provider"] = refusal(lambda: job(counts(), directory, "other").transform({"words": words}))
    configure(spark)
    found["configured"] = refusal(lambda: job(counts(), directory, "other").transform({"words": words}))
    print(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
