"""Aggregation of a stream by key, not windowed: count, reduce, aggregate.

Records without a key or a value are dropped and counted. The result's timestamp is the largest of the records that made
it. A store that is versioned may refuse a result that is older than its retention; then nothing is forwarded.
"""

from collections.abc import Callable
from typing import Any

from millpond.processors.batch import Batch, BatchBuilder
from millpond.processors.processor import Processor, ProcessorContext
from millpond.processors.table_source import TableConfig
from millpond.processors.tables import NOT_PUT, VALID_TO_UNDEFINED, TableStore
from millpond.processors.update_cache import UpdateCache
from millpond.stores.serdes import BYTES, INT64, STRING
from millpond.stores.specs import StoreSpec
from millpond.stores.timestamped import TimestampedKeyValueStore

Update = Callable[[Any, Any, Any], Any]
"""``update(key, value, aggregate) -> aggregate``; the aggregate is None where the key has none yet."""

IMMUTABLE = frozenset((int, float, str, bytes, bool, type(None)))
"""Types whose values an update cannot change in place."""


class StreamAggregate(Processor):
    """Folds each record into its key's aggregate and forwards the update, or with ``caching`` each key's last update.

    ``update`` may change the aggregate that it is given in place: whatever is not plainly immutable goes through the
    store's serde before it is seen again.
    """

    def __init__(self, config: TableConfig, spec: StoreSpec, update: Update, *, caching: bool = False) -> None:
        self._config = config
        self._spec = spec
        self._update = update
        self._caching = caching

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        store = context.store(self._spec.name)
        self._table = TableStore(store)
        # Equal keys of these serdes have equal bytes, so a batch may be folded by key before it touches the store.
        self._foldable = isinstance(store, TimestampedKeyValueStore) and self._spec.key_serde in (BYTES, STRING, INT64)
        self._cache = UpdateCache(self._spec.key_serde) if self._caching else None

    def process(self, batch: Batch) -> None:
        kept = batch.select([k is not None and v is not None for k, v in zip(batch.keys, batch.values, strict=True)])
        self.context.count("dropped-null", len(batch) - len(kept))
        if not len(kept):
            return
        updates = self._fold(kept) if self._foldable and len(kept) > 1 else self._one_by_one(kept)
        if self._cache is None:
            self.context.forward(updates)
        else:
            self._cache.add(updates)

    def flush(self) -> None:
        if self._cache is not None:
            self.context.forward(self._cache.take())

    def _copy(self, value: Any) -> Any:
        """An equal value that shares nothing with ``value``."""
        return self._spec.value_serde.deserialize(self._spec.value_serde.serialize(value))

    def _one_by_one(self, batch: Batch) -> Batch:
        send_olds = self._config.send_olds
        out = BatchBuilder(olds=send_olds)
        for key, value, timestamp in zip(batch.keys, batch.values, batch.timestamps, strict=True):
            before = self._table.get(key)
            old = None
            if before is not None:
                old = self._copy(before.value) if send_olds else None
                timestamp = max(timestamp, before.timestamp)
            new = self._update(key, value, None if before is None else before.value)
            valid_to = self._table.put(key, new, timestamp)
            if valid_to == NOT_PUT:
                self.context.count("dropped-expired")
            else:
                out.add(key, new, timestamp, old, valid_to == VALID_TO_UNDEFINED)
        return out.build()

    def _fold(self, batch: Batch) -> Batch:
        """The same, with one read and one write of the store for each key of the batch."""
        store: Any = self._table.store
        distinct = list(dict.fromkeys(batch.keys))
        before = store.get_many(distinct)
        states: dict[Any, tuple[Any, int] | None] = dict(zip(distinct, before, strict=True))
        out = BatchBuilder(olds=self._config.send_olds)
        self._fold_into(states, batch, None if self._caching else out)
        values = [None if state is None else state[0] for state in states.values()]
        timestamps = [0 if state is None else state[1] for state in states.values()]
        store.put_many(distinct, values, timestamps)
        if not self._caching:
            return out.build()
        olds = [None if state is None else state[0] for state in before] if self._config.send_olds else None
        return Batch(distinct, values, timestamps, olds)

    def _fold_into(self, states: dict[Any, tuple[Any, int] | None], batch: Batch, out: BatchBuilder | None) -> None:
        update, copy, send_olds = self._update, self._copy, self._config.send_olds
        for key, value, timestamp in zip(batch.keys, batch.values, batch.timestamps, strict=True):
            state = states[key]
            if state is None:
                old = aggregate = None
            else:
                aggregate, last = state
                if last > timestamp:
                    timestamp = last
                old = copy(aggregate) if send_olds and type(aggregate) not in IMMUTABLE else aggregate
            new = update(key, value, aggregate)
            if out is not None:
                out.add(key, new, timestamp, old)
                if type(new) not in IMMUTABLE:
                    new = copy(new)
            states[key] = (new, timestamp)
