"""A table's beginning: records of a topic become updates of a store."""

from dataclasses import dataclass
from typing import Any

from millpond.processors.runtime.batch import Batch, BatchBuilder
from millpond.processors.runtime.counters import CounterName
from millpond.processors.runtime.processor import Processor, ProcessorContext
from millpond.processors.tables.update_cache import UpdateCache
from millpond.processors.tables.value_getters import NOT_PUT, VALID_TO_UNDEFINED, TableStore
from millpond.stores.serdes import BYTES, INT64, STRING
from millpond.stores.typed.timestamped_keyvalue import TimestampedKeyValueStore

_PLAIN_KEYS = (BYTES, STRING, INT64)
"""Serdes whose equal keys have equal bytes and can be looked up in a dict."""


@dataclass
class TableConfig:
    """What later operators may still change about a table's processor while the topology is being built.

    Attributes:
        store: the store that holds the table; None if it is not materialised.
        versioned: whether downstream processors apply the rules of KIP-914 to it.
        send_olds: whether somebody downstream needs the values before each update.
        caching: whether only the last update of a key in each micro-batch is emitted.
    """

    store: str | None = None
    versioned: bool = False
    send_olds: bool = False
    caching: bool = False


class TableWriter:
    """Puts a table's updates into its store and forwards them, with the values before them where somebody needs those.

    What a versioned store refuses because it is older than its grace period is counted and not forwarded (KIP-914).
    """

    def __init__(self, context: ProcessorContext, config: TableConfig) -> None:
        assert config.store is not None
        self._context = context
        self._send_olds = config.send_olds
        store = context.store(config.store)
        self._table = TableStore(store)
        self._many = store if isinstance(store, TimestampedKeyValueStore) else None
        self._plain_keys = store.key_serde in _PLAIN_KEYS
        self._cache = UpdateCache(store.key_serde) if config.caching else None

    def write(self, batch: Batch, *, drop_repeated_tombstones: bool = False) -> None:
        """Put and forward, with the values before them that the updates bring or else those in the store.

        With ``drop_repeated_tombstones`` not where there was no value and there still is none.
        """
        if not len(batch):
            return
        if self._many is not None and (not self._send_olds or batch.olds is not None):
            self._many.put_many(batch.keys, batch.values, batch.timestamps)
            written = Batch(batch.keys, batch.values, batch.timestamps, batch.olds if self._send_olds else None)
        elif self._many is not None and self._plain_keys and len(batch) > 1:
            written = self._write_many(self._many, batch)
            if drop_repeated_tombstones:
                written = without_repeated_tombstones(written)
        else:
            written = self._write_each(batch, drop_repeated_tombstones)
        if self._cache is None:
            self._context.forward(written)
        else:
            self._cache.add(written)

    def flush(self) -> None:
        """Forward what the cache held back."""
        if self._cache is not None:
            self._context.forward(self._cache.take())

    def _write_many(self, store: TimestampedKeyValueStore[Any, Any], batch: Batch) -> Batch:
        distinct = list(dict.fromkeys(batch.keys))
        values = [None if found is None else found.value for found in store.get_many(distinct)]
        current = dict(zip(distinct, values, strict=True))
        olds = []
        for key, value in zip(batch.keys, batch.values, strict=True):
            olds.append(current[key])
            current[key] = value
        store.put_many(batch.keys, batch.values, batch.timestamps)
        return Batch(batch.keys, batch.values, batch.timestamps, olds)

    def _write_each(self, batch: Batch, drop_repeated_tombstones: bool) -> Batch:
        table, send_olds = self._table, self._send_olds
        out = BatchBuilder(olds=send_olds)
        expired = 0
        for i, (key, value, timestamp) in enumerate(zip(batch.keys, batch.values, batch.timestamps, strict=True)):
            old = None if not send_olds else self._value_before(key) if batch.olds is None else batch.olds[i]
            if drop_repeated_tombstones and send_olds and value is None and old is None:
                continue
            valid_to = table.put(key, value, timestamp)
            if valid_to == NOT_PUT:
                expired += 1
                continue
            out.add(key, value, timestamp, old, valid_to == VALID_TO_UNDEFINED)
        self._context.count(CounterName.DROPPED_EXPIRED, expired)
        return out.build()

    def _value_before(self, key: Any) -> Any:
        found = self._table.get(key)
        return None if found is None else found.value


def without_repeated_tombstones(updates: Batch) -> Batch:
    """The updates without those from nothing to nothing; all where the values before are not known."""
    if updates.olds is None:
        return updates
    changed = [new is not None or old is not None for new, old in zip(updates.values, updates.olds, strict=True)]
    return updates.select(changed)


class TableSource(Processor):
    """Turns each record into an update of its key; records without a key are dropped and counted."""

    def __init__(self, config: TableConfig) -> None:
        self._config = config

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._writer = None if self._config.store is None else TableWriter(context, self._config)

    def process(self, batch: Batch) -> None:
        kept = batch.select([key is not None for key in batch.keys]) if None in batch.keys else batch
        self.context.count(CounterName.DROPPED_NULL_KEY, len(batch) - len(kept))
        # Of another table's updates only the new values count: this table has values before and latest ones of its own.
        kept = kept.with_values(kept.values)
        if self._writer is None:
            self.context.forward(kept)
        else:
            self._writer.write(kept)

    def flush(self) -> None:
        if self._writer is not None:
            self._writer.flush()
