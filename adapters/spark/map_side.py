"""The map side: input rows become blobs for tasks, or first pass through a sub-topology that keeps nothing.

Rule of this module: its classes are the functions of ``mapInArrow``. They see one Spark partition and keep nothing
between micro-batches.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final

import pyarrow as pa
from pyspark.taskcontext import TaskContext

from millpond.adapters.spark.counters import counts_row, without_counts
from millpond.adapters.spark.rows.dead_letters import ErrorHandling
from millpond.adapters.spark.rows.records import Source
from millpond.adapters.spark.rows.sink import SinkColumns, SinkRows
from millpond.adapters.spark.rows.unusable import TopicSource
from millpond.adapters.spark.worker import current_batch, short_errors, tune_worker
from millpond.processors.distribution.combining import Combining, Sent
from millpond.processors.distribution.exchange import (
    EXCHANGE_SCHEMA,
    Blob,
    BlobWriter,
    completion_blobs,
    to_record_batch,
)
from millpond.processors.distribution.execution import Outputs, run_split
from millpond.processors.distribution.router import Route, Router
from millpond.processors.runtime.subtopology import Subtopology
from millpond.processors.runtime.task import Task

_CHUNK_BYTES: Final = 8 << 20


class SendToTasks:
    """Sends the records of one source topic to the tasks that read it, combined if there is a ``combining``."""

    def __init__(
        self, source: TopicSource, route: Route, handling: ErrorHandling, combining: Combining | None = None
    ) -> None:
        self._source = source
        self._route = route
        self._combining = combining
        self._handling = handling

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tune_worker()
        with short_errors():
            yield from self._send(batches)

    def _send(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        split = _split()
        writer = BlobWriter(split)
        box = self._handling.box(f"{self._source.topic}-{split}")
        reader = self._source.reader(split, box.bury)
        for chunk in _chunks(batches):
            usable = reader.usable(chunk)
            for sent, partial in [Sent(usable)] if self._combining is None else self._combining.split(usable):
                records, keys = reader.packed(sent, partial=partial)
                yield from _blob_rows(self._route.send(records, keys, writer, partial=partial))
        box.write()
        yield from _counted(EXCHANGE_SCHEMA, reader.skipped)


class SendCompletion:
    """Tells tasks that their inputs are complete, as soon as there is a row that says so."""

    def __init__(self, tasks: Sequence[int]) -> None:
        self._tasks = tasks

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if any(batch.num_rows for batch in batches):
            yield to_record_batch(completion_blobs(self._tasks))


class ProcessAndSend:
    """Runs one source topic through a sub-topology that keeps nothing, and sends what comes out to other tasks."""

    def __init__(self, part: Subtopology, source: Source, router: Router, handling: ErrorHandling) -> None:
        self._part = part
        self._source = source
        self._router = router
        self._handling = handling

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        split = _split()
        writer = BlobWriter(split)
        counts: Counter[str] = Counter()
        for outputs in _process(self._part, self._source, self._handling, batches, counts):
            yield from _blob_rows(self._router.send(outputs, writer))
        yield from _counted(EXCHANGE_SCHEMA, counts)


class ProcessToSink:
    """Runs one source topic through a sub-topology that keeps nothing, straight into the sink."""

    def __init__(self, part: Subtopology, source: Source, sink: SinkColumns, handling: ErrorHandling) -> None:
        self._part = part
        self._source = source
        self._sink = sink
        self._handling = handling

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        counts: Counter[str] = Counter()
        rows = SinkRows(self._sink, current_batch() or 0)
        for outputs in _process(self._part, self._source, self._handling, batches, counts):
            for table in rows.to_tables(outputs):
                yield from without_counts(table).to_batches()
        yield from _counted(self._sink.schema, counts)


def _split() -> int:
    context = TaskContext.get()
    return 0 if context is None else int(context.partitionId())


def _chunks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The rows, a few megabytes at a time."""
    pending: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        pending.append(batch)
        # Not nbytes, which looks at offsets: some releases of Spark leave those of empty lists within lists out.
        size += batch.get_total_buffer_size()
        if size >= _CHUNK_BYTES:
            yield pa.Table.from_batches(pending)
            pending, size = [], 0
    if pending:
        yield pa.Table.from_batches(pending)


def _process(
    part: Subtopology,
    source: Source,
    handling: ErrorHandling,
    batches: Iterator[pa.RecordBatch],
    counts: Counter[str],
) -> Iterator[Outputs]:
    """What the sub-topology makes of the rows; at the end ``counts`` holds what was skipped and what it counted."""
    tune_worker()
    split = _split()
    box = handling.box(f"{source.topic}-{split}")
    reader = source.reader(split, box.bury)
    with short_errors():
        task = Task(part, {}, split, policy=box.policy)
        yield from run_split(task, source.topic, chain.from_iterable(map(reader.batches, _chunks(batches))))
    box.write()
    counts.update(reader.skipped)
    counts.update(task.counters)


def _blob_rows(blobs: Iterable[Blob]) -> Iterator[pa.RecordBatch]:
    yield from without_counts(pa.Table.from_batches([to_record_batch(blobs)])).to_batches()


def _counted(schema: pa.Schema, counts: Mapping[str, int]) -> Iterator[pa.RecordBatch]:
    if counts:
        yield from counts_row(schema, counts).to_batches()
