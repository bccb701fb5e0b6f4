"""``TableWriter``: puts a table's updates into its store, and decides when they are forwarded.

``TableSource`` is the operator that does nothing else: each record of a topic becomes an update of its key.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from millpond.processors.runtime.batches.batch import Batch, BatchBuilder
from millpond.processors.runtime.batches.columns import Array, Columns, Records, valid
from millpond.processors.runtime.counters import CounterName
from millpond.processors.runtime.late import Booleans, Integers
from millpond.processors.runtime.operator import Operator
from millpond.processors.runtime.order.time_order import stable_order
from millpond.processors.runtime.processor import ProcessorContext
from millpond.processors.runtime.promises import Promises
from millpond.processors.tables.config import TableConfig
from millpond.processors.tables.table_view import Found, TableStore
from millpond.processors.tables.time_to_live import TimeToLive
from millpond.processors.tables.turns import Turns
from millpond.processors.tables.update_cache import UpdateForwarder
from millpond.stores.encoding.serdes import PLAIN_KEYS
from millpond.stores.encoding.times import MIN_TIME
from millpond.stores.typed.timestamped_keyvalue import TimestampedKeyValueStore
from millpond.stores.typed.versions.versioned import NOT_PUT, VALID_TO_UNDEFINED, VersionedKeyValueStore

R = TypeVar("R", Batch, Columns)


class TableWriter:
    """Puts a table's updates into its store and forwards them, with the old values if an operator needs them.

    Updates that a versioned store refuses as older than its grace period are counted and not forwarded (KIP-914). Where
    entries expire (``ttl``), so are updates that have expired before they come.
    """

    def __init__(self, context: ProcessorContext, config: TableConfig) -> None:
        assert config.store is not None
        self._context = context
        self._send_olds = config.send_olds
        store = context.store(config.store)
        self._table = TableStore(store)
        self._timestamped = store if isinstance(store, TimestampedKeyValueStore) else None
        self._versioned = store if isinstance(store, VersionedKeyValueStore) else None
        self._key_serde = store.key_serde
        self._plain_keys = store.key_serde in PLAIN_KEYS
        self._updates = UpdateForwarder(context, store.key_serde, caching=config.caching)
        self._ttl = TimeToLive(context, store)
        # If neither goes by time, the order in which updates come is enough.
        timed = self._versioned is not None or self._ttl.expires
        self._turns = Turns(self._table) if config.in_turn and timed else None
        self._reached = MIN_TIME

    def write(self, batch: Batch, *, drop_repeated_tombstones: bool = False) -> None:
        """Put and forward updates; their old values are the ones that they carry, or else the store's.

        With ``drop_repeated_tombstones``, updates from no value to no value are dropped if the old values are known.
        """
        batch = batch if self._turns is None else self._turns.taken(batch)
        for run in self._ttl.runs(batch):
            for part in self._parts(run):
                self._tell_replaced(part)
                self._write(part, drop_repeated_tombstones)

    def write_columns(self, columns: Columns) -> None:
        """Write updates that are columns, as ``write`` does; they become a batch where that is needed."""
        columns = columns if self._turns is None else self._turns.taken(columns)
        for run in self._ttl.runs(columns):
            for part in self._parts(run):
                self._tell_replaced(part)
                self._write_columns(part)

    def _parts(self, records: R) -> Iterator[R]:
        """Yield the updates, in parts between which others look up what the store is about to forget."""
        store = self._versioned
        if store is None or not store.stragglers:
            yield records
            return
        reached = np.maximum.accumulate(np.asarray(records.timestamps, np.int64))
        start = 0
        while start < len(reached):
            store.catch_up(int(reached[start]))
            until = store.straggler_until
            stop = len(reached) if until is None else int(np.searchsorted(reached, until, "right"))
            yield records.slice(start, stop)
            start = stop

    def _write(self, batch: Batch, drop_repeated_tombstones: bool) -> None:
        if not len(batch):
            return
        self._begin()
        known = self._olds_of(batch)
        if self._timestamped is not None and (not self._send_olds or known is not None):
            self._timestamped.put_many(batch.keys, batch.values, batch.timestamps)
            olds = known if self._send_olds else None
            written = _updates(batch, olds)
        elif self._timestamped is not None and self._plain_keys and len(batch) > 1:
            written = self._write_many(self._timestamped, batch)
            if drop_repeated_tombstones:
                written = without_repeated_tombstones(written)
        elif self._versioned is not None and self._plain_keys and len(batch) > 1 and not drop_repeated_tombstones:
            written = self._write_versions(self._versioned, batch)
        else:
            written = self._write_each(batch, drop_repeated_tombstones)
        self._updates.send(written)

    def _write_columns(self, columns: Columns) -> None:
        table = self._table.columns
        if table is None or not len(columns) or not table.takes(columns.keys.type, columns.values.type):
            self._write(columns.to_batch(), drop_repeated_tombstones=False)
            return
        self._begin()
        known = self._olds_of(columns)
        if not self._send_olds or known is not None:
            ends = table.put(columns.keys, columns.values, columns.timestamps)
            olds = known if self._send_olds else None
        else:
            encoded = columns.keys.dictionary_encode()
            places = encoded.indices.to_numpy()
            reached = self._ttl.reached_first(places, len(encoded.dictionary), columns.timestamps)
            current, _ = table.get(encoded.dictionary, reached)
            ends = table.put(columns.keys, columns.values, columns.timestamps)
            numbers = encoded.indices.to_numpy().astype(np.int64)
            counts = np.ones(len(numbers), np.bool_) if ends is None else ends == VALID_TO_UNDEFINED
            olds = values_before(numbers, current, table.own(columns.values), counts)
        self._updates.send_columns(self._put_columns(columns, olds, ends))

    def advance(self, time: int) -> None:
        """Let a store with a history forget as of ``time``, and entries with a time to live expire."""
        if self._versioned is not None:
            self._versioned.catch_up(time)
            self._versioned.observe(time)
        self.expire(time)

    def expire(self, time: int) -> None:
        """Let entries with a time to live expire as of ``time``, and forward deletes if configured."""
        self._ttl.observe(time)
        self._tell_expired()

    def flush(self) -> None:
        """Forward what the cache held back."""
        self._tell_expired()
        self._updates.flush()

    def _olds_of(self, records: Records) -> Any:
        """Return the old values of updates if they are this table's; None if its own entries may have expired."""
        return None if self._ttl.expires else records.olds

    def _tell_replaced(self, records: Records) -> None:
        """Forward deletes of expired entries that are about to be replaced, if configured."""
        if not self._ttl.tells or not len(records):
            return
        batch = records.to_batch()
        keys, _, expired = self._get_many_at(batch.keys, batch.timestamps)
        gone = [(key, one.value, one.timestamp) for key, one in zip(keys, expired, strict=True) if one is not None]
        if gone:
            keys, values, times = (list(column) for column in zip(*gone, strict=True))
            self._updates.send(self._ttl.deletes(keys, values, times, olds=self._send_olds))

    def _tell_expired(self) -> None:
        if self._ttl.tells:
            self._updates.send(self._ttl.expired(olds=self._send_olds))

    def _get_many_at(
        self, keys: Sequence[Any], timestamps: Sequence[int]
    ) -> tuple[list[Any], list[Found], list[Found]]:
        """Return each key, its entry when its first record comes, and unreported entries that have expired by then."""
        serialize = self._key_serde.serialize
        first: dict[Any, tuple[Any, int]] = {}
        for key, time in zip(keys, self._ttl.reached(timestamps).tolist(), strict=True):
            first.setdefault(key if self._plain_keys else serialize(key), (key, time))
        distinct, reached = [key for key, _ in first.values()], [time for _, time in first.values()]
        return distinct, *self._table.get_many_at(distinct, reached)

    def _write_many(self, store: TimestampedKeyValueStore[Any, Any], batch: Batch) -> Batch:
        current = self._latest_values(batch)
        olds = []
        for key, value in zip(batch.keys, batch.values, strict=True):
            olds.append(current[key])
            current[key] = value
        store.put_many(batch.keys, batch.values, batch.timestamps)
        return _updates(batch, olds)

    def _write_versions(self, store: VersionedKeyValueStore[Any, Any], batch: Batch) -> Batch:
        olds = self._olds_of(batch) if self._send_olds else None
        try:
            current = self._latest_values(batch) if self._send_olds and olds is None else None
            ends = store.put_many(batch.keys, batch.values, batch.timestamps)
        except Exception:  # nothing was put, and one by one shows whose fault it is
            return self._write_each(batch, drop_repeated_tombstones=False)
        if current is not None:
            olds = []
            for key, value, end in zip(batch.keys, batch.values, ends, strict=True):
                olds.append(current[key])
                if end == VALID_TO_UNDEFINED:
                    current[key] = value
        return self._put(batch, olds, ends)

    def _put(self, batch: Batch, olds: list[Any] | None, ends: list[int]) -> Batch:
        """Return the updates that a versioned store has put, given what it returned for each."""
        self._note_expired(batch, [end == NOT_PUT for end in ends])
        ends_open = [end == VALID_TO_UNDEFINED for end in ends]
        latest = None if all(ends_open) else ends_open
        return _updates(batch, olds, latest).select([end != NOT_PUT for end in ends])

    def _put_columns(self, columns: Columns, olds: Array | None, ends: Integers | None) -> Columns:
        """Return ``_put`` of columns; None for ``ends`` if the store is not versioned."""
        keys, values, times, positions = columns.keys, columns.values, columns.timestamps, columns.positions
        if ends is None:
            return Columns(keys, values, times, positions, olds)
        put, latest = ends != NOT_PUT, ends == VALID_TO_UNDEFINED
        self._note_expired(columns, ~put)
        return Columns(keys, values, times, positions, olds, None if latest.all() else latest).select(put)

    def _write_each(self, batch: Batch, drop_repeated_tombstones: bool) -> Batch:
        table, send_olds = self._table, self._send_olds
        out = BatchBuilder(olds=send_olds, positions=batch.positions is not None)
        expired = [False] * len(batch)
        rows = zip(batch.keys, batch.values, batch.timestamps, batch.headers_of_each, strict=True)
        known = self._olds_of(batch)
        for i, (key, value, timestamp, out.current) in enumerate(rows):
            try:
                old = None if not send_olds else self._value_before(key, timestamp) if known is None else known[i]
                if drop_repeated_tombstones and send_olds and value is None and old is None:
                    continue
                valid_to = table.put(key, value, timestamp)
            except Exception as error:  # a user's serde may raise anything
                self._context.leave_out(error, key, value, timestamp, headers=out.current)
                continue
            if valid_to == NOT_PUT:
                expired[i] = True
                continue
            out.add(key, value, timestamp, old, valid_to == VALID_TO_UNDEFINED, batch.position_at(i))
        self._note_expired(batch, expired)
        return out.build()

    def _begin(self) -> None:
        """Note the time that the store will have reached before updates are put, by which it refuses."""
        store = self._versioned
        observed, begin = (None, None) if store is None else (store.observed_stream_time, store.horizon)
        self._reached = MIN_TIME if observed is None else observed
        if store is not None and begin is not None:
            self._reached = max(self._reached, begin + store.grace)

    def _note_expired(self, records: Records, expired: Sequence[bool] | Booleans) -> None:
        """Count and tell of the updates that the store has refused."""
        late = np.asarray(expired, np.bool_)
        if self._versioned is None or not late.any():
            return
        self._context.count(CounterName.DROPPED_EXPIRED, int(np.count_nonzero(late)))
        times = np.asarray(records.timestamps, np.int64)
        reached, allowed = np.maximum(np.maximum.accumulate(times), self._reached), self._versioned.grace
        self._context.tell_late(CounterName.DROPPED_EXPIRED, records, late, reached, reached - times - allowed, allowed)

    def _latest_values(self, batch: Batch) -> dict[Any, Any]:
        if self._ttl.expires:
            keys, found, _ = self._get_many_at(batch.keys, batch.timestamps)
            return {key: None if kept is None else kept.value for key, kept in zip(keys, found, strict=True)}
        distinct = list(dict.fromkeys(batch.keys))
        found = self._table.get_many(distinct)
        return {key: None if kept is None else kept.value for key, kept in zip(distinct, found, strict=True)}

    def _value_before(self, key: Any, timestamp: int) -> Any:
        found = self._get_many_at([key], [timestamp])[1][0] if self._ttl.expires else self._table.get(key)
        return None if found is None else found.value


