"""Entries, which the rows of a Kafka Streams store are read as, and the errors for rows that cannot be read.

Rule of this module: it knows the rows of key-value stores alone. The modules of the other formats make entries of
theirs, and raise ``unreadable`` for rows that they cannot read. Key-value stores have::

    column family default                   key -> value
    column family keyValueWithTimestamp     key -> timestamp (8, signed) value

A timestamped store that was opened on the directory of a plain one has rows in both: Kafka Streams moves a row when it
is next used. Those that still lie in ``default`` have the timestamp -1.
"""

import struct
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, TypeAlias

from millpond.errors import UnreadableRowError
from millpond.stores.typed.timestamped_keyvalue import UNKNOWN_TIMESTAMP

LONG: Final = struct.Struct(">q")
"""The form of the Java client's times: eight bytes, signed, big-endian."""


class Row(NamedTuple):
    """A key and a value as they lie in RocksDB.

    Attributes:
        key: the row's key.
        value: its value.
        where: the store and its files; for errors alone.
    """

    key: bytes
    value: bytes
    where: Callable[[bytes], str]


class Entry(NamedTuple):
    """A value of a store.

    Attributes:
        key: the user's key.
        value: the user's value; None for a tombstone, which only versioned stores have.
        timestamp: of the value, -1 where Kafka Streams does not know it; None in plain stores. Of a version, the time
            from which it is valid.
        start: of a window or session, or of a version's validity.
        end: of a session, which it includes, or of a version's validity, which it does not; None for the latest. None
            for windows as well: how long they are is not in the directory.
        sequence: of a window store that retains duplicates, the number of the put.
    """

    key: bytes
    value: bytes | None
    timestamp: int | None
    start: int | None = None
    end: int | None = None
    sequence: int = 0


Rows: TypeAlias = Iterator[Row]
Entries: TypeAlias = Iterator[Entry]


def unreadable(row: Row, expected: str) -> UnreadableRowError:
    """Return the error for a row that is not what its format says."""
    return UnreadableRowError(
        f"{row.where(row.key)}: the row with the key 0x{row.key.hex()} cannot be read: expected {expected}; its value "
        f"has {len(row.value)} bytes: 0x{row.value[:40].hex()}{'...' if len(row.value) > 40 else ''}. Unless another "
        "--kind is right, the directory is damaged; copy it again while the application is stopped, or delete that of "
        "the task, start the application, which restores it from its changelogs, and stop it"
    )


def timestamped(row: Row) -> tuple[int, bytes]:
    """Return the timestamp before the row's value, and the value.

    ::

        timestamp (8, signed; -1 if it is not known) value

    Raises:
        UnreadableRowError: there is no such timestamp.
    """
    if len(row.value) < LONG.size:
        raise unreadable(row, f"a timestamp of {LONG.size} bytes before the value")
    timestamp: int = LONG.unpack_from(row.value)[0]
    if timestamp < -1:
        raise unreadable(row, f"a timestamp that is not negative, or -1, not {timestamp}")
    return timestamp, row.value[LONG.size :]


def plain_entry(row: Row) -> Entry:
    """Return the entry of a plain store."""
    return Entry(row.key, row.value, None)


def timestamped_entry(row: Row) -> Entry:
    """Return the entry of a row in ``keyValueWithTimestamp``."""
    timestamp, value = timestamped(row)
    return Entry(row.key, value, timestamp)


def untimed_entry(row: Row) -> Entry:
    """Return the entry of a timestamped store's row that still lies in ``default``."""
    return Entry(row.key, row.value, UNKNOWN_TIMESTAMP)
