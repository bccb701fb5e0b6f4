"""Rows of window and session stores, which lie in one RocksDB for each segment of time, ``<store>.<start>``.

::

    window                  key start (8) sequence (4) -> value
    timestamped window      key start (8) sequence (4) -> timestamp (8) value    (column family keyValueWithTimestamp)
    session                 key end (8) start (8)      -> value

``sequence`` is 0, but in stores that retain duplicates, where it counts the puts from 1 on. A row lies in the segment
of its window's start, or its session's end. That tells the rows of a kind from those of another.
"""

import struct
from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from millpond.adapters.kafka_streams.entries import Entry, Row, timestamped, unreadable
from millpond.stores.typed.timestamped_keyvalue import UNKNOWN_TIMESTAMP

_WINDOW: Final = struct.Struct(">qi")
_SESSION: Final = struct.Struct(">qq")


class Span(NamedTuple):
    """The times of a segment: from ``start`` to before ``stop``; None where the directories do not tell."""

    start: int
    stop: int | None

    def __contains__(self, time: object) -> bool:
        return isinstance(time, int) and self.start <= time and (self.stop is None or time < self.stop)

    def __str__(self) -> str:
        return f"from {self.start} on" if self.stop is None else f"from {self.start} to {self.stop - 1}"


InSegment: TypeAlias = Callable[[Row, Span], Entry]


def window_entry(row: Row, span: Span) -> Entry:
    """Return the entry of a plain window store's row."""
    key, start, sequence = _window(row, span)
    return Entry(key, row.value, None, start, sequence=sequence)


def timestamped_window_entry(row: Row, span: Span) -> Entry:
    """Return the entry of a row in ``keyValueWithTimestamp``."""
    key, start, sequence = _window(row, span)
    timestamp, value = timestamped(row)
    return Entry(key, value, timestamp, start, sequence=sequence)


def untimed_window_entry(row: Row, span: Span) -> Entry:
    """Return the entry of a timestamped window store's row that still lies in ``default``."""
    key, start, sequence = _window(row, span)
    return Entry(key, row.value, UNKNOWN_TIMESTAMP, start, sequence=sequence)


def session_entry(row: Row, span: Span) -> Entry:
    """Return the entry of a session store's row."""
    if len(row.key) < _SESSION.size:
        raise unreadable(row, f"a key with the end and the start of a session, {_SESSION.size} bytes, behind it")
    end, start = _SESSION.unpack_from(row.key, len(row.key) - _SESSION.size)
    if end not in span:
        raise unreadable(row, f"a session that ends in its segment, {span}, not at {end}")
    if not 0 <= start <= end:
        raise unreadable(row, f"a session that starts from 0 to its end, {end}, not at {start}")
    return Entry(row.key[: -_SESSION.size], row.value, None, start, end)


def _window(row: Row, span: Span) -> tuple[bytes, int, int]:
    if len(row.key) < _WINDOW.size:
        raise unreadable(row, f"a key with the start of a window and a sequence, {_WINDOW.size} bytes, behind it")
    start, sequence = _WINDOW.unpack_from(row.key, len(row.key) - _WINDOW.size)
    if start not in span:
        raise unreadable(row, f"a window that starts in its segment, {span}, not at {start}")
    if sequence < 0:
        raise unreadable(row, f"a sequence that is not negative, not {sequence}")
    return row.key[: -_WINDOW.size], start, sequence
