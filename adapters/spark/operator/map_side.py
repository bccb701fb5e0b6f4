"""The map side: input rows become blobs for tasks, or first pass through a sub-topology that keeps nothing.

Rule of this module: its classes are the functions of ``mapInArrow``. They see one Spark partition and keep nothing
between micro-batches.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as _compute

from millpond.adapters.spark.rows.dead_letters import ErrorHandling
from millpond.adapters.spark.rows.records import Source
from millpond.adapters.spark.rows.sink import SinkColumns
from millpond.adapters.spark.rows.sink_blobs import SinkBlobs
from millpond.adapters.spark.worker.attempt import Attempt
from millpond.adapters.spark.worker.counters import report_row, without_report
from millpond.adapters.spark.worker.worker import tune_worker
from millpond.metrics import Metrics
from millpond.processors.distribution.combining import Combining, Sent
from millpond.processors.distribution.exchange import (
    EXCHANGE_SCHEMA,
    Blob,
    BlobWriter,
    Form,
    signal_blobs,
    to_record_batch,
)
from millpond.processors.distribution.execution import Outputs, run_split
from millpond.processors.distribution.router import Route, Router
from millpond.processors.rows.sink_rows import SinkRows
from millpond.processors.rows.unusable import SplitReader, TopicSource
from millpond.processors.runtime.batches.columns import Records
from millpond.processors.runtime.metrics import TaskMetric
from millpond.processors.runtime.subtopology import Subtopology
from millpond.processors.runtime.tasks.task import Task

pc: Any = _compute

_CHUNK_BYTES: Final = 8 << 20


class MapSide(ABC):
    """Turns one part of an input into blobs on the map side. Travels to the workers."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tune_worker()
        yield from self.made(batches, Attempt.here())

    @abstractmethod
    def made(self, batches: Iterator[pa.RecordBatch], attempt: Attempt) -> Iterator[pa.RecordBatch]:
        """Yield what becomes of the rows."""


class SendToTasks(MapSide):
    """Sends the records of one source topic to the tasks that read it.

    Args:
        source: how the records are read.
        route: leads to the tasks.
        handling: what happens to unusable records.
        combining: makes partial aggregates of them; None if they travel as they are.
        tells_time: whether all tasks are told the greatest timestamp, also those that get no record.
    """

    def __init__(
        self,
        source: TopicSource,
        route: Route,
        handling: ErrorHandling,
        combining: Combining | None = None,
        *,
        tells_time: bool = False,
    ) -> None:
        self._tells_time = tells_time
        self._source = source
        self._route = route
        self._combining = combining
        self._handling = handling

    def made(self, batches: Iterator[pa.RecordBatch], attempt: Attempt) -> Iterator[pa.RecordBatch]:
        split = attempt.split
        writer = BlobWriter(split)
        box = self._handling.box(f"{self._source.topic}-{split}", attempt)
        reader = self._source.reader(split, box.keep_letter)
        metrics = Metrics()
        latest: list[int] = []
        for chunk in chunks(batches):
            metrics.add(TaskMetric.RECORDS_IN, chunk.num_rows)
            usable = reader.usable(chunk)
            newest = pc.max(usable["timestamp"]).as_py()
            latest += [] if newest is None else [newest]
            sent = self._sent(usable, reader, writer, metrics)
            yield from metrics.timed_each(TaskMetric.PROCESS_DURATION, sent)
        if latest and self._tells_time:
            yield from _blob_rows(self._route.tell_time(max(latest), split))
        box.write()
        yield from reported(EXCHANGE_SCHEMA, reader.skipped, metrics)

    def _sent(
        self, usable: pa.Table, reader: SplitReader, writer: BlobWriter, metrics: Metrics
    ) -> Iterator[pa.RecordBatch]:
        """Yield the records of usable rows as rows of blobs."""
        for spread in reader.spread(usable):
            for sent, form in [Sent(spread)] if self._combining is None else self._combining.split(spread):
                records, keys = reader.packed(sent, partial=form is Form.PARTIALS)
                metrics.add(TaskMetric.RECORDS_OUT, 0 if form is Form.SPARES else records.num_rows)
                yield from _blob_rows(self._route.send(records, keys, writer, form))