def _updates(batch: Batch, olds: list[Any] | None, latest: list[bool] | None = None) -> Batch:
    """Return the records of ``batch`` as updates that have been put."""
    return Batch(batch.keys, batch.values, batch.timestamps, olds, latest, batch.positions, batch.headers)


def without_repeated_tombstones(updates: R) -> R:
    """Return the updates without those from no value to no value; all of them if the old values are not known."""
    if updates.olds is None:
        return updates
    if isinstance(updates, Columns):
        return updates.select(valid(updates.values) | valid(updates.olds))
    changed = [new is not None or old is not None for new, old in zip(updates.values, updates.olds, strict=True)]
    return updates.select(changed)


def values_before(numbers: Integers, current: Array, values: Array, counts: Booleans) -> Array:
    """Return the value that each update's key had before it.

    Args:
        numbers: the number of each update's key.
        current: the value of each key before all updates.
        values: the new values, of the same type.
        counts: a mask of the updates that give their key its value.

    >>> numbers, counts = np.array([0, 1, 0, 0]), np.array([True, True, False, True])
    >>> values_before(numbers, pa.array(["a", None]), pa.array(["b", "c", "late", "d"]), counts).to_pylist()
    ['a', None, 'b', 'b']
    """
    # Sorted by key, each key's updates lie side by side, in their order.
    order = stable_order(numbers)
    sorted_numbers, at = numbers[order], np.arange(len(numbers))
    begins = np.concatenate([[True], sorted_numbers[1:] != sorted_numbers[:-1]])
    # ``before`` is the last update in front of each that counts, of whatever key; it is ``within`` if not before the
    # first one of its own key.
    last = np.maximum.accumulate(np.where(counts[order], at, -1))
    before = np.concatenate([[-1], last[:-1]])
    within = before >= np.maximum.accumulate(np.where(begins, at, 0))
    # The new values lie behind the current ones.
    places = np.empty_like(at)
    places[order] = np.where(within, len(current) + order[before], sorted_numbers)
    return pa.concat_arrays([current, values]).take(pa.array(places))


