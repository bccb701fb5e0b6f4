"""The rows of a versioned store as columns: ``millpond.stores.typed.versions.version_rows`` for many rows at once.

Rule of this module: no Python object is made of a row.
"""

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as _compute

from millpond.stores.backend.column_changes import ColumnChanges
from millpond.stores.encoding.column_keys import TO_THE_END, escaped_column
from millpond.stores.encoding.column_serdes import from_big_endian
from millpond.stores.encoding.keys import DATA, LATEST_END, TERMINATOR, TIME_SIZE
from millpond.stores.encoding.times import MAX_TIME, MIN_TIME
from millpond.stores.typed.versions.version_rows import HEAD_SIZE, damaged_latest

pc: Any = _compute
Array = Any
"""An Arrow array."""
Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]

_END: Final = len(LATEST_END)
_NOTHING: Final = b""


def stems_of(keys: Array) -> Array:
    """Return the beginnings of the rows of keys, given their bytes: all but the end of the key, and the time."""
    return pc.binary_join_element_wise(DATA, escaped_column(keys), _NOTHING)


def keys_of(stems: Array) -> Array:
    """Return the keys of the rows that begin with ``stems``, escaped."""
    return pc.binary_slice(stems, len(DATA), TO_THE_END)


def latest_rows(stems: Array) -> Array:
    """Return the rows of the latest versions of the keys whose rows begin with ``stems``."""
    return pc.binary_join_element_wise(stems, LATEST_END, _NOTHING)


def since_of(latest: Array) -> Integers:
    """Return the times from which latest versions are valid, given their rows' values; the least time for none.

    Raises:
        pyarrow.ArrowInvalid: one is too short.
    """
    packed = from_big_endian(pc.binary_slice(latest, 0, TIME_SIZE), pa.int64()).fill_null(0)
    since: Integers = packed.to_numpy() ^ MIN_TIME
    return since


def bucket_ends(times: Integers, bucket: int) -> Integers:
    """Return the end of the bucket of the index that each time lies in, for buckets of that width."""
    starts = times - times % bucket
    return np.where(starts > MAX_TIME - bucket, MAX_TIME, starts + bucket)


def equal_to(column: Array, data: bytes) -> Booleans:
    """Return a mask of the values of a column that are these bytes; null is not."""
    equal: Booleans = pc.equal(column, data).fill_null(False).to_numpy(zero_copy_only=False)
    return equal


def plain_columns(changes: ColumnChanges) -> ColumnChanges | None:
    """Return the changes of a store with every version as a plain row; None if there are none left.

    Raises:
        CorruptStoreError: a latest version is too short.
    """
    keys, values = changes.keys_column, changes.values_column
    latest = _are_latest(keys)
    removed = pc.and_(latest, values.is_null())
    if pc.any(removed).as_py():
        left = pc.invert(removed)
        keys, values, latest = keys.filter(left), values.filter(left), latest.filter(left)
    short = pc.and_(latest, pc.less_equal(pc.binary_length(values), HEAD_SIZE))
    if pc.any(short).as_py():
        raise damaged_latest(values.filter(short)[0].as_py())
    stems, times = pc.binary_slice(keys, 0, -_END), pc.binary_slice(values, 0, TIME_SIZE)
    plain = pc.binary_join_element_wise(stems, TERMINATOR, times, _NOTHING)
    keys = pc.if_else(latest, plain, keys)
    values = pc.if_else(latest, pc.binary_slice(values, HEAD_SIZE, TO_THE_END), values)
    # A version that became the latest was taken out of the older ones, whose row comes before.
    return ColumnChanges.of(keys, values) if len(keys) else None


def _are_latest(rows: Array) -> Array:
    """Return a mask of the rows that are data rows of latest versions."""
    end = pc.binary_slice(rows, -TIME_SIZE - _END, -TIME_SIZE)
    ends = pc.and_not(pc.ends_with(rows, LATEST_END), pc.equal(end, TERMINATOR))
    return pc.and_(pc.starts_with(rows, DATA), ends)
