"""``WindowStore``: a value per key and window, for as long as the retention says.

The layout is that of ``millpond.stores.typed.windows.segments``, by the window's start::

    row    0x01 segment (time) key (terminated) start (time)
    row    0x01 segment (time) key (terminated) start (time) sequence (8 bytes, big-endian)    with retain_duplicates
    value  value
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from millpond.errors import CorruptStoreError
from millpond.stores.backend.contract import Entries
from millpond.stores.backend.transaction import Transaction
from millpond.stores.encoding.keys import TIME_SIZE, terminated, unpack_time, unterminated
from millpond.stores.encoding.serdes import Serde
from millpond.stores.encoding.times import MAX_TIME, MIN_TIME, Duration, Instant, to_instant, to_length
from millpond.stores.typed.scans import Scan
from millpond.stores.typed.set_back import SetBack
from millpond.stores.typed.store import K, V, WritableStore
from millpond.stores.typed.windows.calendar import Calendar
from millpond.stores.typed.windows.grids import EvenGrid, Grid
from millpond.stores.typed.windows.segments import SegmentedStore, Span, key_part
from millpond.stores.typed.windows.window_batch import WindowBatch
from millpond.stores.typed.windows.windowed import Windowed

_SEQUENCE: Final = struct.Struct(">Q")
SEQUENCE_NAME: Final = "sequence"
_LARGEST_BYTE: Final = 0x7F
"""The greatest first byte of an undamaged sequence, which leaves room for every put to come."""


class ReadOnlyWindowStore(SegmentedStore[K, V]):
    """The reading half of ``WindowStore``.

    A window is visible if it starts after the observed stream time minus the retention, to the millisecond, even while
    others are still on disk. The observed stream time is the greatest window start that was ever put.

    The windows of several keys come segment by segment: each key's in the order of time, the keys in no particular
    order.

    Args:
        name: the name of the store for errors.
        transaction: its transaction.
        key_serde: the serde of its keys.
        value_serde: the serde of its values.
        retention: the time for which windows stay.
        window_size: the length of a window, from which ``Windowed.end`` follows; for a calendar, the greatest length.
        calendar: the calendar that determines ``Windowed.end``, if windows follow one.
        retain_duplicates: whether to keep every put of a key and window, instead of the last.
    """

    def __init__(
        self,
        name: str,
        transaction: Transaction,
        key_serde: Serde[K],
        value_serde: Serde[V],
        *,
        retention: Duration,
        window_size: Duration,
        calendar: Calendar | None = None,
        retain_duplicates: bool = False,
    ) -> None:
        super().__init__(name, transaction, key_serde, value_serde, retention=retention)
        self._window_size = to_length(window_size, f"window_size of store {name!r}")
        self._grid: Grid = EvenGrid(self._window_size) if calendar is None else calendar
        self._duplicates = retain_duplicates
        self._rest = 2 * TIME_SIZE if retain_duplicates else TIME_SIZE
        saved = self.get_metadata(SEQUENCE_NAME) if retain_duplicates else None
        if saved is not None and (len(saved) != _SEQUENCE.size or saved[0] > _LARGEST_BYTE):
            raise CorruptStoreError(f"store {name!r} has the damaged sequence {saved!r}")
        self._sequence = 0 if saved is None else _SEQUENCE.unpack(saved)[0]
        self._saved_sequence = self._sequence

    @property
    def window_size(self) -> int:
        """The length of a window, or the greatest length of a calendar's, in milliseconds."""
        return self._window_size

    def fetch(self, key: K, window_start: Instant) -> V | None:
        """Return the value of ``key`` in the window that starts then, or None.

        With ``retain_duplicates`` a window has no single value, and this finds only the very last put of the store; use
        ``fetch_range``.
        """
        time = to_instant(window_start, "window_start")
        row = self._segments.row(terminated(self._key_bytes(key)), time)
        if time <= self._segments.horizon():
            return None
        data = self._read(row + _SEQUENCE.pack(self._sequence) if self._duplicates else row)
        return None if data is None else self._decode_value(data)

    def fetch_many(self, keys: Iterable[K], window_starts: Sequence[int]) -> list[V | None]:
        """Return the results of ``fetch`` for many keys, each with the window start at the same position."""
        if self._duplicates:
            return list(map(self.fetch, keys, window_starts))
        rows = self._segments.rows(map(terminated, self._keys_bytes(keys)), window_starts)
        horizon, decode = self._segments.horizon(), self._decode_value
        return [
            None if data is None or start <= horizon else decode(data)
            for data, start in zip(self._read_many(rows), window_starts, strict=True)
        ]

    def fetch_range(
        self, key: K, earliest: Instant | None = None, latest: Instant | None = None, *, reverse: bool = False
    ) -> Scan[tuple[int, V]]:
        """Return start and value of the windows of ``key`` that start from ``earliest`` to ``latest``, both included.

        They come in the order of time; None leaves that side open.
        """
        first, last = _bounds(earliest, latest)
        rows = self._segments.rows_of_key(terminated(self._key_bytes(key)), first, last, reverse=reverse)
        return self._scans.begin(self._starts(rows))

    def fetch_range_of_each(self, keys: Iterable[K], spans: Iterable[Iterable[Span]]) -> list[list[tuple[int, V]]]:
        """Return the results of ``fetch_range`` for many keys, no two of them the same.

        Args:
            keys: the keys.
            spans: the earliest and the latest wanted start of each key, both included; there may be several pairs.

        Returns:
            The windows of each key within any of its spans, in the order of time.
        """
        encoded = list(map(terminated, self._keys_bytes(keys)))
        found: dict[bytes, list[tuple[int, V]]] = {key: [] for key in encoded}
        decode, rest = self._decode_value, self._rest
        for key, (row, data) in self._segments.rows_between(dict(zip(encoded, spans, strict=True))):
            found[key].append((unpack_time(row, len(row) - rest), decode(data)))
        return list(found.values())

    def fetch_keys(
        self,
        start: K | None = None,
        stop: K | None = None,
        earliest: Instant | None = None,
        latest: Instant | None = None,
        *,
        reverse: bool = False,
    ) -> Scan[tuple[Windowed[K], V]]:
        """Return the windows of ``start <= key < stop`` that start from ``earliest`` to ``latest``, both included."""
        first, last = _bounds(earliest, latest)
        rows = self._segments.rows_of_keys(
            b"" if start is None else terminated(self._encode_key(start)),
            None if stop is None else terminated(self._encode_key(stop)),
            first,
            last,
            -self._rest,
            reverse=reverse,
        )
        return self._scans.begin(self._windows(rows))

    def fetch_all(
        self, earliest: Instant | None = None, latest: Instant | None = None, *, reverse: bool = False
    ) -> Scan[tuple[Windowed[K], V]]:
        """Return the windows that start from ``earliest`` to ``latest``, both included; None leaves a side open."""
        return self.fetch_keys(None, None, earliest, latest, reverse=reverse)

    def _check_row(self, row: bytes, data: bytes) -> None:
        self._segments.check(row, self._rest)
        self._decode_key(unterminated(key_part(row, self._rest)))
        self._decode_value(data)

    def _starts(self, rows: Entries) -> Iterator[tuple[int, V]]:
        decode, rest = self._decode_value, self._rest
        return ((unpack_time(row, len(row) - rest), decode(data)) for row, data in rows)

    def _windows(self, rows: Entries) -> Iterator[tuple[Windowed[K], V]]:
        decode_key, decode_value, rest, end = self._decode_key, self._decode_value, self._rest, self._grid.end
        for row, data in rows:
            start = unpack_time(row, len(row) - rest)
            window = Windowed(decode_key(unterminated(key_part(row, rest))), start, min(end(start), MAX_TIME))
            yield window, decode_value(data)


