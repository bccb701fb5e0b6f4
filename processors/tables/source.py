"""A table's beginning: records of a topic become updates of its key."""

from millpond.processors.runtime.batch import Batch
from millpond.processors.runtime.counters import CounterName
from millpond.processors.tables.writer import TableProcessor


class TableSource(TableProcessor):
    """Turns each record into an update of its key; records without a key are dropped and counted."""

    def process(self, batch: Batch) -> None:
        kept = batch.select([key is not None for key in batch.keys]) if None in batch.keys else batch
        self.context.count(CounterName.DROPPED_NULL_KEY, len(batch) - len(kept))
        # Of another table's updates only the new values count: this table has values before and latest ones of its own.
        self._output.write(kept.with_values(kept.values))
