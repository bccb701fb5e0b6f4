"""The messages of the foreign-key join as Arrow columns of bytes: what ``messages`` draws, many at a time.

Rule of this module: the bytes are the same as message by message, and no Python object is made of a
message or of a part of one. A message of another form raises ``pyarrow.ArrowInvalid``, and then reading message
by message tells what it is.
"""

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as _compute

from millpond.processors.runtime.batches.columns import Array, valid
from millpond.processors.tables.foreign_key.messages import NO_HASH, RESPONSE_VERSION, Content, Instruction
from millpond.processors.tables.foreign_key.murmur3 import HASH_SIZE, murmur3_128_of
from millpond.stores.encoding.column_keys import TO_THE_END
from millpond.stores.encoding.column_serdes import ColumnSerde, column_serde
from millpond.stores.encoding.serdes import Serde

pc: Any = _compute
Integers = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Booleans = npt.NDArray[np.bool_]

_HEAD: Final = 2
_FLAG: Final = 1


class Messages(NamedTuple):
    """Subscriptions or responses.

    Attributes:
        hashes: the hashes of the left values, an Arrow array of bytes; null where there is none.
        numbers: the instructions or contents.
        rests: the primary keys or the foreign values, an Arrow array of bytes.
    """

    hashes: Array
    numbers: Bytes
    rests: Array

    def select(self, keep: Booleans) -> "Messages":
        """Return the messages whose entry in ``keep`` is true; these themselves if all are."""
        if keep.all():
            return self
        mask: Any = pa.array(keep)
        return Messages(self.hashes.filter(mask), self.numbers[keep], self.rests.filter(mask))


class LeftRows(NamedTuple):
    """Left rows; a missing one is null in all columns, and names nothing.

    Attributes:
        named: a mask of the rows that name a foreign key.
        hashes: the hashes of the values, an Arrow array of bytes.
        values: their bytes.
    """

    named: Booleans
    hashes: Array
    values: Array


def column_serdes(*serdes: Serde[Any]) -> list[ColumnSerde] | None:
    """Return the serdes for whole columns; None if one of them needs objects."""
    known = [columns for columns in map(column_serde, serdes) if columns is not None]
    return known if len(known) == len(serdes) else None


class _Raw:
    """The bytes of a column of the type ``binary``.

    Attributes:
        data: the bytes of all entries.
        starts, lengths: the start of each entry in ``data``, and its length.
    """

    def __init__(self, column: Array) -> None:
        if column.type != pa.binary():
            raise pa.ArrowInvalid(f"a column of {column.type} holds no messages")
        offsets: Any = np.zeros(1, np.int32)
        if len(column):
            offsets = np.frombuffer(column.buffers()[1], np.int32, len(column) + 1, column.offset * 4)
        whole = column.buffers()[2]
        self.data: Bytes = np.zeros(0, np.uint8) if whole is None else np.frombuffer(whole, np.uint8)
        self.starts: Integers = offsets[:-1].astype(np.int64)
        self.lengths: Integers = np.diff(offsets).astype(np.int64)


def subscription_column(hashes: Array, instructions: Bytes, primary_keys: Array) -> Array:
    """Return the bytes of subscriptions without a partition; a null hash is none."""
    return _messages(0, hashes, instructions, primary_keys)


def response_column(hashes: Array, contents: Bytes, foreign_values: Array) -> Array:
    """Return the bytes of responses; a null hash is none, and a null value is no bytes."""
    return _messages(RESPONSE_VERSION, hashes, contents, foreign_values)


def read_subscription_column(messages: Array) -> Messages:
    """Return the parts of subscriptions without a partition.

    Raises:
        pyarrow.ArrowInvalid: one is something else.
    """
    return _read_messages(0, len(Instruction), messages)


def read_response_column(messages: Array) -> Messages:
    """Return the parts of responses.

    Raises:
        pyarrow.ArrowInvalid: one is something else.
    """
    return _read_messages(RESPONSE_VERSION, len(Content), messages)


