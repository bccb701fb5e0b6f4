"""Aggregation by key, without windows: count, reduce and aggregate of a grouped stream or table.

Records without a key or a value are dropped and counted. The result's timestamp is the largest of the records that made
it. A versioned store may refuse a result that is too late; then nothing is forwarded, and it is counted.

A record for which a function fails leaves the aggregate as it was, if such records are to be left out. A change of a
grouped table that fails is then tried in halves, so that the old value leaves the group even if the new one cannot join
it: exact as long as adder and subtractor fail for the same values.

As in Kafka Streams, the value before a key's first update is the initializer's, not None (unless updates are cached).

Where aggregates expire (``ttl``), a record that comes after its key's aggregate has begins a new one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pyarrow as pa

from millpond.processors.aggregations.column_fold import (
    ColumnCount,
    ColumnFold,
    MergingFold,
    fold_columns,
    merge_columns,
)
from millpond.processors.aggregations.fold import Fold, Update, copier, slotter
from millpond.processors.options.windows import ALL_TIMES, Span
from millpond.processors.runtime.batches.batch import Batch, BatchBuilder
from millpond.processors.runtime.batches.columns import Columns, Records
from millpond.processors.runtime.batches.partials import Combiner
from millpond.processors.runtime.change import Change
from millpond.processors.runtime.counters import CounterName
from millpond.processors.runtime.failures import is_of_record
from millpond.processors.runtime.operator import Operator
from millpond.processors.runtime.processor import ProcessorContext
from millpond.processors.runtime.promises import Promises
from millpond.processors.tables.config import TableConfig
from millpond.processors.tables.table_view import TableStore
from millpond.processors.tables.time_to_live import TimeToLive
from millpond.processors.tables.update_cache import UpdateForwarder
from millpond.stores.encoding.column_serdes import column_serde, to_big_endian
from millpond.stores.encoding.serdes import INT64, PLAIN_KEYS, Serde
from millpond.stores.specs.store_spec import StoreKind, StoreSpec
from millpond.stores.typed.timestamped_columns import TimestampedColumns
from millpond.stores.typed.timestamped_keyvalue import TimestampedKeyValueStore, ValueAndTimestamp
from millpond.stores.typed.versions.versioned import NOT_PUT, VALID_TO_UNDEFINED


def _nothing() -> None:
    return None


class Addition(NamedTuple):
    """A part of an aggregate that counts only records from some time on.

    Attributes:
        name: its name in errors.
        place: a number that no other part of the aggregate ever has.
        since: the time.
    """

    name: str
    place: int
    since: int


@dataclass(frozen=True)
class Aggregation:
    """The computation for each key, or for each key and window.

    Attributes:
        update: folds in one more value.
        initializer: makes the aggregate that a key's first value is folded into; by default None.
        merger: ``merger(key, left, right)`` merges the aggregates of two sessions; if there is a ``combiner``, of
            any two parts of the records.
        tally: ``tally(aggregate, n)`` folds in n values at once, if only their number matters.
        columns: does the same for whole columns, if that can be done.
        combiner: makes partial aggregates of records that have not reached their task, if they may be combined there.
        commutes: whether the values of a key may be folded in in any order.
        additions: its parts that count only records from some time on.
    """

    update: Update
    initializer: Callable[[], Any] = _nothing
    merger: Update | None = None
    tally: Callable[[Any, int], Any] | None = None
    columns: ColumnFold | None = None
    combiner: Combiner | None = None
    commutes: bool = False
    additions: Sequence[Addition] = ()


@dataclass(frozen=True)
class AggregateSetup:
    """The parameters of an aggregating processor.

    Attributes:
        config: the configuration of the resulting table.
        spec: the store's spec.
        aggregation: the computation.
        caching: whether only the last update of each key in a micro-batch is forwarded.
        number: the number of this processor on the store, from 0 on.
        span: the windows that are its own.
    """

    config: TableConfig
    spec: StoreSpec
    aggregation: Aggregation
    caching: bool = False
    number: int = 0
    span: Span = ALL_TIMES


def counting() -> Aggregation:
    """Return the aggregation that counts values."""
    return Aggregation(
        lambda key, value, count: count + 1,
        int,
        lambda key, left, right: left + right,
        tally=int.__add__,
        columns=ColumnCount(),
        combiner=CountCombiner(),
        commutes=True,
    )


def reducing(reducer: Callable[[Any, Any], Any]) -> Aggregation:
    """Return the aggregation that takes the first value as it is, then ``reducer(aggregate, value)``."""

    def update(key: Any, value: Any, aggregate: Any) -> Any:
        return value if aggregate is None else reducer(aggregate, value)

    def merge(key: Any, left: Any, right: Any) -> Any:
        return right if left is None else reducer(left, right)

    return Aggregation(update, merger=merge)


def table_aggregation(initializer: Callable[[], Any], adder: Update, subtractor: Update) -> Aggregation:
    """Return the aggregation ``subtractor(key, old, aggregate)``, then ``adder(key, new, aggregate)``.

    One update comes out of a change (KIP-904). Nothing is subtracted from an aggregate that does not exist. A
    subtractor that returns None deletes the aggregate; the next value begins anew.
    """

    def update(key: Any, change: Change[Any], aggregate: Any) -> Any:
        if change.old is not None and aggregate is not None:
            aggregate = subtractor(key, change.old, aggregate)
        if change.new is None:
            return aggregate
        return adder(key, change.new, initializer() if aggregate is None else aggregate)

    return Aggregation(update)


def table_count() -> Aggregation:
    """Return the aggregation that counts rows; a group that loses its last row stays, with 0."""
    return table_aggregation(int, lambda key, value, count: count + 1, lambda key, value, count: count - 1)


def table_reduction(adder: Callable[[Any, Any], Any], subtractor: Callable[[Any, Any], Any]) -> Aggregation:
    """Return the aggregation ``subtractor(aggregate, old)``, then ``adder(aggregate, new)``, or ``new`` alone."""
    return table_aggregation(
        _nothing,
        lambda key, new, aggregate: new if aggregate is None else adder(aggregate, new),
        lambda key, old, aggregate: subtractor(aggregate, old),
    )


class Aggregate(Operator):
    """Folds each record into its key's aggregate and forwards the update, or with caching each key's last update.

    The functions may change the aggregate that they are given in place: any value not known to be immutable goes
    through the store's serde before it is seen again.
    """

    def __init__(self, setup: AggregateSetup) -> None:
        aggregation = setup.aggregation
        self._config = setup.config
        self._spec = setup.spec
        self._caching = setup.caching
        self._copy = copier(setup.spec.value_serde)
        self._slots = slotter(setup.spec.key_serde)
        self._column_fold = aggregation.columns
        self._merging_fold = aggregation.columns if isinstance(aggregation.columns, MergingFold) else None
        self._combiner = aggregation.combiner
        unordered = setup.caching and aggregation.commutes and self._may_combine
        self.promises = Promises(commutes=aggregation.commutes, unordered=unordered)
        self._folding = Fold(aggregation.initializer, aggregation.update, self._copy, aggregation.tally)
        self._merging = Fold(aggregation.initializer, aggregation.merger or aggregation.update, self._copy)

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.promises = replace(self.promises, fills=self._spec.name)
        store = context.store(self._spec.name)
        self._table = TableStore(store)
        self._many = store if isinstance(store, TimestampedKeyValueStore) else None
        self._ttl = TimeToLive(context, store)
        # Of those that come after an update in the same micro-batch, only the last is forwarded anyway.
        self._tells_each = self._ttl.tells and (self._config.send_olds or not self._caching)
        self._updates = UpdateForwarder(context, self._spec.key_serde, caching=self._caching)
        self._columns = self._columns_of(self._table)

    def process(self, batch: Batch) -> None:
        kept = without_nulls(self.context, batch)
        if not len(kept):
            return
        for run in self._ttl.runs(kept):
            self._updates.send(self._fold_all(run, self._folding))

    @property
    def combiner(self) -> Combiner | None:
        plain = self._spec.key_serde in PLAIN_KEYS
        return self._combiner if self._caching and self._may_combine and plain else None

    @property
    def _may_combine(self) -> bool:
        """True if an aggregate shows only the greatest of its records' times."""
        return self._spec.kind is StoreKind.TIMESTAMPED_KEY_VALUE and self._spec.ttl is None

    def process_partials(self, partials: Records, rest: Columns | None = None) -> bool:
        fold, store = self._merging_fold, self._columns
        if isinstance(partials, Columns) and fold is not None and store is not None and store.takes(partials.keys.type):
            try:
                updates = merge_columns(fold, store, partials, olds=self._config.send_olds)
            except pa.ArrowInvalid:
                pass  # One by one they show which key it is, and whether anything is wrong.
            else:
                self._send_columns(partials, updates)
                return True
        self._updates.send(self._fold_all(partials.to_batch(), self._merging))
        return True

    def process_columns(self, columns: Columns) -> None:
        fold, store = self._column_fold, self._columns
        if fold is None or store is None or not store.takes(columns.keys.type):
            self.process(columns.to_batch())
            return
        kept = columns_without_nulls(self.context, columns)
        if not len(kept):
            return
        for run in self._ttl.runs(kept):
            self._process_run(fold, store, run)

    def _process_run(self, fold: ColumnFold, store: TimestampedColumns, run: Columns) -> None:
        reached = self._ttl.reached(run.timestamps) if self._ttl.expires else None
        try:
            updates = fold_columns(
                fold, store, run, last_only=self._caching, olds=self._config.send_olds, reached=reached
            )
        except pa.ArrowInvalid:
            self._updates.send(self._fold_all(run.to_batch(), self._folding))
        else:
            self._send_columns(run, updates)

    def _send_columns(self, records: Columns, updates: Columns) -> None:
        self._updates.replaced(len(records) - len(updates))
        self._updates.send_columns(updates)

    def _columns_of(self, table: TableStore) -> TimestampedColumns | None:
        """Return the store for whole columns; None if values or aggregates have to be objects."""
        keys, fold, columns = column_serde(self._spec.key_serde), self._column_fold, table.columns
        tells_each = (self._config.send_olds or self._tells_each) and not self._caching
        if tells_each or keys is None or fold is None or not isinstance(columns, TimestampedColumns):
            return None
        return columns if columns.takes(keys.type, fold.result) else None

    def advance(self, time: int) -> None:
        self.expire(time)
        super().advance(time)

    def expire(self, time: int) -> None:
        self._ttl.observe(time)
        self._tell_expired()

    def flush(self) -> None:
        self._tell_expired()
        self._updates.flush()

    def _tell_expired(self) -> None:
        if self._ttl.tells:
            self._updates.send(self._ttl.expired(olds=self._config.send_olds))

    def _fold_all(self, batch: Batch, folding: Fold) -> Batch:
        if self._many is not None and len(batch) > 1:
            try:
                return self._fold(batch, folding, self._many)
            except Exception as error:  # a user's code may raise anything
                if not is_of_record(error):
                    raise
                # Nothing was written; below, each record is folded into what the store gives anew.
        return self._one_by_one(batch, folding)

    def _one_by_one(self, batch: Batch, folding: Fold) -> Batch:
        out = BatchBuilder(olds=self._config.send_olds)
        rows = zip(batch.keys, batch.values, batch.timestamps, batch.headers_of_each, strict=True)
        for key, value, timestamp, out.current in rows:
            try:
                self._fold_one(out, folding, key, value, timestamp)
            except Exception as error:  # a user's code may raise anything
                self._fold_halves(out, key, value, timestamp, error)
        return out.build()

    def _fold_halves(self, out: BatchBuilder, key: Any, value: Any, timestamp: int, error: Exception) -> None:
        """Fold what can be folded of a change that failed as a whole; any other record is left out."""
        if not (isinstance(value, Change) and value.old is not None and value.new is not None and is_of_record(error)):
            self.context.leave_out(error, key, value, timestamp, headers=out.current)
            return
        for half in value.halves():
            try:
                self._fold_one(out, self._folding, key, half, timestamp)
            except Exception as again:  # a user's code may raise anything
                self.context.leave_out(again, key, half, timestamp, headers=out.current)

    def _fold_one(self, out: BatchBuilder, folding: Fold, key: Any, value: Any, timestamp: int) -> None:
        before = self._before(out, key, timestamp) if self._ttl.expires else self._table.get(key)
        if before is None:
            aggregate = folding.initializer()
            old = None if self._caching else self._copy(aggregate)
        else:
            aggregate = before.value
            timestamp = max(timestamp, before.timestamp)
            old = self._copy(aggregate) if self._config.send_olds else None
        new = folding.update(key, value, aggregate)
        valid_to = self._table.put(key, new, timestamp)
        if valid_to == NOT_PUT:
            self.context.count(CounterName.DROPPED_EXPIRED)
        else:
            out.add(key, new, timestamp, old, valid_to == VALID_TO_UNDEFINED)

    def _before(self, out: BatchBuilder, key: Any, timestamp: int) -> ValueAndTimestamp[Any] | None:
        """Return the aggregate of a key when a record of it comes; if it has expired, forward its delete if wanted."""
        (found,), (expired,) = self._table.get_many_at([key], self._ttl.reached([timestamp]).tolist())
        if expired is not None and self._tells_each:
            gone = self._ttl.deletes([key], [expired.value], [expired.timestamp], olds=True)
            out.add(key, None, gone.timestamps[0], expired.value, True)
        return found

    def _fold(self, batch: Batch, folding: Fold, store: TimestampedKeyValueStore[Any, Any]) -> Batch:
        """Fold as ``_one_by_one``, with one read and one write of the store for each key of the batch."""
        slots = self._slots(batch.keys)
        keys = dict(zip(slots, batch.keys, strict=True))
        distinct = list(keys.values())
        before = self._present(store, slots, batch, distinct) if self._ttl.expires else store.get_many(distinct)
        states: dict[Any, Any] = dict(zip(keys, before, strict=True))
        olds: list[Any] | None = [] if self._config.send_olds else None
        if self._caching:
            if olds is not None:
                olds.extend(None if state is None else self._copy(state.value) for state in before)
            folding.silently(states, slots, batch.keys, batch.values, batch.timestamps)
        else:
            news, times = folding.updates(states, slots, batch.keys, batch.values, batch.timestamps, olds)
        values, timestamps = [state[0] for state in states.values()], [state[1] for state in states.values()]
        store.put_many(distinct, values, timestamps)
        if not self._caching:
            return Batch(batch.keys, news, times, olds, headers=batch.headers)
        self._updates.replaced(len(batch) - len(distinct))
        headers = None if batch.headers is None else list(dict(zip(slots, batch.headers, strict=True)).values())
        return Batch(distinct, values, timestamps, olds, headers=headers)

    def _present(
        self, store: TimestampedKeyValueStore[Any, Any], slots: list[Any], batch: Batch, distinct: list[Any]
    ) -> list[ValueAndTimestamp[Any] | None]:
        """Return the aggregate of each key as its first record comes; forward deletes of those that have expired."""
        first: dict[Any, int] = {}
        for slot, time in zip(slots, self._ttl.reached(batch.timestamps).tolist(), strict=True):
            first.setdefault(slot, time)
        found, expired = store.get_many_at(distinct, list(first.values()))
        gone = [(key, one.value, one.timestamp) for key, one in zip(distinct, expired, strict=True) if one is not None]
        if gone and self._tells_each:
            keys, values, times = (list(column) for column in zip(*gone, strict=True))
            self._updates.send(self._ttl.deletes(keys, values, times, olds=self._config.send_olds))
        return found


