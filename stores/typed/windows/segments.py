"""Rows in segments of time, in which window and session stores find the rows of one key, and drop old ones.

The layout, where ``time`` is a window's start or a session's end::

    row    0x01 segment (time) key (terminated) time (time) rest

``segment`` is the beginning of the span of time that the row's time lies in. All rows of a segment lie together, so an
expired segment is one range; within it the rows of a key are one range, in the order of their times. The span's length
is chosen when the store is first written and kept as metadata: it stays the same even if the retention changes later.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import compress
from typing import Any, Final, TypeAlias

from millpond.errors import CorruptStoreError
from millpond.stores.backend.contract import Entries
from millpond.stores.backend.transaction import Transaction
from millpond.stores.encoding.keys import DATA, INDEX, TIME_SIZE, after_prefix, pack_time, unpack_time
from millpond.stores.encoding.serdes import Serde
from millpond.stores.encoding.times import MAX_TIME, MIN_TIME, Duration, to_length
from millpond.stores.typed.observed_stream_time import ObservedStreamTime
from millpond.stores.typed.ranges import entries_of_ranges
from millpond.stores.typed.set_back import SetBack
from millpond.stores.typed.store import K, Store, V, WritableStore

METADATA_NAME: Final = "segment_interval"

_SHORTEST: Final = 1000
ABOVE_TIME: Final = b"\xff" * (2 * TIME_SIZE + 1)
"""The byte behind a row's time, above all that may follow it."""

_KEY_FROM: Final = 1 + TIME_SIZE

Span: TypeAlias = tuple[int, int]
"""The least and the greatest of some times, both included."""


