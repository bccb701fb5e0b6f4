"""The operator: runs tasks as groups of ``transformWithStateInPandas``, and keeps their manifests in Spark's state.

Rule of this module: Spark's state holds one small value per task, the manifest; nothing else that is durable passes
through Spark. A delta is written before the manifest that names it is handed to Spark, so an attempt that fails
anywhere leaves only files that no manifest names. In a backfill Spark keeps no state, and manifests come out as rows,
from the very attempt whose results they stand for; those of earlier operators pass through the later ones.
"""

import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import pandas as pd
import pyarrow as pa
from pyspark.sql.streaming.stateful_processor import ValueState

from millpond.adapters.looking.kept_manifest import STATE_VERSION, kept_manifest
from millpond.adapters.spark.counters import report_row, without_report
from millpond.adapters.spark.rows.dead_letters import ErrorHandling
from millpond.adapters.spark.rows.late_rows import LateBox
from millpond.adapters.spark.rows.sink import SinkColumns, SinkRows
from millpond.adapters.spark.rows.sink_blobs import SinkBlobs
from millpond.adapters.spark.worker import StateSettings, current_batch, short_errors, task_state, tune_worker
from millpond.processors.distribution.exchange import (
    EXCHANGE_SCHEMA,
    MANIFESTS,
    Blob,
    BlobWriter,
    manifest_blob,
    to_record_batch,
)
from millpond.processors.distribution.execution import Decoder, Outputs, run_blobs
from millpond.processors.distribution.plan import Plan
from millpond.processors.distribution.router import Router
from millpond.processors.runtime.metrics import TaskMetric
from millpond.processors.runtime.subtopology import Subtopology
from millpond.processors.runtime.task import Task
from millpond.processors.verbs.verb import Input
from millpond.stores.metrics import Stopwatch

WALL_CLOCK_COLUMN: Final = "wall_clock"
"""Of the rows that an operator takes: the time of the micro-batch, in milliseconds. Spark keeps it in the checkpoint,
so a micro-batch that is run again is at the same time."""

MANIFEST_COLUMN: Final = "millpond_manifest"
"""Of what a backfill writes: a task's manifest, in a row that is null in all columns of the sink."""

_SMALL: Final = 1 << 20
"""The bytes of a table that is copied sooner than that Spark handles one more."""

BEFORE_THE_STREAM: Final = -1
"""The number of the micro-batch that a backfill is, so that ``sequence`` goes on with the first one of the stream."""


@dataclass(frozen=True)
class Stage:
    """What one operator runs. Travels to the workers.

    Attributes:
        plan: the whole plan.
        group_keys: the integer that Spark groups by for each (sub-topology, partition) of the plan.
        parts: this operator's sub-topologies, by index.
        decoders: how the records of each topic that they read are decoded.
        sink: the sink's rows, if this operator is the one that writes them; None where blobs come out.
        sinks: the sinks, by number, whose rows come out as blobs, of those that its sub-topologies write.
        settings: where state lives.
        handling: what happens to records for which a user's function fails.
        backfill: whether manifests come out as rows.
        rows: of a verb, how the rows of each input are packed.
    """

    plan: Plan
    group_keys: dict[tuple[int, int], int]
    parts: dict[int, Subtopology]
    decoders: dict[str, Decoder]
    sink: SinkColumns | None
    sinks: Mapping[int, SinkColumns]
    settings: StateSettings
    handling: ErrorHandling
    backfill: bool = False
    rows: Mapping[str, Input] = field(default_factory=dict)

    @property
    def schema(self) -> pa.Schema:
        """What comes out of the operator, without the column for the report."""
        if self.sink is None:
            return EXCHANGE_SCHEMA
        return self.sink.schema.append(pa.field(MANIFEST_COLUMN, pa.string())) if self.backfill else self.sink.schema

    @cached_property
    def tasks(self) -> dict[int, tuple[int, int]]:
        """The (sub-topology, partition) behind each group key."""
        return {number: task for task, number in self.group_keys.items()}


@dataclass
class _Report:
    """What a task has counted and measured."""

    counts: Mapping[str, int] = field(default_factory=dict)
    metrics: dict[str, int] = field(default_factory=dict)


