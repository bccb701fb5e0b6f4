"""Ties: records of one input with the same key and time, which would come as they were packed.

Their values decide: none (a delete) comes first, then the smaller one as its bytes or numbers compare. So of rows that
say different things of the same moment, the greatest counts last, however a micro-batch was packed.

Rule of this module: it sees times, numbers of keys and values, and knows no processor.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as _compute

from millpond.processors.runtime.order.time_order import stable_order

pc: Any = _compute
Integers = npt.NDArray[np.int64]


def without_ties(rows: Integers, times: Integers, keys: Callable[[], Integers], values: Any) -> Integers:
    """Return the rows of one input, with rows of one key and time in the order of their values.

    Args:
        rows: the places of the rows, in the order of time.
        times: the times, in the same order.
        keys: returns, by place, a number that tells the row's key.
        values: an Arrow array or chunked array of the values by place.

    >>> values = pa.array([b"b", b"a", None])
    >>> without_ties(np.array([0, 1, 2]), np.array([5, 5, 5]), lambda: np.array([7, 7, 7]), values).tolist()
    [2, 1, 0]
    """
    if not (times[1:] == times[:-1]).any():
        return rows
    numbers = keys()[rows]
    order = stable_order(numbers)
    numbers, times = numbers[order], times[order]
    same = (numbers[1:] == numbers[:-1]) & (times[1:] == times[:-1])
    if not same.any():
        return rows
    # Of rows by key and time, those that have a neighbor of the same; each group of them keeps its places.
    tied = np.concatenate([same, [False]]) | np.concatenate([[False], same])
    groups = np.concatenate([[0], np.cumsum(~same)])[tied]
    members = order[tied]
    chosen: Any = pa.array(rows[members])
    comparable = _comparable(values.take(chosen))
    table = pa.table({"group": groups, "is": comparable.is_valid().cast(pa.int8()), "value": comparable})
    by_value = pc.sort_indices(table, sort_keys=[(name, "ascending") for name in table.column_names])
    settled = rows.copy()
    settled[members] = rows[members[by_value.to_numpy()]]
    return settled


def _comparable(values: Any) -> Any:
    """Return the values in a form that Arrow can sort: rows that travel as columns become their bytes as objects."""
    type_ = values.type
    if pa.types.is_primitive(type_) or pa.types.is_binary(type_) or pa.types.is_string(type_):
        return values
    listed = values.to_pylist()
    if all(one is None or isinstance(one, bytes) for one in listed):
        return pa.array(listed, pa.binary())
    return pa.array([None if one is None else repr(one) for one in listed], pa.string())
