"""The foreign task of an outer foreign-key join: the rows of the foreign table that no left row names.

Rule of this module: a foreign key is named if the store has a subscription of it; subscriptions are never counted.
"""

from dataclasses import replace
from typing import Any, NamedTuple

from millpond.processors.runtime.batches.batch import Batch, BatchBuilder
from millpond.processors.runtime.batches.columns import Columns
from millpond.processors.runtime.operator import Operator
from millpond.processors.runtime.processor import ProcessorContext
from millpond.processors.runtime.promises import Promises
from millpond.processors.tables.foreign_key.messages import combined_key
from millpond.processors.tables.table_view import TableStore, ViewFactory
from millpond.stores.encoding.serdes import Serde
from millpond.stores.typed.timestamped_keyvalue import ValueAndTimestamp


class _Touched(NamedTuple):
    """A foreign key of a subscription or of an update of the foreign table.

    Attributes:
        key: the key.
        time: the newest time of its subscriptions and updates.
    """

    key: Any
    time: int


class UnnamedRows(Operator):
    """Sends the updates of a table of the foreign rows that no left row names.

    Subscriptions and updates of the foreign table only say which foreign keys to look at. It looks at the end of the
    micro-batch, when the stores have all of it; so a row that is named for a moment in between is not deleted.

    Args:
        subscriptions: the store of the subscriptions.
        unnamed: the store of the table that it makes.
        foreign: the foreign table.
        foreign_serde: the serde of the foreign keys.
    """

    promises = Promises(at_flush=True)

    def __init__(self, subscriptions: str, unnamed: str, foreign: ViewFactory, foreign_serde: Serde[Any]) -> None:
        self._stores = subscriptions, unnamed
        self._foreign = foreign
        self._serialize_keys = foreign_serde.serialize_many

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        subscriptions, unnamed = map(context.store, self._stores)
        self._subscriptions = subscriptions
        self._unnamed = TableStore(unnamed)
        self._view = self._foreign.make(context)
        self.promises = replace(self.promises, looks_up=dict.fromkeys(self._foreign.stores, False))
        self._touched: dict[bytes, _Touched] = {}

    def process(self, batch: Batch) -> None:
        self._touch(batch.keys, batch.timestamps)

    def process_columns(self, columns: Columns) -> None:
        self._touch(columns.keys.to_pylist(), columns.timestamps.tolist())

    def _touch(self, keys: list[Any], times: list[int]) -> None:
        for raw, key, time in zip(self._serialize_keys(keys), keys, times, strict=True):
            known = self._touched.get(raw)
            if known is None or known.time < time:
                self._touched[raw] = _Touched(key, time)

    def flush(self) -> None:
        touched, self._touched = self._touched, {}
        if touched:
            self.context.forward(self._updates(touched))

    def _updates(self, touched: dict[bytes, _Touched]) -> Batch:
        out = BatchBuilder()
        keys = [key for key, _ in touched.values()]
        rows = zip(touched.items(), self._view.get_many(keys), self._unnamed.get_many(keys), strict=True)
        for (raw, (key, time)), there, before in rows:
            row = None if there is None or self._is_named(raw) else there
            if row is not None and _changes(row, before, time):
                out.add(key, row.value, max(time, row.timestamp))
            elif row is None and before is not None:
                out.add(key, None, max(time, before.timestamp))
        return out.build()

    def _is_named(self, foreign_key: bytes) -> bool:
        with self._subscriptions.prefix_scan(combined_key(foreign_key, b"")) as found:
            return next(found, None) is not None


def _changes(row: ValueAndTimestamp[Any], before: ValueAndTimestamp[Any] | None, time: int) -> bool:
    """Return whether a row that nobody names differs from the table's, or is later."""
    return before is None or before.value != row.value or before.timestamp < max(time, row.timestamp)
