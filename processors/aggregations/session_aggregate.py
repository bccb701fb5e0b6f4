"""Aggregation by key and session: ``[first, last]``, both ends included, of records no further apart than the gap.

A record merges all sessions within the gap of it. Each of these is deleted by an update of its own, then comes
the merged one. A record whose session ended before stream time minus gap and grace is late: it is dropped and counted.
Sessions that the store has forgotten are no longer merged.
Where sessions have a largest length, all of what a record merges is within the same piece of time as the record.

Where records have gaps of their own, a session is ``[first, end]``, up to the latest time until which a record of it
lasts, its own gap after it, or until which sessions are cut there. A record merges the sessions that it overlaps or
touches while it lasts. A session that has closed takes no more records, also as long as the store still has it: how
long that is depends on the gaps of others.

For a batch the store is read once, for each key what the key's records can be merged with, and written once.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator
from itertools import repeat
from typing import Any

import numpy as np

from millpond.processors.aggregations.aggregate import AggregateSetup
from millpond.processors.aggregations.closing import Closing, Window
from millpond.processors.aggregations.column_fold import ColumnFold, MergingFold
from millpond.processors.aggregations.own_gaps import PackedGaps, own_gaps
from millpond.processors.aggregations.session_fold import SessionFold
from millpond.processors.aggregations.window_fold import Integers, WindowFold, times_of
from millpond.processors.aggregations.windowed_processor import NEVER, Change, Closes, WindowedProcessor
from millpond.processors.options.placing import lasting
from millpond.processors.options.windowed_serdes import SessionWindowedSerde
from millpond.processors.options.windows import EmitStrategy, SessionWindows
from millpond.processors.runtime.batches.batch import Batch, BatchBuilder
from millpond.processors.runtime.batches.columns import Columns, Records
from millpond.processors.runtime.batches.headers import Headers
from millpond.processors.runtime.counters import CounterName
from millpond.stores.encoding.column_serdes import ColumnSerde
from millpond.stores.typed.windows.windowed import Windowed

Span = tuple[int, int]
"""Start and end of a session."""

_new = tuple.__new__


class KeySessions:
    """The sessions of one key that a batch can touch.

    Attributes:
        key, id: the key, and what tells it from others.
        values: the values, by span.
        changed: by span, the value of each changed session before its first change.
        headers: by span, the headers of the record that changed it last, where updates are cached; else none.
    """

    __slots__ = ("_ends", "changed", "headers", "id", "key", "values")

    def __init__(self, key: Any, id_: Any, sessions: list[tuple[int, int, Any]]) -> None:
        self.key = key
        self.id = id_
        self.values: dict[Span, Any] = {(start, end): value for start, end, value in sessions}
        self.changed: dict[Span, Any] = {}
        self.headers: dict[Span, Headers] = {}
        self._ends = [(end, start) for start, end, _ in sessions]

    def find(self, earliest_end: int, latest_start: int) -> list[Span]:
        """Return the sessions that end no earlier and start no later than these times, by end, then start."""
        ends = self._ends
        first = bisect_left(ends, (earliest_end, NEVER)) if ends and ends[0][0] < earliest_end else 0
        return [(start, end) for end, start in ends[first:] if start <= latest_start]

    def remove(self, span: Span, before: Any) -> None:
        """Remove a session whose value was ``before``; it is no error if there is none."""
        self.changed.setdefault(span, before)
        if self.values.pop(span, None) is not None:
            self._ends.remove((span[1], span[0]))

    def put(self, span: Span, value: Any, before: Any) -> None:
        """Set the value of a session, which was ``before``."""
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
        self._windows = windows
        self._within = windows.within
        self._own_gaps = own_gaps(windows)
        self._lasting = np.empty(0, np.int64)
        self._gap = windows.apart
        self._delay = windows.apart + windows.grace
        self._span = setup.span
        self._forwards = not self._final and not self._caching
        # If the value before is not forwarded, it matters only whether there was one.
        self._before = self._copy if self._final or self._config.send_olds else _itself

    def _fold(self, batch: Batch) -> None:
        if self._own_gaps is None:
            super()._fold(batch)
            return
        gaps = np.array(self._own_gaps.of(batch), np.int64)
        kept = batch.select((gaps > 0).tolist())
        if len(kept):
            self._lasting = lasting(self._windows, times_of(kept), gaps[gaps > 0])
            super()._fold(kept)
        if len(kept) < len(batch):
            self.context.count(CounterName.DROPPED_NO_GAP, len(batch) - len(kept))

    def fold(self, batch: Batch) -> Batch:
        ids = self._slots(batch.keys)
        ends = batch.timestamps if self._own_gaps is None else self._lasting.tolist()
        self._touched = self._read(batch, ids, ends)
        self._newest, late_at = self.newest(), []
        self._out = BatchBuilder(olds=self._config.send_olds)
        self._closing = closing = self.load_closing(max(batch.timestamps)) if self._final else None
        closed = self._closed
        touched, fold_record = self._touched, self._fold_record
        # As in Kafka Streams, updates that go out at once have no headers.
        headers = repeat(None) if self._forwards else batch.headers_of_each
        rows = zip(ids, batch.values, batch.timestamps, ends, headers, strict=False)
        for place, (id_, value, timestamp, end, carried) in enumerate(rows):
            self._out.current = carried
            if timestamp > self._stream_time:
                self._stream_time = timestamp
                if closing is not None:
                    self._emit_closed(closing)
            if not fold_record(touched[id_], value, timestamp, end):
                late_at.append(place)
        self._write()
        if closing is not None:
            self.note_changes(closing, closed, self._changes())
        # One that is behind, but met a session that is open, is not late.
        self._late, self._late_at = len(late_at), late_at
        return self._out.build()

    def _ends(self, records: Records) -> Integers:
        """Return the times until which records last, folded in last: their own times, where all have the same gap."""
        gaps = self._own_gaps
        if gaps is None:
            return times_of(records)
        if isinstance(records, Columns) and isinstance(gaps, PackedGaps):
            return lasting(self._windows, records.timestamps, gaps.of_columns(records))
        return self._lasting

    def _read(self, batch: Batch, ids: list[Any], ends: list[int]) -> dict[Any, KeySessions]:
        """Return, by id, the sessions that the records of a batch, which last until ``ends``, can be merged with."""
        keys, first, last = self.key_times(batch, ids, ends)
        earliest_ends = [max(time - self._gap, self._span.first) for time in first]
        latest_starts = [min(time + self._gap, self._span.last) for time in last]
        found = self._store.find_sessions_of_each(list(keys.values()), earliest_ends, latest_starts)
        return {id_: KeySessions(key, id_, some) for (id_, key), some in zip(keys.items(), found, strict=True)}

    def _fold_record(self, sessions: KeySessions, value: Any, timestamp: int, end: int) -> bool:
        """Merge the sessions within the gap of a record, or of the time that it lasts, and fold in its value.

        Returns:
            Whether it is in time.
        """
        earliest, latest, forgotten = timestamp - self._gap, end + self._gap, self._newest - self._retention
        if self._own_gaps is not None:
            forgotten = max(forgotten, self._stream_time - self._delay - 1)
        if self._within is not None:
            begin = self._within.grid.last(timestamp)
            # A session of the piece before may last until this one begins.
            first = begin if self._own_gaps is None else begin + 1
            earliest, latest = max(earliest, first), min(latest, self._within.grid.end(begin) - 1)
        merged = sessions.find(earliest if earliest > forgotten else forgotten + 1, latest)
        start = timestamp
        for first, last in merged:
            if first < start:
                start = first
            if last > end:
                end = last
        if end < self._stream_time - self._delay:
            return False
        key, values, span = sessions.key, sessions.values, (start, end)
        befores = [self._before(values[part]) for part in merged]
        aggregate = self._initializer()
        for part in merged:
            aggregate = self._merge(key, aggregate, values[part])
        if start != end:
            for part, before in zip(merged, befores, strict=True):
                sessions.remove(part, before)
                if self._out.current is not None:
                    sessions.headers[part] = self._out.current
                if self._forwards:
                    self._out.add(_new(Windowed, (key, *part)), None, part[1], before)
        before = befores[0] if merged and merged[0] == span else None
        self._put(sessions, span, self._update(key, value, aggregate), before)
        return True

    def _put(self, sessions: KeySessions, span: Span, value: Any, before: Any) -> None:
        start, end = span
        if self._forwards:
            self._out.add(_new(Windowed, (sessions.key, start, end)), value, end)
        if end > self._newest:
            self._newest = end
        if self._out.current is not None:
            sessions.headers[span] = self._out.current
        if value is None:
            sessions.remove(span, before)
            return
        if end <= self._newest - self._retention:
            if self._caching and not self._final:
                self._out.add(Windowed(sessions.key, start, end), value, end, before)
            return
        sessions.put(span, self._copy(value), before)
        if self._closing is not None:
            self._note_closing(self._closing, sessions, span, before)

    def _note_closing(self, closing: Closing, sessions: KeySessions, span: Span, before: Any) -> None:
        """Note that a session has changed, which may close within the batch."""
        if span[1] <= closing.last or self._completion.happened:
            window = Window(sessions.id, *span, sessions.key)
            self._completion.change(window, before)
            closing.add(span[1], self._encode(sessions.key), window)

    def _changes(self) -> Iterator[Change]:
        for id_, sessions in self._touched.items():
            values = sessions.values
            for span, before in sessions.changed.items():
                yield (id_, *span), sessions.key, before is not None, span in values

    def _write(self) -> None:
        """Write what changed, and with caching forward it."""
        keys: list[Any] = []
        spans: list[Span] = []
        values: list[Any] = []
        out: BatchBuilder | None = self._out if self._caching and not self._final else None
        for sessions in self._touched.values():
            key = sessions.key
            for span, before in sessions.changed.items():
                value = sessions.values.get(span)
                if value is None and before is None and span[1] < self._newest:
                    continue  # it came and went, and has not moved the store's time
                keys.append(key)
                spans.append(span)
                values.append(value)
                if out is not None and (value is not None or before is not None):
                    out.current = sessions.headers.get(span)
                    out.add(_new(Windowed, (key, *span)), value, span[1], before)
        self._store.put_many(keys, spans, values)

    @property
    def grace(self) -> int:
        return self._windows.grace

    def short_by(self, records: Records, reached: Integers) -> Integers:
        return reached - self._delay - self._ends(records)

    def column_fold(self, fold: ColumnFold, keys: ColumnSerde, values: ColumnSerde) -> WindowFold | None:
        gaps = self._own_gaps
        if not isinstance(fold, MergingFold) or not (gaps is None or isinstance(gaps, PackedGaps)):
            return None
        olds = self._config.send_olds
        return SessionFold(
            self._windows, fold, self._store, keys, values, gaps, final=self._final, span=self._span, olds=olds
        )

    def closes(self) -> Closes:
        return Closes(self._own, lambda time: time - self._delay - 1)

    def _own(self, earliest: int, latest: int) -> Iterator[Any]:
        """Return the store's sessions that ended from ``earliest`` to ``latest``, without sessions of other gaps."""
        first, last = self._span.cut(earliest, latest)
        return iter(self._store.find_sessions_ended(first, last) if first <= last else ())

    def result(self, window: Window, state: Any) -> tuple[Any, int] | None:
        return state, window.end

    def _emit_closed(self, closing: Closing) -> None:
        first, until = closing.first, self._stream_time - self._delay - 1
        if first is None or first > until:
            return
        for window in closing.due(until):
            touched = self._touched.get(window.id)
            span = window.start, window.end
            if touched is not None and span in touched.changed:
                value = touched.values.get(span)
            else:
                value = closing.stored.get(window[:3])
            self.emit(self._out, window, value)


def _itself(value: Any) -> Any:
    return value
