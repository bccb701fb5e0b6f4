"""Packed rows with a packed foreign key in front, so that a join need not unpack a row to know whose row it wants.

Rule of this module: these bytes are written and read here and nowhere else. ::

    01, length of the key (4 bytes, big-endian), key, row
    01, ffffffff, row                                        a row whose foreign key has a null, which equals nothing

The first byte is the version of this form.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from millpond.errors import FormatError, UnreadableRowError
from millpond.stores.encoding.rows.tuple_keys import KeyCodec, null_rows

FOREIGN: Final = b"\x01"
"""What such a row begins with; a row itself is an array of MessagePack, which never does."""

_NO_KEY: Final = b"\xff\xff\xff\xff"
_HEAD: Final = len(FOREIGN) + len(_NO_KEY)


def with_foreign_keys(
    codec: KeyCodec, columns: pa.Table, rows: Sequence[bytes], *, null_safe: bool = False
) -> list[bytes]:
    """The packed rows with the foreign keys that their columns make; one with a null is a key only if so it is said."""
    heads = [FOREIGN + len(key).to_bytes(4) + key for key in codec.pack(columns)]
    for i in [] if null_safe else np.flatnonzero(null_rows(columns)).tolist():
        heads[i] = FOREIGN + _NO_KEY
    return [head + row for head, row in zip(heads, rows, strict=True)]


def foreign_key_of(value: bytes) -> bytes | None:
    """The packed foreign key; None if it has a null.

    Raises:
        FormatError: the value is of a version that this release does not know.
        UnreadableRowError: the value is damaged.
    """
    end = _end(value)
    return value[_HEAD:end] if end > _HEAD else None


def without_foreign_key(value: bytes) -> bytes:
    """The packed row.

    Raises:
        FormatError: the value is of a version that this release does not know.
        UnreadableRowError: the value is damaged.
    """
    return value[_end(value) :]


def _end(value: bytes) -> int:
    """Where the key ends and the row begins."""
    if not value:
        raise UnreadableRowError("a row with a foreign key is empty")
    if value[:1] != FOREIGN:
        raise FormatError(
            f"a row with a foreign key is of version {value[0]}, but this release knows only {FOREIGN[0]}; run the "
            "release that wrote it, or a newer one"
        )
    length = value[1:_HEAD]
    end = _HEAD if length == _NO_KEY else _HEAD + int.from_bytes(length)
    if end > len(value):
        raise UnreadableRowError(f"the row with a foreign key {value[:40]!r} ends before its key does")
    return end
