"""The rows of a ``TimeOrderedBuffer`` for whole columns of records, whose keys and values are bytes.

Rule of this module: the bytes are as in ``millpond.processors.tables.time_ordered_buffer``. No Python object is made
of a key or a value, except for rows of other forms, each of which is read alone.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as _compute

from millpond.processors.runtime.batches.columns import Array, Columns
from millpond.stores.encoding.column_keys import (
    TO_THE_END,
    pack_times,
    terminated_column,
    time_at,
    unterminated_column,
)
from millpond.stores.encoding.keys import TIME_SIZE

pc: Any = _compute

_SOME: Final = b"\x01"
_KEY_FROM: Final = TIME_SIZE + len(_SOME)
_NUMBER_SIZE: Final = 8


def rows_of(records: Columns, sequence: int) -> Array:
    """Return new rows for records; ``sequence`` is the last number that was given away."""
    numbers = np.arange(sequence + 1, sequence + 1 + len(records)).astype(">u8").tobytes()
    fixed: Any = pa.Array.from_buffers(pa.binary(_NUMBER_SIZE), len(records), [None, pa.py_buffer(numbers)])
    keys = terminated_column(records.keys)
    return pc.binary_join_element_wise(pack_times(records.timestamps), _SOME, keys, fixed.cast(pa.binary()), b"")


def data_of(records: Columns) -> Array:
    """Return the data in the rows of records."""
    return pc.binary_join_element_wise(_SOME, records.values, b"")


def columns_of(
    rows: Sequence[tuple[bytes, bytes]], read: Callable[[bytes, bytes], tuple[Any, Any, int, Any]]
) -> Columns:
    """Return the records of rows and their data.

    Args:
        rows: the rows.
        read: returns key, value, timestamp and headers of the record of one row.

    Raises:
        CorruptStoreError: a row is damaged.
    """
    names: Any = pa.array([row for row, _ in rows], pa.binary())
    data: Any = pa.array([one for _, one in rows], pa.binary())
    try:
        return _read(names, data)
    except pa.ArrowInvalid:
        keys, values, times = zip(*(read(*row)[:3] for row in rows), strict=True)
        return Columns(pa.array(keys, pa.binary()), pa.array(values, pa.binary()), np.array(times, np.int64))


def in_time_order(waited: Columns, new: Columns) -> Columns:
    """Return records that have waited, in order, and new ones: by time, then bytes of the key, then arrival."""
    keys, values = pa.concat_arrays([waited.keys, new.keys]), pa.concat_arrays([waited.values, new.values])
    times = np.concatenate([waited.timestamps, new.timestamps])
    ranks = pc.rank(keys, sort_keys="ascending", tiebreaker="dense").to_numpy()
    return Columns(keys, values, times).taken(np.lexsort((ranks, times)))


def _read(rows: Array, data: Array) -> Columns:
    """Return the records of rows.

    Raises:
        pyarrow.ArrowInvalid: one has no key or no value, has headers, or is damaged.
    """
    marks = [pc.binary_slice(rows, TIME_SIZE, _KEY_FROM), pc.binary_slice(data, 0, len(_SOME))]
    if not all(pc.all(pc.equal(mark, _SOME), min_count=0).as_py() for mark in marks):
        raise pa.ArrowInvalid("a record that waits has a form that columns do not have")
    keys = unterminated_column(pc.binary_slice(rows, _KEY_FROM, -_NUMBER_SIZE))
    return Columns(keys, pc.binary_slice(data, len(_SOME), TO_THE_END), time_at(rows, 0))
