"""Packed keys, read back: whole columns at once where all elements are of one length, else key by key.

Rule of this module: it reads what ``millpond.stores.rows.tuple_keys`` writes, and nothing else: other codes than the
type's, or bytes left over, are errors.
"""

import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from millpond.errors import SerdeError
from millpond.stores.rows.key_codes import (
    BINARY,
    END,
    ESCAPED,
    FALSE,
    FLOAT32,
    FLOAT64,
    LIST,
    NULL,
    SIGN,
    STRING,
    STRUCT,
    TRUE,
    WIDE_DECIMAL,
    code_of,
)
from millpond.stores.rows.nested import child_fields
from millpond.stores.rows.physical import from_physical

Reader = Callable[[bytes, int], tuple[Any, int]]
"""Reads the element at an offset: gives its physical value and the offset behind it."""

_UNREADABLE: Final = (LookupError, ValueError, struct.error)
_WORD: Final = struct.Struct(">Q")
_HALF_WORD: Final = struct.Struct(">I")
_DOUBLE: Final = struct.Struct(">d")
_SINGLE: Final = struct.Struct(">f")
_WORD_SIZE: Final = 1 + _WORD.size
_VARIABLE: Final = {NULL, FALSE, FLOAT32, FLOAT64, WIDE_DECIMAL, BINARY, STRING, LIST, STRUCT}


def read_keys(keys: Sequence[bytes], types: Sequence[Any]) -> list[Any]:
    """The columns of packed keys.

    Args:
        keys: what ``KeyCodec.pack`` returned.
        types: of the columns, in their one form.

    Raises:
        SerdeError: a key does not hold elements of these types.
    """
    codes = [code_of(type_) for type_ in types]
    fast = None
    if keys and codes == [STRING]:
        fast = _one_string(keys)
    elif keys and not _VARIABLE.intersection(codes):
        fast = _words(keys, types, codes)
    return _columns(keys, types) if fast is None else fast


def _one_string(keys: Sequence[bytes]) -> list[Any] | None:
    """Keys of one string each, if none of them is null or has an escape."""
    joined = b"".join(keys)
    if joined.count(END) != len(keys) or {key[:1] + key[-1:] for key in keys} != {bytes([STRING]) + END}:
        return None
    return [from_physical([key[1:-1] for key in keys], pa.string())]


def _words(keys: Sequence[bytes], types: Sequence[Any], codes: Sequence[int]) -> list[Any] | None:
    """Keys whose elements are all of eight bytes, if none of them is null."""
    width = _WORD_SIZE * len(codes)
    if set(map(len, keys)) != {width}:
        return None
    table = np.frombuffer(b"".join(keys), np.uint8).reshape(len(keys), len(codes), _WORD_SIZE)
    if not np.all(table[:, :, 0] == codes):
        return None
    numbers = np.ascontiguousarray(table[:, :, 1:]).view(">u8")[:, :, 0].astype(np.uint64) ^ np.uint64(SIGN)
    return [from_physical(numbers.view(np.int64)[:, place].tolist(), type_) for place, type_ in enumerate(types)]


def _columns(keys: Sequence[bytes], types: Sequence[Any]) -> list[Any]:
    read = _sequence([_reader(type_) for type_ in types])
    rows = []
    for place, key in enumerate(keys):
        try:
            row, end = read(key, 0)
            if end < len(key):
                raise ValueError(f"{len(key) - end} bytes too many")
        except _UNREADABLE as error:
            shown = ", ".join(map(str, types))
            raise SerdeError(
                f"key {place} of {len(keys)} ({key.hex()}) is no packed key of {shown}: {error}"
            ) from error
        rows.append(row)
    return [from_physical([row[place] for row in rows], type_) for place, type_ in enumerate(types)]


def _reader(type_: Any) -> Reader:
    """The reader of elements of a type, which may be null."""
    code = code_of(type_)
    some = _some(type_, code)

    def read(data: bytes, start: int) -> tuple[Any, int]:
        found = data[start]
        if found == code:
            return some(data, start + 1)
        if found == NULL:
            return None, start + 1
        if found == TRUE and code == FALSE:
            return True, start + 1
        raise ValueError(f"the code {found:02x} at byte {start} is not {code:02x}, that of {type_}")

    return read


def _some(type_: Any, code: int) -> Reader:
    """The reader of what follows the code."""
    if code == LIST:
        return _list(_reader(type_.value_type))
    if code == STRUCT:
        return _struct(_sequence([_reader(field.type) for field in child_fields(type_)]))
    return _LEAVES.get(code, _word)


def _sequence(readers: Sequence[Reader]) -> Reader:
    def read(data: bytes, start: int) -> tuple[Any, int]:
        values = []
        for element in readers:
            value, start = element(data, start)
            values.append(value)
        return values, start

    return read


def _list(element: Reader) -> Reader:
    def read(data: bytes, start: int) -> tuple[Any, int]:
        values = []
        while data[start]:
            value, start = element(data, start)
            values.append(value)
        return values, start + 1

    return read


def _struct(fields: Reader) -> Reader:
    def read(data: bytes, start: int) -> tuple[Any, int]:
        values, end = fields(data, start)
        if data[end]:
            raise ValueError(f"a struct does not end at byte {end}")
        return values, end + 1

    return read


def _nothing(data: bytes, start: int) -> tuple[Any, int]:
    return None, start


def _false(data: bytes, start: int) -> tuple[Any, int]:
    return False, start


def _word(data: bytes, start: int) -> tuple[Any, int]:
    return _WORD.unpack_from(data, start)[0] - SIGN, start + 8


def _wide_decimal(data: bytes, start: int) -> tuple[Any, int]:
    number = data[start : start + 16]
    return bytes([number[0] ^ 0x80]) + number[1:], start + len(number)


def _float64(data: bytes, start: int) -> tuple[Any, int]:
    bits = _WORD.unpack_from(data, start)[0]
    return _DOUBLE.unpack(_WORD.pack(bits ^ SIGN if bits & SIGN else bits ^ 2**64 - 1))[0], start + 8


def _float32(data: bytes, start: int) -> tuple[Any, int]:
    bits = _HALF_WORD.unpack_from(data, start)[0]
    return _SINGLE.unpack(_HALF_WORD.pack(bits ^ 1 << 31 if bits & 1 << 31 else bits ^ 2**32 - 1))[0], start + 4


def _binary(data: bytes, start: int) -> tuple[Any, int]:
    end = data.index(END, start)
    while data.startswith(ESCAPED, end):
        end = data.index(END, end + len(ESCAPED))
    return data[start:end].replace(ESCAPED, END), end + 1


def _string(data: bytes, start: int) -> tuple[Any, int]:
    value, end = _binary(data, start)
    return value.decode(), end


_LEAVES: Final[dict[int, Reader]] = {
    NULL: _nothing,
    FALSE: _false,
    WIDE_DECIMAL: _wide_decimal,
    FLOAT32: _float32,
    FLOAT64: _float64,
    BINARY: _binary,
    STRING: _string,
}
