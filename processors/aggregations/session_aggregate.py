"""Aggregation by key and session: ``[first, last]``, both ends included, of records no further apart than the gap.

A record merges all sessions that it is within the gap of. Each of those is deleted by an update of its own, then comes
the merged one. A record whose session ended before stream time minus gap and grace is late: it is dropped and counted.
Sessions that the store has forgotten are no longer merged.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Any

from millpond.processors.aggregations.aggregate import AggregateSetup
from millpond.processors.aggregations.closing import Closing, Window
from millpond.processors.aggregations.fold import IMMUTABLE
from millpond.processors.aggregations.windowed_processor import NEVER, Closes, WindowedProcessor
from millpond.processors.options.windowed_serdes import SessionWindowedSerde
from millpond.processors.options.windows import EmitStrategy, SessionWindows
from millpond.processors.runtime.batch import Batch, BatchBuilder
from millpond.processors.runtime.counters import CounterName
from millpond.stores.typed.windowed import Windowed

Span = tuple[int, int]
"""Start and end of a session."""


class KeySessions:
    """The sessions of one key that a batch can touch.

    Attributes:
        key, id, raw: the key, what tells it from others, and its bytes.
        values: by span.
        changed: by span, the value of each changed session before its first change.
    """

    __slots__ = ("_ends", "changed", "id", "key", "raw", "values")

    def __init__(self, key: Any, id_: Any, raw: bytes, sessions: list[tuple[Windowed[Any], Any]]) -> None:
        self.key = key
        self.id = id_
        self.raw = raw
        self.values: dict[Span, Any] = {(start, end): value for (_, start, end), value in sessions}
        self.changed: dict[Span, Any] = {}
        self._ends = sorted((end, start) for start, end in self.values)

    def find(self, earliest_end: int, latest_start: int) -> list[Span]:
        """The sessions that end no earlier and start no later than these times, by end, then start."""
        found = self._ends[bisect_left(self._ends, (earliest_end, NEVER)) :]
        return [(start, end) for end, start in found if start <= latest_start]

    def remove(self, span: Span, before: Any) -> None:
        self.changed.setdefault(span, before)
        del self.values[span]
        self._ends.remove((span[1], span[0]))

    def put(self, span: Span, value: Any, before: Any) -> None:
        self.changed.setdefault(span, before)
        if span not in self.values:
            insort(self._ends, (span[1], span[0]))
        self.values[span] = value


class SessionAggregate(WindowedProcessor):
    """Folds records into sessions and forwards each update, or each session's result when it closes."""

    def __init__(self, setup: AggregateSetup, windows: SessionWindows, emit: EmitStrategy) -> None:
        super().__init__(setup, emit, SessionWindowedSerde(setup.spec.key_serde))
        assert setup.aggregation.merger is not None
        self._merge = setup.aggregation.merger
        self._gap = windows.gap
        self._delay = windows.gap + windows.grace

    def fold(self, batch: Batch) -> Batch:
        self._touched: dict[Any, KeySessions] = {}
        self._newest, late = self.newest(), 0
        self._out = BatchBuilder(olds=self._config.send_olds)
        self._closing = self.load_closing(max(batch.timestamps)) if self._final else None
        closed = self._closed
        earliest_end, latest_start = min(batch.timestamps) - self._gap, max(batch.timestamps) + self._gap
        rows = zip(batch.keys, self._slots(batch.keys), batch.values, batch.timestamps, strict=True)
        for key, id_, value, timestamp in rows:
            self._advance(timestamp)
            sessions = self._touched.get(id_)
            if sessions is None:
                found = list(self._store.find_sessions(key, earliest_end, latest_start))
                sessions = self._touched[id_] = KeySessions(key, id_, self._encode(key), found)
            late += not self._fold_record(sessions, value, timestamp)
        self._write()
        if self._closing is not None:
            self.note_changes(self._closing, closed, self._changes())
        self.context.count(CounterName.DROPPED_LATE, late)
        return self._out.build()

    def _advance(self, timestamp: int) -> None:
        if timestamp > self._stream_time:
            self._stream_time = timestamp
            if self._closing is not None:
                self._emit_closed(self._closing)

    def _fold_record(self, sessions: KeySessions, value: Any, timestamp: int) -> bool:
        """Merge the sessions within the gap of a record and fold in its value; False if it is late."""
        forgotten = self._newest - self._retention
        merged = sessions.find(max(timestamp - self._gap, forgotten + 1), timestamp + self._gap)
        start = min(timestamp, *(span[0] for span in merged)) if merged else timestamp
        end = max(timestamp, *(span[1] for span in merged)) if merged else timestamp
        if end < self._stream_time - self._delay:
            return False
        aggregate = self._initializer()
        befores = [self._copy(sessions.values[span]) for span in merged]
        for span in merged:
            aggregate = self._merge(sessions.key, aggregate, sessions.values[span])
        if (start, end) != (timestamp, timestamp):
            for span, before in zip(merged, befores, strict=True):
                sessions.remove(span, before)
                self._forward(sessions.key, span, None, before)
        before = befores[0] if merged and merged[0] == (start, end) else None
        self._put(sessions, (start, end), self._update(sessions.key, value, aggregate), before)
        return True

    def _put(self, sessions: KeySessions, span: Span, value: Any, before: Any) -> None:
        start, end = span
        self._forward(sessions.key, span, value, None)
        self._newest = max(self._newest, end)
        if value is None:
            if span in sessions.values:
                sessions.remove(span, before)
            return
        if end <= self._newest - self._retention:
            if self._caching and self._closing is None:
                self._out.add(Windowed(sessions.key, start, end), value, end, before)
            return
        sessions.put(span, self._copy(value), before)
        if self._closing is not None:
            window = Window(sessions.id, start, end, sessions.key)
            self._completion.change(window, before)
            self._closing.add(end, sessions.raw, window)

    def _forward(self, key: Any, span: Span, value: Any, old: Any) -> None:
        if self._closing is None and not self._caching:
            self._out.add(Windowed(key, *span), value, span[1], old)

    def _changes(self) -> Iterator[tuple[Window, bool, bool]]:
        for sessions in self._touched.values():
            for span, before in sessions.changed.items():
                yield Window(sessions.id, *span, sessions.key), before is not None, span in sessions.values

    def _check_values(self) -> None:
        """Let the serde refuse a value before the first session is written, not in between."""
        encode = self._setup.spec.value_serde.serialize
        for sessions in self._touched.values():
            for span in sessions.changed:
                value = sessions.values.get(span)
                if type(value) in IMMUTABLE and value is not None:  # any other value was copied by the serde
                    encode(value)

    def _write(self) -> None:
        """Write what changed, and with caching forward it."""
        self._check_values()
        for sessions in self._touched.values():
            for span, before in sessions.changed.items():
                session, value = Windowed(sessions.key, *span), sessions.values.get(span)
                if value is None:
                    self._store.remove(session)
                else:
                    self._store.put(session, value)
                if self._caching and self._closing is None and (value is not None or before is not None):
                    self._out.add(session, value, span[1], before)

    def closes(self) -> Closes:
        return Closes(self._store.find_sessions_ended, self._delay + 1, by_end=True)

    def result(self, window: Window, state: Any) -> tuple[Any, int] | None:
        return state, window.end

    def _emit_closed(self, closing: Closing) -> None:
        for window in closing.due(self._stream_time - self._delay - 1):
            touched = self._touched.get(window.id)
            span = window.start, window.end
            if touched is not None and span in touched.changed:
                value = touched.values.get(span)
            else:
                value = closing.stored.get(window[:3])
            self.emit(self._out, window, value)
