"""The record that a task is at: its origin, and stream time.

Rule of this module: the task sets it, and it reads no clock. It is right only while records are taken one after the
other, so it is there only for processors that ask for that (``ProcessorContext.declare``).
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from millpond.processors.runtime.batches.batch import Batch
from millpond.processors.runtime.batches.headers import NO_HEADERS, Headers
from millpond.processors.runtime.kept_time import KeptTime

TASK_TIME: Final = "task-time"
"""The beginning of the names of kept stream times of tasks."""


class RecordMetadata(NamedTuple):
    """The origin of a record, as Kafka Streams' ``RecordContext`` tells it.

    Attributes:
        topic: the source topic, or repartition topic, from which the task took it; None if it waited in the task.
        timestamp: int milliseconds.
        headers: its headers.
    """

    topic: str | None
    timestamp: int
    headers: Headers = NO_HEADERS


class CurrentRecord:
    """The record that a task is at.

    Attributes:
        metadata: the metadata of the record; None in punctuations, in ``flush`` and at the completion.
        stream_time: the greatest timestamp of the records that the task has taken, except those of global tables and
            stores, int milliseconds; None before the first.
    """

    def __init__(self) -> None:
        self.metadata: RecordMetadata | None = None
        self.stream_time: int | None = None
        self._kept: list[KeptTime] = []

    def keep_in(self, kept: Iterable[KeptTime]) -> None:
        """Go on with the greatest of these times, and keep stream time there from now on."""
        self._kept = list(kept)
        self.stream_time = max((time for one in self._kept if (time := one.get()) is not None), default=None)

    def begin(self, topic: str, row: Batch, *, moves_time: bool) -> None:
        """Begin with a record of a topic, the only one of ``row``; ``moves_time`` unless all tasks have the record."""
        (headers,), (timestamp,) = row.headers_of_each, row.timestamps
        self.metadata = RecordMetadata(topic, timestamp, headers or NO_HEADERS)
        if moves_time:
            self.stream_time = timestamp if self.stream_time is None else max(self.stream_time, timestamp)

    def end(self) -> None:
        """Finish the record, and all that it led to."""
        self.metadata = None

    def flush(self) -> None:
        """Keep stream time where it has moved."""
        if self.stream_time is not None:
            for kept in self._kept:
                if kept.get() != self.stream_time:
                    kept.put(self.stream_time)
