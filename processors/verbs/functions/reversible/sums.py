"""Counts, sums, averages, variances and covariances of rows that come and go.

Rule of this module: a state is exact, and says nothing of what has gone.

The states::

    count                      int
    sum, average               nil, or [count, bits, sum of as many units, counts of NaN, infinity and -infinity]
    sums of powers, products   nil, or [nil or the state without rows that are not finite, kept rows of those]
"""

from collections.abc import Sequence
from itertools import pairwise
from math import inf, nan
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.processors.runtime.order.time_order import stable_order
from millpond.processors.verbs.functions.columns import Array, Integers, integers, listed, present
from millpond.processors.verbs.functions.exact_sums import ExactSums, checked_bits, from_bytes, quotient, to_bytes
from millpond.processors.verbs.functions.moments import Moments
from millpond.processors.verbs.functions.pairs import Products
from millpond.processors.verbs.functions.reversible.kept_rows import KEPT, ReversibleRows, rows_of
from millpond.processors.verbs.functions.reversible.reversible import Reversible
from millpond.processors.verbs.functions.reversible.weighed import summed, weighed_sums
from millpond.processors.verbs.functions.sums import Average, FloatSum, Sum
from millpond.stores.encoding.rows.physical import from_physical, to_physical

_ODD: Final = (nan, inf, -inf)
_COUNTS: Final = pa.list_(pa.int64())


class ReversibleCount(Reversible):
    """The number of values that are not null."""

    type = pa.int64()
    nullable = False
    initial = 0
    state_type = pa.int64()

    def changed(self, states: Array, values: Array, times: Array, groups: Integers, signs: Integers) -> Array:
        counts = integers(states)
        there = present(values)
        np.add.at(counts, groups[there], signs[there])
        return pa.array(counts)

    def results(self, states: Array) -> Array:
        return states


class ReversibleSum(Reversible):
    """A sum or an average, kept as a whole number of units, of which 2 ** bits are one.

    Args:
        function: makes the result.
    """

    state_type = pa.struct([("count", pa.int64()), ("bits", pa.int64()), ("sum", pa.binary()), ("odd", _COUNTS)])

    def __init__(self, function: Sum | Average) -> None:
        self.type = function.type
        self._function = function
        self._sum = function.of if isinstance(function, Average) else function
        self._floats = isinstance(self._sum, FloatSum)

    def changed(self, states: Array, values: Array, times: Array, groups: Integers, signs: Integers) -> Array:
        there = present(values)
        values, groups, signs = values.drop_null(), groups[there], signs[there]
        counts, odd = np.zeros(len(states), np.int64), np.zeros((len(states), len(_ODD)), np.int64)
        np.add.at(counts, groups, signs)
        if pa.types.is_floating(values.type):
            numbers = values.to_numpy()
            finite = np.isfinite(numbers)
            kinds = np.where(np.isnan(numbers), 0, np.where(numbers > 0, 1, 2))
            np.add.at(odd, (groups[~finite], kinds[~finite]), signs[~finite])
            values, groups, signs = values.filter(pa.array(finite)), groups[finite], signs[finite]
        more = weighed_sums(values, groups, signs, len(states))
        before, bits, sums, old_odd = _parts(states)
        after = before + counts
        made = [
            summed(*state, more.bits, number) if number else state
            for state, number in zip(zip(bits.tolist(), sums, strict=True), more.sums, strict=True)
        ]
        columns = [
            pa.array(after),
            pa.array([one for one, _ in made], pa.int64()),
            pa.array([one for _, one in made], pa.binary()),
            pa.FixedSizeListArray.from_arrays(pa.array((old_odd + odd).ravel()), len(_ODD)).cast(_COUNTS),
        ]
        return pa.StructArray.from_arrays(columns, fields=list(self.state_type), mask=pa.array(after == 0))

    def results(self, states: Array) -> Array:
        counts, bits, sums, odd = _parts(states)
        rows = zip(counts.tolist(), bits.tolist(), sums, odd.tolist(), strict=True)
        if isinstance(self._function, Average):
            quotient_of, total = self._function.quotient, self._sum.total
            found = [quotient_of(total(self._sum_of(*row)), row[0]) if row[0] else None for row in rows]
            return from_physical(found, self.type)
        made = [self._sum_of(*row) if row[0] else None for row in rows]
        return self._function.results(from_physical(made, self._function.state_type))

    def _sum_of(self, count: int, bits: int, total: bytes, odd: Sequence[int]) -> Any:
        """Return the state of the sum of the values that are there."""
        number = from_bytes(total)
        if not self._floats:
            return self._sum.add(None, number, 0)
        if any(odd):
            # Finite values are nothing beside those that are not, even where their sum is beyond the greatest float.
            return [value for value, times in zip(_ODD, odd, strict=True) if times]
        return [quotient(number, 1 << checked_bits(bits))]