class Segments:
    """The segments of one store.

    Args:
        store: the store.
        transaction: the store's transaction.
        retention: the retention in milliseconds; rows with a time of ``observed - retention`` or earlier are expired.
    """

    def __init__(self, store: Store[Any, Any], transaction: Transaction, retention: int) -> None:
        self._transaction = transaction
        self._retention = retention
        self.observed = ObservedStreamTime(store)
        saved = store.get_metadata(METADATA_NAME)
        self._interval_saved = saved is not None
        self._interval = max(retention // 2, _SHORTEST) if saved is None else unpack_time(saved)
        if self._interval <= 0:
            raise CorruptStoreError(f"store {store.name!r} has segments of {self._interval} ms")
        self._live = set(self._find())

    @property
    def transaction(self) -> Transaction:
        """The transaction in which the rows are read and written."""
        return self._transaction

    @property
    def retention(self) -> int:
        """The time for which rows stay, in milliseconds."""
        return self._retention

    @property
    def interval(self) -> int:
        """The length of a segment, in milliseconds."""
        return self._interval

    def start(self, time: int) -> int:
        """Return the beginning of the segment that ``time`` lies in."""
        return max(time - time % self._interval, MIN_TIME)

    def horizon(self) -> int:
        """Return the latest time that has expired; less than any time if none has."""
        observed = self.observed.time
        return MIN_TIME - 1 if observed is None else observed - self._retention

    def advance(self, time: int) -> bool:
        """Observe ``time``. Return whether a row of that time is to be kept."""
        expired = self.observe(time)
        if expired:
            self._transaction.put_many(dict.fromkeys(expired))
        return time > self.horizon()

    def observe(self, time: int) -> list[bytes]:
        """Observe ``time``. Return the rows of the segments that expire by it, which the caller deletes."""
        observed = self.observed.time
        if observed is not None and time <= observed:
            return []
        self.observed.time = time
        kept_from = self.start(max(self.horizon() + 1, MIN_TIME))
        expired = [start for start in self._live if start < kept_from]
        if not expired:
            return []
        self._live.difference_update(expired)
        return [row for row, _ in self._transaction.scan(DATA + pack_time(min(expired)), DATA + pack_time(kept_from))]

    def row(self, encoded_key: bytes, time: int) -> bytes:
        """Return the row of a terminated key and a time, without ``rest``."""
        return DATA + pack_time(self.start(time)) + encoded_key + pack_time(time)

    def rows(self, encoded_keys: Iterable[bytes], times: Iterable[int]) -> list[bytes]:
        """Return the rows of many keys and times, as ``row`` does, and encode each time only once."""
        parts: dict[int, tuple[bytes, bytes]] = {}
        rows = []
        for encoded_key, time in zip(encoded_keys, times, strict=True):
            part = parts.get(time)
            if part is None:
                part = parts[time] = (DATA + pack_time(self.start(time)), pack_time(time))
            rows.append(part[0] + encoded_key + part[1])
        return rows

    def begin_writing(self, times: Iterable[int]) -> None:
        """Note that rows of those times are about to be put."""
        self._live.update(map(self.start, times))

    def row_to_write(self, encoded_key: bytes, time: int) -> bytes:
        """Return the row of a key and a time, as ``row`` does, for a row that is about to be put."""
        start = self.start(time)
        self._live.add(start)
        return DATA + pack_time(start) + encoded_key + pack_time(time)

    def rows_of_key(self, encoded_key: bytes, earliest: int, latest: int, *, reverse: bool) -> Entries:
        """Return the rows of one key with ``earliest <= time <= latest`` that are not expired, in the order of time."""
        earliest, latest = self._clamped(earliest, latest)
        low, high = pack_time(earliest), pack_time(latest) + ABOVE_TIME
        return self._chained(
            earliest, latest, reverse, lambda segment: (segment + encoded_key + low, segment + encoded_key + high)
        )

    def rows_of_keys(
        self, first: bytes, end: bytes | None, earliest: int, latest: int, time_at: int, *, reverse: bool
    ) -> Entries:
        """Return the rows of terminated keys with ``first <= key < end`` in those bounds; None: all from ``first``.

        Args:
            first: the terminated key to begin with; empty for all.
            end: the terminated key to end before.
            earliest: the least time, included.
            latest: the greatest time, included.
            time_at: the place at which a row's time begins, counted from its end: negative.
            reverse: whether to go backwards, segment by segment.
        """
        earliest, latest = self._clamped(earliest, latest)
        rows = self._chained(
            earliest,
            latest,
            reverse,
            lambda segment: (segment + first, _above(segment) if end is None else segment + end),
        )
        return (entry for entry in rows if earliest <= unpack_time(entry[0], len(entry[0]) + time_at) <= latest)

    def rows_between(self, spans: Mapping[bytes, Iterable[Span]]) -> Iterator[tuple[bytes, tuple[bytes, bytes]]]:
        """Yield the rows of many keys that are not expired.

        Args:
            spans: the least and the greatest times of the wanted rows, both included, by terminated key; spans of one
                key may overlap.

        Yields:
            The terminated key, and the row with its value; rows of one key come in the order of their times.
        """
        floor = max(self.horizon() + 1, MIN_TIME)
        wanted = [
            (key, max(earliest, floor), latest) for key in sorted(spans) for earliest, latest in united(spans[key])
        ]
        for start in self.live():
            end, segment = start + self._interval, DATA + pack_time(start)
            within = [
                (key, (segment + key + pack_time(earliest), segment + key + pack_time(latest) + ABOVE_TIME))
                for key, earliest, latest in wanted
                if earliest < end and earliest <= latest >= start
            ]
            if within:
                found, ranges = zip(*within, strict=True)
                for place, entry in entries_of_ranges(self._transaction.scan, ranges):
                    yield found[place], entry

    def set_back(self, done: SetBack, rest: int, beyond: Callable[[bytes], bool] | None = None) -> None:
        """Set the observed time back, and remove the rows beyond it.

        Args:
            done: notes the changes.
            rest: the number of bytes from the row's time to its end.
            beyond: returns whether a row of a later time is removed; by default, all are.
        """
        if self.observed.set_back(done):
            for row, _ in self.rows_of_keys(b"", None, done.limit + 1, MAX_TIME, -rest, reverse=False):
                if beyond is None or beyond(row):
                    self._transaction.delete(row)
                    done.removed += 1
            self._live = set(self._find())

    def entries(self, earliest: int, latest: int) -> list[tuple[bytes, bytes]]:
        """Return all entries of the segments that rows of these times lie in, whatever the entries' own times."""
        earliest, latest = self._clamped(earliest, latest)
        return list(self._chained(earliest, latest, False, lambda segment: (segment, _above(segment))))

    def live(self) -> list[int]:
        """Return the beginnings of the segments that may have rows, in ascending order."""
        return sorted(self._live)

    def holds_any(self, times: Iterable[int]) -> bool:
        """Return whether a segment of one of these times may have rows."""
        return not self._live.isdisjoint(map(self.start, times))

    def put(self, times: Sequence[int], changes: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Put rows, each of the time at the same position, except rows that one of these times causes to expire."""
        self.advance(max(times))
        horizon = self.horizon()
        if min(times) <= horizon:
            kept = [time > horizon for time in times]
            changes, times = compress(changes, kept), list(compress(times, kept))
        self.begin_writing(set(times))
        self._transaction.put_many(dict(changes))

    def check(self, row: bytes, rest: int) -> None:
        """Raise ``ValueError`` if ``row`` is in another segment than its time, which is ``rest`` bytes from its end."""
        time = unpack_time(row, len(row) - rest)
        if not row.startswith(self.row(key_part(row, rest), time)):
            raise ValueError(f"it does not lie in the segment of its time {time}")
        if self.observed.time is None:
            raise ValueError("no stream time has been observed")

    def save(self, store: WritableStore[Any, Any]) -> None:
        """Write into the store's metadata what only this object knows so far."""
        self.observed.save(store)
        if not self._interval_saved and self.observed.time is not None:
            store.keep_metadata(METADATA_NAME, pack_time(self._interval))
            self._interval_saved = True

    def _clamped(self, earliest: int, latest: int) -> tuple[int, int]:
        return max(earliest, self.horizon() + 1, MIN_TIME), min(latest, MAX_TIME)

    def _chained(
        self, earliest: int, latest: int, reverse: bool, bounds: Callable[[bytes], tuple[bytes, bytes]]
    ) -> Entries:
        if earliest > latest:
            return iter(())
        first, last = self.start(earliest), self.start(latest)
        starts = sorted((start for start in self._live if first <= start <= last), reverse=reverse)
        ranges = [bounds(DATA + pack_time(start)) for start in starts]
        scan = self._transaction.scan
        if len(ranges) == 1:
            return scan(*ranges[0], reverse=reverse)
        return _concatenated([scan(low, high, reverse=reverse) for low, high in ranges])

    def _find(self) -> Iterator[int]:
        """Yield the segments that have rows, found by jumping from one to the next."""
        position = DATA
        while True:
            row = next(self._transaction.scan(position, INDEX), None)
            if row is None:
                return
            start = unpack_time(row[0], 1)
            yield start
            if start == MAX_TIME:
                return
            position = DATA + pack_time(start + 1)


class SegmentedStore(Store[K, V]):
    """The base of window and session stores.

    Args:
        name: the name of the store for errors.
        transaction: its transaction.
        key_serde: the serde of its keys.
        value_serde: the serde of its values.
        retention: the time for which entries stay, counted back from the observed stream time.
    """

    def __init__(
        self,
        name: str,
        transaction: Transaction,
        key_serde: Serde[K],
        value_serde: Serde[V],
        *,
        retention: Duration,
    ) -> None:
        super().__init__(name, transaction, key_serde, value_serde)
        self._retention = to_length(retention, f"retention of store {name!r}")
        self._segments = Segments(self, transaction, self._retention)

    @property
    def retention(self) -> int:
        """The time for which entries stay, in milliseconds."""
        return self._retention

    @property
    def segments(self) -> Segments:
        """The store's rows."""
        return self._segments

    @property
    def observed_stream_time(self) -> int | None:
        """The greatest time of an entry that was ever put, over all keys; None before the first.

        The time of a window is its start, the time of a session its end.
        """
        return self._segments.observed.time


def united(spans: Iterable[Span]) -> list[Span]:
    """Return the spans that have the same times and do not overlap, in their order.

    >>> united([(7, 9), (1, 3), (2, 5), (4, 4), (6, 6)])
    [(1, 5), (6, 6), (7, 9)]
    """
    found: list[Span] = []
    for earliest, latest in sorted(spans):
        if found and earliest <= found[-1][1]:
            found[-1] = found[-1][0], max(latest, found[-1][1])
        else:
            found.append((earliest, latest))
    return found


def key_part(row: bytes, rest: int) -> bytes:
    """Return the terminated key of a row, after which ``rest`` bytes follow (its time included)."""
    return row[_KEY_FROM:-rest]


def _above(segment: bytes) -> bytes:
    return after_prefix(segment) or INDEX


def _concatenated(scans: list[Entries]) -> Entries:
    for scan in scans:
        yield from scan
