"""The map side: input rows become blobs for the tasks, or pass through a sub-topology that keeps nothing first.

Rule of this module: its classes are the functions of ``mapInArrow``. They see one Spark partition and keep nothing
between micro-batches.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Final

import pyarrow as pa
from pyspark.taskcontext import TaskContext

from millpond.adapters.spark.exchange import (
    BLOB_BYTES,
    EXCHANGE_DDL,
    EXCHANGE_SCHEMA,
    Blob,
    BlobWriter,
    Run,
    to_record_batch,
    windows,
)
from millpond.adapters.spark.partitions import partitions_of
from millpond.adapters.spark.plan import Plan
from millpond.adapters.spark.sink import Sink
from millpond.adapters.spark.source import SKIP_REASONS, RecordReader, Records, Source
from millpond.adapters.spark.worker import tune
from millpond.processors.batch import Batch
from millpond.processors.task import Task
from millpond.processors.topology import Subtopology
from millpond.stores.serdes import serde

SKIPPED_DDL: Final = "skipped struct<" + ", ".join(f"{reason}: bigint" for reason in SKIP_REASONS) + ">"
"""The last column of what a packer makes: counts of skipped records in a row of its own, null in all other rows."""

PACKED_DDL: Final = f"{EXCHANGE_DDL}, {SKIPPED_DDL}"
_SKIPPED_TYPE: Final = pa.struct([(reason, pa.int64()) for reason in SKIP_REASONS])
_MAX_PENDING_BYTES: Final = 8 * BLOB_BYTES


class Pack:
    """Sends the records of one source topic to the tasks that read it: each to its own, or all to all (a broadcast)."""

    def __init__(self, plan: Plan, source: Source) -> None:
        self._source = source
        self._input = plan.input_of(source.topic)
        self._tasks = plan.group_keys_of(plan.readers[source.topic])
        self._broadcast = plan.topics[source.topic].broadcast

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tune()
        split = _split()
        writer = BlobWriter(split)
        skipped: Counter[str] = Counter()
        for records in _read(batches, self._source, split, skipped):
            if self._broadcast:
                copies = (writer.cut(records.table, task, self._input) for task in self._tasks)
                yield _packed(chain.from_iterable(copies))
            else:
                partitions = partitions_of(records.keys, len(self._tasks))
                yield _packed(writer.scatter(records.table, partitions, self._tasks, self._input))
        yield from _skipped_row(skipped, EXCHANGE_SCHEMA)


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
        skipped: Counter[str] = Counter()
        for outputs in _run(self._part, _read(batches, self._source, split, skipped), self._source, split):
            yield _packed(self._router.route(outputs, writer))
        yield from _skipped_row(skipped, EXCHANGE_SCHEMA)


class MapOnly:
    """Runs one source topic through a sub-topology that keeps nothing, straight into the sink."""

    def __init__(self, part: Subtopology, source: Source, sink: Sink) -> None:
        self._part = part
        self._source = source
        self._sink = sink

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tune()
        split = _split()
        skipped: Counter[str] = Counter()
        for outputs in _run(self._part, _read(batches, self._source, split, skipped), self._source, split):
            for batch in outputs.get(self._sink.topic, ()):
                yield from (_without_skips(rows) for rows in self._sink.to_table(batch).to_batches())
        yield from _skipped_row(skipped, self._sink.schema)


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
                keys = list(map(key_bytes, batch.keys))
                values = [None if value is None else value_bytes(value) for value in batch.values]
                records = pa.table(
                    {
                        "key": pa.array(keys, pa.binary()),
                        "value": pa.array(values, pa.binary()),
                        "timestamp": pa.array(batch.timestamps, pa.int64()),
                    }
                )
                yield from writer.scatter(records, partitions_of(keys, self._partitions), tasks, input_)


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
        keys = list(map(source.key_serde.deserialize, keys))
    if source.value_serde is not None:
        read = source.value_serde.deserialize
        values = [None if value is None else read(value) for value in values]
    return Batch(keys, values, run.timestamps)


def _split() -> int:
    context = TaskContext.get()
    return 0 if context is None else int(context.partitionId())


def _read(batches: Iterator[pa.RecordBatch], source: Source, split: int, skipped: Counter[str]) -> Iterator[Records]:
    """The usable records, a few megabytes at a time."""
    reader = RecordReader(source, split)
    for table in _gulps(batches):
        records = reader.read(table)
        skipped.update(records.skipped)
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


def _run(part: Subtopology, records: Iterator[Records], source: Source, split: int) -> Iterator[dict[str, list[Batch]]]:
    """What the sub-topology writes to each of its sinks, and at the end what its processors held back."""
    task = Task(part, {}, split)
    for gulp in records:
        for run in windows(0, gulp.table):
            task.process(source.topic, decoded(run, source))
            yield {topic: [joined(batches)] for topic, batches in task.take().items()}
    task.flush()
    yield {topic: [joined(batches)] for topic, batches in task.take().items()}
    task.close()


def _packed(blobs: Iterable[Blob]) -> pa.RecordBatch:
    return _without_skips(to_record_batch(blobs))


def _without_skips(rows: pa.RecordBatch) -> pa.RecordBatch:
    columns: list[Any] = [*rows.columns, pa.nulls(rows.num_rows, _SKIPPED_TYPE)]
    return pa.RecordBatch.from_arrays(columns, names=[*rows.schema.names, "skipped"])


def _skipped_row(skipped: Counter[str], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    if skipped:
        counts = pa.array([{reason: skipped[reason] for reason in SKIP_REASONS}], _SKIPPED_TYPE)
        columns = [*(pa.nulls(1, field.type) for field in schema), counts]
        yield pa.RecordBatch.from_arrays(columns, names=[*schema.names, "skipped"])
