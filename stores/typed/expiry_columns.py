"""The expiry of whole columns of entries: ``millpond.stores.typed.expiry`` for many entries at once.

Rule of this module: no Python object is made of a key, a value or a time.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as _compute

from millpond.stores.encoding.column_keys import timed_rows
from millpond.stores.encoding.keys import TIMERS
from millpond.stores.encoding.times import MIN_TIME
from millpond.stores.typed.expiry import Expiry

pc: Any = _compute
Array = Any
"""An Arrow array."""
Integers = npt.NDArray[np.int64]


def without_gone(
    expiry: Expiry, values: Array, times: Array, reached: Integers | None, *, as_of: bool = False
) -> tuple[Array, Array]:
    """Return values and timestamps, null where they have expired for their readers.

    With ``as_of`` a value counts until it expired, whatever is gone now.
    """
    until = _limits(expiry, reached, as_of=as_of)
    gone = pc.less_equal(times, until).fill_null(False)
    return pc.if_else(gone, None, values), pc.if_else(gone, None, times)


def timer_rows(expiry: Expiry, escaped: Array, times: Integers, put: int) -> Array:
    """Return the rows of new timers, after ``expiry`` was told of the entries that were put.

    Args:
        expiry: the store's expiry.
        escaped: the keys of the entries that need a timer, without their terminators.
        times: the times of these entries.
        put: the number of entries that were put, with those that need no timer.
    """
    if expiry.ttl is None or not len(times):
        expiry.wrote(put, -MIN_TIME)
        return pa.array([], pa.binary())
    at = _buckets(times, expiry.width)
    expiry.wrote(put, int(at.min()))
    return timed_rows(TIMERS, at, escaped)


def _limits(expiry: Expiry, reached: Integers | None, *, as_of: bool) -> Any:
    """Return the times up to which entries are gone, as an Arrow array with one for each reader, or a scalar."""
    least = MIN_TIME if as_of else max(expiry.gone_at(MIN_TIME), MIN_TIME)
    if reached is None or expiry.ttl is None:
        return pa.scalar(least, pa.int64())
    return pa.array(np.maximum(np.maximum(reached, MIN_TIME + expiry.ttl) - expiry.ttl, least))


def _buckets(times: Integers, width: int) -> Integers:
    """Return the times of the buckets of new timers for entries of these times, as ``Expiry.bucket_of`` does."""
    late: Integers = np.maximum(times, MIN_TIME + width)
    return late - late % width
