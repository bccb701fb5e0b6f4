"""Aggregation by key and window of time: tumbling, hopping, cumulative, or of the calendar.

A record goes into every window that holds its timestamp and is still open: one that ends after stream time minus the
grace period. It is counted as late once for each window that has closed.
"""

from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate, compress
from typing import Any, NamedTuple

from millpond.processors.aggregations.aggregate import AggregateSetup
from millpond.processors.aggregations.closing import Closing, Window
from millpond.processors.aggregations.column_fold import ColumnFold
from millpond.processors.aggregations.fold import Fold
from millpond.processors.aggregations.time_window_fold import TimeWindowFold
from millpond.processors.aggregations.window_fold import Integers, WindowFold, times_of
from millpond.processors.aggregations.windowed_processor import Closes, WindowedProcessor
from millpond.processors.options.placing import ends_of, first_starts
from millpond.processors.options.windowed_serdes import TimeWindowedSerde
from millpond.processors.options.windows import ALL_TIMES, EmitStrategy, GridWindows
from millpond.processors.runtime.batches.batch import Batch, BatchBuilder
from millpond.processors.runtime.batches.columns import Records
from millpond.processors.runtime.batches.headers import Headers
from millpond.stores.encoding.column_serdes import ColumnSerde
from millpond.stores.encoding.times import MAX_TIME
from millpond.stores.typed.windows.windowed import Windowed

Slot = tuple[Any, ...]
"""The place of an aggregate: the key or its bytes, and the window's place."""


class _Placed(NamedTuple):
    """Columns of records, each record repeated for every open window that holds it.

    Attributes:
        times: the stream time at each record.
        headers: the headers of each; none at all if no record has any.
    """

    slots: list[Slot]
    keys: list[Any]
    values: list[Any]
    timestamps: list[int]
    times: list[int]
    headers: list[Headers]

    def select(self, keep: list[bool]) -> "_Placed":
        return self if all(keep) else _Placed._make(list(compress(column, keep)) for column in self)

    def part(self, start: int, stop: int | None) -> "_Placed":
        return _Placed._make(column[start:stop] for column in self)


