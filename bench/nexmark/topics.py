"""Events in topics of Kafka, as JSON, and the topics as rows, in the way of a user's job.

Rule of this module: Spark's connector writes and reads the topics, and the Kafka client that comes with it makes them.
They have the events of the files, which DuckDB and Flink read: a partition has one file of each micro-batch, in order.
A stream of a topic ends with it, so the first few micro-batches of a source are a topic of their own.
"""

import math
import re
import socket
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millpond.bench.nexmark.events import EPOCH, Site
from millpond.bench.spark.inputs import Source, read_inputs
from millpond.bench.spark.shapes import Inputs, Scale
from millpond.errors import ConfigurationError

NEWEST_CONNECTOR: Final = "4.2.0"
"""The newest release of Spark's connector that is published; it also serves PySpark 4.3."""

_SERVERS: Final = "kafka.bootstrap.servers"
_PATIENCE: Final = 5.0
"""Seconds in which a broker has to accept a connection."""

_CLIENT: Final = {"request.timeout.ms": "10000", "default.api.timeout.ms": "30000"}
"""Milliseconds in which a broker has to answer, once and with repetitions."""


class Topics:
    """The topics of a contest, which are filled when they are read first.

    Args:
        servers: brokers, as ``HOST:PORT`` with commas between.
        admin: the client that makes topics.

    Attributes:
        names: those that there are.
    """

    def __init__(self, servers: str, admin: Any) -> None:
        self.names: list[str] = []
        self._servers, self._admin = servers, admin

    def read(
        self,
        spark: SparkSession,
        place: Path,
        sources: Sequence[Source],
        scale: Scale,
        batches: int,
        static: Collection[str] = (),
    ) -> Inputs:
        """Return streams of the first ``batches`` micro-batches whose files are below ``place``, as ``read_inputs``.

        A topic has ``scale.files`` partitions. None of the sources is static.
        """
        return {source.name: self._stream(spark, place, source, scale, batches) for source in sources}

    def _stream(self, spark: SparkSession, place: Path, source: Source, scale: Scale, batches: int) -> DataFrame:
        topic = f"{place.name}-{source.name}-{batches}"
        if topic not in self.names:
            self._make(spark, topic, scale.files)
            rows = read_inputs(spark, place, [source], scale, batches, static=[source.name])[source.name]
            self._fill(topic, rows, scale.files)
        reader = spark.readStream.format("kafka").option(_SERVERS, self._servers).option("subscribe", topic)
        first = [pq.read_metadata(part).num_rows for part in (place / source.name).glob("000000-*.parquet")]
        most = offsets_limit(sum(first), scale.files)
        reader = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", most)
        event = F.from_json(F.col("value").cast("string"), source.schema)
        return reader.load().select(event.alias("event")).select("event.*")

    def _make(self, spark: SparkSession, topic: str, partitions: int) -> None:
        jvm: Any = spark._jvm
        some, none = jvm.java.util.Optional.of(partitions), jvm.java.util.Optional.empty()
        new = jvm.org.apache.kafka.clients.admin.NewTopic(topic, some, none)
        try:
            self._admin.createTopics([new]).all().get()
        except Py4JJavaError as error:
            raise ConfigurationError(f"the broker at {self._servers} makes no topic: {_cause(error)}") from None
        self.names.append(topic)

    def _fill(self, topic: str, rows: DataFrame, partitions: int) -> None:
        file = F.col("_metadata.file_name")
        placed = rows.select(
            F.to_json(F.struct(*rows.columns)).alias("value"),
            F.regexp_extract(file, r"-(\d+)\.parquet$", 1).cast("int").alias("partition"),
            file.alias("file"),
            F.col("_metadata.row_index").alias("row"),
        )
        in_order = placed.repartition(partitions, "partition").sortWithinPartitions("file", "row")
        writer = in_order.select("value", "partition").write.format("kafka")
        writer.option(_SERVERS, self._servers).option("topic", topic).save()


@contextmanager
def topics_on(spark: SparkSession, servers: str) -> Iterator[Topics]:
    """Topics on a broker, which are deleted at the end.

    Args:
        spark: the session, which has the connector.
        servers: brokers, as ``HOST:PORT`` with commas between.

    Raises:
        ConfigurationError: the session has no connector, or what answers there is no broker.
    """
    _check_connector(spark, servers)
    jvm: Any = spark._jvm
    admin = jvm.org.apache.kafka.clients.admin.AdminClient.create({"bootstrap.servers": servers, **_CLIENT})
    try:
        try:
            admin.describeCluster().nodes().get()
        except Py4JJavaError as error:
            raise _no_broker(servers, _cause(error)) from None
        topics = Topics(servers, admin)
        try:
            yield topics
        finally:
            with suppress(Py4JJavaError):  # no figure is to be lost for a topic that stays
                admin.deleteTopics(topics.names).all().get()
    finally:
        admin.close()


def check_broker(servers: str) -> None:
    """Check that one of the brokers accepts a connection, before anything starts.

    Args:
        servers: brokers, as ``HOST:PORT`` with commas between.

    Raises:
        ConfigurationError: these are no addresses, or nobody answers there.
    """
    why = ""
    for server in servers.split(","):
        host, _, port = server.strip().rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
            raise ConfigurationError(f"{server!r} is no address of a broker; write --kafka HOST:PORT")
        try:
            socket.create_connection((host.strip("[]"), int(port)), _PATIENCE).close()
            return
        except OSError as error:
            why = str(error)
    raise _no_broker(servers, why)


def even_rows(rows: int, site: Site, partitions: int) -> int:
    """Return how many events a micro-batch has: at least ``rows``, and in each as many of a kind for each partition.

    So all that ``maxOffsetsPerTrigger`` lets into a micro-batch is what its files have.
    """
    step = math.lcm(EPOCH * partitions, site.out_of_order)
    return -(-rows // step) * step


def offsets_limit(rows: int, partitions: int) -> int:
    """Return the ``maxOffsetsPerTrigger`` by which a micro-batch has ``rows``, as many of each partition.

    Spark gives each partition a share of the limit that is no whole number, and may be a hair too small, and cuts that
    down to one. So there is half a row more for each.
    """
    return rows + partitions // 2


def connector(spark: str) -> str:
    """Return the coordinates of the connector in Maven for a release of Spark: its own, or the newest before it."""
    release = min(spark, NEWEST_CONNECTOR, key=lambda one: [int(number) for number in re.findall(r"\d+", one)[:3]])
    return f"org.apache.spark:spark-sql-kafka-0-10_2.13:{release}"


def _check_connector(spark: SparkSession, servers: str) -> None:
    try:
        spark.readStream.format("kafka").option(_SERVERS, servers).option("subscribe", "any").load()
    except AnalysisException as error:
        raise ConfigurationError(
            f"this Spark has no connector for Kafka; write --kafka {servers} --packages {connector(spark.version)}, "
            "and it is fetched from Maven"
        ) from error


def _no_broker(servers: str, why: str) -> ConfigurationError:
    return ConfigurationError(
        f"no broker of Kafka answers at {servers} ({why}); start one there, as https://kafka.apache.org/quickstart "
        "says, or write --kafka HOST:PORT with the address of another"
    )


def _cause(error: Py4JJavaError) -> str:
    """Return what the Kafka client says."""
    thrown: Any = error.java_exception
    return str((thrown.getCause() or thrown).getMessage())
