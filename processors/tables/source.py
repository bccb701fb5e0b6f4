"""The source of a table: each record of a topic becomes an update of its key."""

from millpond.processors.runtime.batches.batch import Batch
from millpond.processors.runtime.batches.columns import Columns
from millpond.processors.runtime.counters import CounterName
from millpond.processors.runtime.promises import Promises
from millpond.processors.tables.config import TableConfig
from millpond.processors.tables.writer import TableProcessor


class TableSource(TableProcessor):
    """Turns each record into an update of its key; records without a key are dropped and counted."""

    def __init__(self, config: TableConfig) -> None:
        super().__init__(config)
        at_once = not config.caching
        keeps = at_once and not config.in_turn
        self.promises = Promises(repeatable=True, puts=config.store, by_key=at_once, keeps_records=keeps)

    def process(self, batch: Batch) -> None:
        kept = batch.select([key is not None for key in batch.keys]) if None in batch.keys else batch
        # Only the new values of another table's updates count: this table has its own old values and latest updates.
        self._output.write(kept.with_values(kept.values))
        self.context.count(CounterName.DROPPED_NULL_KEY, len(batch) - len(kept))

    def process_columns(self, columns: Columns) -> None:
        kept = columns.present()
        self._output.write_columns(kept.as_stream())
        self.context.count(CounterName.DROPPED_NULL_KEY, len(columns) - len(kept))
