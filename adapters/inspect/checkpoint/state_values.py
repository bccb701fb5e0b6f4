"""Values of Spark's state: rows of Spark's own form, each with a version and a text (``kept_manifest``).

Rule of this module: these bytes are read here and nowhere else, and every byte that says what the form is must be as
expected. A value is::

    00, nulls (8 bytes), version (4 bytes, then 4 of filling), size and place of the text (4 bytes each), text

all little-endian, the text filled up to 8 bytes. Where rows have checksums (Spark 4.1), 4 bytes of checksum come before
it, and 4 of its length. The key begins with the id of the column family (2 bytes).
"""

from struct import Struct
from typing import Final

from millpond.errors import SparkStateError

FAMILY_SIZE: Final = 2

_ENCODING: Final = b"\x00"

_ROW: Final = Struct("<Qi4xII")

_WORD: Final = 8

_HEADS: Final = (0, 8)
"""The number of bytes before a value without and with a checksum."""


def family_of(key: bytes) -> int:
    """Return the id of the column family that a key belongs to."""
    return int.from_bytes(key[:FAMILY_SIZE], "little")


def columns_in(value: bytes) -> tuple[int, str]:
    """Return the version and the text that a value holds.

    Raises:
        FormatError: the value is in another form, or damaged.
    """
    for head in _HEADS:
        found = _row(value[head:])
        if found is not None and (not head or int.from_bytes(value[4:8], "little") == len(value) - head):
            return found
    raise SparkStateError(f"it holds a value of {len(value)} bytes that holds no manifest in Spark's form of rows")


def _row(value: bytes) -> tuple[int, str] | None:
    """Return the two columns of a row; None if this is no such row."""
    row = value[len(_ENCODING) :]
    if not value.startswith(_ENCODING) or len(row) < _ROW.size:
        return None
    nulls, version, size, place = _ROW.unpack_from(row)
    if nulls or place != _ROW.size or len(row) != place + -(-size // _WORD) * _WORD:
        return None
    try:
        return version, row[place : place + size].decode()
    except UnicodeDecodeError:
        return None
