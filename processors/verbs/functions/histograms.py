"""``Histogram``: the numbers of values between edges.

The state: nil, or an array of counts: of the values up to each edge and above the one before it, and at the end of
values above all edges.
"""

from bisect import bisect_left
from collections.abc import Sequence
from math import inf, isnan
from typing import Any, Final

import numpy as np
import pyarrow as pa

from millpond.processors.verbs.functions.columns import Array, Integers, integers, lists_of, present
from millpond.processors.verbs.functions.function import AggregateFunction, refusal
from millpond.processors.verbs.functions.sums import whole
from millpond.stores.encoding.rows.physical import SHORT_DECIMAL, to_physical

_LEAST: Final = int(np.iinfo(np.int64).min)


class Histogram(AggregateFunction):
    """Counts values by edges.

    Args:
        edges: the edges, ascending.
        unit: how many units of a decimal one is, or else 1.
    """

    type = pa.map_(pa.float64(), pa.int64())
    state_type = pa.list_(pa.int64())
    nullable = False

    def __init__(self, edges: Sequence[float], unit: int) -> None:
        self._edges = list(edges)
        self._unit = unit
        # Of whole numbers, one is up to an edge if it is up to the whole number below it.
        self._bounds = [_scaled(edge, unit) for edge in edges]
        self._words = all(_LEAST <= bound <= -_LEAST - 1 for bound in self._bounds)

    def add(self, state: Any, value: Any, time: int) -> Any:
        if value is None:
            return state
        counts = [0] * (len(self._edges) + 1) if state is None else state
        counts[self._place(value)] += 1
        return counts

    def merge(self, left: Any, right: Any) -> Any:
        if left is None or right is None:
            return right if left is None else left
        return [one + other for one, other in zip(left, right, strict=True)]

    def add_columns(self, states: Array, values: Array, times: Array, groups: Integers) -> Array:
        places = self._places(values.drop_null())
        owners = groups[present(values)]
        return self._counted(states, np.arange(len(states)), owners, places, len(states))

    def merge_columns(self, states: Array, groups: Integers, size: int) -> Array:
        nothing = np.empty(0, np.int64)
        return self._counted(states, groups, nothing, nothing, size)

    def _counted(self, states: Array, before: Integers, owners: Integers, places: Integers, size: int) -> Array:
        """Return the counts in states of some groups, and of values at some places; null where there are none."""
        width = len(self._edges) + 1
        counts = np.zeros((size, width), np.int64)
        there = present(states)
        kept = states.flatten().to_numpy()
        if len(kept) != width * int(there.sum()):
            raise pa.ArrowInvalid("a state has more counts than there are places, or fewer")
        np.add.at(counts, before[there], kept.reshape(-1, width))
        np.add.at(counts, (owners, places), 1)
        seen = np.zeros(size, np.bool_)
        seen[before[there]] = True
        seen[owners] = True
        return lists_of(pa.array(counts[seen].ravel()), np.where(seen, width, 0), self.state_type)

    def results(self, states: Array) -> Array:
        width = len(self._edges) + 1
        counts = np.zeros((len(states), width), np.int64)
        kept = states.drop_null()
        if len(kept.flatten()) != width * len(kept):
            raise ValueError("a state has more counts than there are places, or fewer")
        counts[present(states)] = kept.flatten().to_numpy().reshape(-1, width)
        keys: Any = pa.array(np.tile([*self._edges, inf], len(states)))
        offsets: Any = pa.array(np.arange(len(states) + 1) * width, pa.int32())
        return pa.MapArray.from_arrays(offsets, keys, pa.array(counts.ravel()))

    def state_of(self, result: Any) -> Any:
        counts = dict(result or ())
        if list(counts) != [*self._edges, inf] or any(one is None or one < 0 for one in counts.values()):
            raise ValueError(f"it has not a count for each of {[*self._edges, inf]}")
        return list(counts.values())

    def _places(self, values: Array) -> Integers:
        if pa.types.is_floating(values.type):
            return np.asarray(np.searchsorted(self._edges, values.to_numpy().astype(np.float64)), np.int64)
        wide = pa.types.is_decimal(values.type) and values.type.precision > SHORT_DECIMAL
        if wide or not self._words:
            return np.array([self._place(value) for value in to_physical(values)], np.int64)
        return np.asarray(np.searchsorted(np.array(self._bounds, np.int64), integers(values)), np.int64)

    def _place(self, value: Any) -> int:
        if isinstance(value, float):
            return len(self._edges) if isnan(value) else bisect_left(self._edges, value)
        return bisect_left(self._bounds, whole(value))


def _scaled(edge: float, unit: int) -> int:
    """Return the greatest number of units that is no more than an edge."""
    numerator, denominator = edge.as_integer_ratio()
    return numerator * unit // denominator


def bind_histogram(path: str, type_: Any, *, edges: Sequence[float]) -> Histogram:
    """Return the histogram of a column of that type.

    Raises:
        ConfigurationError: such values have none.
    """
    decimal = pa.types.is_decimal(type_)
    if not (decimal or pa.types.is_integer(type_) or pa.types.is_floating(type_)):
        raise refusal(path, type_, "only numbers have a histogram of edges")
    return Histogram(edges, 10**type_.scale if decimal else 1)
