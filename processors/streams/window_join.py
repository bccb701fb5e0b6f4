"""The join of two streams within a window (KIP-77), over records of both sides in the order in which they came.

A record first looks up the other side and is then kept for it, so the later of two records makes their result, at the
larger of their timestamps and with its own headers; it does the same with records without a partner, whose time it has
ended. Where only the left side is shown, a left record is forgotten with its first partner, and so comes out once: with
it, or, where records without a partner are wanted, never. A record with a null value is dropped. One with a null key
has no partner (KIP-962): it is dropped too, except on a side whose records come out without a partner, where it comes
out alone.

A pair for which the joiner fails has no result, if failing records are left out. Both records have met nevertheless, so
neither spoils the other's pairs with others.

Rule of this module: the stores are read before the first record of a batch, once for each key that it needs,
and written after the last; in between each record sees what it would have seen alone.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import numpy as np

from millpond.processors.options.join_windows import JoinWindows
from millpond.processors.options.joins import JoinType, Side
from millpond.processors.runtime.batches.batch import Batch, BatchBuilder, concatenate
from millpond.processors.runtime.batches.columns import Records
from millpond.processors.runtime.counters import CounterName
from millpond.processors.runtime.late import chosen
from millpond.processors.runtime.processor import ProcessorContext
from millpond.processors.streams.own_windows import OwnWindows
from millpond.processors.streams.unpaired_records import Waiting, WaitingRecords
from millpond.stores.encoding.serdes import Serde
from millpond.stores.encoding.times import MIN_TIME, NO_TIME
from millpond.stores.typed.store import column_of
from millpond.stores.typed.windows.segments import Span
from millpond.stores.typed.windows.window import WindowStore
from millpond.stores.typed.windows.window_batch import WindowBatch

EncodedKey: TypeAlias = bytes | Exception | None
"""A key's bytes, what its serde raised, or None: the record has no key, or no value and so needs none."""


def encoded_keys(serde: Serde[Any], batch: Batch) -> Sequence[EncodedKey]:
    """Return the bytes of each record's key."""
    keys = [None if value is None else key for key, value in zip(batch.keys, batch.values, strict=True)]
    try:
        return column_of(serde.serialize_many([key for key in keys if key is not None]), keys)
    except Exception:  # the slow way below tells which one fails, and why
        return [None if key is None else _encoded(serde, key) for key in keys]


def _encoded(serde: Serde[Any], key: Any) -> bytes | Exception:
    try:
        return serde.serialize(key)
    except Exception as error:  # a user's serde may raise anything
        return error


@dataclass(frozen=True)
class StreamStreamJoinPlan:
    """The plan of a join, which both sides share.

    Attributes:
        joiner: ``joiner(key, left value, right value)``.
        windows: the windows within which records belong together.
        stores: the name of each side's window store.
        join_type: says which side's records come out without a partner, too, and whether pairs come out.
        waiting: the store of the records without a partner; None if they come out at once, or never.
        own: the windows of left records, if each has its own; then they are only joined as columns.
    """

    joiner: Callable[[Any, Any, Any], Any]
    windows: JoinWindows
    stores: dict[Side, str]
    join_type: JoinType
    waiting: str | None
    own: OwnWindows | None = None

    def reach(self, side: Side) -> tuple[int, int]:
        """Return how far back and how far ahead of a record of ``side`` its partners may be."""
        before, after = self.windows.before, self.windows.after
        return (before, after) if side is Side.LEFT else (after, before)

    @property
    def emits_pairs(self) -> bool:
        """True if records that have met have a result."""
        return self.join_type is not JoinType.ANTI

    def late_after(self, side: Side) -> int:
        """Return how far stream time may be past a record of ``side`` for it to be joined, if late ones are dropped.

        Not so far that it would meet a record of the other side that has come out alone.
        """
        met_alone = self.waiting is not None and self.join_type.keeps(side.other)
        return (0 if met_alone else max(self.reach(side)[1], 0)) + self.windows.grace


class _JoinedSide:
    """One side of the join: the stores that its records need, and its own store."""

    context: ProcessorContext
    other: "_JoinedSide"
    wanted: defaultdict[bytes, list[Span]]
    rows: WindowBatch[Any]

    def __init__(self, plan: StreamStreamJoinPlan, side: Side, store: WindowStore[Any, Any]) -> None:
        self.side = side
        self.store = store
        self.back, self.ahead = plan.reach(side)
        self.closes_after = self.ahead + plan.windows.grace
        self.emits_unmatched = plan.join_type.keeps(side)
        self.meets_once = side is Side.LEFT and not plan.join_type.shows_right
        self.late_after = plan.late_after(side)
        self.serialize = store.value_serde.serialize
        joiner = plan.joiner
        self.join = joiner if side is Side.LEFT else lambda key, value, other: joiner(key, other, value)


