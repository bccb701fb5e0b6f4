"""Aggregation by key, not windowed: count, reduce, aggregate of a grouped stream or table.

Records without a key or a value are dropped and counted. The result's timestamp is the largest of the records that made
it. A store that is versioned may refuse a result that is older than its retention; then nothing is forwarded.

As in Kafka Streams, the value before a key's first update is the initializer's, not None (unless updates are cached).
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from millpond.processors.batch import Batch, BatchBuilder
from millpond.processors.processor import Processor, ProcessorContext
from millpond.processors.table_source import TableConfig
from millpond.processors.tables import NOT_PUT, VALID_TO_UNDEFINED, TableStore
from millpond.processors.update_cache import UpdateCache
from millpond.stores.serdes import BYTES, INT64, STRING, Serde
from millpond.stores.specs import StoreSpec
from millpond.stores.timestamped import TimestampedKeyValueStore

Update = Callable[[Any, Any, Any], Any]
"""``update(key, value, aggregate) -> aggregate``; the result None deletes the aggregate."""

IMMUTABLE = frozenset((int, float, str, bytes, bool, type(None)))
"""Types whose values an update cannot change in place."""

FOLDABLE = (BYTES, STRING, INT64)
"""Serdes whose equal keys have equal bytes: a batch may be folded by key before it touches the store."""


def _nothing() -> None:
    return None


@dataclass(frozen=True)
class Aggregation:
    """What is computed for each key, or for each key and window.

    Attributes:
        update: takes one more value in.
        initializer: makes the aggregate that a key's first value is taken into; by default None.
        merger: ``merger(key, left, right)`` joins the aggregates of two sessions.
        tally: ``tally(aggregate, n)`` takes n values in at once, where only their number matters.
    """

    update: Update
    initializer: Callable[[], Any] = _nothing
    merger: Update | None = None
    tally: Callable[[Any, int], Any] | None = None


@dataclass(frozen=True)
class AggregateSetup:
    """What a processor that aggregates is made with.

    Attributes:
        config: what downstream wants of the table that comes out.
        spec: of the store.
        aggregation: what is computed.
        caching: forward only the last update of each key in a micro-batch.
        number: which of the processors on this store it is.
    """

    config: TableConfig
    spec: StoreSpec
    aggregation: Aggregation
    caching: bool = False
    number: int = 0


def counting() -> Aggregation:
    """Counts values."""
    return Aggregation(lambda key, value, count: count + 1, int, lambda key, left, right: left + right, int.__add__)


def reducing(reducer: Callable[[Any, Any], Any]) -> Aggregation:
    """Takes the first value as it is, then ``reducer(aggregate, value)``."""

    def update(key: Any, value: Any, aggregate: Any) -> Any:
        return value if aggregate is None else reducer(aggregate, value)

    def merge(key: Any, left: Any, right: Any) -> Any:
        return right if left is None else reducer(left, right)

    return Aggregation(update, merger=merge)


def copier(serde: Serde[Any]) -> Callable[[Any], Any]:
    """A function that makes an equal value which shares nothing with the original that could be changed in place."""

    def copy(value: Any) -> Any:
        return value if type(value) in IMMUTABLE else serde.deserialize(serde.serialize(value))

    return copy


class Aggregate(Processor):
    """Takes each record into its key's aggregate and forwards the update, or with caching each key's last update.

    The functions may change the aggregate that they are given in place: whatever is not plainly immutable goes through
    the store's serde before it is seen again.
    """

    def __init__(self, setup: AggregateSetup) -> None:
        self._config = setup.config
        self._spec = setup.spec
        self._update = setup.aggregation.update
        self._tally = setup.aggregation.tally
        self._initializer = setup.aggregation.initializer
        self._caching = setup.caching
        self._copy = copier(setup.spec.value_serde)

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        store = context.store(self._spec.name)
        self._table = TableStore(store)
        self._foldable = isinstance(store, TimestampedKeyValueStore) and self._spec.key_serde in FOLDABLE
        self._cache = UpdateCache(self._spec.key_serde) if self._caching else None

    def process(self, batch: Batch) -> None:
        kept = without_nulls(self.context, batch)
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

    def _one_by_one(self, batch: Batch) -> Batch:
        out = BatchBuilder(olds=self._config.send_olds)
        for key, value, timestamp in zip(batch.keys, batch.values, batch.timestamps, strict=True):
            before = self._table.get(key)
            if before is None:
                aggregate = self._initializer()
                old = None if self._caching else self._copy(aggregate)
            else:
                aggregate = before.value
                timestamp = max(timestamp, before.timestamp)
                old = self._copy(aggregate) if self._config.send_olds else None
            new = self._update(key, value, aggregate)
            valid_to = self._table.put(key, new, timestamp)
            if valid_to == NOT_PUT:
                self.context.count("dropped-expired")
            else:
                out.add(key, new, timestamp, old, valid_to == VALID_TO_UNDEFINED)
        return out.build()

    def _fold(self, batch: Batch) -> Batch:
        """The same, with one read and one write of the store for each key of the batch."""
        if self._caching and self._tally is not None:
            return self._fold_tallied(batch, self._tally)
        store: Any = self._table.store
        send_olds = self._config.send_olds
        states: dict[Any, Any] = dict.fromkeys(batch.keys)
        distinct = list(states)
        before = store.get_many(distinct)
        states.update(zip(distinct, before, strict=True))
        if self._caching:
            olds = [None if b is None else self._copy(b.value) for b in before] if send_olds else None
            self._fold_silently(states, batch)
            values, timestamps = [s[0] for s in states.values()], [s[1] for s in states.values()]
            updates = Batch(distinct, values, timestamps, olds)
        else:
            updates = self._fold_all(states, batch, [] if send_olds else None)
            values, timestamps = [s[0] for s in states.values()], [s[1] for s in states.values()]
        store.put_many(distinct, values, timestamps)
        return updates

    def _fold_tallied(self, batch: Batch, tally: Callable[[Any, int], Any]) -> Batch:
        """The last update of each key, where only the number of values matters."""
        store: Any = self._table.store
        counts = Counter(batch.keys)
        distinct, times = list(counts), _latest_times(batch)
        before = store.get_many(distinct)
        values = [
            tally(self._initializer() if state is None else state[0], more)
            for state, more in zip(before, counts.values(), strict=True)
        ]
        timestamps = [
            time if state is None or state[1] < time else state[1] for state, time in zip(before, times, strict=True)
        ]
        olds = [None if state is None else state[0] for state in before] if self._config.send_olds else None
        store.put_many(distinct, values, timestamps)
        return Batch(distinct, values, timestamps, olds)

    def _fold_silently(self, states: dict[Any, Any], batch: Batch) -> None:
        update, initializer = self._update, self._initializer
        for key, value, timestamp in zip(batch.keys, batch.values, batch.timestamps, strict=True):
            state = states[key]
            if state is None or state[0] is None:
                aggregate = initializer()
            else:
                aggregate, last = state
                if last > timestamp:
                    timestamp = last
            states[key] = (update(key, value, aggregate), timestamp)

    def _fold_all(self, states: dict[Any, Any], batch: Batch, olds: list[Any] | None) -> Batch:
        update, initializer, copy = self._update, self._initializer, self._copy
        news: list[Any] = []
        timestamps: list[int] = []
        for key, value, timestamp in zip(batch.keys, batch.values, batch.timestamps, strict=True):
            state = states[key]
            if state is None or state[0] is None:
                aggregate = initializer()
            else:
                aggregate, last = state
                if last > timestamp:
                    timestamp = last
            if olds is not None:
                olds.append(copy(aggregate))
            new = update(key, value, aggregate)
            news.append(new)
            timestamps.append(timestamp)
            states[key] = (new if type(new) in IMMUTABLE else copy(new), timestamp)
        return Batch(batch.keys, news, timestamps, olds)


def _latest_times(batch: Batch) -> list[int]:
    """The largest timestamp of each key, in the order in which the keys first come."""
    keys, timestamps = batch.keys, batch.timestamps
    latest = dict(zip(keys, timestamps, strict=True))
    if timestamps != sorted(timestamps):
        for key, timestamp in zip(keys, timestamps, strict=True):
            if timestamp > latest[key]:
                latest[key] = timestamp
    return list(latest.values())


def without_nulls(context: ProcessorContext, batch: Batch) -> Batch:
    """The records that have a key and a value; the others are counted."""
    if None not in batch.keys and None not in batch.values:
        return batch
    kept = batch.select([k is not None and v is not None for k, v in zip(batch.keys, batch.values, strict=True)])
    context.count("dropped-null", len(batch) - len(kept))
    return kept