class Operator:
    """Runs the tasks of one stage, each with the blobs that one micro-batch brings to it."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def handle(self, number: int, rows: Iterator[Any], manifest: ValueState) -> Iterator[pd.DataFrame]:
        """What comes out of the task of a group.

        Args:
            number: the key of the group.
            rows: pandas DataFrames with the rows that have arrived for it.
            manifest: Spark's state of the group.
        """
        tune_worker()
        with short_errors():
            yield from self._handle(number, rows, manifest)

    def _handle(self, number: int, rows: Iterator[Any], manifest: ValueState) -> Iterator[pd.DataFrame]:
        watch = Stopwatch()
        wall_clock, blobs = _arrived(number, rows)
        if number == MANIFESTS:
            yield _pandas(without_report(self._manifest_rows(blobs)))
            return
        index, partition = self._stage.tasks[number]
        part = self._stage.parts.get(index)
        if part is None:
            yield _pandas(without_report(_blob_rows(blobs)))
            return
        report = _Report()
        if part.stores:
            tables = self._run_with_state(part, partition, manifest, blobs, wall_clock, report)
        else:
            tables = self._run(part, {}, partition, blobs, wall_clock, report)
        yield from map(_pandas, self._reported(tables, report, watch))

    def _reported(self, tables: Iterator[pa.Table], report: _Report, watch: Stopwatch) -> Iterator[pa.Table]:
        """The tables, and the row of the report on all of them, in the last one if that is small."""
        last = None
        for table in tables:
            if last is not None:
                yield last
            last = without_report(table)
        report.metrics[TaskMetric.TASK_DURATION] = watch.lap()
        row = report_row(self._stage.schema, report.counts, report.metrics)
        if last is None:
            yield row
        elif last.get_total_buffer_size() <= _SMALL:
            yield pa.concat_tables([last, row]).combine_chunks()
        else:
            yield from (last, row)

    def _run_with_state(
        self,
        part: Subtopology,
        partition: int,
        manifest: ValueState,
        blobs: Collection[Blob],
        wall_clock: int,
        report: _Report,
    ) -> Iterator[pa.Table]:
        settings = self._stage.settings
        if settings.generation is None:
            with task_state(settings, part, partition) as state:
                yield from self._run(part, state.open(None), partition, blobs, wall_clock, report)
                report.metrics |= state.metrics.figures
            return
        stored = manifest.get()
        found = None if stored is None else kept_manifest(*stored)
        before = settings.generation.start_of(f"{part.index}_{partition}", found, current_batch())
        with task_state(settings, part, partition) as state:
            yield from self._run(part, state.open(before), partition, blobs, wall_clock, report)
            after = state.commit()
            report.metrics |= state.metrics.figures
        if not self._stage.backfill:
            manifest.update((STATE_VERSION, after.to_json()))
        elif after.files:
            yield self._manifest_rows([manifest_blob(part.index, partition, after.to_json())])

    def _manifest_rows(self, manifests: Collection[Blob]) -> pa.Table:
        """Manifests as rows: to the next operator, or out of the last one."""
        if self._stage.sink is None:
            return _blob_rows(manifests)
        column: Any = pa.array([blob.records.decode() for blob in manifests], pa.string())
        return _filled(pa.table({MANIFEST_COLUMN: column}), self._stage.schema)

    def _run(
        self,
        part: Subtopology,
        stores: Mapping[str, Any],
        partition: int,
        blobs: Collection[Blob],
        wall_clock: int,
        report: _Report,
    ) -> Iterator[pa.Table]:
        """Everything that comes out of the task, in tables of a good size; at the end ``report`` is about it."""
        stage = self._stage
        box = stage.handling.box(f"task-{part.index}_{partition}")
        late = LateBox(stage.handling, part, f"{part.index}_{partition}", stage.rows)
        task = Task(
            part,
            stores,
            partition,
            wall_clock=wall_clock,
            policy=box.policy,
            reset=stage.settings.reset,
            keep_late=late.keep,
        )
        router = Router(stage.plan, task.subtopology, stage.group_keys)
        writer = BlobWriter(partition)
        number = stage.group_keys[part.index, partition]
        batch = BEFORE_THE_STREAM if stage.backfill else current_batch() or 0
        rows = None if stage.sink is None else SinkRows(stage.sink, batch)
        sinks = SinkBlobs(stage.sinks, number, batch, writer)
        for outputs in run_blobs(task, blobs, stage.decoders, wall_clock, settle_ties=bool(stage.rows)):
            if rows is None:
                yield from _to_tasks(outputs, router, writer, sinks)
            else:
                yield from (_filled(table, stage.schema) for table in rows.to_tables(outputs))
        box.write()
        late.write()
        task.measure_time(time.time_ns() // 1_000, stage.handling.unit)
        report.counts, report.metrics = task.counters, task.metrics.figures


def _to_tasks(outputs: Outputs, router: Router, writer: BlobWriter, sinks: SinkBlobs) -> Iterator[pa.Table]:
    blobs = [*router.send(outputs, writer), *sinks.blobs(outputs)]
    if blobs:
        yield _blob_rows(blobs)


def _blob_rows(blobs: Collection[Blob]) -> pa.Table:
    return pa.Table.from_batches([to_record_batch(blobs)])


def _arrived(task: int, frames: Iterator[Any]) -> tuple[int, list[Blob]]:
    """The time of the micro-batch, in milliseconds, and the blobs that it brings to a task."""
    wall_clock, blobs = 0, []
    for frame in frames:
        wall_clock = int(frame[WALL_CLOCK_COLUMN].iat[0])
        columns = (frame[name].tolist() for name in EXCHANGE_SCHEMA.names[1:])
        blobs += [Blob(task, *numbers) for numbers in zip(*columns, strict=True)]
    return wall_clock, blobs


def _filled(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows with nulls for the columns that they lack."""
    if rows.schema.names == schema.names:
        return rows
    columns = [
        rows[field.name] if field.name in rows.schema.names else pa.nulls(rows.num_rows, field.type) for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _pandas(table: pa.Table) -> pd.DataFrame:
    """The rows as Spark takes them: Arrow columns underneath, because integers with nulls must not become floats."""
    frame: pd.DataFrame = table.to_pandas(types_mapper=_flat_dtype, maps_as_pydicts="strict")
    return frame


def _flat_dtype(type_: pa.DataType) -> pd.ArrowDtype | None:
    # Spark converts nested values one by one, and would take pandas' marker of a missing value for a value.
    return None if pa.types.is_nested(type_) else pd.ArrowDtype(type_)
