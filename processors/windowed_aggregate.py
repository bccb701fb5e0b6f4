"""Aggregation by key and window of a fixed size, tumbling or hopping.

A record goes into every window that holds its time and is still open: whose end is after stream time less the grace
period. For each window that has closed it is counted as late.
"""

from typing import Any

from millpond.processors.aggregate import IMMUTABLE, AggregateSetup
from millpond.processors.batch import Batch, BatchBuilder
from millpond.processors.closing import Closing, Window
from millpond.processors.windowed_processor import NEVER, WindowedProcessor
from millpond.processors.windowed_serdes import TimeWindowedSerde
from millpond.processors.windows import EmitStrategy, TimeWindows
from millpond.stores.windowed import Windowed

Slot = tuple[Any, int]
"""What tells a key and a window apart: the key, or its bytes, and the window's start."""


class WindowedAggregate(WindowedProcessor):
    """Folds records into their windows and forwards each update, or each window's result when it closes."""

    def __init__(self, setup: AggregateSetup, windows: TimeWindows, emit: EmitStrategy) -> None:
        super().__init__(setup, emit, TimeWindowedSerde(setup.spec.key_serde, windows.size))
        self._windows = windows

    def fold(self, batch: Batch) -> Batch:
        states: dict[Slot, Any] = {}
        closing = self._load_closing(batch) if self._final else None
        out = BatchBuilder(olds=self._config.send_olds)
        dirty: dict[Slot, Any] = {}
        firsts: dict[Slot, Any] = {}
        self._fold_records(batch, states, dirty, firsts, closing, out)
        for slot, key in dirty.items():
            value, timestamp = states[slot]
            self._store.put(key, value, timestamp, slot[1])
        if self._caching and closing is None:
            self._last_updates(states, dirty, firsts, out)
        return out.build()

    def _load_closing(self, batch: Batch) -> Closing:
        return self.load_closing(batch, self._windows.size + self._windows.grace, self._store.fetch_all, by_end=False)

    def _fold_records(
        self,
        batch: Batch,
        states: dict[Slot, Any],
        dirty: dict[Slot, Any],
        firsts: dict[Slot, Any],
        closing: Closing | None,
        out: BatchBuilder,
    ) -> None:
        size, advance, grace = self._windows.size, self._windows.advance, self._windows.grace
        starts_of, tumbling = self._windows.starts, advance == size
        update, initializer, copy, fetch = self._update, self._initializer, self._copy, self._store.fetch
        silent, send_olds = self._caching or closing is not None, self._config.send_olds
        stream_time, newest, late = self._stream_time, self.newest(), 0
        close = NEVER if stream_time == NEVER else stream_time - grace
        rows = zip(batch.keys, self.ids(batch), batch.values, batch.timestamps, strict=True)
        for key, id_, value, timestamp in rows:
            if timestamp > stream_time:
                stream_time, close = timestamp, timestamp - grace
                if closing is not None:
                    self._emit_closed(states, closing, close - size, out)
            for start in (timestamp - timestamp % size,) if tumbling else starts_of(timestamp):
                if start + size <= close:
                    late += 1
                    continue
                slot = (id_, start)
                if slot in states:
                    state = states[slot]
                else:
                    state = states[slot] = fetch(key, start)
                    if closing is not None:
                        closing.add(start, self._encode(key), Window(id_, start, start + size, key))
                if state is None or state[0] is None or start <= newest - self._retention:
                    aggregate, latest = initializer(), timestamp
                else:
                    aggregate, latest = state
                    latest = max(latest, timestamp)
                if slot not in dirty and self._caching:
                    firsts[slot] = None if state is None else copy(state[0])
                old = copy(aggregate) if send_olds and not silent else None
                new = update(key, value, aggregate)
                if not silent:
                    out.add(Windowed(key, start, start + size), new, latest, old)
                    if type(new) not in IMMUTABLE:
                        new = copy(new)
                newest = max(newest, start)
                states[slot] = (new, latest)
                dirty[slot] = key
        self._stream_time = stream_time
        self.context.count("dropped-late", late)

    def _last_updates(
        self, states: dict[Slot, Any], dirty: dict[Slot, Any], firsts: dict[Slot, Any], out: BatchBuilder
    ) -> None:
        for slot, key in dirty.items():
            value, timestamp = states[slot]
            out.add(Windowed(key, slot[1], slot[1] + self._windows.size), value, timestamp, firsts[slot])

    def _emit_closed(self, states: dict[Slot, Any], closing: Closing, last_start: int, out: BatchBuilder) -> None:
        for id_, start, end, key in closing.due(last_start):
            state = states.get((id_, start)) or closing.stored.get((id_, start, end))
            if state is not None and state[0] is not None:
                out.add(Windowed(key, start, end), state[0], state[1])
