"""The rows of a versioned store, in the format ``LATEST_APART``: a key's latest version is found by one read.

The layout; a tombstone is a version like any other::

    0x01 key (escaped) 0x00 0x01                 valid_from (time) older (0x00 or 0x01) version    the latest
    0x01 key (terminated) valid_from (time)      version                                           an older one

    version    0x01 value, or 0x00 for a tombstone

``older`` says whether the key has older versions. Wherever there are any, there is a latest. All rows of a key are one
range in the order of time, since the end of the latest's key is above any time.

In durable files and in the format ``PLAIN``, each version has a row as older ones have here. That is a *plain* row
below, and the functions of this module lead from one form to the other. The removal of a latest version that leaves no
other in its place also deletes the plain row of its time, because a deletion does not tell the time that durable files
need.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Final, Protocol, TypeAlias

from millpond.errors import CorruptStoreError
from millpond.stores.backend.contract import Changes, Entries
from millpond.stores.encoding.keys import DATA, LATEST_END, TERMINATOR, TIME_SIZE

LIVE: Final = b"\x01"
TOMBSTONE: Final = b"\x00"

ALONE: Final = b"\x00"
"""The byte of a latest version that has no older ones."""
OLDER: Final = b"\x01"
"""The byte of a latest version that has older ones."""

HEAD_SIZE: Final = TIME_SIZE + 1
"""The number of bytes of a latest row's value before the version."""

VALUE_START: Final = HEAD_SIZE + 1
"""The place of the user's value in a latest row's value."""

JUST_ABOVE: Final = b"\x00"
"""The byte that, added to a row, gives the least row that is greater."""

_END_SIZE: Final = 2
_KEY_END: Final = re.compile(rb"\x00[\x00\x01]")
"""The bytes after a key: within it, 0xFF follows each 0x00."""

_PLAIN_END: Final = slice(-TIME_SIZE - _END_SIZE, -TIME_SIZE)

Entry: TypeAlias = tuple[bytes, bytes]


class Rows(Protocol):
    """A place from which rows are read: a backend, or a transaction."""

    def get(self, key: bytes) -> bytes | None: ...

    def scan(self, start: bytes | None = None, stop: bytes | None = None, *, reverse: bool = False) -> Entries: ...


def latest_row_of(encoded_key: bytes) -> bytes:
    """Return the row of the latest version of the key that ``terminated`` turned into ``encoded_key``."""
    return DATA + encoded_key[:-_END_SIZE] + LATEST_END


def history_prefix(latest: bytes) -> bytes:
    """Return the prefix of the rows of older versions, where the latest is at ``latest``."""
    return latest[:-_END_SIZE] + TERMINATOR


def is_latest_row(row: bytes) -> bool:
    """Return whether a data row is a latest version; rows of older versions have their terminator before the time."""
    return row[_PLAIN_END] != TERMINATOR and row[-_END_SIZE:] == LATEST_END


def plain_entry(row: bytes, data: bytes) -> Entry:
    """Return a latest version as a plain row.

    Raises:
        CorruptStoreError: it is too short.
    """
    if len(data) <= HEAD_SIZE:
        raise damaged_latest(data)
    return row[:-_END_SIZE] + TERMINATOR + data[:TIME_SIZE], data[HEAD_SIZE:]


def damaged_latest(data: bytes) -> CorruptStoreError:
    """Return the error for the value of a latest row that cannot be one."""
    return CorruptStoreError(f"the value {data[:20]!r} is no latest version with its time")


def is_tombstone(version: bytes) -> bool:
    """Return whether a version is a tombstone; else it begins with ``LIVE``.

    Raises:
        CorruptStoreError: it is neither.
    """
    if version[:1] == LIVE:
        return False
    if version == TOMBSTONE:
        return True
    raise CorruptStoreError(f"the value {version[:20]!r} is neither a version nor a tombstone")


