"""The types that hold all values of another type.

Rule of this module: a type is widened only if every value keeps its meaning exactly.
"""

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

_INTEGERS: Final = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_DIGITS: Final[Mapping[Any, int]] = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 19}
"""The number of digits of the largest number."""


def widens(old: Any, new: Any) -> bool:
    """Return whether ``new`` is another type than ``old`` and holds all its values; neither is nested."""
    if pa.types.is_decimal(new):
        whole = new.precision - new.scale
        if pa.types.is_decimal(old):
            return bool(old != new and new.scale >= old.scale and whole >= old.precision - old.scale)
        return bool(new.scale >= 0 and whole >= _DIGITS.get(old, whole + 1))
    if old in _INTEGERS and new in _INTEGERS:
        return _INTEGERS.index(old) < _INTEGERS.index(new)
    if new == pa.float64():
        return old in (pa.int8(), pa.int16(), pa.int32(), pa.float32())
    return bool(old == pa.date32() and new == pa.timestamp("us"))
