"""The routes of records to tasks.

Rule of this module: it knows plans and partitions. How tasks are numbered in transit is the driver's choice, passed in
as a mapping.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from millpond.processors.distribution.combining import Combining, Sent, of_repartition_topic
from millpond.processors.distribution.exchange import Blob, BlobWriter, Form, time_blobs
from millpond.processors.distribution.execution import Outputs
from millpond.processors.distribution.header_column import HEADERS, header_column, without_empty_headers
from millpond.processors.distribution.plan import Plan
from millpond.processors.options.records import Produced
from millpond.processors.runtime.batches.columns import Columns, Records
from millpond.processors.runtime.subtopology import Subtopology
from millpond.stores.encoding.column_serdes import column_serde
from millpond.stores.encoding.partitions import NO_KEY, partitions_of
from millpond.stores.encoding.serdes import BYTES, Serde, serde
from millpond.stores.typed.store import column_of
from millpond.stores.typed.windows.windowed import SUFFIX_SIZES

TaskNumbers: TypeAlias = Mapping[tuple[int, int], int]
"""The number that stands for each (sub-topology, partition) in blobs; no two tasks of a plan share one."""


class Route:
    """Sends records to the tasks that read a topic: each to the task of its partition, or all to all (a broadcast).

    Args:
        plan: the plan.
        topic: the topic.
        numbers: the numbers of the tasks.
        shift: added to the number of the input, where tasks of several plans that have the same numbers run together.
    """

    def __init__(self, plan: Plan, topic: str, numbers: TaskNumbers, shift: int = 0) -> None:
        self._input = plan.input_of(topic) + shift
        self._tasks = _tasks(plan, plan.readers[topic], numbers)
        self._copies = [
            (task, plan.input_of(topic, part))
            for part in plan.all_readers(topic)
            if part.sources[topic].broadcast
            for task in _tasks(plan, part, numbers)
        ]

    def tell_time(self, time: int, split: int) -> list[Blob]:
        """Return blobs that tell all readers of the topic the greatest timestamp of its records in a split."""
        return time_blobs(time, self._input, split, self._tasks)

    def send(self, records: pa.Table, keys: Any, writer: BlobWriter, form: Form = Form.RECORDS) -> Iterator[Blob]:
        """Yield the records as blobs.

        Args:
            records: the columns key, value and timestamp, and headers if they have any.
            keys: their serialized keys, an Arrow array of binary in the same order.
            writer: numbers the blobs.
            form: the form of these.
        """
        if not self._copies:
            yield from writer.scatter(records, partitions_of(keys, len(self._tasks)), self._tasks, form.of(self._input))
        for task, input_ in self._copies:
            yield from writer.cut(records, task, input_)


def _tasks(plan: Plan, part: Subtopology, numbers: TaskNumbers) -> list[int]:
    """Return the numbers of a sub-topology's tasks, by partition."""
    return [numbers[part.index, partition] for partition in range(plan.partitions)]


class _Repartition(NamedTuple):
    """The parts that a writer needs to send records to a repartition topic.

    Attributes:
        key_serde, value_serde: the serdes of its records.
        route: the route to its reader.
        combining: makes records fewer on the way; None if nothing does.
        behind_key: how many bytes at the end of a key say nothing about where its record goes.
    """

    key_serde: Serde[Any]
    value_serde: Serde[Any]
    route: Route
    combining: Combining | None
    behind_key: int

    @classmethod
    def between(cls, plan: Plan, topic: str, produced: Produced, numbers: TaskNumbers) -> Self:
        """Return the repartition topic ``topic`` between its writer and its reader."""
        key_serde, value_serde = serde(produced.key_serde or BYTES), serde(produced.value_serde or BYTES)
        without_window = plan.readers[topic].sources[topic].without_window
        return cls(
            key_serde,
            value_serde,
            Route(plan, topic, numbers),
            of_repartition_topic(plan, topic, produced),
            SUFFIX_SIZES[key_serde.name] if without_window else 0,
        )

    def write(self, records: Records) -> pa.Table:
        """Return the records as they travel."""
        written = self._written_columns(records) if isinstance(records, Columns) else None
        if written is None:
            batch = records.to_batch()
            written = _serialized(self.key_serde, batch.keys), _serialized(self.value_serde, batch.values)
        keys, values = written
        table = pa.table({"key": keys, "value": values, "timestamp": pa.array(records.timestamps, pa.int64())})
        if isinstance(records, Columns) or records.headers is None:
            return table
        return without_empty_headers(table.append_column(HEADERS, header_column(records.headers)))

    def send(self, table: pa.Table, writer: BlobWriter) -> Iterator[Blob]:
        """Yield written records as blobs; no key counts as an empty one."""
        for records, form in [Sent(table)] if self.combining is None else self.combining.split(table):
            keys: Any = records["key"].combine_chunks()
            known = pc.fill_null(keys, NO_KEY) if keys.null_count else keys
            if self.behind_key:
                known = pc.binary_slice(known, 0, -self.behind_key)
            yield from self.route.send(records, known, writer, form)

    def _written_columns(self, columns: Columns) -> tuple[Any, Any] | None:
        """Return keys and values as bytes; None if one of the two has to become objects first."""
        keys, values = column_serde(self.key_serde), column_serde(self.value_serde)
        if keys is None or values is None or not keys.takes(columns.keys.type) or not values.takes(columns.values.type):
            return None
        return keys.write(columns.keys), values.write(columns.values)


def _serialized(writer: Serde[Any], column: Sequence[Any]) -> Any:
    written = writer.serialize_many([entry for entry in column if entry is not None])
    return pa.array(column_of(written, column), pa.binary())


class Router:
    """Sends what a sub-topology writes to repartition topics to the tasks that read them."""

    def __init__(self, plan: Plan, part: Subtopology, numbers: TaskNumbers) -> None:
        self._topics = {
            topic: _Repartition.between(plan, topic, node.produced, numbers)
            for topic, node in part.sinks.items()
            if topic in plan.topology.internal_topics and topic in plan.readers
        }

    def send(self, outputs: Outputs, writer: BlobWriter) -> Iterator[Blob]:
        """Yield the output as blobs; records without a reader are dropped.

        Raises:
            UserFunctionError: a serde fails for a record, and the policy is not to leave such records out.
        """
        for topic, repartition in self._topics.items():
            for part in outputs.parts(topic):
                yield from repartition.send(outputs.task.written(topic, part, repartition.write), writer)