def _parts(states: Array) -> tuple[Integers, Integers, list[bytes], Integers]:
    """Return the counts, bits, sums and odd counts of states of sums; of an empty state where there is none."""
    counts, bits, sums, odd = states.flatten()
    others = np.zeros((len(states), len(_ODD)), np.int64)
    elements, lengths = listed(odd)
    if not np.isin(lengths, (0, len(_ODD))).all():
        raise ValueError("a sum has not as many counts as there are odd values")
    others[lengths > 0] = integers(elements).reshape(-1, len(_ODD))
    return integers(counts), integers(bits), sums.fill_null(b"\x00").to_pylist(), others


class ReversibleSums(Reversible):
    """Sums of powers, or of products; values that are not finite are kept apart and counted.

    Args:
        function: makes the result.
    """

    def __init__(self, function: Moments | Products) -> None:
        self.type = function.type
        self._function: ExactSums = function
        self._odd = ReversibleRows(function, by_time=False)
        self.state_type = pa.struct([("sums", function.state_type), ("odd", KEPT)])

    def changed(self, states: Array, values: Array, times: Array, groups: Integers, signs: Integers) -> Array:
        finite, odd = _finite(values), present(values)
        odd &= ~finite
        sums, kept = states.flatten()
        if odd.any():
            mask: Any = pa.array(odd)
            kept = self._odd.changed(kept, values.filter(mask), times.filter(mask), groups[odd], signs[odd])
        made = self._summed(
            to_physical(sums), to_physical(values.filter(pa.array(finite))), groups[finite], signs[finite]
        )
        both = zip(made, to_physical(kept), strict=True)
        return from_physical([None if one is rows is None else [one, rows] for one, rows in both], self.state_type)

    def _summed(self, made: list[Any], given: list[Any], groups: Integers, signs: Integers) -> list[Any]:
        """Return the states of finite rows after some have come and gone."""
        steps = 2 * groups + (signs > 0)
        order = stable_order(steps)
        bounds = np.flatnonzero(np.diff(steps[order], prepend=-1, append=-1)).tolist()
        for start, stop in pairwise(bounds):
            group, comes = divmod(int(steps[order[start]]), 2)
            one = self._function.state_of_values([given[row] for row in order[start:stop].tolist()])
            made[group] = self._function.merge(made[group], one if comes else _negative(one))
        return [state if state and state[0] else None for state in made]

    def results(self, states: Array) -> Array:
        made = [None if state is None else self._whole(*state) for state in to_physical(states)]
        return self._function.results(from_physical(made, self._function.state_type))

    def _whole(self, sums: Any, odd: Any) -> Any:
        """Return the state of the function for all rows."""
        values = [value for _, value in rows_of(odd, by_time=False)]
        return self._function.merge(sums, self._function.state_of_values(values) if values else None)


def _finite(values: Array) -> npt.NDArray[np.bool_]:
    """Return a mask of values that are there and are, or have in each of their fields, a finite number."""
    there = present(values)
    columns = values.flatten() if pa.types.is_struct(values.type) else [values]
    for column in columns:
        if pa.types.is_floating(column.type):
            there &= np.isfinite(column.to_numpy(zero_copy_only=False))
    return there


def _negative(state: Sequence[Any]) -> list[Any]:
    """Return the state of rows, once less: its count and its sums are negative, its bits unchanged."""
    count, *others = state
    return [-count, *(to_bytes(-from_bytes(one)) if isinstance(one, bytes) else one for one in others)]
