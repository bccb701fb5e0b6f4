"""Aggregation by key and sliding window (KIP-450): ``[start, start + difference]``, both ends included.

There is a window for each different set of records of a key that are at most ``difference`` apart. A record at ``t``
goes into the windows around it, and may begin two: its left window ``[t - difference, t]``, and its right window
``[t + 1, t + 1 + difference]`` if there are records after it. It may also be the first in the right window of the
record before it. Records from 1970 on whose left window would begin earlier than that share ``[0, difference]``.
"""

from bisect import bisect_left, bisect_right, insort
from typing import Any, NamedTuple

from millpond.processors.aggregate import AggregateSetup
from millpond.processors.batch import Batch, BatchBuilder
from millpond.processors.closing import Closing, Window
from millpond.processors.windowed_processor import NEVER, WindowedProcessor
from millpond.processors.windowed_serdes import TimeWindowedSerde
from millpond.processors.windows import EmitStrategy, SlidingWindows
from millpond.stores.windowed import Windowed


class State(NamedTuple):
    """An aggregate and the greatest timestamp of its records."""

    value: Any
    timestamp: int


class KeyWindows:
    """The windows of one key that a batch can touch.

    Attributes:
        key, id, raw: the key, what tells it from others, and its bytes.
        states: by start.
        changed: of those that changed, by start, the value before and the timestamp of the last change.
    """

    __slots__ = ("_starts", "changed", "id", "key", "raw", "states")

    def __init__(self, key: Any, id_: Any, raw: bytes, windows: list[tuple[int, Any]]) -> None:
        self.key = key
        self.id = id_
        self.raw = raw
        self.states = {start: State(*state) for start, state in windows}
        self.changed: dict[int, tuple[Any, int]] = {}
        self._starts = list(self.states)

    def between(self, first: int, last: int) -> list[int]:
        """The starts from ``first`` to ``last``, both included, ascending."""
        return self._starts[bisect_left(self._starts, first) : bisect_right(self._starts, last)]

    def put(self, start: int, state: State, before: Any) -> None:
        """Set a window's state, which had the value ``before``; without a value it is deleted."""
        first, _ = self.changed.get(start, (before, 0))
        self.changed[start] = first, state.timestamp
        if state.value is None:
            if self.states.pop(start, None) is not None:
                self._starts.remove(start)
            return
        if start not in self.states:
            insort(self._starts, start)
        self.states[start] = state