def plain_bounds(start: bytes, stop: bytes | None) -> tuple[bytes, bytes | None]:
    r"""Return bounds of plain rows that hold all versions of every key with a row within these bounds.

    >>> plain_bounds(b"\x01tea\x00\x01", b"\x01tea\x00\x01\x00")
    (b'\x01tea\x00\x00', b'\x01tea\x00\x01')
    """
    key = _key_end(start)
    first = start if key is None else start[:key] + TERMINATOR
    end = None if stop is None else _key_end(stop)
    return first, stop if stop is None or end is None else stop[:end] + LATEST_END


def _key_end(bound: bytes) -> int | None:
    """Return the end of the key of a data row, if a bound holds all of it; else None."""
    if bound[:1] != DATA:
        return None
    match = _KEY_END.search(bound, 1)
    return None if match is None else match.start()


def plain_entries(entries: Iterable[Entry]) -> Iterator[Entry]:
    """Yield the entries of a store with every version as a plain row, in the same order."""
    for entry in entries:
        row = entry[0]
        yield plain_entry(*entry) if row[:1] == DATA and is_latest_row(row) else entry


def plain_changes(changes: Changes) -> dict[bytes, bytes | None]:
    """Return the changes of a store with every version as a plain row."""
    plain: dict[bytes, bytes | None] = {}
    latest: dict[bytes, bytes] = {}
    for row, data in changes.items():
        if row[:1] != DATA or not is_latest_row(row):
            plain[row] = data
        elif data is not None:
            latest.update((plain_entry(row, data),))
    return plain | latest  # a version that became the latest was taken out of the older ones


def entries_with_latest_apart(entries: Iterable[Entry]) -> Iterator[Entry]:
    """Yield the entries of a store whose versions are plain rows, all of them and in key order, in this format.

    Raises:
        CorruptStoreError: a data row has no room for a key and a time.
    """
    held: Entry | None = None
    older = ALONE
    for row, data in entries:
        if held is not None:
            if held[0][:-TIME_SIZE] == row[:-TIME_SIZE]:
                yield held
                older = OLDER
            else:
                yield _latest(held, older)
                older = ALONE
            held = None
        if row[:1] == DATA:
            _check_plain(row)
            held = row, data
        else:
            yield row, data
    if held is not None:
        yield _latest(held, older)


def changes_with_latest_apart(stored: Rows, changes: Changes) -> dict[bytes, bytes | None]:
    """Return changes whose versions are plain rows, as changes of ``stored``, which has the latest apart.

    Raises:
        CorruptStoreError: a data row has no room for a key and a time.
    """
    found: dict[bytes, bytes | None] = {}
    versions: defaultdict[bytes, dict[bytes, bytes | None]] = defaultdict(dict)
    for row, data in changes.items():
        if row[:1] == DATA:
            _check_plain(row)
            versions[row[:-TIME_SIZE]][row] = data
        else:
            found[row] = data
    for prefix, changed in versions.items():
        found |= _changes_of_key(stored, prefix, changed)
    return found


def _changes_of_key(stored: Rows, prefix: bytes, changed: Mapping[bytes, bytes | None]) -> Mapping[bytes, bytes | None]:
    """Return the changes of one key; these and the stored rows tell which of its versions is the latest."""
    latest = prefix[:-_END_SIZE] + LATEST_END
    before = stored.get(latest)
    plain = dict(() if before is None else (plain_entry(latest, before),)) | dict(changed)
    left = {row: data for row, data in plain.items() if data is not None}
    unchanged = (entry for entry in stored.scan(prefix, latest, reverse=True) if entry[0] not in plain)
    left |= dict(islice(unchanged, 2))  # one may become the latest, and the other tells that it is not alone
    if not left:
        return plain | {latest: None}
    newest = max(left)
    row, data = _latest((newest, left[newest]), OLDER if len(left) > 1 else ALONE)
    plain.pop(newest, None)
    return plain if data == before else plain | {newest: None, row: data}


def _latest(plain: Entry, older: bytes) -> Entry:
    row, data = plain
    return row[: -TIME_SIZE - _END_SIZE] + LATEST_END, row[-TIME_SIZE:] + older + data


def _check_plain(row: bytes) -> None:
    if row[_PLAIN_END] != TERMINATOR:
        raise CorruptStoreError(f"the row {row!r} is not a key with the time of a version")
