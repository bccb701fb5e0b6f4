"""One side of a join of two streams within a window (KIP-77): each pair of records comes out once.

A record first looks up the other side and is then kept for it, so the later of two records makes their result, at the
larger of their timestamps. A record with a null value is dropped. One with a null key has no partner (KIP-962): it is
dropped too, except on a side whose records come out without a partner, where it comes out alone.

A pair for which the joiner fails has no result, if failing records are left out. Both records have met nevertheless, so
neither spoils the other's pairs with others.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from millpond.processors.options.join_windows import JoinWindows
from millpond.processors.options.joins import JoinType, Side
from millpond.processors.runtime.batch import Batch, BatchBuilder
from millpond.processors.runtime.counters import CounterName
from millpond.processors.runtime.processor import Processor, ProcessorContext
from millpond.processors.streams.unpaired_records import Waiting, WaitingRecords
from millpond.stores.typed.window import WindowStore


@dataclass(frozen=True)
class StreamStreamJoinPlan:
    """What both sides of a join need to know.

    Attributes:
        joiner: ``joiner(key, left value, right value)``.
        windows: which records belong together.
        stores: the name of each side's window store.
        join_type: which side's records come out without a partner too.
        waiting: the store of the records without a partner; None if they come out at once, or never.
    """

    joiner: Callable[[Any, Any, Any], Any]
    windows: JoinWindows
    stores: dict[Side, str]
    join_type: JoinType
    waiting: str | None

    def reach(self, side: Side) -> tuple[int, int]:
        """How far back and how far ahead of a record of ``side`` its partners may be."""
        before, after = self.windows.before, self.windows.after
        return (before, after) if side is Side.LEFT else (after, before)

    def close(self, side: Side, timestamp: int) -> int:
        """The last stream time at which a record of ``side`` may still find a partner that is not late."""
        return timestamp + self.reach(side)[1] + self.windows.grace


class StreamStreamJoin(Processor):
    """Joins the records of one side with what the other side has kept."""

    def __init__(self, plan: StreamStreamJoinPlan, side: Side) -> None:
        self._plan = plan
        self._side = side
        self._other_side = side.other
        self._emits_unmatched = plan.join_type.keeps(side)
        self._other_emits_unmatched = plan.join_type.keeps(side.other)

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        plan = self._plan
        stores: dict[Side, WindowStore[Any, Any]] = {side: context.store(name) for side, name in plan.stores.items()}
        self._store, self._other = stores[self._side], stores[self._other_side]
        self._waiting: WaitingRecords | None = None
        if plan.waiting is not None:
            serdes = {side: store.value_serde for side, store in stores.items()}
            waiting = self._waiting = WaitingRecords(context.store(plan.waiting), self._store.key_serde, serdes)
            if self._emits_unmatched:
                context.level(CounterName.WAITING, lambda: waiting.count(self._side))

    def process(self, batch: Batch) -> None:
        out = BatchBuilder()
        waiting = self._waiting
        if waiting is not None:
            waiting.begin(max(batch.timestamps))
        for key, value, timestamp in zip(batch.keys, batch.values, batch.timestamps, strict=True):
            if waiting is not None:
                for record in waiting.advance(timestamp):
                    self._emit_waiting(out, record)
            if value is None or (key is None and not self._emits_unmatched):
                self.context.count(CounterName.DROPPED_NULL)
                continue
            try:
                if key is None:
                    out.add(key, self._join(key, value, None), timestamp)
                else:
                    self._process_one(out, key, value, timestamp)
            except Exception as error:  # a user's code may raise anything
                self.context.leave_out(error, key, value, timestamp)
        if waiting is not None:
            waiting.end()
        self.context.forward(out.build())

    def complete(self) -> None:
        # The side that comes first lets the records of both go. Both sides have all that is going to come by then,
        # because a topology holds a join's inputs before the join.
        if self._waiting is not None:
            out = BatchBuilder()
            for record in self._waiting.drain():
                self._emit_waiting(out, record)
            self.context.forward(out.build())

    def _process_one(self, out: BatchBuilder, key: Any, value: Any, timestamp: int) -> None:
        # A serde that refuses the record has to do so before anything else has changed.
        self._store.put(key, value, timestamp)
        back, ahead = self._plan.reach(self._side)
        matches = list(self._other.fetch_range(key, timestamp - back, timestamp + ahead))
        for other_timestamp, other_value in matches:
            if self._waiting is not None and self._other_emits_unmatched:
                close = self._plan.close(self._other_side, other_timestamp)
                self._waiting.remove(close, other_timestamp, self._other_side, key)
            try:
                out.add(key, self._join(key, value, other_value), max(timestamp, other_timestamp))
            except Exception as error:  # a user's code may raise anything
                pair = f"joined with {other_value!r:.200} of the other side, timestamp {other_timestamp}"
                self.context.leave_out(error, key, value, timestamp, pair)
        if not matches and self._emits_unmatched:
            self._handle_unmatched(out, key, value, timestamp)

    def _handle_unmatched(self, out: BatchBuilder, key: Any, value: Any, timestamp: int) -> None:
        """Let a record without a match wait for one, or emit it at once if it came too late or the join is eager."""
        close = self._plan.close(self._side, timestamp)
        if self._waiting is None or close < self._waiting.stream_time:
            out.add(key, self._join(key, value, None), timestamp)
        else:
            self._waiting.add(close, timestamp, self._side, key, value)

    def _join(self, key: Any, value: Any, other: Any) -> Any:
        return self._plan.joiner(key, value, other) if self._side is Side.LEFT else self._plan.joiner(key, other, value)

    def _emit_waiting(self, out: BatchBuilder, record: Waiting) -> None:
        left, right = (record.value, None) if record.side is Side.LEFT else (None, record.value)
        try:
            out.add(record.key, self._plan.joiner(record.key, left, right), record.timestamp)
        except Exception as error:  # a user's code may raise anything
            self.context.leave_out(error, record.key, record.value, record.timestamp)
