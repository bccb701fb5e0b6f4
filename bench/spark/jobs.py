"""The jobs that ``millpond bench spark`` runs: the same work done by Millpond and by Spark's own means.

Both workloads read streams of ``key string, at long, amount long`` (the events) and, for the temporal join, of
``key string, at long, rate double`` (the table). Each job is a function from the input streams to the stream
that is written; what comes out is thrown away.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from millpond.adapters.spark import Millpond, SparkStreams
from millpond.processors import Consumed, Materialized, Produced, StreamsBuilder, Topology
from millpond.processors.verbs import aggregates

SCHEMAS: Final = {"events": "key string, at long, amount long", "rates": "key string, at long, rate double"}
HISTORY_MS: Final = 1 << 40

Inputs = Mapping[str, DataFrame]
Job = Callable[[Inputs], DataFrame]


def count_topology() -> Topology:
    """Events per key; as in Spark's update mode, one row per key and micro-batch comes out."""
    builder = StreamsBuilder()
    events = builder.stream("events", Consumed("string", "int64", timestamp="at", value="amount"))
    counts = events.group_by_key().count(Materialized("counts").with_caching())
    counts.to("out", Produced(schema="key string, value long"))
    return builder.build()


def join_topology() -> Topology:
    """Each event with its key's rate as of the event's time."""
    builder = StreamsBuilder()
    rates = builder.table(
        "rates",
        Consumed("string", "float64", timestamp="at", value="rate"),
        Materialized.versioned("rates", history_retention=HISTORY_MS),
    )
    events = builder.stream("events", Consumed("string", "int64", timestamp="at", value="amount"))
    joined = events.left_join(rates, lambda amount, rate: {"amount": amount, "rate": rate})
    joined.to("out", Produced(schema="key string, timestamp long, amount long, rate double"))
    return builder.build()


TOPOLOGIES: Final[Mapping[str, Callable[[], Topology]]] = {"count": count_topology, "temporal-join": join_topology}


def millpond_job(workload: str, backend: str, directory: str) -> Job:
    """Millpond on one backend, with its state below ``directory``."""
    streams = SparkStreams(
        TOPOLOGIES[workload](),
        application_id="bench",
        state_dir=f"{directory}/state",
        local_dir=f"{directory}/local",
        backend=backend,
    )
    return streams.transform


def verbs(workload: str, backend: str, directory: str) -> Job:
    """The same by a verb on DataFrames, whose values stay packed."""
    pond = Millpond(
        application_id="bench", state_dir=f"{directory}/state", local_dir=f"{directory}/local", backend=backend
    )
    if workload == "count":
        return lambda inputs: pond.aggregate(
            inputs["events"], {"value": aggregates.count()}, by="key", time=F.timestamp_millis("at")
        )
    return lambda inputs: pond.asof_join(
        inputs["events"],
        inputs["rates"].withColumnRenamed("at", "since"),
        on="key",
        left_time=F.timestamp_millis("at"),
        right_time=F.timestamp_millis("since"),
        history=HISTORY_MS,
        how="left",
    )


def spark_jvm(inputs: Inputs) -> DataFrame:
    """Spark's own aggregate: rows per key."""
    return _all_rows(inputs).groupBy("key").count()


def map_in_arrow(inputs: Inputs) -> DataFrame:
    """Every row to a Python worker, which does nothing, and back: the least that any Python operator costs."""
    return _all_rows(inputs).mapInArrow(_pass_through, "key string, at long")


def transform_with_state(workload: str) -> Job:
    """Spark's Python state API, row by row, one group per key."""
    if workload == "count":
        return lambda inputs: (
            inputs["events"].groupBy("key").transformWithState(CountRows(), "key string, n long", "Update", "None")
        )
    return lambda inputs: (
        inputs["events"]
        .unionByName(inputs["rates"], allowMissingColumns=True)
        .groupBy("key")
        .transformWithState(JoinRows(), "key string, at long, amount long, rate double", "Append", "None")
    )


def _all_rows(inputs: Inputs) -> DataFrame:
    events, *tables = (inputs[topic].select("key", "at") for topic in inputs)
    for table in tables:
        events = events.unionByName(table)
    return events


def _pass_through(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return batches


class CountRows(StatefulProcessor):
    """Counts with one get and one put per key and micro-batch."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._count = handle.getValueState("count", "n long")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:
        before = self._count.get()
        count = (0 if before is None else before[0]) + sum(1 for _ in rows)
        self._count.update((count,))
        yield Row(key=key[0], n=count)


class JoinRows(StatefulProcessor):
    """Keeps all versions of a key's rate, and reads them once per micro-batch."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._versions = handle.getListState("versions", "at long, rate double")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:
        versions = [tuple(version) for version in self._versions.get()]
        for row in sorted(rows, key=lambda row: (row.at, row.rate is None)):
            if row.rate is not None:
                versions.append((row.at, row.rate))
                self._versions.appendValue((row.at, row.rate))
                continue
            rate = max((version for version in versions if version[0] <= row.at), default=(0, None))[1]
            yield Row(key=key[0], at=row.at, amount=row.amount, rate=rate)