class WritableWindowStore(ReadOnlyWindowStore[K, V], WritableStore[K, V]):
    """The base of the writing halves of plain and timestamped window stores."""

    def observe(self, time: int) -> None:
        """Move the observed stream time to ``time``, if that is later."""
        self._segments.advance(time)

    def flush(self) -> None:
        if self._sequence != self._saved_sequence:
            self.keep_metadata(SEQUENCE_NAME, _SEQUENCE.pack(self._sequence))
            self._saved_sequence = self._sequence
        self._segments.save(self)
        super().flush()

    def _set_back(self, done: SetBack) -> None:
        self._segments.set_back(done, self._rest)

    def _put_many(self, keys: Iterable[K], data: Sequence[bytes | None], window_starts: Sequence[int]) -> None:
        if self._duplicates:
            for key, value, start in zip(keys, data, window_starts, strict=True):
                self._put(key, value, start)
        elif window_starts:
            rows = self._segments.rows(map(terminated, self._keys_bytes(keys)), window_starts)
            self._segments.put(window_starts, zip(rows, data, strict=True))

    def _put(self, key: K, data: bytes | None, window_start: Instant) -> None:
        encoded = terminated(self._key_bytes(key))
        if self._duplicates and data is None:
            return
        time = to_instant(window_start, "window_start")
        if not self._segments.advance(time):
            return
        row = self._segments.row_to_write(encoded, time)
        if self._duplicates:
            self._sequence += 1
            row += _SEQUENCE.pack(self._sequence)
        self._write(row, data)


class WindowStore(WritableWindowStore[K, V]):
    """A value per key and window.

    >>> from millpond.stores.backend.memory import MemoryBackend
    >>> from millpond.stores.encoding.serdes import INT64, STRING
    >>> store = WindowStore("counts", Transaction(MemoryBackend()), STRING, INT64, retention=1000, window_size=10)
    >>> store.put("a", 1, 0)
    >>> store.put("a", 2, 10)
    >>> list(store.fetch_all(earliest=5))
    [(Windowed(key='a', start=10, end=20), 2)]
    """

    def put(self, key: K, value: V | None, window_start: Instant) -> None:
        """Set the value of ``key`` in the window that starts then; None deletes it.

        A window that has already expired is not put. With ``retain_duplicates`` None does nothing at all.
        """
        self._put(key, None if value is None else self._encode_value(value), window_start)

    def number_puts(self, count: int) -> int:
        """Take the next numbers for so many puts of a store with duplicates; return the one before the first."""
        before = self._sequence
        self._sequence += count
        return before

    def begin_batch(self) -> WindowBatch[V]:
        """Return this store, which has duplicates, as the records of a batch see it; end it with ``write_batch``."""
        return WindowBatch(self._segments, self._decode_value)

    def write_batch(self, batch: WindowBatch[V]) -> None:
        """Write the puts of a batch; the store must not have been written since ``begin_batch``."""
        rows, self._sequence = batch.to_write(self._sequence)
        self._write_many(rows)


def _bounds(earliest: Instant | None, latest: Instant | None) -> tuple[int, int]:
    return (
        MIN_TIME if earliest is None else to_instant(earliest, "earliest"),
        MAX_TIME if latest is None else to_instant(latest, "latest"),
    )