class WindowJoin:
    """Joins records of both sides.

    Args:
        plan: the plan.
        stores: the window store of each side.
        waiting: the records without a partner; None if they come out at once, or never.
    """

    def __init__(
        self, plan: StreamStreamJoinPlan, stores: Mapping[Side, WindowStore[Any, Any]], waiting: WaitingRecords | None
    ) -> None:
        self._sides = {side: _JoinedSide(plan, side, store) for side, store in stores.items()}
        for side, joined in self._sides.items():
            joined.other = self._sides[side.other]
        self._key_serde = stores[Side.LEFT].key_serde
        self._waiting = waiting
        self._emits_pairs = plan.emits_pairs
        self._drop_late = plan.windows.drop_late
        self._grace = plan.windows.grace
        self._kept: list[tuple[Side, Records]] = []

    @classmethod
    def of(cls, plan: StreamStreamJoinPlan, context: ProcessorContext) -> Self:
        """Return the join of a task, whose stores ``context`` has."""
        stores: dict[Side, WindowStore[Any, Any]] = {side: context.store(name) for side, name in plan.stores.items()}
        if plan.waiting is None:
            return cls(plan, stores, None)
        serdes = {side: store.value_serde for side, store in stores.items()}
        waiting = WaitingRecords(context.store(plan.waiting), stores[Side.LEFT].key_serde, serdes)
        return cls(plan, stores, waiting)

    def enter(self, side: Side, context: ProcessorContext) -> None:
        """Set the context that counts and leaves out the records of a side, and shows how many of them wait."""
        self._sides[side].context = context
        waiting = self._waiting
        if waiting is not None and self._sides[side].emits_unmatched:
            context.level(CounterName.WAITING, lambda: waiting.rows.count(side))

    def keep(self, side: Side, records: Records) -> None:
        """Keep records of a side for ``process_kept``."""
        self._kept.append((side, records))

    def process_kept(self, context: ProcessorContext) -> None:
        """Forward the results of the records that were kept, in the order of their positions, or else as they came."""
        kept, self._kept = self._kept, []
        if kept and self._drop_late:
            kept = self._in_time(kept)
        if kept:
            self._join_kept(kept, context)

    def advance(self, time: int, context: ProcessorContext) -> None:
        """Let stream time be ``time``, if it is not later, and forward the results of records whose time is over."""
        if self._waiting is not None and time > self._waiting.rows.stream_time:
            out = BatchBuilder()
            self._waiting.begin(time)
            self._emit(out, self._waiting.advance(time), context)
            self._waiting.end()
            context.forward(out.build())
        for one in self._sides.values():
            one.store.observe(time)

    @property
    def _stream_time(self) -> int:
        """The greatest time of either side, of a record or told."""
        observed = [one.store.observed_stream_time for one in self._sides.values()]
        known = [time for time in observed if time is not None]
        return max(*known, MIN_TIME, MIN_TIME if self._waiting is None else self._waiting.rows.stream_time)

    def _in_time(self, kept: Sequence[tuple[Side, Records]]) -> list[tuple[Side, Records]]:
        """Return the records that are not late, which those without a time never are; the others are counted."""
        times = [np.asarray(run.timestamps, np.int64) for _, run in kept]
        lates = [self._sides[side].late_after for side, _ in kept]
        stream_time = self._stream_time
        newest = max(stream_time, *(int(own.max()) for own in times))
        if all(int(own.min()) + late_after >= newest for own, late_after in zip(times, lates, strict=True)):
            return list(kept)
        reached = np.concatenate(times)
        order = np.arange(len(reached))
        if len(kept) > 1:
            order = np.concatenate([np.asarray(run.positions, np.int64) for _, run in kept]).argsort(kind="stable")
        reached[order] = np.maximum(np.maximum.accumulate(reached[order]), stream_time)
        left, start = [], 0
        for (side, run), own, late_after in zip(kept, times, lates, strict=True):
            here = reached[start : start + len(run)]
            start += len(run)
            # The earliest time that is not late; a sum might leave 64 bits.
            earliest = np.maximum(here, MIN_TIME + late_after) - late_after
            late = (own < earliest) & (own != NO_TIME)
            context = self._sides[side].context
            context.count(CounterName.DROPPED_LATE, int(np.count_nonzero(late)))
            context.tell_late(CounterName.DROPPED_LATE, run, late, here, earliest - own, self._grace)
            if not late.all():
                left.append((side, chosen(run, ~late) if late.any() else run))
        return left

    def drain(self, context: ProcessorContext) -> None:
        """Forward the results of all records that wait for a partner; ``context`` leaves out those that fail."""
        if self._waiting is not None:
            out = BatchBuilder()
            self._emit(out, self._waiting.drain(), context)
            context.forward(out.build())

    def _join_kept(self, kept: Sequence[tuple[Side, Records]], context: ProcessorContext) -> None:
        """Forward the results of at least one run of records."""
        batches = [records.to_batch() for _, records in kept]
        sides = [one for side, records in kept for one in (self._sides[side],) * len(records)]
        batch = concatenate(batches)
        if len(kept) > 1:
            positions = np.fromiter((position for one in batches for position in one.positions or ()), np.int64)
            if (positions[1:] < positions[:-1]).any():
                order = positions.argsort(kind="stable").tolist()
                sides, batch = [sides[place] for place in order], batch.taken(order)
        context.forward(self._process(sides, batch))

    def _process(self, sides: Sequence[_JoinedSide], batch: Batch) -> Batch:
        """Return the results of records, each of a side, in their order."""
        out = BatchBuilder()
        waiting = self._waiting
        encoded = encoded_keys(self._key_serde, batch)
        self._begin(sides, encoded, batch)
        columns = zip(sides, batch.keys, encoded, batch.values, batch.timestamps, batch.headers_of_each, strict=True)
        for own, key, data, value, timestamp, out.current in columns:
            if waiting is not None and timestamp > waiting.stream_time:
                records = waiting.advance(timestamp)
                if records:
                    self._emit(out, records, own.context)
            if value is None or (key is None and not own.emits_unmatched):
                own.context.count(CounterName.DROPPED_NULL)
                continue
            try:
                if key is None:
                    out.add(key, own.join(key, value, None), timestamp)
                else:
                    self._process_one(out, own, key, data, value, timestamp)
            except Exception as error:  # a user's code may raise anything
                own.context.leave_out(error, key, value, timestamp, headers=out.current)
        self._end()
        return out.build()

    def _emit(self, out: BatchBuilder, records: Sequence[Waiting], context: ProcessorContext) -> None:
        """Add the results of records for which no partner came; ``context`` leaves out those that fail."""
        for record in records:
            try:
                result = self._sides[record.side].join(record.key, record.value, None)
                out.add(record.key, result, record.timestamp)
            except Exception as error:  # a user's code may raise anything
                context.leave_out(error, record.key, record.value, record.timestamp)

    def _begin(self, sides: Sequence[_JoinedSide], encoded: Sequence[EncodedKey], batch: Batch) -> None:
        for one in self._sides.values():
            one.wanted = defaultdict(list)
        for own, key, timestamp in zip(sides, encoded, batch.timestamps, strict=True):
            if isinstance(key, bytes):
                own.other.wanted[key].append((timestamp - own.back, timestamp + own.ahead))
        for one in self._sides.values():
            one.rows = one.store.begin_batch()
            one.rows.load(one.wanted)
        if self._waiting is not None:
            self._waiting.begin(max(batch.timestamps))

    def _end(self) -> None:
        for one in self._sides.values():
            one.store.write_batch(one.rows)
        if self._waiting is not None:
            self._waiting.end()

    def _process_one(
        self, out: BatchBuilder, own: _JoinedSide, key: Any, encoded: EncodedKey, value: Any, timestamp: int
    ) -> None:
        # A serde that refuses the record has to do so before anything else has changed.
        data = own.serialize(value)
        if isinstance(encoded, Exception):
            raise encoded
        assert encoded is not None
        other, waiting = own.other, self._waiting
        matches = other.rows.fetch(encoded, timestamp - own.back, timestamp + own.ahead)
        if own.meets_once and matches:
            own.rows.observe(timestamp)
            del matches[1:]
        else:
            own.rows.put(encoded, data, timestamp)
        for other_timestamp, other_value in matches:
            if waiting is not None and other.emits_unmatched:
                waiting.remove(other_timestamp + other.closes_after, other_timestamp, other.side, encoded)
            if other.meets_once:
                other.rows.remove(encoded, other_timestamp)
            if not self._emits_pairs:
                continue
            try:
                out.add(key, own.join(key, value, other_value), max(timestamp, other_timestamp))
            except Exception as error:  # a user's code may raise anything
                pair = f"joined with {other_value!r:.200} of the other side, timestamp {other_timestamp}"
                own.context.leave_out(error, key, value, timestamp, pair, out.current)
        if not matches and own.emits_unmatched:
            # One that came too late for others to meet it, or of an eager join, does not wait.
            if waiting is None or timestamp + own.closes_after < waiting.stream_time:
                out.add(key, own.join(key, value, None), timestamp)
            else:
                waiting.add(timestamp + own.closes_after, timestamp, own.side, encoded, data)