class WindowedAggregate(WindowedProcessor):
    """Folds records into their windows and forwards each update, or each window's result when it closes."""

    def __init__(self, setup: AggregateSetup, windows: GridWindows, emit: EmitStrategy) -> None:
        super().__init__(setup, emit, TimeWindowedSerde(setup.spec.key_serde, windows.length, windows.grid))
        self._windows = windows
        self._grid = windows.grid
        self._span = setup.span
        self._folding = Fold(self._initializer, self._update, self._copy, setup.aggregation.tally)

    def fold(self, batch: Batch) -> Batch:
        closing = self.load_closing(max(batch.timestamps)) if self._final else None
        closed = self._closed
        placed = self._place(batch)
        slots = dict(zip(placed.slots, placed.keys, strict=True))
        starts = [slot[1] for slot in slots]
        before = self._store.fetch_many(slots.values(), starts)
        states = dict(zip(slots, before, strict=True))
        if closing is not None:
            if self._completion.happened:
                for (id_, start, *_), key, state in zip(slots, slots.values(), before, strict=True):
                    self._completion.change(self._window(id_, start, key), None if state is None else state.value)
            updates = self._fold_final(placed, slots, states, closing)
        elif self._caching:
            updates = self._fold_cached(placed, slots, states)
        else:
            updates = self._fold_updates(placed, states)
        values, timestamps = [state[0] for state in states.values()], [state[1] for state in states.values()]
        self._store.put_many(slots.values(), values, timestamps, starts)
        if self._caching:
            self._updates.replaced(len(placed.slots) - len(states))
        if closing is not None:
            end = self._grid.end
            changes = (
                ((slot[0], slot[1], end(slot[1])), key, was is not None, states[slot][0] is not None)
                for (slot, key), was in zip(slots.items(), before, strict=True)
            )
            self.note_changes(closing, closed, changes)
        return updates

    def _place(self, batch: Batch) -> _Placed:
        """Place each record into its open windows, and advance stream time."""
        end, grace = self._grid.end, self._windows.grace
        times = list(accumulate(batch.timestamps, max, initial=self._stream_time))[1:]
        self._stream_time = times[-1]
        if self._windows.is_tumbling:
            starts = list(map(self._grid.last, batch.timestamps))
            columns = [self._slots(batch.keys), batch.keys, batch.values, batch.timestamps, times, batch.headers or []]
        else:
            (first, last), starts_of = self._span, self._windows.starts
            each = [[start for start in starts_of(time) if first <= start <= last] for time in batch.timestamps]
            starts = [start for group in each for start in group]
            given = self._slots(batch.keys), batch.keys, batch.values, batch.timestamps, times, batch.headers or []
            columns = [[item for item, group in zip(column, each, strict=False) for _ in group] for column in given]
        ids, keys, values, timestamps, times, headers = columns
        slots: list[Slot] = list(zip(ids, starts, strict=True))
        is_open = [end(start) > time - grace for start, time in zip(starts, times, strict=True)]
        self._late = is_open.count(False)
        return self._forget(_Placed(slots, keys, values, timestamps, times, headers).select(is_open))

    def _forget(self, placed: _Placed) -> _Placed:
        """Let windows that the store has forgotten, by another stream's time, begin anew with each record."""
        horizon = self.newest() - self._retention
        if not placed.slots or min(slot[1] for slot in placed.slots) > horizon:
            return placed
        slots = [slot if slot[1] > horizon else (*slot, number) for number, slot in enumerate(placed.slots)]
        return placed._replace(slots=slots)

    def _fold_updates(self, placed: _Placed, states: dict[Slot, Any]) -> Batch:
        olds: list[Any] | None = [] if self._config.send_olds else None
        slots, keys, values, timestamps, _, headers = placed
        news, times = self._folding.updates(states, slots, keys, values, timestamps, olds)
        return Batch(list(self._windowed(slots, keys)), news, times, olds, headers=headers or None)

    def _fold_cached(self, placed: _Placed, slots: dict[Slot, Any], states: dict[Slot, Any]) -> Batch:
        """Return the last update of each window, with the value before the first."""
        olds = None
        if self._config.send_olds:
            olds = [None if state is None else self._copy(state.value) for state in states.values()]
        self._fold_part(states, placed, 0, None)
        values, times = [state[0] for state in states.values()], [state[1] for state in states.values()]
        headers = list(dict(zip(placed.slots, placed.headers, strict=True)).values()) if placed.headers else None
        return Batch(list(self._windowed(slots, slots.values())), values, times, olds, headers=headers)

    def _windowed(self, slots: Any, keys: Any) -> Iterator[Windowed[Any]]:
        begin, end = self._grid.begin, self._grid.end
        return (Windowed(key, begin(slot[1]), end(slot[1])) for key, slot in zip(keys, slots, strict=True))

    def _fold_final(self, placed: _Placed, slots: dict[Slot, Any], states: dict[Slot, Any], closing: Closing) -> Batch:
        """Return the results of windows that stream time closes, taken before the record that closes them is folded."""
        closed, end, grace = self._windows.closed, self._grid.end, self._windows.grace
        for (id_, start, *_), key in slots.items():
            if start <= closing.last:
                closing.add(start, self._encode(key), self._window(id_, start, key))
        out = BatchBuilder(olds=self._config.send_olds)
        done = 0
        while (first := closing.first) is not None:
            number = bisect_left(placed.times, end(first) + grace)  # stream time never falls
            if number == len(placed.times):
                break
            self._fold_part(states, placed, done, number)
            done = number
            out.current = placed.headers[number] if placed.headers else None
            for window in closing.due(closed(placed.times[number])):
                state = states.get((window.id, window.start)) or closing.stored.get(window[:3])
                self.emit(out, window, state)
        self._fold_part(states, placed, done, None)
        return out.build()

    def _fold_part(self, states: dict[Slot, Any], placed: _Placed, start: int, stop: int | None) -> None:
        part = placed.part(start, stop)
        self._folding.silently(states, part.slots, part.keys, part.values, part.timestamps)

    @property
    def grace(self) -> int:
        return self._windows.grace

    def short_by(self, records: Records, reached: Integers) -> Integers:
        firsts = first_starts(self._windows, times_of(records), self._span)
        return reached - self._windows.grace - ends_of(self._windows, firsts) + 1

    def column_fold(self, fold: ColumnFold, keys: ColumnSerde, values: ColumnSerde) -> WindowFold:
        olds = self._config.send_olds
        return TimeWindowFold(
            self._windows, fold, self._store, keys, values, final=self._final, span=self._span, olds=olds
        )

    def closes(self) -> Closes:
        return Closes(self._own, self._windows.closed, self._grid.end, self._grid)

    def _own(self, earliest: int, latest: int) -> Iterator[Any]:
        """Return the stored windows that start from ``earliest`` to ``latest``, without windows of other sizes."""
        if self._span == ALL_TIMES:
            return iter(self._store.fetch_all(earliest, latest))
        first, last = self._span.cut(earliest, latest)
        found = self._store.fetch_all(first, last) if first <= last else ()
        end = self._grid.end
        return ((Windowed(key, start, min(end(start), MAX_TIME)), state) for (key, start, _), state in found)

    def result(self, window: Window, state: Any) -> tuple[Any, int] | None:
        return None if state[0] is None else (state[0], state[1])

    def _window(self, id_: Any, start: int, key: Any) -> Window:
        return Window(id_, start, self._grid.end(start), key)
