"""The rows that a task writes to a sink, numbered, whatever columns they have."""

from collections.abc import Iterator
from functools import partial
from typing import Protocol

import pyarrow as pa

from millpond.processors.distribution.exchange import WINDOW_ROWS
from millpond.processors.distribution.execution import Outputs
from millpond.processors.runtime.batches.columns import Records


class SinkTables(Protocol):
    """The maker of tables from the records of a sink. Travels to the workers."""

    @property
    def topic(self) -> str:
        """The sink's topic."""

    def to_table(self, records: Records, first: int) -> pa.Table:
        """Return the rows of the records, the first of which has that ``sequence``.

        Raises:
            RecordError: a record does not fit.
        """


class SinkRows:
    """The rows that one task writes to a sink in one micro-batch, numbered in their order.

    Numbers grow from micro-batch to micro-batch, also across restarts, because they begin with the number of the
    micro-batch; one that is repeated gives the same numbers again.

    Args:
        sink: makes rows of records.
        batch: the number of the micro-batch.
    """

    def __init__(self, sink: SinkTables, batch: int) -> None:
        self._sink = sink
        self._next = batch << 32

    def to_tables(self, outputs: Outputs, most: int = WINDOW_ROWS) -> Iterator[pa.Table]:
        """Yield the sink's rows among a task's output, at most so many in a table.

        Raises:
            UserFunctionError: a value does not fit its column, or lacks its entry, and the policy is not to leave such
                records out.
        """
        topic = self._sink.topic
        for part in outputs.parts(topic, most):
            yield outputs.task.written(topic, part, partial(self._sink.to_table, first=self._next))
            self._next += len(part)
