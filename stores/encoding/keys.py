r"""Key layouts: the places of a store's rows in its backend, where bytes sort as keys and times do.

The first byte of every row tells its kind::

    0x00 name                     metadata; part of the changelog, except for ``COMMIT_ROW``
    0x01 ...                      data
    0x02 ...                      secondary index; behind eight bytes 0xFF, when to see to an entry that may expire

Where a key is followed by more, it is *terminated*, so that no key's rows lie among another's, whatever the keys are::

    key with each 0x00 written as 0x00 0xFF, then 0x00 0x00

Bytes compare as the keys do: the terminator is less than any byte that could go on, and less than an escaped 0x00. The
row of a key's latest version ends the key with 0x00 0x01 instead, and so comes after those of its older versions. A
time is eight bytes, big-endian, with its sign bit flipped, so that times before 1970 come first.
"""

import struct
from collections.abc import Sequence
from typing import Final

from millpond.errors import CorruptStoreError
from millpond.stores.encoding.times import MIN_TIME, to_instant

METADATA: Final = b"\x00"
DATA: Final = b"\x01"
INDEX: Final = b"\x02"
TIMERS: Final = INDEX + b"\xff" * 8
"""The timers in the secondary index, behind rows that begin with a time: see ``millpond.stores.typed.expiry``."""

BEYOND: Final = b"\x03"
"""A key above every row of a store."""

COMMIT_ROW: Final = b"\x00commit"
"""The row of the position of a local copy. It is local: it must never get into a changelog."""

LAYOUT_ROW: Final = b"\x00layout"
"""The row of a store's layout, the meaning of its rows beyond its kind; see ``millpond.stores.typed.layouts``."""

TERMS_ROW: Final = b"\x00terms"
"""The row of the parameters on which a store's rows depend; see ``millpond.stores.typed.terms``."""

TIME_SIZE: Final = 8
TERMINATOR: Final = b"\x00\x00"
LATEST_END: Final = b"\x00\x01"
"""The end of the key in the row of its latest version: above its terminator, whatever follows that."""

ESCAPED: Final = b"\x00\xff"
"""The bytes of 0x00 within a key where more follows it."""

_TIME = struct.Struct(">Q")


def terminated(key: bytes) -> bytes:
    r"""Return ``key`` so that something can follow it.

    >>> terminated(b"a\x00b")
    b'a\x00\xffb\x00\x00'
    """
    return key.replace(b"\x00", ESCAPED) + TERMINATOR


def latest_row(key: bytes) -> bytes:
    r"""Return the data row after all rows of ``key`` in which a time follows it, and before the rows of other keys.

    >>> latest_row(b"a\x00b")
    b'\x01a\x00\xffb\x00\x01'
    """
    return DATA + key.replace(b"\x00", ESCAPED) + LATEST_END


def unterminated(encoded: bytes) -> bytes:
    """Return the key that ``terminated`` turned into ``encoded``.

    Raises:
        CorruptStoreError: it did not.
    """
    key = encoded[:-2]
    if encoded[-2:] != TERMINATOR:
        raise CorruptStoreError(f"the row key part {encoded!r} does not end in its terminator")
    if b"\x00" not in key:
        return key
    if key.count(b"\x00") != key.count(ESCAPED):
        raise CorruptStoreError(f"the row key part {encoded!r} has its terminator within")
    return key.replace(ESCAPED, b"\x00")


def pack_time(time: int) -> bytes:
    """Return ``time`` as eight bytes that compare as the times do."""
    try:
        return _TIME.pack(time - MIN_TIME)
    except struct.error:
        return _TIME.pack(to_instant(time) - MIN_TIME)  # raises an error that says why it does not fit


def unpack_time(row: bytes, offset: int = 0) -> int:
    """Return the time that ``pack_time`` wrote at ``offset``, which is not negative.

    Raises:
        CorruptStoreError: ``row`` ends before it.
    """
    try:
        time: int = _TIME.unpack_from(row, offset)[0] + MIN_TIME
    except struct.error as error:
        raise _too_short(row) from error
    return time


def unpack_times(rows: Sequence[bytes]) -> list[int]:
    """Return the time that ``pack_time`` wrote at the beginning of each of ``rows``.

    Raises:
        CorruptStoreError: one of them is too short.
    """
    try:
        packed = struct.unpack(f">{len(rows)}Q", b"".join([row[:TIME_SIZE] for row in rows]))
    except struct.error:
        return list(map(unpack_time, rows))  # raises an error that says which is too short
    return [time + MIN_TIME for time in packed]


def last_time(row: bytes) -> int:
    """Return the time in the last eight bytes of ``row``.

    Raises:
        CorruptStoreError: there are fewer.
    """
    try:
        time: int = _TIME.unpack_from(row, len(row) - TIME_SIZE)[0] + MIN_TIME
    except struct.error as error:
        raise _too_short(row) from error
    return time


def _too_short(row: bytes) -> CorruptStoreError:
    return CorruptStoreError(f"{row!r} is too short for the time that it should hold")


def after_prefix(prefix: bytes) -> bytes | None:
    r"""Return the least key above all keys that begin with ``prefix``; None where there is none.

    >>> after_prefix(b"a\xff")
    b'b'
    """
    trimmed = prefix.rstrip(b"\xff")
    return trimmed[:-1] + bytes([trimmed[-1] + 1]) if trimmed else None
