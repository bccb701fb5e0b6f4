"""``VerbTasks``: a verb with its tasks in this process, from tables of rows to tables of its result.

The rows of a micro-batch are packed where they come, and travel to the task of their key as they do between machines.

Rule of this module: it knows one micro-batch; ``TaskStores`` decides where tasks keep their state.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.compute as _compute

from millpond.processors.calls.made import Made
from millpond.processors.calls.tables import Selection
from millpond.processors.distribution.combining import Combining, Sent, of_input
from millpond.processors.distribution.exchange import COMPLETE, TICK, TIME, Blob, BlobWriter, Form, signal_blobs
from millpond.processors.distribution.execution import Decoder, run_blobs
from millpond.processors.distribution.plan import Plan, make_plan
from millpond.processors.distribution.router import Route, Router, TaskNumbers
from millpond.processors.options.on_error import OnError
from millpond.processors.rows.event_times import EventTimes
from millpond.processors.rows.row_source import RowSource
from millpond.processors.rows.sink_rows import PartRows, SinkRows
from millpond.processors.rows.unusable import KeepLetter
from millpond.processors.runtime.failures import FailurePolicy
from millpond.processors.runtime.late import LateRecords
from millpond.processors.runtime.subtopology import Subtopology
from millpond.processors.runtime.tasks.task import Task
from millpond.processors.tables.table_view import TableView
from millpond.processors.verbs.record_words import VerbWords
from millpond.stores.encoding.times import TimeUnit

pc: Any = _compute

EVENT_TIMES: Final = EventTimes(TimeUnit.MICROSECOND, None)
"""Rows may be of any time: nothing is compared with the wall clock."""


class TaskStores(Protocol):
    """The stores of the tasks of a verb."""

    def task(self, place: str, part: Subtopology, plan: Plan) -> AbstractContextManager[Mapping[str, Any]]:
        """Return the stores of the task with that place, while it runs."""


@dataclass(frozen=True)
class Reading:
    """The way of one input's rows to the tasks of a verb.

    Attributes:
        selection: the columns that are read.
        source: packs them.
        route: to the tasks.
        combining: makes rows fewer on the way; None if nothing does.
        keep_letter: takes the rows that cannot be used; None if they are only left out.
    """

    selection: Selection
    source: RowSource
    route: Route
    combining: Combining | None
    keep_letter: KeepLetter | None = None

    def blobs(self, splits: Sequence[pa.Table]) -> Iterator[Blob]:
        """Yield the rows of all splits on their way."""
        for number, split in enumerate(splits):
            if split.num_rows:
                yield from self._split(self.selection.of(split), number)

    def _split(self, rows: pa.Table, number: int) -> Iterator[Blob]:
        reader, writer = self.source.reader(number, self.keep_letter), BlobWriter(number)
        usable = reader.usable(rows)
        for spread in reader.spread(usable):
            for sent, form in [Sent(spread)] if self.combining is None else self.combining.split(spread):
                records, keys = reader.packed(sent, partial=form is Form.PARTIALS)
                yield from self.route.send(records, keys, writer, form)
        newest = pc.max(usable["timestamp"]).as_py()
        if newest is not None:
            yield from self.route.tell_time(newest, number)


@dataclass
class VerbTasks:
    """A verb with so many tasks in each operator.

    Attributes:
        made: the verb, with its inputs.
        partitions: the number of tasks.
        on_error: what happens to a row that cannot be used, or for which a user's function fails.
        keep_letter: takes such rows; None if they are only left out.
        late: the reports of its tasks about late rows.
        versions: by name, the version that the last micro-batch has read of each table that the verb looks up.
    """

    made: Made
    partitions: int
    on_error: OnError = OnError.FAIL
    keep_letter: KeepLetter | None = None
    late: list[LateRecords] = field(default_factory=list)
    versions: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def plan(self) -> Plan:
        """The plan of the verb's tasks."""
        return make_plan(self.made.verb.topology, self.made.verb.name, self.partitions)

    @cached_property
    def numbers(self) -> TaskNumbers:
        """Of the tasks."""
        tasks = [(part.index, partition) for part in self.plan.parts for partition in range(self.partitions)]
        return {task: number for number, task in enumerate(tasks)}

    @cached_property
    def readings(self) -> dict[str, Reading]:
        """The readings of the rows of each topic."""
        verb, found = self.made.verb, {}
        for topic, read in self.made.selections.items():
            columns = ", ".join(map(read.rows.shown, read.keys)), read.rows.shown(read.time), read.op or ""
            source = RowSource(
                verb.name, verb.inputs[topic], *columns, EVENT_TIMES, self.made.value_serde, self.on_error, split=False
            )
            # Of partial aggregates, none could be left out because of a single row.
            fails = self.on_error is OnError.FAIL
            combining = of_input(self.plan, topic, None, source.copies) if fails else None
            route = Route(self.plan, topic, self.numbers)
            found[topic] = Reading(read, source, route, combining, self.keep_letter)
        return found

    @cached_property
    def decoders(self) -> dict[str, Decoder]:
        """The decoders of what arrives from each topic."""
        found = {topic: reading.source.decoder for topic, reading in self.readings.items()}
        internal = self.plan.internal_topics.items()
        return found | {topic: Decoder.of_repartition_topic(topic, consumed) for topic, consumed in internal}

    def micro_batch(
        self,
        number: int,
        inputs: Mapping[str, Sequence[pa.Table]],
        stores: TaskStores,
        *,
        reached: int | None = None,
        complete: bool = False,
        clock: int = 0,
        tick: bool = False,
    ) -> list[pa.Table]:
        """Return the results of each task of the last operator.

        Args:
            number: the number of the micro-batch; it grows.
            inputs: by topic, the splits of its rows.
            stores: the stores of the tasks; the caller commits them afterward.
            reached: how far all inputs have come, in microseconds since 1970; None for as far as their rows.
            complete: whether inputs are complete, so that whatever waits comes out.
            clock: the wall-clock time, int milliseconds.
            tick: whether tasks without rows learn it, too.

        Raises:
            RecordError: a row cannot be used, and the policy is to fail.
        """
        blobs = self._arriving(inputs)
        if reached is not None and self.made.verb.follows_time:
            blobs += [blob for reading in self.readings.values() for blob in reading.route.tell_time(reached, 0)]
        if complete:
            blobs += signal_blobs(COMPLETE, self.numbers.values())
        if tick:
            blobs += signal_blobs(TICK, self.numbers.values())
        results: list[pa.Table] = []
        versions = {name: table.newest() for name, table in self.made.verb.tables.items()}
        tables = {name: table.at(versions[name]) for name, table in self.made.verb.tables.items()}
        for stage in self.plan.stages or (self.plan.map_side,):
            arrived = self._by_task(blobs)
            results = [table for part in stage for table in self._run(part, arrived, number, stores, tables, clock)]
            blobs = [blob for waiting in arrived.values() for blob in waiting]
        self.versions = versions
        return results

    def _by_task(self, blobs: Sequence[Blob]) -> dict[int, list[Blob]]:
        arrived = defaultdict[int, list[Blob]](list)
        for blob in blobs:
            arrived[blob.task].append(blob)
        return arrived

    def _run(
        self,
        part: Subtopology,
        arrived: dict[int, list[Blob]],
        number: int,
        stores: TaskStores,
        tables: Mapping[str, TableView],
        clock: int,
    ) -> Iterator[pa.Table]:
        """Yield the results of a sub-topology's tasks; add what they send to others to what has arrived."""
        name, router = self.made.verb.name, Router(self.plan, part, self.numbers)
        sink = PartRows(self.made.verb.parts, self.made.verb.schema, name)
        for partition in range(self.partitions):
            some = arrived.pop(self.numbers[part.index, partition], None)
            if some is None:
                continue
            with stores.task(f"{name}/{part.index}_{partition}", part, self.plan) as opened:
                policy = FailurePolicy(self.on_error, self.keep_letter, VerbWords(name, self.made.verb.inputs))
                task = Task(
                    part, opened, partition, wall_clock=clock, policy=policy, keep_late=self.late.append, tables=tables
                )
                rows, writer, made = SinkRows(sink, number), BlobWriter(partition), list[pa.Table]()
                for outputs in run_blobs(task, some, self.decoders, clock, settle_ties=True):
                    made += rows.to_tables(outputs)
                    for blob in router.send(outputs, writer):
                        arrived[blob.task].append(blob)
            if made:
                yield pa.concat_tables(made)

    def _arriving(self, inputs: Mapping[str, Sequence[pa.Table]]) -> list[Blob]:
        """Return the blobs that reach its tasks from outside."""
        blobs = [blob for topic, splits in inputs.items() for blob in self.readings[topic].blobs(splits)]
        return blobs if self.made.verb.follows_time else [blob for blob in blobs if blob.input != TIME]