class SendSignal:
    """Tells all tasks that their inputs are complete, or wakes them, in each micro-batch with a row that says so."""

    def __init__(self, signal: int, tasks: Sequence[int]) -> None:
        self._signal = signal
        self._tasks = tasks

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # All are read: Spark ends a worker that leaves some of its input, and another takes a second to start.
        if sum(batch.num_rows for batch in batches):
            yield to_record_batch(signal_blobs(self._signal, self._tasks))


class ProcessAndSend(MapSide):
    """Runs one source topic through a sub-topology that keeps nothing, and sends what comes out to other tasks.

    Args:
        part: the sub-topology.
        source: how the topic is read.
        router: sends to tasks.
        handling: what happens to records that cannot be processed.
        sinks: the sinks, by number, whose rows come out as blobs.
        tasks: the numbers that stand for the sub-topology in such blobs; splits share them evenly.
    """

    def __init__(
        self,
        part: Subtopology,
        source: Source,
        router: Router,
        handling: ErrorHandling,
        sinks: Mapping[int, SinkColumns],
        tasks: Sequence[int],
    ) -> None:
        self._part = part
        self._source = source
        self._router = router
        self._handling = handling
        self._sinks = sinks
        self._tasks = tasks

    def made(self, batches: Iterator[pa.RecordBatch], attempt: Attempt) -> Iterator[pa.RecordBatch]:
        split = attempt.split
        writer = BlobWriter(split)
        sinks = SinkBlobs(self._sinks, self._tasks[split % len(self._tasks)], attempt.batch or 0, writer)
        run = _Run(self._part, self._source, self._handling, attempt)
        for outputs in run.outputs(batches):
            yield from _blob_rows([*self._router.send(outputs, writer), *sinks.blobs(outputs)])
        yield from reported(EXCHANGE_SCHEMA, run.counts, run.metrics)


class ProcessToSink(MapSide):
    """Runs one source topic through a sub-topology that keeps nothing, straight into the sink."""

    def __init__(self, part: Subtopology, source: Source, sink: SinkColumns, handling: ErrorHandling) -> None:
        self._part = part
        self._source = source
        self._sink = sink
        self._handling = handling

    def made(self, batches: Iterator[pa.RecordBatch], attempt: Attempt) -> Iterator[pa.RecordBatch]:
        run = _Run(self._part, self._source, self._handling, attempt)
        rows = SinkRows(self._sink, attempt.batch or 0)
        for outputs in run.outputs(batches):
            for table in rows.to_tables(outputs):
                yield from without_report(table).to_batches()
        yield from reported(self._sink.schema, run.counts, run.metrics)


def chunks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield the rows, a few megabytes at a time."""
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


class _Run:
    """Runs one source topic through a sub-topology that keeps nothing.

    Attributes:
        counts: what was left out and counted, once all outputs are taken.
        metrics: what was measured.
    """

    def __init__(self, part: Subtopology, source: Source, handling: ErrorHandling, attempt: Attempt) -> None:
        split = attempt.split
        self._topic = source.topic
        self._box = handling.box(f"{source.topic}-{split}", attempt)
        self._reader = source.reader(split, self._box.keep_letter)
        self._task = Task(part, {}, split, policy=self._box.policy)
        self.counts: Counter[str] = Counter()
        self.metrics = self._task.metrics
        self._rows = 0

    def outputs(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Outputs]:
        """Yield the outputs of the sub-topology for the rows."""
        yield from run_split(self._task, self._topic, self._records(batches))
        self._box.write()
        self.counts.update(self._reader.skipped)
        self.counts.update(self._task.counters)
        self.metrics.put(TaskMetric.RECORDS_IN, self._rows)

    def _records(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Records]:
        for chunk in chunks(batches):
            self._rows += chunk.num_rows
            yield from self._reader.batches(chunk)


def _blob_rows(blobs: Iterable[Blob]) -> Iterator[pa.RecordBatch]:
    yield from without_report(pa.Table.from_batches([to_record_batch(blobs)])).to_batches()


def reported(schema: pa.Schema, counts: Mapping[str, int], metrics: Metrics) -> Iterator[pa.RecordBatch]:
    """Yield the report, unless nothing came."""
    if counts or metrics.figures.get(TaskMetric.RECORDS_IN):
        yield from report_row(schema, counts, metrics.figures).to_batches()