def left_row_column(named: Booleans, hashes: Array, values: Array) -> Array:
    """Return the bytes of left rows; null where hash and value are."""
    return pc.binary_join_element_wise(_fixed(named.astype(np.uint8)[:, None]), hashes, values, b"")


def read_left_row_column(rows: Array) -> LeftRows:
    """Return the parts of left rows, null where they are.

    Raises:
        pyarrow.ArrowInvalid: one is something else.
    """
    raw = _Raw(rows)
    there = valid(rows)
    if (raw.lengths[there] < _FLAG + HASH_SIZE).any():
        raise pa.ArrowInvalid("a left row is too short")
    flags = np.zeros(len(rows), np.uint8)
    flags[there] = raw.data[raw.starts[there]]
    if (flags > 1).any():
        raise pa.ArrowInvalid("a left row begins with something else than its flag")
    value_at = _FLAG + HASH_SIZE
    hashes, values = pc.binary_slice(rows, _FLAG, value_at), pc.binary_slice(rows, value_at, TO_THE_END)
    return LeftRows(flags == 1, hashes, values)


def combined_key_column(foreign_keys: Array, primary_keys: Array) -> Array:
    """Return the combined keys of foreign and primary keys, all of them bytes."""
    lengths: Any = pc.binary_length(foreign_keys).to_numpy()
    sizes = np.frombuffer(lengths.astype(">u4").tobytes(), np.uint8).reshape(len(lengths), 4)
    return pc.binary_join_element_wise(_fixed(sizes), foreign_keys, primary_keys, b"")


def hash_column(values: Array) -> Array:
    """Return the hash of each of many byte strings; null stays null."""
    raw = _Raw(values)
    hashes = _fixed(murmur3_128_of(raw.data, raw.starts, raw.lengths))
    return pc.if_else(values.is_valid(), hashes, pa.scalar(None, pa.binary())) if values.null_count else hashes


def _messages(version: int, hashes: Array, numbers: Bytes, rests: Array) -> Array:
    heads = np.empty((len(numbers), _HEAD), np.uint8)
    heads[:, 0] = version
    heads[:, 0] |= ~valid(hashes) * np.uint8(NO_HASH)
    heads[:, 1] = numbers
    parts = (one.fill_null(b"") if one.null_count else one for one in (hashes, rests))
    return pc.binary_join_element_wise(_fixed(heads), *parts, b"")


def _read_messages(version: int, kinds: int, messages: Array) -> Messages:
    raw = _Raw(messages)
    if messages.null_count or (raw.lengths < _HEAD).any():
        raise pa.ArrowInvalid("a message is too short")
    first, numbers = raw.data[raw.starts], raw.data[raw.starts + 1]
    hashed = first < NO_HASH
    whole = np.where(hashed, _HEAD + HASH_SIZE, _HEAD) <= raw.lengths
    if not whole.all() or ((first & ~np.uint8(NO_HASH)) != version).any() or (numbers >= kinds).any():
        raise pa.ArrowInvalid("a message is of another version or kind")
    rest_at = _HEAD + HASH_SIZE
    hashes, rests = pc.binary_slice(messages, _HEAD, rest_at), pc.binary_slice(messages, rest_at, TO_THE_END)
    if not hashed.all():
        there: Any = pa.array(hashed)
        hashes = pc.if_else(there, hashes, pa.scalar(None, pa.binary()))
        rests = pc.if_else(there, rests, pc.binary_slice(messages, _HEAD, TO_THE_END))
    return Messages(hashes, numbers, rests)


def _fixed(rows: Bytes) -> Array:
    """Return rows of bytes as a column of byte strings."""
    width = rows.shape[1]
    whole: Any = np.ascontiguousarray(rows)
    buffer = pa.py_buffer(whole)
    return pa.Array.from_buffers(pa.binary(width), len(rows), [None, buffer]).cast(pa.binary())
