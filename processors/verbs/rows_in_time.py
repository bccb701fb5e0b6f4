"""``RowsInTime``: an operator that takes the rows of each key in the order of their times, or drops them as late.

With a grace a row is taken when nothing that is not later can come any more: the *watermark*, the greatest time less
the grace, is past it. Without one rows are taken as they come.

Rule of this module: it knows keys, times and the bytes of rows, and passes rows on to subclasses.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as _compute

from millpond.processors.runtime.batches.batch import Batch
from millpond.processors.runtime.batches.columns import Columns
from millpond.processors.runtime.counters import CounterName
from millpond.processors.runtime.late import Integers
from millpond.processors.runtime.operator import Operator
from millpond.processors.runtime.processor import ProcessorContext
from millpond.processors.tables.time_ordered_buffer import BufferSpec, TimeOrderedBuffer
from millpond.processors.verbs.encoding.ordered_rows import order_and_row
from millpond.stores.encoding.serdes import BYTES
from millpond.stores.encoding.times import MIN_TIME

pc: Any = _compute

_WAITING: Final = "waiting"
_ORDERED: Final = "waiting-ordered"
"""The store of rows that wait, without and with orders in front of them."""


@dataclass(frozen=True)
class InTime:
    """The choice of rows that are taken, and the time at which they are.

    Attributes:
        late: how late a row may be, in microseconds.
        waits: whether rows wait for that long, instead of being taken at once.
        ordered: whether rows have an order in front, which decides among those of one key and time.
    """

    late: int
    waits: bool
    ordered: bool

    @property
    def buffer(self) -> BufferSpec:
        """The rows that wait: a moment longer, as others of their time may be late by all of the grace."""
        return BufferSpec(_ORDERED if self.ordered else _WAITING, self.late + 1, BYTES, BYTES)


class RowsInTime(Operator):
    """Takes rows whose keys and values are bytes.

    Args:
        in_time: the choice of rows, and the time.
    """

    def __init__(self, in_time: InTime) -> None:
        self._in_time = in_time

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._buffer: TimeOrderedBuffer | None = None
        if self._in_time.waits:
            spec = self._in_time.buffer
            buffer = self._buffer = TimeOrderedBuffer(spec, context.store(spec.store))
            context.level(CounterName.WAITING, lambda: buffer.waiting)

    @abstractmethod
    def take(self, rows: Columns) -> None:
        """Take rows; if rows wait, none of a key is earlier than those before."""

    def observe(self, time: int) -> None:
        """Learn that no row of an earlier time is taken any more: the watermark, or without a grace the stream time."""

    @property
    def observed(self) -> int | None:
        """The time that was observed last, where an operator keeps it."""
        return None

    def process(self, batch: Batch) -> None:
        self.process_columns(as_columns(batch))

    def process_columns(self, columns: Columns) -> None:
        columns = Columns(columns.keys.cast(pa.binary()), columns.values.cast(pa.binary()), columns.timestamps)
        reached = np.maximum(np.maximum.accumulate(columns.timestamps), self._reached)
        self._let_in(self._not_late(columns, reached), int(reached[-1]))

    def advance(self, time: int) -> None:
        self._let_in(as_columns(Batch([], [], [])), max(time, self._reached))
        super().advance(time)

    def complete(self) -> None:
        """Take all rows that wait. One that comes nevertheless, and is older than the newest one, is late."""
        if self._buffer is not None and self._buffer.stream_time is not None:
            self._take(as_columns(self._buffer.drain()))
            self.observe(self._buffer.stream_time)

    def plain(self, columns: Columns) -> Columns:
        """Return the rows without their orders."""
        if not self._in_time.ordered:
            return columns
        rows = [order_and_row(value)[1] for value in columns.values.to_pylist()]
        return columns.with_values(pa.array(rows, pa.binary()))

    @property
    def _reached(self) -> int:
        """The greatest time that has been seen."""
        seen = self.observed if self._buffer is None else self._buffer.stream_time
        return MIN_TIME if seen is None else seen

    def _not_late(self, columns: Columns, reached: Integers) -> Columns:
        """Return the rows that are not late; the others are counted."""
        times, allowed = columns.timestamps, self._in_time.late
        bounds = np.maximum(reached, MIN_TIME + allowed) - allowed
        if self._buffer is not None and self.observed is not None:
            bounds = np.maximum(bounds, self.observed)
        late = times < bounds
        if not late.any():
            return columns
        self.context.count(CounterName.DROPPED_LATE, int(np.count_nonzero(late)))
        self.context.tell_late(CounterName.DROPPED_LATE, self.plain(columns), late, reached, bounds - times, allowed)
        return columns.select(~late)

    def _let_in(self, columns: Columns, time: int) -> None:
        """Take rows in time, or let them wait; then the greatest time is ``time``."""
        if self._buffer is None:
            self._take(columns)
            self.observe(time)
        elif len(columns) or time > self._reached:
            self._take(self._buffer.move_columns(columns, time))
            self.observe(max(time, MIN_TIME + self._in_time.late) - self._in_time.late)

    def _take(self, rows: Columns) -> None:
        if len(rows):
            self.take(rows)


def as_columns(batch: Batch) -> Columns:
    """Return records whose keys and values are bytes as columns."""
    keys, values = (pa.array(column, pa.binary()) for column in (batch.keys, batch.values))
    return Columns(keys, values, np.asarray(batch.timestamps, np.int64))


def in_order(numbers: Integers, times: Integers, values: Any) -> Integers:
    """Return the places of rows by the numbers of their keys, then times, then the bytes of the rows."""
    order = np.lexsort((times, numbers))
    equal = (numbers[order][1:] == numbers[order][:-1]) & (times[order][1:] == times[order][:-1])
    if not equal.any():
        return order
    tied = order[np.append(equal, False) | np.append(False, equal)]
    ranks = np.zeros(len(order), np.int64)
    ranks[tied] = pc.rank(values.take(pa.array(tied)), sort_keys="ascending", tiebreaker="dense").to_numpy()
    return np.lexsort((ranks, times, numbers))
