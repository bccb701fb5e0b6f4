"""``LocalTasks``: a topology's tasks in one process, and the records that travel between them.

On a repartition topic, records become bytes and are read back, as if they had traveled.

Rule of this module: it runs tasks until nothing waits for any of them, and knows nothing of stores and commits. After a
failure its tasks are where they were when it happened, so after a rollback they are made anew.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

import pyarrow as pa

from millpond.errors import MissingSerdeError
from millpond.processors.options.order import Order
from millpond.processors.options.records import Consumed, Produced
from millpond.processors.runtime.batches.batch import Batch
from millpond.processors.runtime.batches.columns import Array, Columns, Records, joined
from millpond.processors.runtime.metrics import TaskMetric
from millpond.processors.runtime.order.time_order import merge
from millpond.processors.runtime.tasks.task import Task
from millpond.processors.runtime.topology import Topology
from millpond.stores.encoding.column_serdes import ColumnSerde, column_serde
from millpond.stores.encoding.serdes import Serde, serde
from millpond.stores.typed.store import column_of


class _Passage(NamedTuple):
    """The writing and reading of keys, or of values, on their way.

    Attributes:
        writer, reader: the serdes.
        writer_columns, reader_columns: the same for whole columns; None if they need objects.
    """

    writer: Serde[Any]
    reader: Serde[Any]
    writer_columns: ColumnSerde | None
    reader_columns: ColumnSerde | None

    @classmethod
    def between(cls, writer: Serde[Any], reader: Serde[Any]) -> Self:
        return cls(writer, reader, column_serde(writer), column_serde(reader))

    def moved(self, column: list[Any]) -> list[Any]:
        """Return objects as they arrive; None stays None."""
        written = self.writer.serialize_many([one for one in column if one is not None])
        return column_of(self.reader.deserialize_many(written), column)

    def moved_column(self, column: Array) -> Array | None:
        """Return a column as it arrives; None if it has to become objects."""
        writer, reader = self.writer_columns, self.reader_columns
        if writer is None or reader is None or not writer.takes(column.type):
            return None
        try:
            return reader.read(writer.write(column))
        except pa.ArrowInvalid:
            return None


class Repartition(NamedTuple):
    """The passage of keys and values through a repartition topic inside one process."""

    keys: _Passage
    values: _Passage

    @classmethod
    def between(cls, topic: str, produced: Produced, consumed: Consumed) -> Self:
        """Return the repartition topic ``topic`` between its writer and its reader.

        Raises:
            TopologyError: one of the four serdes is not known.
        """
        names = (produced.key_serde, produced.value_serde, consumed.key_serde, consumed.value_serde)
        serdes = [serde(name) for name in names if name is not None]
        if len(serdes) < len(names):
            raise MissingSerdeError(
                f"writer and reader of the repartition topic {topic!r} each need a key and a value serde"
            )
        return cls(*map(_Passage.between, serdes[:2], serdes[2:]))

    def transfer(self, records: Records) -> Records:
        """Return the records as the reader gets them, as columns if they are and can stay so; a null stays null."""
        if isinstance(records, Columns):
            keys, values = self.keys.moved_column(records.keys), self.values.moved_column(records.values)
            if keys is not None and values is not None:
                return Columns(keys, values, records.timestamps)
        batch = records.to_batch()
        keys, values = self.keys.moved(batch.keys), self.values.moved(batch.values)
        return Batch(keys, values, batch.timestamps, headers=batch.headers)


def repartitions_of(topology: Topology) -> dict[str, Repartition]:
    """Return the passage of records through each repartition topic.

    Raises:
        TopologyError: a serde of one of them is not known.
    """
    return {
        topic: Repartition.between(topic, node.produced, part.sources[topic].consumed)
        for writer in topology.subtopologies
        for topic, node in writer.sinks.items()
        for part in topology.subtopologies
        if topic in topology.internal_topics and topic in part.sources
    }


class LocalTasks:
    """The tasks of all sub-topologies, each with all of its records.

    Args:
        topology: the topology.
        tasks: one for each sub-topology, in the order of the topology: each comes after the writers of the
            repartition topics it reads.
        repartitions: pass records through each repartition topic.

    Attributes:
        tasks: the tasks.
    """

    def __init__(self, topology: Topology, tasks: Sequence[Task], repartitions: Mapping[str, Repartition]) -> None:
        self.tasks = tasks
        self._loops = bool(topology.loops)
        self._repartitions = repartitions
        self._pending: dict[str, list[Records]] = {topic: [] for topic in repartitions}
        self._outputs: dict[str, list[Records]] = {topic: [] for topic in topology.sinks}

    def run(self, inputs: Mapping[str, Records], order: Order = Order.ARRIVAL) -> None:
        """Run tasks over the records of these topics until nothing waits for any of them.

        Records that are sent back to a task come before its next record.

        Args:
            inputs: the records, by topic.
            order: the order in which each task takes them.
        """
        if not self._loops:
            self._run(inputs, order)
            return
        for topic, run in merge(inputs, order):
            for row in run.to_batch().rows():
                self._run({topic: row}, Order.ARRIVAL)
        self._run({}, Order.ARRIVAL)

    def _run(self, inputs: Mapping[str, Records], order: Order) -> None:
        while inputs or any(self._pending.values()):
            for task in self.tasks:
                self._process(task, inputs, order)
            inputs = {}

    def punctuate(self, wall_clock: int) -> None:
        """Fire what is due at the wall-clock time."""
        for task in self.tasks:
            with task.metrics.timed(TaskMetric.PROCESS_DURATION):
                task.punctuate(wall_clock)
            self._collect(task)
            self.run({})

    def complete(self) -> None:
        """Complete each task after it has all records that others send; a task in a loop is completed again."""
        once = False
        while not once or any(self._pending.values()):
            once = True
            for task in self.tasks:
                self._process(task, {}, Order.ARRIVAL)
                with task.metrics.timed(TaskMetric.PROCESS_DURATION):
                    task.complete()
                self._collect(task)

    def flush(self) -> None:
        """Flush all tasks, and run what that brings out."""
        while self._flush() and self._loops:
            pass

    def take(self) -> dict[str, list[Records]]:
        """Return the records for each sink since the last call."""
        outputs, self._outputs = self._outputs, {topic: [] for topic in self._outputs}
        return outputs

    def close(self) -> None:
        """Close the tasks, and let go of them."""
        for task in self.tasks:
            task.close()
        self.tasks = []

    def _flush(self) -> bool:
        """Flush each task; True if that reached another task, which in a loop may have been flushed already."""
        reached = False
        for task in self.tasks:
            with task.metrics.timed(TaskMetric.FLUSH_DURATION):
                task.flush()
            self._collect(task)
            reached = reached or any(self._pending.values())
            self.run({})
        return reached

    def _process(self, task: Task, inputs: Mapping[str, Records], order: Order) -> None:
        """Run a task over what waits for it."""
        waiting = self._waiting(task, inputs)
        with task.metrics.timed(TaskMetric.PROCESS_DURATION):
            for records in filter(len, waiting.values()):
                task.reached(_latest(records))
            for topic, run in merge(waiting, order, task.subtopology.derived_topics, task.regroup):
                task.process(topic, run)
            task.settle()
        self._collect(task)

    def _waiting(self, task: Task, inputs: Mapping[str, Records]) -> dict[str, Records]:
        """Return the records that wait for ``task``, by topic."""
        waiting = {}
        for topic in task.subtopology.sources:
            if topic in inputs:
                waiting[topic] = inputs[topic]
            elif self._pending.get(topic):
                waiting[topic] = joined(self._pending[topic])
                self._pending[topic] = []
        return waiting

    def _collect(self, task: Task) -> None:
        for topic, runs in task.take().items():
            if topic in self._repartitions:
                transfer = self._repartitions[topic].transfer
                self._pending[topic].extend(task.written(topic, run, transfer) for run in runs)
            else:
                self._outputs[topic].extend(runs)


def _latest(records: Records) -> int:
    """Return the greatest timestamp."""
    return int(records.timestamps.max()) if isinstance(records, Columns) else max(records.timestamps)
