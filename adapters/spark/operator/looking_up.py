"""``LookUp``: the map side of a verb that keeps nothing and looks tables up that others keep.

Rule of this module: rows come out where they come in; no task of another key sees them. All parts of a micro-batch read
the same version of a table.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

import pyarrow as pa

from millpond.adapters.spark.operator.map_side import MapSide, chunks, reported
from millpond.adapters.spark.rows.dead_letters import ErrorHandling
from millpond.adapters.spark.rows.sink import SinkColumns
from millpond.adapters.spark.worker.attempt import Attempt
from millpond.adapters.spark.worker.counters import without_report
from millpond.adapters.spark.worker.table_versions import TableVersions
from millpond.metrics import Metrics
from millpond.processors.distribution.execution import run_split
from millpond.processors.rows.row_source import RowReader, RowSource
from millpond.processors.rows.sink_rows import SinkRows
from millpond.processors.runtime.batches.columns import Columns, Records
from millpond.processors.runtime.subtopology import Subtopology
from millpond.processors.runtime.tasks.task import Task
from millpond.processors.tables.sorted_versions import ViewAt
from millpond.processors.tables.table_view import TableView
from millpond.processors.verbs.record_words import VerbWords


class LookUp(MapSide):
    """Runs the rows of one input through a sub-topology that looks tables up, into the sink.

    Args:
        part: the sub-topology.
        source: how rows are read.
        sink: what comes out.
        handling: what happens to unusable rows.
        tables: the tables, by name.
        versions: which versions of them are read.
    """

    def __init__(
        self,
        part: Subtopology,
        source: RowSource,
        sink: SinkColumns,
        handling: ErrorHandling,
        tables: Mapping[str, ViewAt],
        versions: Mapping[str, TableVersions],
    ) -> None:
        self._part = part
        self._source = source
        self._sink = sink
        self._handling = handling
        self._tables = tables
        self._versions = versions

    def made(self, batches: Iterator[pa.RecordBatch], attempt: Attempt) -> Iterator[pa.RecordBatch]:
        words = VerbWords(self._handling.name, {self._source.topic: self._source.input})
        box = self._handling.box(f"{self._source.topic}-{attempt.split}", attempt, words)
        reader = self._source.reader(attempt.split, box.keep_letter)
        rows = SinkRows(self._sink, attempt.batch or 0)
        counts, metrics = Counter[str](), Metrics()
        # A part without rows asks for no version.
        first = next(batches, None)
        if first is not None:
            task = Task(self._part, {}, attempt.split, policy=box.policy, tables=self._opened(attempt))
            metrics = task.metrics
            for outputs in run_split(task, self._source.topic, _records(reader, chain([first], batches))):
                for table in rows.to_tables(outputs):
                    yield from without_report(table).to_batches()
            counts.update(task.counters)
        box.write()
        counts.update(reader.skipped)
        yield from reported(self._sink.schema, counts, metrics)

    def _opened(self, attempt: Attempt) -> dict[str, TableView]:
        """Return the tables, each at the version of the micro-batch."""
        return {name: one.at(self._versions[name].of(attempt, one.newest)) for name, one in self._tables.items()}


def _records(reader: RowReader, batches: Iterator[pa.RecordBatch]) -> Iterator[Records]:
    """Yield the usable rows as records."""
    for chunk in chunks(batches):
        packed, _ = reader.packed(reader.usable(chunk))
        if packed.num_rows:
            columns: list[Any] = [one.combine_chunks() for one in packed.columns]
            yield Columns(columns[0], columns[1], columns[2].to_numpy())
