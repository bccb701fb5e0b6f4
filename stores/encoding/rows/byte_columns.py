"""Binary columns made of numbers' bytes, and byte strings read side by side.

Rule of this module: it knows bytes and their places, but not their meaning.
"""

from collections.abc import Sequence
from typing import Any, Final, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as _compute

pc: Any = _compute

Array: TypeAlias = Any
"""An Arrow array."""

Integers: TypeAlias = npt.NDArray[np.int64]
Bytes: TypeAlias = npt.NDArray[np.uint8]
Mask: TypeAlias = npt.NDArray[np.bool_]

SPARE: Final = 18
"""The number of bytes that may be read behind the last one."""


def buffer(data: Any) -> pa.Buffer:
    """Return a buffer around an array of NumPy."""
    return pa.py_buffer(data)


def binary_of(matrix: Bytes, lengths: Integers | None = None) -> Array:
    """Return the first bytes of each row of a matrix, as a binary column; by default all of them."""
    size, width = matrix.shape
    offsets = np.zeros(size + 1, np.int32)
    if lengths is None:
        lengths = np.full(size, width, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    longest = int(lengths.max()) if size else width
    if offsets[-1] == size * longest:
        data = np.ascontiguousarray(matrix[:, :longest])
    else:
        data = matrix[np.arange(width) < lengths[:, None]]
    return pa.Array.from_buffers(pa.binary(), size, [None, buffer(offsets), buffer(data)])


def headed(head: Sequence[int], bodies: Bytes, nulls: Mask | None, null: int) -> Array:
    """Return the rows of a matrix behind the same first bytes, as a binary column, with one byte for each null."""
    matrix = np.empty((len(bodies), len(head) + bodies.shape[1]), np.uint8)
    matrix[:, : len(head)] = head
    matrix[:, len(head) :] = bodies
    if nulls is None:
        return binary_of(matrix)
    matrix[nulls, 0] = null
    return binary_of(matrix, np.where(nulls, 1, matrix.shape[1]))


def or_null(column: Array, made: Array, null: int) -> Array:
    """Return the bytes made of the values of a column, with one byte for each null."""
    return pc.if_else(column.is_valid(), made, pa.scalar(bytes([null]))) if column.null_count else made


def runs_of(elements: Array, ends: Integers) -> Array:
    """Return neighboring values of a binary column without nulls, joined as they lie there.

    Args:
        elements: the values.
        ends: the bounds of the runs among them: n + 1 numbers for n runs.
    """
    bounds = buffer(offsets_of(elements)[ends])
    return pa.Array.from_buffers(pa.binary(), len(ends) - 1, [None, bounds, elements.buffers()[2]])


def offsets_of(column: Array) -> npt.NDArray[np.int32]:
    """Return the offsets at which the values of a binary column begin in its data, and the end of the last one."""
    if not len(column):
        return np.zeros(1, np.int32)
    return np.frombuffer(column.buffers()[1], np.int32, len(column) + 1, column.offset * 4)


class SideBySide:
    """Byte strings that are read side by side: one part of all of them, then the next.

    Args:
        data: the bytes of all, and ``SPARE`` behind them.
        at: the place at which each is read next.
        ends: the end of each.
    """

    def __init__(self, data: Bytes, at: Integers, ends: Integers) -> None:
        self.data = data
        self.at = at
        self.ends = ends

    @classmethod
    def of(cls, column: Array) -> Self:
        """Return the values of a binary column without nulls."""
        offsets = offsets_of(column).astype(np.int64)
        data = np.zeros(int(offsets[-1] - offsets[0]) + SPARE, np.uint8)
        if len(data) > SPARE:
            data[:-SPARE] = np.frombuffer(column.buffers()[2], np.uint8)[offsets[0] : offsets[-1]]
        return cls(data, offsets[:-1] - offsets[0], offsets[1:] - offsets[0])

    def first_bytes(self) -> Bytes:
        """Return the byte at the place of each.

        Raises:
            pyarrow.ArrowInvalid: one has no more.
        """
        if (self.at >= self.ends).any():
            raise pa.ArrowInvalid("the bytes end too early")
        found: Bytes = self.data[self.at]
        return found

    def go_to(self, at: Integers) -> None:
        """Go on from these places.

        Raises:
            pyarrow.ArrowInvalid: one is behind the end.
        """
        if (at > self.ends).any():
            raise pa.ArrowInvalid("the bytes end too early")
        self.at = at

    def finish(self) -> None:
        """Refuse bytes that have not been read.

        Raises:
            pyarrow.ArrowInvalid: there are some.
        """
        if (self.at != self.ends).any():
            raise pa.ArrowInvalid("the bytes go on behind the last value")


def texts_at(data: Bytes, starts: Integers, lengths: Integers, validity: pa.Buffer | None, type_: Any) -> Array:
    """Return a column of strings or bytes that lie at these places, one behind the other.

    Raises:
        pyarrow.ArrowInvalid: they are too many bytes or lie otherwise, or a string is not UTF-8.
    """
    size = len(starts)
    # Every other part of the bytes between the first text and the end of the last is a text.
    bounds = np.stack([starts, starts + lengths], axis=1).ravel()
    if not size:
        return pa.array([], type_)
    if bounds[0] < 0 or (bounds[1:] < bounds[:-1]).any() or bounds[-1] > min(len(data), np.iinfo(np.int32).max):
        raise pa.ArrowInvalid("the bytes do not lie one behind the other, or are too many for a column")
    parts = pa.Array.from_buffers(type_, 2 * size - 1, [None, buffer(bounds.astype(np.int32)), buffer(data)])
    places = pa.Array.from_buffers(pa.int64(), size, [validity, buffer(np.arange(0, 2 * size, 2))])
    texts = parts.take(places)
    if pa.types.is_string(type_):
        texts.validate(full=True)
    return texts
