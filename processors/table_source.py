"""A table's beginning: records of a topic become updates of a store."""

from dataclasses import dataclass
from typing import Any

from millpond.processors.batch import Batch, BatchBuilder
from millpond.processors.processor import Processor, ProcessorContext
from millpond.processors.tables import NOT_PUT, VALID_TO_UNDEFINED, TableStore


@dataclass
class TableConfig:
    """What later operators may still change about a table's processor while the topology is being built.

    Attributes:
        store: the store that holds the table; None if it is not materialised.
        versioned: whether downstream processors apply the rules of KIP-914 to it.
        send_olds: whether somebody downstream needs the values before each update.
    """

    store: str | None = None
    versioned: bool = False
    send_olds: bool = False


class TableSource(Processor):
    """Puts each record and forwards the update, with the value before it where somebody needs it."""

    def __init__(self, config: TableConfig) -> None:
        self._config = config

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        store = self._config.store
        self._table = None if store is None else TableStore(context.store(store))

    def process(self, batch: Batch) -> None:
        kept = batch.select([key is not None for key in batch.keys])
        self.context.count("dropped-null-key", len(batch) - len(kept))
        self.context.forward(kept if self._table is None else self._put(self._table, kept))

    def _put(self, table: TableStore, batch: Batch) -> Batch:
        send_olds = self._config.send_olds
        out = BatchBuilder(olds=send_olds)
        expired = 0
        for key, value, timestamp in zip(batch.keys, batch.values, batch.timestamps, strict=True):
            before: Any = table.get(key) if send_olds else None
            valid_to = table.put(key, value, timestamp)
            if valid_to == NOT_PUT:
                expired += 1
                continue
            old = None if before is None else before.value
            out.add(key, value, timestamp, old, valid_to == VALID_TO_UNDEFINED)
        self.context.count("dropped-expired", expired)
        return out.build()
