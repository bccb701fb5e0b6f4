"""The run of a task over records that have arrived: input records of a split, or blobs from other tasks.

Rule of this module: it knows nothing of stores or commits. The caller opens the task's stores first and commits them
afterward.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any, Self

import pyarrow as pa

from millpond.errors import RecordError, SerdeError
from millpond.metrics import Stopwatch
from millpond.processors.distribution.exchange import (
    WINDOW_ROWS,
    Blob,
    Run,
    gather,
    gather_partials,
    is_complete,
    spared,
    told_times,
    with_spares,
    without_input,
)
from millpond.processors.distribution.hot_keys import HotKeys
from millpond.processors.options.records import Consumed
from millpond.processors.runtime.batches.batch import Batch
from millpond.processors.runtime.batches.columns import Columns, Records, joined
from millpond.processors.runtime.metrics import TaskMetric
from millpond.processors.runtime.order.time_order import Regroup
from millpond.processors.runtime.tasks.task import Task
from millpond.stores.encoding.column_serdes import ColumnSerde, column_serde
from millpond.stores.encoding.serdes import BYTES, Serde, serde
from millpond.stores.typed.store import column_of


@dataclass(frozen=True)
class Outputs:
    """The records that a task has written to its sink topics.

    Attributes:
        records: the records by topic.
        task: the task, which says what becomes of a record that cannot be written (``Task.written``).
    """

    records: Mapping[str, Records]
    task: Task

    @classmethod
    def of(cls, task: Task) -> Self:
        """Return the records that the task has written since the last call."""
        return cls({topic: joined(runs) for topic, runs in task.take().items()}, task)

    def parts(self, topic: str, most: int = WINDOW_ROWS) -> Iterator[Records]:
        """Yield the records of a topic, at most so many at a time."""
        if topic in self.records:
            yield from self.records[topic].parts(most)


@dataclass(frozen=True)
class Decoder:
    """The decoder of one topic's records; sent to the workers.

    Attributes:
        topic: the topic.
        key_serde, value_serde: read keys and values; None to take them as they are.
        key, value: the names of the columns in errors.
        remedy: the advice of errors for a record that cannot be read.
    """

    topic: str
    key_serde: Serde[Any] | None
    value_serde: Serde[Any] | None
    key: str = "key"
    value: str = "value"
    remedy: str = "restart with the serdes that wrote it"

    @classmethod
    def of_repartition_topic(cls, topic: str, consumed: Consumed) -> Self:
        """Return the decoder of a repartition topic, by the serdes with which the sub-topology before it wrote."""
        return cls(topic, serde(consumed.key_serde or BYTES), serde(consumed.value_serde or BYTES))

    def decode_columns(self, records: Records) -> Columns | None:
        """Return records that traveled as columns for processors; None if one of them cannot be read so.

        Args:
            records: keys and values as they traveled.
        """
        if not isinstance(records, Columns) or self._columns is None:
            return None
        keys, values = self._columns
        try:
            return Columns(
                _decoded(keys, records.keys), _decoded(values, records.values), records.timestamps, records.positions
            )
        except pa.ArrowInvalid:
            return None

    @cached_property
    def _columns(self) -> tuple[ColumnSerde | None, ColumnSerde | None] | None:
        """The serdes of columns of keys and of values, None to take them as they are; None if one needs objects."""
        readers = [None if reader is None else column_serde(reader) for reader in (self.key_serde, self.value_serde)]
        if [reader is None for reader in readers] != [self.key_serde is None, self.value_serde is None]:
            return None
        return readers[0], readers[1]

    def decode(self, records: Records) -> Records:
        """Return records that traveled, in the form in which they can be read.

        Raises:
            RecordError: a key or a value cannot be read.
        """
        columns = self.decode_columns(records)
        if columns is not None:
            return columns
        batch = records.to_batch()
        try:
            keys, values = _read(self.key_serde, batch.keys), _read(self.value_serde, batch.values)
            return Batch(keys, values, batch.timestamps, positions=batch.positions, headers=batch.headers)
        except SerdeError as error:
            raise self._unreadable(batch) from error

    def _unreadable(self, batch: Batch) -> RecordError:
        """Return the error that tells the first record of the batch that cannot be read."""
        for key, value, timestamp in zip(batch.keys, batch.values, batch.timestamps, strict=True):
            for role, column, reader, data in (
                ("value", self.value, self.value_serde, value),
                ("key", self.key, self.key_serde, key),
            ):
                try:
                    _read(reader, [data])
                except SerdeError as error:
                    entries = shown({"key": key, "value": value, "timestamp": timestamp})
                    return RecordError(
                        f"topic {self.topic!r}: column {column!r}: bad {role} ({entries}): {error}; {self.remedy}"
                    )
        return RecordError(f"topic {self.topic!r}: a record could be read only the second time; is its serde sound?")


def shown(entries: Mapping[str, Any]) -> str:
    """Return the entries of a record, for a message."""
    return ", ".join(f"{name}={entry!r:.200}" for name, entry in entries.items())


def _decoded(reader: ColumnSerde | None, column: Any) -> Any:
    return column if reader is None else reader.read(column)


def _read(reader: Serde[Any] | None, column: list[Any]) -> list[Any]:
    if reader is None:
        return column
    return column_of(reader.deserialize_many([data for data in column if data is not None]), column)


def run_split(task: Task, topic: str, runs: Iterable[Records]) -> Iterator[Outputs]:
    """Run a stateless task over a split of one source topic, and close it; yields the output of each run."""
    for run in runs:
        with task.metrics.timed(TaskMetric.PROCESS_DURATION):
            task.process(topic, run)
        yield Outputs.of(task)
    with task.metrics.timed(TaskMetric.FLUSH_DURATION):
        task.flush()
    yield Outputs.of(task)
    task.close()


def run_blobs(
    task: Task,
    blobs: Iterable[Blob],
    decoders: Mapping[str, Decoder],
    wall_clock: int,
    *,
    settle_ties: bool = False,
    hot: HotKeys | None = None,
) -> Iterator[Outputs]:
    """Run a task over all its records of one micro-batch, and close it.

    Args:
        task: the task, its stores open.
        blobs: all its blobs, in any order. If they tell how far inputs have come in time, the task comes as far after
            its last record. If one tells that the inputs are complete, everything that waits comes out.
        decoders: read the records of each topic.
        wall_clock: the time of the micro-batch, int milliseconds; what is due by then fires after all records.
        settle_ties: whether records of one key and time go by their values, where it makes a difference which comes
            first; otherwise they come as they were sent.
        hot: is shown the keys of all records as they traveled.

    Yields:
        The output of about every ``WINDOW_ROWS`` records.
    """
    watch = Stopwatch()
    topics = list(task.subtopology.sources)
    derived = [i for i, topic in enumerate(topics) if topic in task.subtopology.derived_topics]
    arrived = _without_partials(task, list(blobs), topics, decoders, hot)
    waiting = 0
    ties = [i for i, topic in enumerate(topics) if settle_ties and task.minds_ties(topic)]
    unordered = [i for i, topic in enumerate(topics) if not task.minds_order(topic)]
    order = task.subtopology.order
    for run in gather(arrived, derived, _regrouped(task, topics), task.reached, order, ties, unordered):
        topic = topics[run.input]
        if hot is not None:
            hot.see(topic, run.records)
        task.process(topic, decoders[topic].decode(run.records))
        waiting += len(run.records)
        if run.settled or (run.settled is None and waiting >= WINDOW_ROWS):
            task.settle()
        if waiting >= WINDOW_ROWS:
            waiting = 0
            outputs = Outputs.of(task)
            task.metrics.add(TaskMetric.PROCESS_DURATION, watch.lap())
            yield outputs
            watch.lap()
    for input_, time in told_times(arrived).items():
        task.advance(topics[input_], time)
    task.punctuate(wall_clock)
    if is_complete(arrived):
        task.complete()
    task.metrics.add(TaskMetric.PROCESS_DURATION, watch.lap())
    task.flush()
    task.metrics.add(TaskMetric.FLUSH_DURATION, watch.lap())
    yield Outputs.of(task)
    task.close()


def _without_partials(
    task: Task, blobs: list[Blob], topics: Sequence[str], decoders: Mapping[str, Decoder], hot: HotKeys | None
) -> list[Blob]:
    """Return the blobs that are left after partial aggregates were processed, or given up for their records."""
    runs = list(gather_partials(blobs, task.reached))
    for input_ in spared(blobs):
        partials = [run for run in runs if run.input == input_]
        runs = [run for run in runs if run.input != input_]
        taken = len(partials) == 1 and _took_with_rest(task, blobs, partials[0], topics, decoders, hot)
        blobs = without_input(blobs, input_) if taken else with_spares(blobs, input_)
    for run in runs:
        topic = topics[run.input]
        if hot is not None:
            hot.see(topic, run.records)
        task.process_partials(topic, _partials_of(task, topic, decoders).decode(run.records))
    return blobs


def _took_with_rest(
    task: Task,
    blobs: Sequence[Blob],
    partials: Run,
    topics: Sequence[str],
    decoders: Mapping[str, Decoder],
    hot: HotKeys | None,
) -> bool:
    """Return whether a task has taken partial aggregates of an input, with the rest of its records, which are few."""
    topic = topics[partials.input]
    own = [blob for blob in blobs if blob.input == partials.input]
    parts = [run.records for run in islice(gather(own, reached=task.reached), 2)]
    records, *rest = [
        _partials_of(task, topic, decoders).decode_columns(partials.records),
        *map(decoders[topic].decode_columns, parts),
    ]
    if records is None or len(rest) > 1 or any(part is None for part in rest):
        return False
    if not task.process_partials(topic, records, rest[0] if rest else None):
        return False
    if hot is not None:
        for run in (partials.records, *parts):
            hot.see(topic, run)
    return True


def _partials_of(task: Task, topic: str, decoders: Mapping[str, Decoder]) -> Decoder:
    """Return the decoder of partial aggregates of a topic's records."""
    return replace(decoders[topic], value_serde=task.partials_serde(topic))


def _regrouped(task: Task, topics: Sequence[str]) -> Regroup[int] | None:
    """Return the task's function that gives inputs longer runs, for inputs that are numbers; None if it has none."""
    regroup = task.regroup
    if regroup is None:
        return None
    return lambda inputs, *order: regroup([topics[i] for i in inputs], *order)
