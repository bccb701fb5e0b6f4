"""The map side: input rows become blobs for the tasks, or pass through a sub-topology that keeps nothing first.

Rule of this module: its classes are the functions of ``mapInArrow``. They see one Spark partition and keep nothing
between micro-batches.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Final

import pyarrow as pa
from pyspark.taskcontext import TaskContext

from millpond.adapters.spark.counters import counts_row, without_counts
from millpond.adapters.spark.sink import Sink
from millpond.adapters.spark.source import RecordReader, Records, Source
from millpond.adapters.spark.worker import tune
from millpond.processors.distribution.exchange import (
    EXCHANGE_SCHEMA,
    Blob,
    BlobWriter,
    Run,
    to_record_batch,
    windows,
)
from millpond.processors.distribution.partitions import partitions_of
from millpond.processors.distribution.plan import Plan
from millpond.processors.runtime.batch import Batch
from millpond.processors.runtime.subtopology import Subtopology
from millpond.processors.runtime.task import Task
from millpond.stores.serdes import serde

_MAX_PENDING_BYTES: Final = 8 << 20


class Pack:
    """Sends the records of one source topic to the tasks that read it: each to its own, or all to all (a broadcast)."""

    def __init__(self, plan: Plan, source: Source) -> None:
        self._source = source
        self._input = plan.input_of(source.topic)
        self._tasks = plan.group_keys_of(plan.readers[source.topic])
        self._copies = [
            (task, plan.input_of(source.topic, part))
            for part in plan.all_readers(source.topic)
            for task in plan.group_keys_of(part)
            if part.sources[source.topic].broadcast
        ]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tune()
        split = _split()
        writer = BlobWriter(split)
        counts: Counter[str] = Counter()
        for records in _read(batches, self._source, split, counts):
            if self._copies:
                copies = (writer.cut(records.table, task, input_) for task, input_ in self._copies)
                yield from _packed(chain.from_iterable(copies))
            else:
                partitions = partitions_of(records.keys, len(self._tasks))
                yield from _packed(writer.scatter(records.table, partitions, self._tasks, self._input))
        yield from _counted(EXCHANGE_SCHEMA, counts)


class PackThrough:
    """Runs one source topic through a sub-topology that keeps nothing, and sends on what comes out."""

    def __init__(self, plan: Plan, part: Subtopology, source: Source) -> None:
        self._part = part
        self._source = source
        self._router = Router(plan, part)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tune()
        split = _split()
        writer = BlobWriter(split)
        counts: Counter[str] = Counter()
        for outputs in _run(self._part, batches, self._source, split, counts):
            yield from _packed(self._router.route(outputs, writer))
        yield from _counted(EXCHANGE_SCHEMA, counts)


class MapOnly:
    """Runs one source topic through a sub-topology that keeps nothing, straight into the sink."""

    def __init__(self, part: Subtopology, source: Source, sink: Sink) -> None:
        self._part = part
        self._source = source
        self._sink = sink

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tune()
        split = _split()
        counts: Counter[str] = Counter()
        for outputs in _run(self._part, batches, self._source, split, counts):
            for batch in outputs.get(self._sink.topic, ()):
                yield from without_counts(self._sink.to_table(batch)).to_batches()
        yield from _counted(self._sink.schema, counts)


class Router:
    """Sends what a sub-topology writes to repartition topics to the tasks that read them."""

    def __init__(self, plan: Plan, part: Subtopology) -> None:
        self._partitions = plan.partitions
        self._routes = {
            topic: (
                serde(node.produced.key_serde or "bytes").serialize,
                serde(node.produced.value_serde or "bytes").serialize,
                plan.group_keys_of(plan.readers[topic]),
                plan.input_of(topic),
            )
            for topic, node in part.sinks.items()
            if topic in plan.topology.internal_topics and topic in plan.readers
        }

    def route(self, outputs: Mapping[str, Iterable[Batch]], writer: BlobWriter) -> Iterator[Blob]:
        """The blobs of what came out; what nobody reads is dropped."""
        for topic, (key_bytes, value_bytes, tasks, input_) in self._routes.items():
            for batch in outputs.get(topic, ()):
                keys = [None if key is None else key_bytes(key) for key in batch.keys]
                values = [None if value is None else value_bytes(value) for value in batch.values]
                records = pa.table(
                    {
                        "key": pa.array(keys, pa.binary()),
                        "value": pa.array(values, pa.binary()),
                        "timestamp": pa.array(batch.timestamps, pa.int64()),
                    }
                )
                partitions = partitions_of([key or b"" for key in keys], self._partitions)
                yield from writer.scatter(records, partitions, tasks, input_)


def joined(batches: Iterable[Batch]) -> Batch:
    """Many small batches as one."""
    few = list(batches)
    if len(few) == 1:
        return few[0]
    return Batch(
        list(chain.from_iterable(batch.keys for batch in few)),
        list(chain.from_iterable(batch.values for batch in few)),
        list(chain.from_iterable(batch.timestamps for batch in few)),
    )


def decoded(run: Run, source: Source) -> Batch:
    """The records of a run as the processors see them."""
    keys, values = run.keys, run.values
    if source.decode_key and source.key_serde is not None:
        read_key = source.key_serde.deserialize
        keys = [None if key is None else read_key(key) for key in keys]
    if source.value_serde is not None:
        read_value = source.value_serde.deserialize
        values = [None if value is None else read_value(value) for value in values]
    return Batch(keys, values, run.timestamps)


def _split() -> int:
    context = TaskContext.get()
    return 0 if context is None else int(context.partitionId())


def _read(batches: Iterator[pa.RecordBatch], source: Source, split: int, counts: Counter[str]) -> Iterator[Records]:
    """The usable records, a few megabytes at a time."""
    reader = RecordReader(source, split)
    for table in _gulps(batches):
        records = reader.read(table)
        counts.update(records.skipped)
        yield records


def _gulps(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    pending: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        pending.append(batch)
        size += batch.nbytes
        if size >= _MAX_PENDING_BYTES:
            yield pa.Table.from_batches(pending)
            pending, size = [], 0
    if pending:
        yield pa.Table.from_batches(pending)


def _run(
    part: Subtopology, batches: Iterator[pa.RecordBatch], source: Source, split: int, counts: Counter[str]
) -> Iterator[dict[str, list[Batch]]]:
    """What the sub-topology writes to each of its sinks, and at the end what its processors held back."""
    task = Task(part, {}, split)
    for records in _read(batches, source, split, counts):
        for run in windows(0, records.table):
            task.process(source.topic, decoded(run, source))
            yield {topic: [joined(batches)] for topic, batches in task.take().items()}
    task.flush()
    yield {topic: [joined(batches)] for topic, batches in task.take().items()}
    counts.update(task.counters)
    task.close()


def _packed(blobs: Iterable[Blob]) -> Iterator[pa.RecordBatch]:
    yield from without_counts(pa.Table.from_batches([to_record_batch(blobs)])).to_batches()


def _counted(schema: pa.Schema, counts: Counter[str]) -> Iterator[pa.RecordBatch]:
    if counts:
        yield from counts_row(schema, counts).to_batches()
