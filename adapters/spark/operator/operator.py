"""The operator: runs tasks, a group each, and keeps their manifests in Spark's state.

Rule of this module: Spark's state holds one small value per task, the manifest; nothing else that is durable passes
through Spark. A delta is written before the manifest that names it is handed to Spark, so an attempt that fails
anywhere leaves only files that no manifest names. In a backfill Spark keeps no state, and manifests come out as rows,
from the very attempt whose results they stand for; those of earlier operators pass through the later ones.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, Final

import pyarrow as pa

from millpond.adapters.inspect.checkpoint.kept_manifest import kept_manifests, kept_value
from millpond.adapters.spark.operator.groups import Group
from millpond.adapters.spark.operator.held_manifests import by_application
from millpond.adapters.spark.operator.stage import BEFORE_THE_STREAM, MANIFEST_COLUMN, Stage
from millpond.adapters.spark.operator.task_run import TaskRun
from millpond.adapters.spark.rows.sink_blobs import SinkBlobs
from millpond.adapters.spark.worker.counters import report_row, without_report
from millpond.metrics import Stopwatch
from millpond.processors.distribution.exchange import (
    MANIFESTS,
    Blob,
    BlobWriter,
    manifest_blob,
    to_record_batch,
)
from millpond.processors.distribution.execution import Outputs
from millpond.processors.distribution.router import Router
from millpond.processors.rows.sink_rows import SinkRows
from millpond.processors.runtime.metrics import TaskMetric

_SMALL: Final = 1 << 20
"""The bytes of a table that is copied sooner than that Spark handles one more."""


class Operator:
    """Runs the tasks of one stage, each with the blobs that one micro-batch brings to it."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def tables(self, group: Group) -> Iterator[pa.Table]:
        """Yield the output of a group's task."""
        if group.number == MANIFESTS:
            yield without_report(self._manifest_rows(group.blobs))
            return
        index, partition = self._stage.tasks[group.number]
        part = self._stage.parts.get(index)
        if part is None:
            yield without_report(_blob_rows(group.blobs))
            return
        run = TaskRun(self._stage, part, partition, group.wall_clock, group.attempt)
        yield from reported(self._committed(run, group), self._stage.schema, run, group.watch)

    def _committed(self, run: TaskRun, group: Group) -> Iterator[pa.Table]:
        """Yield the output of the task, and put its manifest where it is kept."""
        stored = group.kept.get() if run.keeps_state else None
        settings = self._stage.settings
        held = by_application([] if stored is None else kept_manifests(*stored), [settings])
        yield from run.tables(group.blobs, held.get(settings.application_id), self._tables_of(run))
        after = run.manifest
        if after is None:
            return
        if not self._stage.backfill:
            group.kept.update(kept_value([after]))
        elif after.files:
            index, partition = run.part.index, run.partition
            yield self._manifest_rows([manifest_blob(index, partition, after.to_json())])

    def _tables_of(self, run: TaskRun) -> Callable[[Outputs], Iterable[pa.Table]]:
        """Return the function that makes tables of a good size of a task's outputs."""
        stage = self._stage
        router = Router(stage.plan, run.part, stage.group_keys)
        writer = BlobWriter(run.partition)
        number = stage.group_keys[run.part.index, run.partition]
        batch = BEFORE_THE_STREAM if stage.backfill else run.attempt.batch or 0
        rows = None if stage.sink is None else SinkRows(stage.sink, batch)
        sinks = SinkBlobs(stage.sinks, number, batch, writer)
        if rows is None:
            return lambda outputs: _to_tasks(outputs, router, writer, sinks)
        return lambda outputs: (_filled(table, stage.schema) for table in rows.to_tables(outputs))

    def _manifest_rows(self, manifests: Collection[Blob]) -> pa.Table:
        """Return manifests as rows: to the next operator, or out of the last one."""
        if self._stage.sink is None:
            return _blob_rows(manifests)
        column: Any = pa.array([blob.records.decode() for blob in manifests], pa.string())
        return _filled(pa.table({MANIFEST_COLUMN: column}), self._stage.schema)


def reported(
    tables: Iterator[pa.Table], schema: pa.Schema, run: TaskRun, watch: Stopwatch, of: str | None = None
) -> Iterator[pa.Table]:
    """Yield the tables that a task puts out, and the row of its report, in the last table if that is small.

    Args:
        tables: the tables.
        schema: the schema of the operator's output.
        run: what the report is about.
        watch: running since the task began.
        of: whose report it is, where it is one of several.
    """
    last = None
    for table in tables:
        if last is not None:
            yield last
        last = without_report(table)
    run.metrics[TaskMetric.TASK_DURATION] = watch.lap()
    row = report_row(schema, run.counts, run.metrics, of, run.task_id, run.hot_keys)
    if last is None:
        yield row
    elif last.get_total_buffer_size() <= _SMALL:
        yield pa.concat_tables([last, row]).combine_chunks()
    else:
        yield from (last, row)


def _to_tasks(outputs: Outputs, router: Router, writer: BlobWriter, sinks: SinkBlobs) -> Iterator[pa.Table]:
    blobs = [*router.send(outputs, writer), *sinks.blobs(outputs)]
    if blobs:
        yield _blob_rows(blobs)


def _blob_rows(blobs: Collection[Blob]) -> pa.Table:
    return pa.Table.from_batches([to_record_batch(blobs)])


def _filled(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the rows with nulls for the columns that they lack."""
    if rows.schema.names == schema.names:
        return rows
    columns = [
        rows[field.name] if field.name in rows.schema.names else pa.nulls(rows.num_rows, field.type) for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)
