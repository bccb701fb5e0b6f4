"""A join of a stream with itself that keeps its records once (``StreamsBuilder(optimize=True)``).

The results and their order are as in the general join, which keeps every record on both sides, with one difference
that Kafka Streams has too: a record at the very edge of the store's retention is not paired with itself.
"""

from collections.abc import Callable
from typing import Any

from millpond.processors.options.join_windows import JoinWindows
from millpond.processors.runtime.batches.batch import Batch, BatchBuilder
from millpond.processors.runtime.counters import CounterName
from millpond.processors.runtime.operator import Operator
from millpond.processors.runtime.processor import ProcessorContext
from millpond.stores.typed.windows.window import WindowStore


class StreamSelfJoin(Operator):
    """Joins each record with the earlier ones as their left partner, then with itself, then as their right partner.

    Args:
        joiner: ``joiner(key, left value, right value)``.
        windows: the windows within which records belong together.
        store: the name of the window store.
    """

    def __init__(self, joiner: Callable[[Any, Any, Any], Any], windows: JoinWindows, store: str) -> None:
        self._joiner = joiner
        self._windows = windows
        self._name = store

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._store: WindowStore[Any, Any] = context.store(self._name)

    def process(self, batch: Batch) -> None:
        out = BatchBuilder()
        rows = zip(batch.keys, batch.values, batch.timestamps, batch.headers_of_each, strict=True)
        for key, value, timestamp, out.current in rows:
            if key is None or value is None:
                self.context.count(CounterName.DROPPED_NULL)
                continue
            size = len(out.keys)
            try:
                self._process_one(out, key, value, timestamp)
            except Exception as error:  # a user's code may raise anything
                out.truncate(size)
                self.context.leave_out(error, key, value, timestamp, headers=out.current)
        self.context.forward(out.build())

    def _process_one(self, out: BatchBuilder, key: Any, value: Any, timestamp: int) -> None:
        before, after = self._windows.before, self._windows.after
        for time, other in self._store.fetch_range(key, timestamp - before, timestamp + after):
            self._join(out, key, (value, other), (timestamp, time))
        partners = [
            (time, other) for time, other in self._store.fetch_range(key, timestamp - after, timestamp + before)
        ]
        earlier = sum(time <= timestamp for time, _ in partners)
        if self._meets_itself(timestamp):
            partners.insert(earlier, (timestamp, value))
        for time, other in partners:
            self._join(out, key, (other, value), (time, timestamp))
        self._store.put(key, value, timestamp)

    def _join(self, out: BatchBuilder, key: Any, values: tuple[Any, Any], times: tuple[int, int]) -> None:
        """Add the result of a pair, left and right; a pair for which the joiner fails may be left out."""
        try:
            out.add(key, self._joiner(key, *values), max(times))
        except Exception as error:  # a user's code may raise anything
            pair = f"joined with {values[1]!r:.200}, timestamp {times[1]}"
            self.context.leave_out(error, key, values[0], times[0], pair, out.current)

    def _meets_itself(self, timestamp: int) -> bool:
        observed = self._store.observed_stream_time
        stream_time = timestamp if observed is None else max(observed, timestamp)
        in_window = self._windows.before >= 0 and self._windows.after >= 0
        return in_window and timestamp > stream_time - self._store.retention + 1
