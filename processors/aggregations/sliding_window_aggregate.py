"""Aggregation by key and sliding window (KIP-450): ``[start, start + difference]``, both ends included.

There is a window for each distinct set of records of a key that are at most ``difference`` apart. A record at ``t``
goes into the windows around it, and may begin two: its left window ``[t - difference, t]``, and its right window
``[t + 1, t + 1 + difference]`` if there are records after it. It may also be the first in the right window of the
record before it. Records from 1970 on whose left window would begin before 1970 share ``[0, difference]``, unless
windows begin earlier, too (``Windows.from_epoch``).

For a batch the store is read once, for each key the windows around the key's records, and written once.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from typing import Any, NamedTuple

from millpond.processors.aggregations.aggregate import AggregateSetup
from millpond.processors.aggregations.closing import Closing, Window
from millpond.processors.aggregations.column_fold import ColumnFold
from millpond.processors.aggregations.sliding_window_fold import SlidingWindowFold
from millpond.processors.aggregations.window_fold import Integers, WindowFold, times_of
from millpond.processors.aggregations.windowed_processor import NEVER, Change, Closes, WindowedProcessor
from millpond.processors.options.windowed_serdes import TimeWindowedSerde
from millpond.processors.options.windows import EmitStrategy, SlidingWindows
from millpond.processors.runtime.batches.batch import Batch, BatchBuilder
from millpond.processors.runtime.batches.columns import Records
from millpond.processors.runtime.batches.headers import Headers
from millpond.stores.encoding.column_serdes import ColumnSerde
from millpond.stores.typed.windows.grids import EvenGrid
from millpond.stores.typed.windows.segments import Span
from millpond.stores.typed.windows.windowed import Windowed


class State(NamedTuple):
    """An aggregate and the greatest timestamp of its records."""

    value: Any
    timestamp: int


class KeyWindows:
    """The windows of one key that a batch can touch.

    Attributes:
        key, id: the key, and what tells it from others.
        states: the states, by start.
        stored: the starts of windows that were there before the batch.
        changed: by start, the value of each changed window before its first change, and the last change's timestamp.
    """

    __slots__ = ("_starts", "changed", "headers", "id", "key", "states", "stored")

    def __init__(self, key: Any, id_: Any, windows: list[tuple[int, Any]]) -> None:
        self.key = key
        self.id = id_
        self.states = {start: State(*state) for start, state in windows}
        self.changed: dict[int, tuple[Any, int]] = {}
        self.headers: dict[int, Headers] = {}
        self._starts = list(self.states)
        self.stored = frozenset(self.states)

    def between(self, first: int, last: int) -> list[int]:
        """Return the starts from ``first`` to ``last``, both included, ascending."""
        return self._starts[bisect_left(self._starts, first) : bisect_right(self._starts, last)]

    def put(self, start: int, state: State, before: Any) -> None:
        """Set the state of a window whose value was ``before``; a state without a value deletes it."""
        first, _ = self.changed.get(start, (before, 0))
        self.changed[start] = first, state.timestamp
        if state.value is None:
            if self.states.pop(start, None) is not None:
                self._starts.remove(start)
            return
        if start not in self.states:
            insort(self._starts, start)
        self.states[start] = state


class _Around:
    """The windows around a record.

    Attributes:
        seen: the starts of the windows near it.
        left: the state of the last window that ends before it.
        right: the state, without the record, of the last window that holds it.
        previous: the timestamp of the record before it.
        left_exists, right_exists: whether its own left and right windows exist.
        complete: whether another record with its timestamp has already begun all its windows.
    """

    __slots__ = ("complete", "left", "left_exists", "previous", "right", "right_exists", "seen")

    def __init__(self, seen: list[int]) -> None:
        self.seen = seen
        self.left: State | None = None
        self.right: State | None = None
        self.previous: int | None = None
        self.left_exists = self.right_exists = self.complete = False


class SlidingWindowAggregate(WindowedProcessor):
    """Folds records into their windows and forwards each update, or each window's result when it closes."""

    def __init__(self, setup: AggregateSetup, windows: SlidingWindows, emit: EmitStrategy) -> None:
        super().__init__(setup, emit, TimeWindowedSerde(setup.spec.key_serde, windows.difference))
        self._windows = windows
        self._difference = windows.difference
        self._grace = windows.grace
        self._from_epoch = windows.from_epoch

    def fold(self, batch: Batch) -> Batch:
        ids = self._slots(batch.keys)
        self._touched = touched = self._read(batch, ids)
        self._newest, self._late = self.newest(), 0
        self._out = BatchBuilder(olds=self._config.send_olds)
        self._closing = self.load_closing(max(batch.timestamps)) if self._final else None
        closed = self._closed
        rows = zip(ids, batch.values, batch.timestamps, batch.headers_of_each, strict=True)
        for id_, value, timestamp, self._out.current in rows:
            self._advance(timestamp)
            if timestamp + self._difference < self._close:
                self._late += 1
            elif self._from_epoch and 0 <= timestamp < self._difference:
                self._fold_early(touched[id_], value, timestamp)
            else:
                self._fold_record(touched[id_], value, timestamp)
        self._write()
        if self._closing is not None:
            self.note_changes(self._closing, closed, self._changes())
        return self._out.build()

    def _read(self, batch: Batch, ids: list[Any]) -> dict[Any, KeyWindows]:
        """Return, by id, the windows that the records of a batch can touch."""
        keys = dict(zip(ids, batch.keys, strict=True))
        spans: dict[Any, list[Span]] = {id_: [] for id_ in keys}
        for id_, time in zip(ids, batch.timestamps, strict=True):
            spans[id_].append((max(time - 2 * self._difference, NEVER), time + 1))
        found = self._store.fetch_range_of_each(list(keys.values()), spans.values())
        return {id_: KeyWindows(key, id_, some) for (id_, key), some in zip(keys.items(), found, strict=True)}

    @property
    def _close(self) -> int:
        """Windows that end before this are closed."""
        return NEVER if self._stream_time == NEVER else self._stream_time - self._grace

    def _advance(self, timestamp: int) -> None:
        if timestamp > self._stream_time:
            self._stream_time = timestamp
            if self._closing is not None:
                self._emit_closed(self._closing)

    def _readable(self, windows: KeyWindows, first: int, last: int) -> list[int]:
        """Return the starts from ``first`` to ``last`` of the windows that the store has not forgotten."""
        return windows.between(max(first, self._newest - self._retention + 1), last)

    def _fold_record(self, windows: KeyWindows, value: Any, timestamp: int) -> None:
        """Fold in a record that has a left window of its own."""
        first = timestamp - 2 * self._difference
        seen = self._readable(windows, max(first, 0) if self._from_epoch and timestamp >= 0 else first, timestamp + 1)
        around = _Around(seen)
        for start in reversed(seen):
            if not self._update_one(windows, start, around, value, timestamp):
                break
        if not around.complete:
            self._create(windows, around, value, timestamp)

    def _update_one(self, windows: KeyWindows, start: int, around: _Around, value: Any, timestamp: int) -> bool:
        """Update a window that holds the record, or learn from one that does not; False if no earlier one is of use."""
        state, end = windows.states[start], start + self._difference
        if start == timestamp + 1:
            around.right_exists = True
        elif end > timestamp:
            around.right = around.right or self._shared(state)
            self._fold_into(windows, start, state, value, timestamp)
        elif end == timestamp:
            around.left_exists = True
            around.complete = state.timestamp >= timestamp
            around.previous = state.timestamp
            self._fold_into(windows, start, state, value, timestamp)
            return not around.complete
        else:
            around.left, around.previous = state, state.timestamp
            return False
        return True

    def _create(self, windows: KeyWindows, around: _Around, value: Any, timestamp: int) -> None:
        """Create the windows that a record begins: the right one of the record before it, its left and right ones."""
        behind = None if around.previous is None else around.previous + 1
        if behind is not None and behind not in around.seen and behind + self._difference >= timestamp:
            self._begin(windows, behind, value, timestamp)
        if not around.left_exists:
            start, left = timestamp - self._difference, around.left
            if left is not None and start <= left.timestamp:
                self._fold_into(windows, start, State(self._copy(left.value), timestamp), value, timestamp, True)
            else:
                self._begin(windows, start, value, timestamp)
        self._create_right(windows, around, timestamp)

    def _create_right(self, windows: KeyWindows, around: _Around, timestamp: int) -> None:
        right = around.right
        if not around.right_exists and right is not None and right.timestamp > timestamp:
            if self._completion.happened:
                self._completion.change(self._window(windows, timestamp + 1), None)
            self._put(windows, timestamp + 1, right, None)

    def _fold_early(self, windows: KeyWindows, value: Any, timestamp: int) -> None:
        """Fold in a record whose own left window would begin before 1970; such records share one."""
        around = _Around(self._readable(windows, 0, timestamp + 1))
        shared = windows.states[0] if 0 in around.seen else None
        for start in around.seen:
            if 0 < start <= timestamp:
                around.right = self._shared(windows.states[start])
                self._fold_into(windows, start, windows.states[start], value, timestamp)
        around.right_exists = timestamp + 1 in around.seen
        if shared is None:
            self._create_right(windows, around, timestamp)
            self._begin(windows, 0, value, timestamp)
            return
        if around.right is None and shared.timestamp > timestamp:
            around.right = self._shared(shared)
        self._create_right(windows, around, timestamp)
        if shared.timestamp < timestamp and shared.timestamp + 1 not in around.seen:
            self._begin(windows, shared.timestamp + 1, value, timestamp)
        self._fold_into(windows, 0, shared, value, timestamp)

    def _shared(self, state: State) -> State:
        """Return a copy of a state for another window, so that neither window sees the other's changes."""
        return State(self._copy(state.value), state.timestamp)

    def _begin(self, windows: KeyWindows, start: int, value: Any, timestamp: int) -> None:
        self._fold_into(windows, start, State(self._initializer(), timestamp), value, timestamp, True)

    def _fold_into(
        self, windows: KeyWindows, start: int, state: State, value: Any, timestamp: int, new: bool = False
    ) -> None:
        """Fold a value into a window; the old value of a ``new`` one is the initializer's."""
        if start + self._difference < self._close:
            self._late += 1
            return
        if self._completion.happened:
            self._completion.change(self._window(windows, start), None if new else state.value)
        old = None
        if self._config.send_olds and not (new and self._caching):
            old = self._initializer() if new else self._copy(state.value)
        latest = timestamp if state.value is None else max(timestamp, state.timestamp)
        self._put(windows, start, State(self._update(windows.key, value, state.value), latest), old)

    def _put(self, windows: KeyWindows, start: int, state: State, old: Any) -> None:
        if self._closing is not None:
            if start <= self._closing.last:
                self._closing.add(start, self._encode(windows.key), self._window(windows, start))
        elif not self._caching:
            self._out.add(self._windowed(windows, start), state.value, state.timestamp, old)
            state = self._shared(state)
        windows.put(start, state, old)
        if self._out.current is not None:
            windows.headers[start] = self._out.current
        self._newest = max(self._newest, start)

    def _windowed(self, windows: KeyWindows, start: int) -> Windowed[Any]:
        return Windowed(windows.key, start, start + self._difference)

    def _changes(self) -> Iterator[Change]:
        difference = self._difference
        for id_, windows in self._touched.items():
            for start in windows.changed:
                place = id_, start, start + difference
                yield place, windows.key, start in windows.stored, start in windows.states

    def _write(self) -> None:
        """Write what changed, and with caching forward it."""
        rows: list[tuple[Any, Any, int, int]] = []
        for windows in self._touched.values():
            for start, (before, timestamp) in windows.changed.items():
                state = windows.states.get(start, State(None, timestamp))
                rows.append((windows.key, state.value, state.timestamp, start))
                if self._caching and self._closing is None:
                    self._out.current = windows.headers.get(start)
                    self._out.add(self._windowed(windows, start), state.value, timestamp, before)
        if rows:
            self._store.put_many(*map(list, zip(*rows, strict=True)))

    @property
    def grace(self) -> int:
        return self._grace

    def short_by(self, records: Records, reached: Integers) -> Integers:
        # The first of its windows to close is the one that ends with it.
        return reached - self._grace - times_of(records)

    def column_fold(self, fold: ColumnFold, keys: ColumnSerde, values: ColumnSerde) -> WindowFold:
        olds = self._config.send_olds
        return SlidingWindowFold(self._windows, fold, self._store, keys, values, final=self._final, olds=olds)

    def closes(self) -> Closes:
        reach = self._difference + self._grace + 1
        return Closes(self._store.fetch_all, lambda time: time - reach, EvenGrid(self._difference).end)

    def result(self, window: Window, state: Any) -> tuple[Any, int] | None:
        value, timestamp = state
        return value, timestamp

    def _window(self, windows: KeyWindows, start: int) -> Window:
        return Window(windows.id, start, start + self._difference, windows.key)

    def _emit_closed(self, closing: Closing) -> None:
        for window in closing.due(self._close - self._difference - 1):
            touched = self._touched.get(window.id)
            if touched is not None and window.start in touched.changed:
                state = touched.states.get(window.start)
            else:
                state = closing.stored.get(window[:3])
            self.emit(self._out, window, state)
