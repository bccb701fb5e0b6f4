"""Packed rows with a packed foreign key in front, so that a join need not unpack a row to know whose row it wants.

Rule of this module: these bytes are written and read here and nowhere else. ::

    01, length of the key (4 bytes, big-endian), key, row
    01, ffffffff, row                                        a row whose foreign key has a null, which equals nothing

The first byte is the version of this form.
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as _compute

from millpond.errors import FormatError, UnreadableRowError
from millpond.processors.runtime.batches.columns import valid
from millpond.stores.encoding.nulls import spread
from millpond.stores.encoding.rows.byte_columns import Array, Mask, binary_of, buffer, offsets_of
from millpond.stores.encoding.rows.tuple_keys import KeyCodec, null_rows

pc: Any = _compute

FOREIGN: Final = b"\x01"
"""The first byte of such a row; a row itself is an array of MessagePack, which never begins so."""

_NO_KEY: Final = b"\xff\xff\xff\xff"
_HEAD: Final = len(FOREIGN) + len(_NO_KEY)
_NONE: Final = int.from_bytes(_NO_KEY)
_PARTS: Final = 3
_KEY: Final = 1
_ROW: Final = 2
"""The number of a value's parts, and the places of the key and the row among them."""


def with_foreign_keys(codec: KeyCodec, columns: pa.Table, rows: Array, *, null_safe: bool = False) -> Array:
    """Return packed rows behind the foreign keys of their columns; one with a null is a key only if ``null_safe``."""
    keys = codec.pack_columns(columns)
    lengths: Any = pc.binary_length(keys).to_numpy().astype(">u4")
    heads = np.empty((len(keys), _HEAD), np.uint8)
    heads[:, 0] = FOREIGN[0]
    heads[:, 1:] = lengths[:, None].view(np.uint8)
    if not null_safe:
        lacking = null_rows(columns)
        heads[lacking, 1:] = 0xFF
        keys = pc.if_else(pa.array(lacking), b"", keys)
    return pc.binary_join_element_wise(binary_of(heads), keys, rows, b"")


def foreign_keys_of(values: Array) -> Array:
    """Return ``foreign_key_of`` for a column, null for null; raise what it raises."""
    present = values.drop_null()
    parts, named = _parts(present)
    keys = parts.take(pa.array(_PARTS * np.arange(len(present)) + _KEY, mask=~named))
    return spread(keys, valid(values))


def without_foreign_keys(values: Array) -> Array:
    """Return ``without_foreign_key`` for a column, null for null; raise what it raises."""
    present = values.drop_null()
    parts, _ = _parts(present)
    return spread(parts.take(pa.array(_PARTS * np.arange(len(present)) + _ROW)), valid(values))


def _parts(values: Array) -> tuple[Array, Mask]:
    """Return head, key and row of each value, one after the other, and a mask of values that have a key."""
    values = values.cast(pa.binary())
    bounds = offsets_of(values).astype(np.int64)
    starts, ends = bounds[:-1], bounds[1:]
    for place in np.flatnonzero(ends - starts < _HEAD).tolist():
        _end(values[place].as_py())
    if not len(values):
        return values, np.zeros(0, np.bool_)
    # The parts lie side by side in the values, so that they share their bytes.
    data = values.buffers()[2]
    heads = np.frombuffer(data, np.uint8)[starts[:, None] + np.arange(_HEAD)]
    lengths = np.ascontiguousarray(heads[:, 1:]).view(">u4")[:, 0].astype(np.int64)
    lengths[lengths == _NONE] = 0
    rows = starts + _HEAD + lengths
    for place in np.flatnonzero((heads[:, 0] != FOREIGN[0]) | (rows > ends)).tolist():
        _end(values[place].as_py())
    within = np.stack([starts, starts + _HEAD, rows], axis=1).ravel()
    offsets = np.concatenate([within, ends[-1:]]).astype(np.int32)
    return pa.Array.from_buffers(pa.binary(), len(within), [None, buffer(offsets), data]), lengths > 0


def foreign_key_of(value: bytes) -> bytes | None:
    """Return the packed foreign key; None if it has a null.

    Raises:
        FormatError: the value is of a version that this release does not know.
        UnreadableRowError: the value is damaged.
    """
    end = _end(value)
    return value[_HEAD:end] if end > _HEAD else None


def without_foreign_key(value: bytes) -> bytes:
    """Return the packed row.

    Raises:
        FormatError: the value is of a version that this release does not know.
        UnreadableRowError: the value is damaged.
    """
    return value[_end(value) :]


def _end(value: bytes) -> int:
    """Return the place where the key ends and the row begins."""
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
