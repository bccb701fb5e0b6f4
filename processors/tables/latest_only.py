"""The updates of a versioned table for operators that only know the latest rows (KIP-914)."""

from typing import TypeVar

from millpond.processors.runtime.batches.batch import Batch
from millpond.processors.runtime.batches.columns import Columns
from millpond.processors.runtime.counters import CounterName
from millpond.processors.runtime.operator import Operator
from millpond.processors.runtime.processor import ProcessorContext
from millpond.processors.runtime.promises import Promises

Updates = TypeVar("Updates", Batch, Columns)


def latest_only(context: ProcessorContext, updates: Updates, versioned: bool) -> Updates:
    """Return the updates that a versioned table does not ignore, and count the others."""
    if not versioned or updates.latest is None:
        return updates
    kept = updates.select(updates.latest)
    context.count(CounterName.DROPPED_OUT_OF_ORDER, len(updates) - len(kept))
    return kept


class LatestOnly(Operator):
    """Passes on a table's latest rows, for a copy of the table elsewhere."""

    promises = Promises(by_key=True, keeps_records=True)

    def __init__(self, versioned: bool) -> None:
        self._versioned = versioned

    def process(self, batch: Batch) -> None:
        self.context.forward(latest_only(self.context, batch, self._versioned))

    def process_columns(self, columns: Columns) -> None:
        self.context.forward_columns(latest_only(self.context, columns, self._versioned))