class _Forwarder:
    """Takes the place of a ``TableWriter`` where a table has no store."""

    def __init__(self, context: ProcessorContext) -> None:
        self._context = context

    def write(self, batch: Batch, *, drop_repeated_tombstones: bool = False) -> None:
        self._context.forward(without_repeated_tombstones(batch) if drop_repeated_tombstones else batch)

    def write_columns(self, columns: Columns) -> None:
        self._context.forward_columns(columns)

    def advance(self, time: int) -> None:
        """Do nothing: nothing is kept that could be forgotten."""

    def expire(self, time: int) -> None:
        """Do nothing: nothing is kept that could expire."""

    def flush(self) -> None:
        """Do nothing: nothing is held back."""


class TableProcessor(Operator):
    """An operator whose updates make a table, which may have a store.

    Args:
        config: the configuration of the table.
    """

    def __init__(self, config: TableConfig) -> None:
        self._config = config

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.promises = replace(self.promises, fills=self._config.store)
        stored = self._config.store is not None
        self._output = TableWriter(context, self._config) if stored else _Forwarder(context)

    def advance(self, time: int) -> None:
        self._output.advance(time)
        super().advance(time)

    def expire(self, time: int) -> None:
        self._output.expire(time)

    def flush(self) -> None:
        self._output.flush()


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
