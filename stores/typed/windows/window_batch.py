"""``WindowBatch``: a window store with duplicates as the records of a batch see it, one after the other.

A batch reads the rows of all its keys together and writes its puts together. Between the two only this object is asked,
and it answers each record as the store itself would have done in its place: with the puts before it, and without those
that were removed or had expired by then.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from struct import Struct
from typing import Any, Final, Generic

from millpond.stores.encoding.keys import DATA, TIME_SIZE, pack_time, terminated, unpack_time
from millpond.stores.encoding.times import MIN_TIME, to_instant
from millpond.stores.typed.store import V
from millpond.stores.typed.windows.segments import Segments, Span

_TIME_AND_SEQUENCE: Final = Struct(">QQ")
_REST: Final = 2 * TIME_SIZE
_UNREAD: Final = object()


class WindowBatch(Generic[V]):
    """The content of a store and the puts of a batch. Made by ``WindowStore.begin_batch``.

    Keys are bytes, as the store's key serde makes them, and so are the values that are put.

    Args:
        segments: the store's segments.
        decode: reads a value; called at most once for each value that is asked for.
    """

    def __init__(self, segments: Segments, decode: Any) -> None:
        self._segments = segments
        self._decode = decode
        self._retention = segments.retention
        observed = segments.observed.time
        self._observed = MIN_TIME - 1 if observed is None else observed
        self._horizon = segments.horizon()
        self._loaded: dict[bytes, tuple[list[int], list[list[Any]]]] = {}
        self._puts: list[tuple[bytes, bytes, int] | None] = []
        self._removed: list[bytes] = []

    @property
    def observed_stream_time(self) -> int | None:
        """The greatest time that was put, by this batch or before; None before the first."""
        return None if self._observed < MIN_TIME else self._observed

    def load(self, wanted: Mapping[bytes, Sequence[Span]]) -> None:
        """Read all values that ``fetch`` will be asked for; called once, before the first ``put``.

        Args:
            wanted: the bounds of the times, by key.
        """
        self._loaded = {key: ([], []) for key in wanted}
        by_row = {terminated(key): found for key, found in self._loaded.items()}
        ranges = dict(zip(by_row, wanted.values(), strict=True))
        for key, (row, data) in self._segments.rows_between(ranges):
            times, values = by_row[key]
            times.append(unpack_time(row, len(row) - _REST))
            values.append([data, _UNREAD, row])

    def fetch(self, key: bytes, earliest: int, latest: int) -> list[tuple[int, V]]:
        """Return time and value of the puts that are kept for ``key`` from ``earliest`` to ``latest``, both included.

        They come in the order of time, then of putting. The key and the times must be among those that were loaded.
        """
        times, values = self._loaded[key]
        if not times:
            return []
        first = bisect_left(times, max(earliest, self._horizon + 1))
        return [(times[at], self._value(values[at])) for at in range(first, bisect_right(times, latest))]

    def put(self, key: bytes, data: bytes, time: int) -> None:
        """Keep a value of ``key``, unless its time has already expired.

        Raises:
            ConfigurationError: the time is not an integer of 64 bits; nothing has changed.
        """
        time = to_instant(time, "window_start")
        if not self.observe(time):
            return
        self._puts.append((key, data, time))
        loaded = self._loaded.get(key)
        if loaded is not None:
            times, values = loaded
            at = bisect_right(times, time) if times and time < times[-1] else len(times)
            times.insert(at, time)
            values.insert(at, [data, _UNREAD, len(self._puts) - 1])

    def observe(self, time: int) -> bool:
        """Move the observed stream time to ``time``, if that is later. Return whether a put at that time is kept."""
        if time > self._observed:
            self._observed = time
            self._horizon = time - self._retention
        return time > self._horizon

    def remove(self, key: bytes, time: int) -> None:
        """Remove all puts of ``key`` at a time; both must be among those that were loaded."""
        times, values = self._loaded[key]
        first, past = bisect_left(times, time), bisect_right(times, time)
        for _, _, origin in values[first:past]:
            if isinstance(origin, bytes):
                self._removed.append(origin)
            else:
                self._puts[origin] = None
        del times[first:past], values[first:past]

    def to_write(self, sequence: int) -> tuple[dict[bytes, bytes | None], int]:
        """Observe the times of the puts, and return the rows to write.

        Args:
            sequence: the number of the store's last put.

        Returns:
            The rows, without those that have expired meanwhile, with None for a row that goes, and the number of the
            last put.
        """
        segments = self._segments
        if self._observed >= MIN_TIME:
            segments.advance(self._observed)
        kept_from = segments.start(max(segments.horizon() + 1, MIN_TIME))
        interval = segments.interval
        prefixes: dict[int, bytes | None] = {}
        rows: dict[bytes, bytes | None] = dict.fromkeys(self._removed)
        for number, put in enumerate(self._puts, sequence + 1):
            if put is None:
                continue
            key, data, time = put
            piece = time // interval
            if piece in prefixes:
                prefix = prefixes[piece]
            else:
                start = segments.start(time)
                prefix = prefixes[piece] = DATA + pack_time(start) if start >= kept_from else None
                if prefix is not None:
                    segments.begin_writing((start,))
            if prefix is not None:
                rows[prefix + terminated(key) + _TIME_AND_SEQUENCE.pack(time - MIN_TIME, number)] = data
        return rows, sequence + len(self._puts)

    def _value(self, kept: list[Any]) -> V:
        value: V = kept[1]
        if value is _UNREAD:
            value = kept[1] = self._decode(kept[0])
        return value
