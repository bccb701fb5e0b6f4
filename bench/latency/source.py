"""A source of Spark whose rows come into being by the clock: what there is to read follows from the time alone.

Rule of this module: a row is made from its number, so that reading it again gives the same row, and nothing has to be
written, kept or sent by anybody before it is read. Spark's own ``rate`` source shows whole seconds only.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from millpond.bench.latency.arrivals import Arrivals
from millpond.bench.spark.inputs import Topic
from millpond.bench.spark.shapes import Inputs, columns_of
from millpond.bench.spark.workloads import workload_named

FORMAT: Final = "millpond-bench-arrivals"
ROWS_TOGETHER: Final = 10_000
"""The most rows of an Arrow batch, which is what Spark's own sources give Python."""

Offset = dict[str, int]
"""The number of rows before it, by the topic's name."""


@dataclass(frozen=True)
class Stretch(InputPartition):
    """Rows of a topic that one task reads, from one number up to another."""

    first: int
    stop: int


class ArrivingRows(DataSource):
    """The rows of a topic; its options are those that ``read_arrivals`` gives."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return self._topic().schema

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        told = self.options
        arrivals = Arrivals(int(told["begin"]), Fraction(told["pace"]))
        numbers = (int(told[name]) for name in ("keys", "partitions", "seed"))
        return ArrivalsReader(self._topic(), arrivals, *numbers)

    def _topic(self) -> Topic:
        work = workload_named(self.options["workload"])
        return next(topic for topic in work.topics if topic.name == self.options["topic"])


class ArrivalsReader(DataSourceStreamReader):
    """Reads what has come into being.

    Args:
        topic: what the rows are.
        arrivals: when they are there.
        keys: distinct ones.
        partitions: how many tasks read.
        seed: of all chance in the rows.
    """

    def __init__(self, topic: Topic, arrivals: Arrivals, keys: int, partitions: int, seed: int) -> None:
        self._topic = topic
        self._arrivals = arrivals
        self._keys = keys
        self._partitions = partitions
        self._seed = seed

    def initialOffset(self) -> Offset:
        return {self._topic.name: 0}

    def latestOffset(self, start: Offset, limit: object) -> Offset:
        now = time.time_ns() // 1_000
        return {self._topic.name: max(self._arrivals.count(now), *start.values())}

    def partitions(self, start: Offset, end: Offset) -> Sequence[Stretch]:
        (first,), (stop,) = start.values(), end.values()
        ends = [first + (stop - first) * part // self._partitions for part in range(self._partitions + 1)]
        return [Stretch(one, other) for one, other in pairwise(ends) if one < other]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Stretch)
        for first in range(partition.first, partition.stop, ROWS_TOGETHER):
            yield self._rows(first, min(first + ROWS_TOGETHER, partition.stop))

    def _rows(self, first: int, stop: int) -> pa.RecordBatch:
        rng = np.random.default_rng([self._seed, first, stop])
        columns = dict(self._topic.draw(rng.integers(0, self._keys, stop - first), rng))
        columns["at"] = pa.array(self._arrivals.moment(np.arange(first, stop)) // 1_000)
        return pa.record_batch({name: columns[name] for name in columns_of(self._topic.schema)})


def read_arrivals(
    spark: SparkSession,
    workload: str,
    arrivals: dict[str, Arrivals],
    *,
    keys: int,
    partitions: int,
    seed: int,
) -> Inputs:
    """Return a stream for each topic of a workload.

    Args:
        spark: the session.
        workload: the name of the workload.
        arrivals: when rows come into being, by topic.
        keys: distinct ones.
        partitions: how many tasks read a topic.
        seed: of all chance in the rows.
    """
    spark.dataSource.register(ArrivingRows)

    def stream(topic: str, when: Arrivals) -> DataFrame:
        reader = spark.readStream.format(FORMAT).options(workload=workload, topic=topic)
        reader = reader.options(begin=when.begin, pace=str(when.pace))
        return reader.options(keys=keys, partitions=partitions, seed=seed).load()

    return {topic: stream(topic, when) for topic, when in arrivals.items()}
