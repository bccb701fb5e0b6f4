"""Packed keys of elements that are not nested, read side by side: column by column, without an object for any.

Rule of this module: it reads the keys that ``millpond.stores.encoding.rows.tuple_keys`` writes. Anything else is
``pyarrow.ArrowInvalid``, and so are texts with an escaped 00, which are rare: such keys are read one by one.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.stores.encoding.rows.byte_columns import Integers, SideBySide, texts_at
from millpond.stores.encoding.rows.key_codes import (
    BINARY,
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
from millpond.stores.encoding.rows.physical import from_integers, from_wide, validity

FEW: Final = 64
"""The number of keys below which they are faster read one by one."""

_LENGTHS: Final = {NULL: 0, FALSE: 0, FLOAT32: 4, WIDE_DECIMAL: 16}
_WORD: Final = 8
_ESCAPE: Final = 0xFF


def can_be_read(types: Sequence[Any]) -> bool:
    """Return whether no element of such keys is nested."""
    return all(code_of(type_) not in (LIST, STRUCT) for type_ in types)


def size_of(code: int) -> int:
    """Return the number of bytes behind the code of an element of a fixed length."""
    return _LENGTHS.get(code, _WORD)


def numbers_of(found: npt.NDArray[Any], code: int) -> npt.NDArray[Any]:
    """Return the integers or floats of elements whose bytes, read as signed big-endian numbers, are these."""
    size = size_of(code)
    numbers = found.astype(f"i{size}")
    unsigned = numbers ^ np.iinfo(numbers.dtype).min
    if code in (FLOAT32, FLOAT64):
        return np.where(numbers < 0, unsigned, ~numbers).view(f"f{size}")
    return unsigned


def read_key_columns(keys: Any, types: Sequence[Any]) -> list[Any]:
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
        size = size_of(code)
        self.go_to(starts + np.where(nulls, 0, size))
        if code == NULL:
            return pa.nulls(len(codes))
        if code == FALSE:
            return pa.array(codes == TRUE, mask=nulls)
        body = self.data[starts[:, None] + np.arange(size)]
        if code == WIDE_DECIMAL:
            body[:, 0] ^= 0x80
            return from_wide(body, nulls, type_)
        numbers = pa.array(numbers_of(body.view(f">i{size}")[:, 0], code), mask=nulls, from_pandas=False)
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
