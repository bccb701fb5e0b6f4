r"""Packed keys, read back: a regular expression finds all elements of a key at once, then columns are converted.

Rule of this module: it reads only the keys that ``millpond.stores.encoding.rows.tuple_keys`` writes: a key that does
not match the types' codes to the last byte is an error. Many keys without nested elements are read side by side: column
by column, without an object for any. Whatever does not fit there is ``pyarrow.ArrowInvalid``, and so are texts with an
escaped 00, which are rare: then keys are read one by one.

The expression of a type has a group for the bytes after the code, which takes part unless the element is null. The
expression of a struct has a group for its code and then the groups of its fields. Within a list nothing is a group: its
elements are found by an expression of their own.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain, pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.errors import UnreadableRowError
from millpond.stores.encoding.rows.byte_columns import Integers, SideBySide, texts_at
from millpond.stores.encoding.rows.key_codes import (
    BINARY,
    END,
    ESCAPED,
    FALSE,
    FLOAT32,
    FLOAT64,
    LIST,
    NULL,
    STRING,
    STRUCT,
    TRUE,
    WIDE_DECIMAL,
    code_of,
)
from millpond.stores.encoding.rows.nested import child_fields
from millpond.stores.encoding.rows.physical import from_integers, from_physical, from_wide, validity

FEW: Final = 64
"""The number of keys below which they are faster read one by one."""

_LENGTHS: Final = {NULL: 0, FALSE: 0, FLOAT32: 4, WIDE_DECIMAL: 16}
_WORD: Final = 8
_ESCAPE: Final = 0xFF
_TEXT: Final = rb"[^\x00]*(?:\x00\xff[^\x00]*)*"

Groups = Iterator[Sequence[bytes | None]]
"""The matches of the groups of an expression, group by group, with one for each row."""


def read_keys(keys: Any, types: Sequence[Any]) -> list[Any]:
    """Return the columns of packed keys.

    Args:
        keys: the keys that ``KeyCodec`` has packed, a list or a binary column.
        types: the types of the columns, in their one form.

    Raises:
        UnreadableRowError: a key does not hold elements of these types.
    """
    if len(keys) >= FEW and _can_be_side_by_side(types):
        try:
            return _read_side_by_side(keys if isinstance(keys, pa.Array) else pa.array(keys, pa.binary()), types)
        except pa.ArrowInvalid:
            pass  # Reading key by key finds the fault.
    each: Any = keys.to_pylist() if isinstance(keys, pa.Array) else keys
    return _read_each(each, types)


def _read_each(keys: Sequence[bytes], types: Sequence[Any]) -> list[Any]:
    expression = re.compile(b"".join(_expression(type_, b"(") for type_ in types), re.DOTALL)
    rows = [match and match.groups() for match in map(expression.fullmatch, keys)]
    if None in rows:
        place = rows.index(None)
        shown = ", ".join(map(str, types))
        raise UnreadableRowError(f"key {place} of {len(keys)} ({keys[place].hex()}) is no packed key of {shown}")
    groups = _groups(rows, expression.groups)
    return [from_physical(_values(type_, groups, len(keys)), type_) for type_ in types]


def _groups(rows: Sequence[Any], count: int) -> Groups:
    return ([row[group] for row in rows] for group in range(count))


def _expression(type_: Any, group: bytes) -> bytes:
    """Return the expression of an element.

    Args:
        type_: the type of the element.
        group: the text that opens a group.
    """
    code = code_of(type_)
    if code == NULL:
        return re.escape(bytes([NULL]))
    return b"(?:%b|%b)" % (re.escape(bytes([NULL])), _some(type_, code, group))


def _some(type_: Any, code: int, group: bytes) -> bytes:
    """Return the expression of an element that is not null."""
    begin, end = re.escape(bytes([code])), re.escape(END)
    if code == FALSE:
        return b"%b[%b%b])" % (group, begin, re.escape(bytes([TRUE])))
    if code in (BINARY, STRING):
        return b"%b%b%b)%b" % (begin, group, _TEXT, end)
    if code == STRUCT:
        fields = b"".join(_expression(field.type, group) for field in child_fields(type_))
        return b"%b%b)%b%b" % (group, begin, fields, end)
    if code == LIST:
        return b"%b%b(?:%b)*)%b" % (begin, group, _expression(type_.value_type, b"(?:"), end)
    return b"%b%b.{%d})" % (begin, group, _size_of(code))


def _values(type_: Any, groups: Groups, count: int) -> Sequence[Any]:
    """Return the physical values of a column of ``count`` elements, and take as many groups as its expression has."""
    code = code_of(type_)
    if code == NULL:
        return [None] * count
    found = next(groups)
    if code == STRUCT:
        fields = [_values(field.type, groups, count) for field in child_fields(type_)]
        return _where(found, list(zip(*fields, strict=True)) if fields else [()] * count)
    if code == LIST:
        return _where(found, _lists(type_, found))
    if code in (BINARY, STRING):
        return _texts(found)
    if code == FALSE:
        return [None if flag is None else flag[0] == TRUE for flag in found]
    if code == WIDE_DECIMAL:
        return [None if number is None else bytes([number[0] ^ 0x80]) + number[1:] for number in found]
    return _where(found, _numbers(found, code).tolist())


def _where(found: Sequence[bytes | None], values: list[Any]) -> list[Any]:
    """Return ``values`` with None where nothing was found."""
    if None not in found:
        return values
    return [None if part is None else value for part, value in zip(found, values, strict=True)]


def _lists(type_: Any, bodies: Sequence[bytes | None]) -> list[Any]:
    element = re.compile(_expression(type_.value_type, b"("), re.DOTALL)
    parts = [[match.groups() for match in element.finditer(body or b"")] for body in bodies]
    rows = list(chain.from_iterable(parts))
    values = _values(type_.value_type, _groups(rows, element.groups), len(rows))
    ends = accumulate(map(len, parts), initial=0)
    return [values[start:stop] for start, stop in pairwise(ends)]


def _texts(found: Sequence[bytes | None]) -> Sequence[bytes | None]:
    if END not in b"".join(filter(None, found)):
        return found
    return [text and text.replace(ESCAPED, END) for text in found]


def _numbers(found: Sequence[bytes | None], code: int) -> npt.NDArray[Any]:
    size = _size_of(code)
    data = b"".join([number or bytes(size) for number in found])
    return _numbers_of(np.frombuffer(data, f">i{size}"), code)


def _can_be_side_by_side(types: Sequence[Any]) -> bool:
    """Return whether no element of such keys is nested."""
    return all(code_of(type_) not in (LIST, STRUCT) for type_ in types)


def _size_of(code: int) -> int:
    """Return the number of bytes behind the code of an element of a fixed length."""
    return _LENGTHS.get(code, _WORD)


def _numbers_of(found: npt.NDArray[Any], code: int) -> npt.NDArray[Any]:
    """Return the integers or floats of elements whose bytes, read as signed big-endian numbers, are these."""
    size = _size_of(code)
    numbers = found.astype(f"i{size}")
    unsigned = numbers ^ np.iinfo(numbers.dtype).min
    if code in (FLOAT32, FLOAT64):
        return np.where(numbers < 0, unsigned, ~numbers).view(f"f{size}")
    return unsigned


def _read_side_by_side(keys: Any, types: Sequence[Any]) -> list[Any]:
    """Return the columns of keys, a binary column without nulls.

    Raises:
        pyarrow.ArrowInvalid: not all of them can be read here.
    """
    reader = _Reader.of(keys)
    columns = [reader.read(type_, code_of(type_)) for type_ in types]
    reader.finish()
    return columns


class _Reader(SideBySide):
    """A reader of the elements of many keys side by side."""

    def read(self, type_: Any, code: int) -> Any:
        """Return the next element of each key."""
        codes = self.first_bytes()
        nulls = codes == NULL
        if not (nulls | (codes == code) | ((codes == TRUE) & (code == FALSE))).all():
            raise pa.ArrowInvalid("an element is of another type")
        starts = self.at + 1
        if code in (BINARY, STRING):
            return self._texts(starts, nulls, type_)
        size = _size_of(code)
        self.go_to(starts + np.where(nulls, 0, size))
        if code == NULL:
            return pa.nulls(len(codes))
        if code == FALSE:
            return pa.array(codes == TRUE, mask=nulls)
        body = self.data[starts[:, None] + np.arange(size)]
        if code == WIDE_DECIMAL:
            body[:, 0] ^= 0x80
            return from_wide(body, nulls, type_)
        numbers = pa.array(_numbers_of(body.view(f">i{size}")[:, 0], code), mask=nulls, from_pandas=False)
        return numbers if code in (FLOAT32, FLOAT64) else from_integers(numbers, type_)

    def _texts(self, starts: Integers, nulls: Any, type_: Any) -> Any:
        zeros = np.append(np.flatnonzero(self.data == 0), len(self.data))
        stops = np.where(nulls, starts, zeros[np.searchsorted(zeros, starts)])
        if (stops[~nulls] >= self.ends[~nulls]).any():
            raise pa.ArrowInvalid("a text has no end")
        self.go_to(np.where(nulls, starts, stops + 1))
        # Behind its end there is the code of the next element or of the next key, which is none of these.
        if (self.data[self.at][~nulls & (self.at < self.ends)] == _ESCAPE).any():
            raise pa.ArrowInvalid("a text has an escaped byte")
        return texts_at(self.data, starts, stops - starts, validity(nulls), type_)
