"""Parts of rows as Arrow columns: ``millpond.stores.encoding.keys`` for many rows at once.

Rule of this module: no Python object is made of a key, a time or a row.
"""

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as _compute

from millpond.stores.encoding.column_serdes import from_big_endian, to_big_endian
from millpond.stores.encoding.keys import ESCAPED, TERMINATOR, TIME_SIZE
from millpond.stores.encoding.times import MIN_TIME

pc: Any = _compute
Array = Any
"""An Arrow array."""
Integers = npt.NDArray[np.int64]

TO_THE_END: Final = 2**31 - 1
"""The stop of a slice of bytes that has no end."""

_ZERO: Final = b"\x00"


def escaped_column(keys: Array) -> Array:
    """Return keys as they begin where more follows them, without their terminator."""
    return pc.replace_substring(keys, pattern=_ZERO, replacement=ESCAPED)


def unescaped_column(escaped: Array) -> Array:
    """Return the keys for which ``escaped_column`` returns these."""
    return pc.replace_substring(escaped, pattern=ESCAPED, replacement=_ZERO)


def terminated_column(keys: Array) -> Array:
    """Do as ``terminated``, for a column."""
    return pc.binary_join_element_wise(escaped_column(keys), TERMINATOR, b"")


def unterminated_column(encoded: Array) -> Array:
    """Do as ``unterminated``, for a column.

    Raises:
        pyarrow.ArrowInvalid: one was not terminated.
    """
    escaped = pc.binary_slice(encoded, 0, -len(TERMINATOR))
    sound = pc.and_(
        pc.ends_with(encoded, pattern=TERMINATOR),
        pc.equal(pc.count_substring(escaped, pattern=_ZERO), pc.count_substring(escaped, pattern=ESCAPED)),
    )
    if not pc.all(sound, min_count=0).as_py():
        raise pa.ArrowInvalid("a key does not end in its terminator")
    return unescaped_column(escaped)


def pack_times(times: Integers) -> Array:
    """Do as ``pack_time``, for a column."""
    return to_big_endian(pa.array(times ^ MIN_TIME))


def time_at(data: Array, at: int) -> Integers:
    """Do as ``unpack_time``, for a column; ``at`` counts from the end if it is negative.

    Raises:
        pyarrow.ArrowInvalid: one is too short.
    """
    past = at + TIME_SIZE
    parts = pc.binary_slice(data, at, past if at >= 0 or past < 0 else TO_THE_END)
    times: Integers = from_big_endian(parts, pa.int64()).to_numpy() ^ MIN_TIME
    return times


def timed_rows(prefix: bytes, times: Integers, escaped: Array) -> Array:
    """Return rows of ``prefix``, a time, and a key that is given without its terminator, and gets it."""
    return pc.binary_join_element_wise(prefix, pack_times(times), escaped, TERMINATOR, b"")
