"""Re-ordering before a table: records that are out of order within a grace period reach the table in time order.

KIP-914 names this as its long-term vision: with it, operators below the table need not care about records that are not
their key's latest. A record that is later than that goes to the table at once, as it would without a grace period.
"""

from millpond.processors.runtime.batches.batch import Batch
from millpond.processors.runtime.counters import CounterName
from millpond.processors.runtime.operator import Operator
from millpond.processors.runtime.processor import ProcessorContext
from millpond.processors.runtime.promises import Promises
from millpond.processors.tables.time_ordered_buffer import BufferSpec, TimeOrderedBuffer


class TableReorder(Operator):
    """Holds the records of a table's topic back until the grace period after their timestamp is over."""

    promises = Promises(repeatable=True)

    def __init__(self, spec: BufferSpec) -> None:
        self._spec = spec

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._buffer = TimeOrderedBuffer(self._spec, context.store(self._spec.store))
        context.level(CounterName.WAITING, lambda: self._buffer.waiting)

    def process(self, batch: Batch) -> None:
        kept = batch.select([key is not None for key in batch.keys]) if None in batch.keys else batch
        released, late = self._buffer.pass_through(kept)
        self.context.count(CounterName.DROPPED_NULL_KEY, len(batch) - len(kept))
        self.context.count(CounterName.PASSED_LATE, late)
        self.context.forward(released)

    def advance(self, time: int) -> None:
        self.context.forward(self._buffer.advance(time))
        super().advance(time)

    def complete(self) -> None:
        self.context.forward(self._buffer.drain())
