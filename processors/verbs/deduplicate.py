"""``deduplicate``: the first row of each key, once, and none that comes within some time after it.

The rows of a key are taken in the order of their times; those of one time by their order, or else by their bytes. The
first one is kept, and after that each one that is later than the last one kept by more than ``within``. All others are
duplicates of the one kept before them.

With a grace a row is taken when nothing that is not later can come any more: the *watermark*, the greatest time less
the grace, is past it. So the answer is that of all rows that are not late, however they come. Without one a row is
taken at once. What is kept does not change then, so a row is also a duplicate of a later one that came before.

Of each key the state has the time of the row that was kept last, as long as a row may come that is a duplicate of it.

Rule of this module: it decides with the columns of keys and times alone, and passes rows on as they are.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as _compute

from millpond.processors.dsl.builder import StreamsBuilder
from millpond.processors.options.records import Consumed
from millpond.processors.runtime.batches.batch import Batch
from millpond.processors.runtime.batches.columns import Columns
from millpond.processors.runtime.counters import CounterName
from millpond.processors.runtime.late import Integers
from millpond.processors.runtime.operators.operator import Operator
from millpond.processors.runtime.processor import ProcessorContext
from millpond.processors.tables.time_ordered_buffer import BufferSpec, TimeOrderedBuffer
from millpond.processors.verbs.functions.distances import far_apart
from millpond.processors.verbs.ordered_rows import order_and_row
from millpond.processors.verbs.projections import Keys, Rows, Times
from millpond.processors.verbs.verb import PackedRows, Verb
from millpond.stores.encoding.column_serdes import column_serde
from millpond.stores.encoding.serdes import BYTES
from millpond.stores.encoding.times import MAX_TIME, MIN_TIME
from millpond.stores.specs.store_spec import StoreKind, StoreSpec
from millpond.stores.typed.expiry import Expiry
from millpond.stores.typed.timestamped_columns import TimestampedColumns
from millpond.stores.typed.timestamped_keyvalue import TimestampedKeyValueStore

pc: Any = _compute

STORE: Final = "deduplicate"
"""The store with the time of each key's row that was kept last."""

KEPT_TIME: Final = "kept_time"
"""The column with that time."""

_WAITING: Final = "waiting"
_ORDERED: Final = "waiting-ordered"
"""The store of rows that wait, without and with orders in front of them."""


@dataclass(frozen=True)
class DeduplicateSpec:
    """What the operator needs to know.

    Attributes:
        within: how much later than the row that is kept its duplicates are at most, in microseconds.
        late: how late a row may be, in microseconds.
        waits: whether rows wait for that long, instead of being taken at once.
        ordered: whether rows have an order in front, which decides among those of one key and time.
    """

    within: int
    late: int
    waits: bool
    ordered: bool

    @property
    def buffer(self) -> BufferSpec:
        """The rows that wait: a moment longer, as others of their time may be late by all of the grace."""
        return BufferSpec(_ORDERED if self.ordered else _WAITING, self.late + 1, BYTES, BYTES)

    @property
    def stores(self) -> list[StoreSpec]:
        """The store of times; its clock is the watermark, or stream time where nothing waits. And of what waits."""
        lives = self.within + 1 + (0 if self.waits else self.late)
        kept = StoreSpec(STORE, StoreKind.TIMESTAMPED_KEY_VALUE, BYTES, BYTES, ttl=min(lives, MAX_TIME))
        return [kept, self.buffer.store_spec] if self.waits else [kept]