def without_nulls(context: ProcessorContext, batch: Batch) -> Batch:
    """Return the records that have a key and a value; the others are counted."""
    if None not in batch.keys and None not in batch.values:
        return batch
    kept = batch.select([k is not None and v is not None for k, v in zip(batch.keys, batch.values, strict=True)])
    context.count(CounterName.DROPPED_NULL, len(batch) - len(kept))
    return kept


def columns_without_nulls(context: ProcessorContext, columns: Columns) -> Columns:
    """Return the same for columns."""
    kept = columns.present(values=True)
    context.count(CounterName.DROPPED_NULL, len(columns) - len(kept))
    return kept


class CountCombiner(Combiner):
    """Counts the records of each key before they travel to the tasks that count them by key."""

    value_serde = INT64

    def keys(self, records: pa.Table) -> Any:
        type_ = records.schema.field("key").type
        # Of other types, such as floats, Arrow may take values for equal whose bytes differ.
        plain = pa.types.is_string(type_) or pa.types.is_binary(type_) or pa.types.is_integer(type_)
        return records["key"].combine_chunks() if plain else None

    def combine(self, records: pa.Table) -> pa.Table:
        grouped = records.group_by("key", use_threads=False).aggregate([([], "count_all"), ("timestamp", "max")])
        counts: Any = grouped["count_all"].combine_chunks()
        return pa.table(
            [grouped["key"], to_big_endian(counts), grouped["timestamp_max"]], names=["key", "value", "timestamp"]
        )


class MergedUpdates(Operator):
    """Follows several processors that share a store: forwards their updates, or with caching each key's last."""

    def __init__(self, key_serde: Serde[Any], *, caching: bool) -> None:
        self._key_serde = key_serde
        self._caching = caching

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._updates = UpdateForwarder(context, self._key_serde, caching=self._caching)

    def process(self, batch: Batch) -> None:
        self._updates.send(batch)

    def flush(self) -> None:
        self._updates.flush()
