"""Rows of versioned stores (KIP-889): one RocksDB, whose keys begin with the number of a segment.

::

    latest      ffffffffffffffff key -> valid_from (8) value
    older       segment (8) key      -> valid_to (8) least (8) { valid_from (8) size (4, signed) }* value*

``valid_to`` is where the row's newest version ends. The list has the newest version first, and ends with the one that
is valid from ``least`` on; each version ends where the one before it in the list begins. A size of -1 is a tombstone.
The values come the other way, oldest first, without gaps. A tombstone that followed nothing begins and ends at the same
time. A row lies in the segment of the times at which its versions end: number = time // interval. The interval is not
in the directory, but there must be one with which all rows are where they belong.

``k`` with ``a`` from 4 to 15, in the next segment a tombstone from 15 to 21 and ``b`` from 21 to 25, and ``c`` from 25
on (interval 10)::

    0000000000000001 6b -> 000000000000000f 0000000000000004  0000000000000004 00000001  61
    0000000000000002 6b -> 0000000000000019 000000000000000f  0000000000000015 00000001  000000000000000f ffffffff  62
    ffffffffffffffff 6b -> 0000000000000019 63
"""

import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from millpond.adapters.kafka_streams.entries import LONG, Entries, Entry, Row, unreadable

LATEST: Final = -1
"""The number of the segment of latest versions."""

_HEAD: Final = struct.Struct(">qq")
_ITEM: Final = struct.Struct(">qi")
_TOMBSTONE: Final = -1


class Interval:
    """The lengths of a segment that are possible after all rows that have been seen."""

    def __init__(self) -> None:
        self._least = 1
        self._greatest = 2**63 - 1

    def check(self, row: Row, segment: int, entries: Sequence[Entry]) -> None:
        """Take account of a row's versions.

        Raises:
            UnreadableRowError: no length is possible with this row and those before.
        """
        ends = [entry.end for entry in entries if entry.end is not None]
        self._least = max(self._least, max(ends) // (segment + 1) + 1)
        if segment > 0:
            self._greatest = min(self._greatest, min(ends) // segment)
        if self._least > self._greatest:
            raise unreadable(
                row, f"versions that end in segment {segment}, not from {min(ends)} to {max(ends)}, as other rows do"
            )


class KeyedVersions(NamedTuple):
    """The entries that one row has for its key."""

    key: bytes
    entries: list[Entry]
    row: Row


def versions_of(row: Row, interval: Interval) -> KeyedVersions:
    """Return the versions of a row, oldest first, as they stand in it.

    Raises:
        UnreadableRowError: it is no row of a versioned store.
    """
    segment, key = segment_of(row), row.key[LONG.size :]
    if segment == LATEST:
        return KeyedVersions(key, [_latest(key, row)], row)
    if segment < 0:
        raise unreadable(row, f"a key after the number of a segment, which is {LATEST} or more, not {segment}")
    entries = list(_older(key, row))
    interval.check(row, segment, entries)
    return KeyedVersions(key, entries, row)


def segment_of(row: Row) -> int:
    """Return the number of the row's segment."""
    if len(row.key) < LONG.size:
        raise unreadable(row, f"a key after the number of a segment, {LONG.size} bytes")
    number: int = LONG.unpack_from(row.key)[0]
    return number


def history(found: Sequence[KeyedVersions]) -> Entries:
    """Yield all versions of one key, oldest first, from all its rows; a tombstone where there was no value any more.

    Raises:
        UnreadableRowError: two versions are valid at the same time.
    """
    stood = [(entry, versions.row) for versions in found for entry in versions.entries]
    stood.sort(key=lambda each: (each[0].start, each[0].end is None, each[0].end))
    line: list[Entry] = []
    for entry, row in stood:
        _append(line, entry, row)
    if line and line[-1].value is not None and line[-1].end is not None:
        line.append(_tombstone(line[-1]))
    starts = [entry.start for entry in line[1:]]
    for entry, following in zip(line, (*starts, None), strict=True):
        yield entry if entry.value is not None else entry._replace(end=following)


def _append(line: list[Entry], entry: Entry, row: Row) -> None:
    if line:
        last, start = line[-1], entry.start
        assert start is not None, "a version has a start"
        if last.end is None or last.end > start:
            raise unreadable(row, f"versions one after the other, but one from {last.start} is still valid at {start}")
        if last.start == start:
            line.pop()
        elif last.value is not None and last.end < start:
            line.append(_tombstone(last))
    line.append(entry)


def _tombstone(last: Entry) -> Entry:
    """Return the tombstone that follows a version that no other version follows."""
    return Entry(last.key, None, last.end, last.end, last.end)


def _latest(key: bytes, row: Row) -> Entry:
    if len(row.value) < LONG.size:
        raise unreadable(row, f"the time from which the latest version is valid, {LONG.size} bytes, before the value")
    start: int = LONG.unpack_from(row.value)[0]
    if start < 0:
        raise unreadable(row, f"a latest version that is valid from a time that is not negative, not {start}")
    return Entry(key, row.value[LONG.size :], start, start)


def _older(key: bytes, row: Row) -> Iterator[Entry]:
    valid_to, items = _items(row)
    sizes = [max(size, 0) for _, size in items]
    at = _HEAD.size + len(items) * _ITEM.size
    if at + sum(sizes) != len(row.value):
        raise unreadable(row, f"values of {sum(sizes)} bytes, as its list says, not {len(row.value) - at}")
    ends = [valid_to, *(start for start, _ in items[:-1])]
    for (start, size), end in zip(reversed(items), reversed(ends), strict=True):
        value = None if size == _TOMBSTONE else row.value[at : at + size]
        at += max(size, 0)
        yield Entry(key, value, start, start, end)


def _items(row: Row) -> tuple[int, list[tuple[int, int]]]:
    """Return the time at which the newest version ends, and start and size of each version, newest first."""
    if len(row.value) < _HEAD.size + _ITEM.size:
        raise unreadable(row, f"the list of a key's versions, at least {_HEAD.size + _ITEM.size} bytes")
    valid_to, least = _HEAD.unpack_from(row.value)
    items: list[tuple[int, int]] = []
    before = valid_to
    for at in range(_HEAD.size, len(row.value) - _ITEM.size + 1, _ITEM.size):
        start, size = _ITEM.unpack_from(row.value, at)
        if size < _TOMBSTONE:
            raise unreadable(row, f"the size of a value, or {_TOMBSTONE} for a tombstone, not {size}")
        ends_at_once = start == before and not items and size == _TOMBSTONE
        if not (0 <= least <= start and (start < before or ends_at_once)):
            raise unreadable(row, f"versions from {least} to {before}, newest first, not one from {start}")
        items.append((start, size))
        before = start
        if start == least:
            return valid_to, items
    raise unreadable(row, f"a list of versions that ends with the one from {least}")