class Deduplicate(Operator):
    """Passes rows on that are no duplicates."""

    def __init__(self, spec: DeduplicateSpec) -> None:
        self._spec = spec

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        store: TimestampedKeyValueStore[bytes, bytes] = context.store(STORE)
        form = column_serde(BYTES)
        assert form is not None
        assert store.expiry is not None
        self._kept = TimestampedColumns(store, form, form)
        self._expiry: Expiry = store.expiry
        self._buffer: TimeOrderedBuffer | None = None
        if self._spec.waits:
            buffer = self._buffer = TimeOrderedBuffer(self._spec.buffer, context.store(self._spec.buffer.store))
            context.level(CounterName.WAITING, lambda: buffer.waiting)

    def process(self, batch: Batch) -> None:
        self.process_columns(_as_columns(batch))

    def process_columns(self, columns: Columns) -> None:
        columns = Columns(columns.keys.cast(pa.binary()), columns.values.cast(pa.binary()), columns.timestamps)
        reached = np.maximum(np.maximum.accumulate(columns.timestamps), self._reached)
        self._take(self._in_time(columns, reached), int(reached[-1]))

    def advance(self, time: int) -> None:
        self._take(_as_columns(Batch([], [], [])), max(time, self._reached))
        super().advance(time)

    def complete(self) -> None:
        """Take all rows that wait. One that comes nevertheless, and is older than the newest one, is late."""
        if self._buffer is not None and self._buffer.stream_time is not None:
            self._pass(_as_columns(self._buffer.drain()))
            self._expiry.observe(self._buffer.stream_time)

    @property
    def _reached(self) -> int:
        """The greatest time that has been seen."""
        seen = self._expiry.observed if self._buffer is None else self._buffer.stream_time
        return MIN_TIME if seen is None else seen

    def _in_time(self, columns: Columns, reached: Integers) -> Columns:
        """The rows that are not late; the others are counted."""
        times, allowed = columns.timestamps, self._spec.late
        bounds = np.maximum(reached, MIN_TIME + allowed) - allowed
        if self._buffer is not None and self._expiry.observed is not None:
            bounds = np.maximum(bounds, self._expiry.observed)
        late = times < bounds
        if not late.any():
            return columns
        self.context.count(CounterName.DROPPED_LATE, int(np.count_nonzero(late)))
        self.context.tell_late(CounterName.DROPPED_LATE, self._plain(columns), late, reached, bounds - times, allowed)
        return columns.select(~late)

    def _take(self, columns: Columns, time: int) -> None:
        """Take rows in time, or let them wait; then the greatest time is ``time``."""
        if self._buffer is None:
            self._pass(columns)
            self._expiry.observe(time)
        elif len(columns) or time > self._reached:
            self._pass(self._buffer.move_columns(columns, time))
            self._expiry.observe(max(time, MIN_TIME + self._spec.late) - self._spec.late)

    def _pass(self, columns: Columns) -> None:
        """Pass on which of these rows are no duplicates, in the order of their times, and remember them."""
        if not len(columns):
            return
        encoded = columns.keys.dictionary_encode()
        numbers = encoded.indices.to_numpy().astype(np.int64)
        _, known = self._kept.get(encoded.dictionary)
        order = _in_order(numbers, columns.timestamps, columns.values)
        order = order[self._beyond(known, numbers[order], columns.timestamps[order])]
        places = order[far_apart(numbers[order], columns.timestamps[order], self._spec.within)]
        if not len(places):
            return
        # Times of a key ascend, and the last one put counts.
        firsts = columns.taken(places)
        self._kept.put(firsts.keys, pa.array([b""] * len(firsts), pa.binary()), pa.array(firsts.timestamps))
        ascending = np.lexsort((places, firsts.timestamps))
        self.context.forward_columns(self._plain(firsts.taken(ascending)))

    def _beyond(self, known: Any, numbers: Integers, times: Integers) -> Any:
        """Which rows are no duplicates of what was kept before; ``known`` has its time for each key."""
        there = known.is_valid().to_numpy(zero_copy_only=False)[numbers]
        kept = known.fill_null(MIN_TIME).to_numpy()[numbers]
        within = self._spec.within
        return ~there | (times > np.minimum(kept, MAX_TIME - within) + within)

    def _plain(self, columns: Columns) -> Columns:
        """The rows without their orders."""
        if not self._spec.ordered:
            return columns
        rows = [order_and_row(value)[1] for value in columns.values.to_pylist()]
        return columns.with_values(pa.array(rows, pa.binary()))


def _as_columns(batch: Batch) -> Columns:
    keys, values = (pa.array(column, pa.binary()) for column in (batch.keys, batch.values))
    return Columns(keys, values, np.asarray(batch.timestamps, np.int64))


def _in_order(numbers: Integers, times: Integers, values: Any) -> Integers:
    """The places of rows by the numbers of their keys, then times; where these are equal, by the bytes of the rows."""
    order = np.lexsort((times, numbers))
    equal = (numbers[order][1:] == numbers[order][:-1]) & (times[order][1:] == times[order][:-1])
    if not equal.any():
        return order
    tied = order[np.append(equal, False) | np.append(False, equal)]
    ranks = np.zeros(len(order), np.int64)
    ranks[tied] = pc.rank(values.take(pa.array(tied)), sort_keys="ascending", tiebreaker="dense").to_numpy()
    return np.lexsort((ranks, times, numbers))


def deduplicate(name: str, rows: PackedRows, *, within: int, late: int, waits: bool, columns: Sequence[str]) -> Verb:
    """The verb.

    Args:
        name: its name.
        rows: its input, with the topic ``input``.
        within: how much later than the row that is kept its duplicates are at most, in microseconds.
        late: how late a row may be, in microseconds.
        waits: whether rows wait for that long, so that earlier ones are taken before them.
        columns: the columns of the result, besides those of the key.
    """
    spec = DeduplicateSpec(within, late, waits, rows.order is not None)
    builder = StreamsBuilder(key_serde=BYTES, value_serde=BYTES)
    stream = builder.stream(rows.topic, Consumed(BYTES, BYTES))
    firsts = stream.process(
        partial(Deduplicate, spec), stores=spec.stores, name=name, keeps_key=True, value_serde=BYTES
    )
    firsts.to(name)
    keys = Keys.of_rows(rows)
    stores = {STORE: (keys, Times(KEPT_TIME, rows.times))}
    return Verb(builder.build(), {rows.topic: rows}, (keys, Rows(rows.rows, columns)), stores)