class SlidingWindowAggregate(WindowedProcessor):
    """Folds records into their windows and forwards each update, or each window's result when it closes."""

    def __init__(self, setup: AggregateSetup, windows: SlidingWindows, emit: EmitStrategy) -> None:
        super().__init__(setup, emit, TimeWindowedSerde(setup.spec.key_serde, windows.difference))
        self._difference = windows.difference
        self._grace = windows.grace

    def fold(self, batch: Batch) -> Batch:
        self._touched: dict[Any, KeyWindows] = {}
        self._newest, self._late = self.newest(), 0
        self._out = BatchBuilder(olds=self._config.send_olds)
        self._closing = self._load_closing(batch) if self._final else None
        earliest, latest = min(batch.timestamps) - 2 * self._difference, max(batch.timestamps) + 1
        rows = zip(batch.keys, self._slots(batch.keys), batch.values, batch.timestamps, strict=True)
        for key, id_, value, timestamp in rows:
            self._advance(timestamp)
            if timestamp + self._difference < self._close:
                self._late += 1
                continue
            windows = self._touched.get(id_)
            if windows is None:
                found = list(self._store.fetch_range(key, earliest, latest))
                windows = self._touched[id_] = KeyWindows(key, id_, self._encode(key), found)
            if 0 <= timestamp < self._difference:
                self._take_early(windows, value, timestamp)
            else:
                self._take(windows, value, timestamp)
        self.context.count("dropped-late", self._late)
        self._write()
        return self._out.build()

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
        """The starts from ``first`` to ``last`` of the windows that the store has not forgotten."""
        return windows.between(max(first, self._newest - self._retention + 1), last)

    def _take(self, windows: KeyWindows, value: Any, timestamp: int) -> None:
        """A record whose left window is a window of its own; its windows are updated from the last to the first."""
        difference = self._difference
        left: State | None = None
        right: State | None = None
        left_exists = right_exists = False
        previous: int | None = None
        first = timestamp - 2 * difference
        seen = self._readable(windows, max(first, 0) if timestamp >= 0 else first, timestamp + 1)
        for start in reversed(seen):
            state = windows.states[start]
            if start == timestamp + 1:
                right_exists = True
            elif start + difference > timestamp:
                right = right or self._shared(state)
                self._into(windows, start, state, value, timestamp)
            elif start + difference == timestamp:
                left_exists = True
                self._into(windows, start, state, value, timestamp)
                if state.timestamp >= timestamp:
                    return
                previous = state.timestamp
            else:
                left, previous = state, state.timestamp
                break
        if previous is not None and previous + 1 not in seen and previous + 1 + difference >= timestamp:
            self._begin(windows, previous + 1, value, timestamp)
        if not left_exists:
            start = timestamp - difference
            if left is not None and start <= left.timestamp:
                self._into(windows, start, State(self._copy(left.value), timestamp), value, timestamp, True)
            else:
                self._begin(windows, start, value, timestamp)
        if not right_exists and right is not None and right.timestamp > timestamp:
            self._put(windows, timestamp + 1, right, None)

    def _take_early(self, windows: KeyWindows, value: Any, timestamp: int) -> None:
        """A record whose left window is the one that all records share whose own would begin before 1970."""
        combined: State | None = None
        right: State | None = None
        right_exists = False
        previous: int | None = None
        seen = self._readable(windows, 0, timestamp + 1)
        for start in seen:
            state = windows.states[start]
            if start == 0:
                combined = state
                if state.timestamp < timestamp:
                    previous = state.timestamp
            elif start <= timestamp:
                right = self._shared(state)
                self._into(windows, start, state, value, timestamp)
            else:
                right_exists = True
        if right is None and combined is not None and combined.timestamp > timestamp:
            right = self._shared(combined)
        if not right_exists and right is not None and right.timestamp > timestamp:
            self._put(windows, timestamp + 1, right, None)
        if previous is not None and previous + 1 not in seen:
            self._begin(windows, previous + 1, value, timestamp)
        if combined is None:
            self._begin(windows, 0, value, timestamp)
        else:
            self._into(windows, 0, combined, value, timestamp)

    def _shared(self, state: State) -> State:
        """The same state for another window: neither sees what is done to the other."""
        return State(self._copy(state.value), state.timestamp)

    def _begin(self, windows: KeyWindows, start: int, value: Any, timestamp: int) -> None:
        self._into(windows, start, State(self._initializer(), timestamp), value, timestamp, True)

    def _into(
        self, windows: KeyWindows, start: int, state: State, value: Any, timestamp: int, new: bool = False
    ) -> None:
        """Take a value into a window; a ``new`` one had the initializer's value before."""
        if start + self._difference < self._close:
            self._late += 1
            return
        old = None
        if self._config.send_olds and not (new and self._caching):
            old = self._initializer() if new else self._copy(state.value)
        latest = timestamp if state.value is None else max(timestamp, state.timestamp)
        self._put(windows, start, State(self._update(windows.key, value, state.value), latest), old)

    def _put(self, windows: KeyWindows, start: int, state: State, old: Any) -> None:
        if self._closing is not None:
            end = start + self._difference
            self._closing.add(start, windows.raw, Window(windows.id, start, end, windows.key))
        elif not self._caching:
            self._out.add(self._windowed(windows, start), state.value, state.timestamp, old)
            state = self._shared(state)
        windows.put(start, state, old)
        self._newest = max(self._newest, start)

    def _windowed(self, windows: KeyWindows, start: int) -> Windowed[Any]:
        return Windowed(windows.key, start, start + self._difference)

    def _write(self) -> None:
        """Write what changed, and with caching forward it."""
        rows: list[tuple[Any, Any, int, int]] = []
        for windows in self._touched.values():
            for start, (before, timestamp) in windows.changed.items():
                state = windows.states.get(start, State(None, timestamp))
                rows.append((windows.key, state.value, state.timestamp, start))
                if self._caching and self._closing is None:
                    self._out.add(self._windowed(windows, start), state.value, timestamp, before)
        if rows:
            self._store.put_many(*map(list, zip(*rows, strict=True)))

    def _load_closing(self, batch: Batch) -> Closing:
        return self.load_closing(batch, self._difference + self._grace + 1, self._store.fetch_all, by_end=False)

    def _emit_closed(self, closing: Closing) -> None:
        for id_, start, end, key in closing.due(self._close - self._difference - 1):
            touched = self._touched.get(id_)
            if touched is not None and start in touched.changed:
                state = touched.states.get(start)
            else:
                state = closing.stored.get((id_, start, end))
            if state is not None:
                self._out.add(Windowed(key, start, end), *state)
