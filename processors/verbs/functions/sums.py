"""Sums and averages.

Rule of this module: all sums are exact until a result is made of them, so the order of the values makes no difference.

The states, where ``whole`` is an integer, from 64 bits on as 16 bytes in two's complement, big-endian::

    sum of integers, decimals, durations    nil, or whole
    sum of floats                           nil, or an array of floats whose exact sum it is
    average                                 nil, or [count, state of the sum]
"""

from abc import abstractmethod
from fractions import Fraction
from math import fsum, inf, isfinite, nan, nextafter
from typing import Any, Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as _compute

from millpond.errors import EditRefusedError
from millpond.processors.runtime.batches.columns import nulls
from millpond.processors.verbs.functions.columns import (
    Array,
    Floats,
    Integers,
    added,
    added_wide,
    counted,
    exact_sums,
    integers,
    joined_lists,
    listed,
    present,
    totals,
)
from millpond.processors.verbs.functions.function import AggregateFunction, refusal
from millpond.stores.encoding.rows.physical import (
    SHORT_DECIMAL,
    WHOLE,
    from_integers,
    from_physical,
    of_halves,
    to_physical,
    unscaled,
)

pc: Any = _compute

DURATION: Final = pa.duration("us")
_INT64: Final = 1 << 63
_MAX_DIGITS: Final = 38
_INT128: Final = 1 << 127
_WIDE: Final = 16
_TOO_MANY: Final = 16
"""The greatest number of floats in a sum; more of them cost room, fewer cost time."""


def whole(value: Any) -> int:
    """Return the integer that a state or a physical value stands for."""
    number: int = value if value.__class__ is int else int.from_bytes(value, "big", signed=True)
    return number


def wide(value: int) -> bytes:
    """Return the physical form of a decimal with more than 18 digits."""
    return value.to_bytes(_WIDE, "big", signed=True)


def physical(value: int, type_: Any) -> int | bytes:
    """Return the physical form of an unscaled decimal, or of any other integer."""
    return wide(value) if pa.types.is_decimal(type_) and type_.precision > SHORT_DECIMAL else value


class Sum(AggregateFunction):
    """A sum, from which an average can be made, too."""

    @abstractmethod
    def total(self, state: Any) -> Any:
        """Return the sum as a number: an int or a float."""


class NarrowSum(Sum):
    """Sums integers as long as the sum is below a limit that fits 64 bits.

    Args:
        type_: the type of the sum.
        lowest, highest: the least and the greatest sum.
    """

    state_type = pa.int64()

    def __init__(self, type_: pa.DataType, lowest: int = -_INT64, highest: int = _INT64 - 1) -> None:
        self.type = type_
        self._lowest = lowest
        self._highest = highest

    def add(self, state: Any, value: Any, time: int) -> Any:
        if value is None:
            return state
        total = value if state is None else state + value
        if self._lowest <= total <= self._highest:
            return total
        raise OverflowError(f"the sum {total} does not fit {self.type}")

    def add_columns(self, states: Array, values: Array, times: Array, groups: Integers) -> Array:
        return added(states, values, groups, self._lowest, self._highest)

    def merge_columns(self, states: Array, groups: Integers, size: int) -> Array:
        return added(pa.nulls(size, pa.int64()), states, groups, self._lowest, self._highest)

    def state_of(self, result: Any) -> Any:
        return self.add(None, result, 0)

    def results(self, states: Array) -> Array:
        return from_integers(states, self.type)

    def merge(self, left: Any, right: Any) -> Any:
        return self.add(left, right, 0)

    def total(self, state: Any) -> Any:
        return state


class WideSum(Sum):
    """Sums integers of up to 16 bytes.

    Args:
        type_: the type of the sum.
        highest: the greatest absolute value of a sum.
    """

    state_type = WHOLE

    def __init__(self, type_: pa.DataType, highest: int) -> None:
        self.type = type_
        self._highest = highest

    def add(self, state: Any, value: Any, time: int) -> Any:
        if value is None:
            return state
        total = whole(value) if state is None else whole(state) + whole(value)
        if -_INT64 <= total < _INT64:
            return total
        if abs(total) > self._highest:
            raise OverflowError(f"the sum, unscaled {total}, does not fit {self.type}")
        return wide(total)

    def add_columns(self, states: Array, values: Array, times: Array, groups: Integers) -> Array:
        return added_wide(states, values, groups, self._highest)

    def merge_columns(self, states: Array, groups: Integers, size: int) -> Array:
        return added_wide(nulls(size, WHOLE), states, groups, self._highest)

    def state_of(self, result: Any) -> Any:
        return self.add(None, result, 0)

    def results(self, states: Array) -> Array:
        return of_halves(unscaled(states), ~present(states), self.type)

    def merge(self, left: Any, right: Any) -> Any:
        return self.add(left, right, 0)

    def total(self, state: Any) -> Any:
        return whole(state)


class FloatSum(Sum):
    """Sums floats exactly, as a few floats whose exact sum it is, and rounds once, for the result.

    New values are only put behind the others. Where these are too many, they become as few as can be: the rounded sum,
    the rounded rest, and so on until no rest is left. A sum that is not finite stays as it is, or becomes NaN.
    """

    type = pa.float64()
    state_type = pa.list_(pa.float64())

    def add(self, state: Any, value: Any, time: int) -> Any:
        if value is None:
            return state
        if state is None:
            return [value]
        state.append(value)
        return state if len(state) < _TOO_MANY else _fewest(state)

    def add_columns(self, states: Array, values: Array, times: Array, groups: Integers) -> Array:
        return joined_lists(states, values, groups, _TOO_MANY, self._longer)

    def merge_columns(self, states: Array, groups: Integers, size: int) -> Array:
        floats, lengths = listed(states)
        nothing: Any = pa.nulls(size, self.state_type)
        return joined_lists(nothing, floats, groups.repeat(lengths), _TOO_MANY, self._longer)

    def _longer(self, state: list[float] | None, values: list[float]) -> list[float]:
        """Return the state after ``add`` of each value, with as many at a time as leave the sum as it is."""
        longer, place = state or [], 0
        while place < len(values):
            stop = place + max(1, _TOO_MANY - len(longer))
            longer += values[place:stop]
            place = stop
            if len(longer) >= _TOO_MANY:
                longer = _fewest(longer)
        return longer

    def merge(self, left: Any, right: Any) -> Any:
        if left is None or right is None:
            return right if left is None else left
        return _fewest(left + right)

    def total(self, state: Any) -> Any:
        return _rounded(state)

    def state_of(self, result: Any) -> Any:
        return self.add(None, result, 0)

    def totals(self, states: Array) -> Floats:
        """Return the sum of each state; 0.0 where there is none."""
        return exact_sums(states, _rounded)

    def results(self, states: Array) -> Array:
        return pa.array(self.totals(states), mask=~present(states), from_pandas=False)


def _fewest(values: list[float]) -> list[float]:
    """Return as few floats as can be, with the same exact sum, from the least to the greatest; changes ``values``."""
    parts: list[float] = []
    while part := _rounded(values):
        if not isfinite(part):
            return [part]
        parts.append(part)
        values.append(-part)
    return parts[::-1] or [0.0]


def _rounded(values: list[float]) -> float:
    """Return the exact sum, rounded once; 0.0 rather than -0.0."""
    try:
        return fsum(values) + 0.0
    except OverflowError:
        return sum(values)
    except ValueError:  # infinities of both signs
        return nan


class Average(AggregateFunction):
    """The sum of the values divided by their number.

    Args:
        of: the sum.
        type_: the type of the result.
    """

    def __init__(self, of: Sum, type_: pa.DataType) -> None:
        self.type = type_
        self.of = of
        self._add = of.add
        self.state_type = pa.struct([("count", pa.int64()), ("sum", of.state_type)])

    def add(self, state: Any, value: Any, time: int) -> Any:
        if value is None:
            return state
        if state is None:
            return [1, self._add(None, value, time)]
        state[0] += 1
        state[1] = self._add(state[1], value, time)
        return state

    def add_columns(self, states: Array, values: Array, times: Array, groups: Integers) -> Array:
        counts, sums = states.flatten()
        numbers = integers(counts) + counted(values, groups, len(states))
        return self._states(pa.array(numbers), self.of.add_columns(sums, values, times, groups))

    def merge_columns(self, states: Array, groups: Integers, size: int) -> Array:
        counts, sums = states.flatten()
        return self._states(totals(counts, groups, size), self.of.merge_columns(sums, groups, size))

    def _states(self, counts: Array, sums: Array) -> Array:
        """Return states of counts and sums; null where nothing was counted."""
        fields: Any = list(cast(pa.StructType, self.state_type))
        return pa.StructArray.from_arrays([counts, sums], fields=fields, mask=pc.equal(counts, 0))

    def merge(self, left: Any, right: Any) -> Any:
        if left is None or right is None:
            return right if left is None else left
        return [left[0] + right[0], self.of.merge(left[1], right[1])]

    def results(self, states: Array) -> Array:
        total, quotient = self.of.total, self.quotient
        averages = [None if state is None else quotient(total(state[1]), state[0]) for state in to_physical(states)]
        return from_physical(averages, self.type)

    def state_beside(self, result: Any, count: int | None, total: Any) -> Any:
        """Return the state with this result, as far as a count and a sum beside it tell the rest.

        Args:
            result: the average, in its physical form.
            count: how many values there are; None if that is unknown.
            total: their sum, in its physical form; None if there is none, or it is unknown.

        Raises:
            ConfigurationError: they tell too little.
            ValueError, OverflowError: they contradict each other, or no values have such a sum.
        """
        if result is None:
            if count or total is not None:
                raise ValueError("there are values, but their average is null")
            return None
        if count is None:
            raise EditRefusedError("its state is more than its result")
        summed = self._total_of(result, count) if total is None else self.of.total(self.of.state_of(total))
        if not self._fits(result, summed, count):
            raise ValueError("it is not the average that the count and the sum beside it have")
        return [count, self.of.add(None, summed, 0)]

    def _total_of(self, result: Any, count: int) -> Any:
        """Return the only sum with which so many values have an average."""
        if isinstance(self.of, FloatSum):
            near = result * count
            around = (near, nextafter(near, -inf), nextafter(near, inf))
            return next((one for one in around if self._fits(result, one, count)), near)
        nearest = round(self._share(result) * count) if isfinite(self._share(result)) else 0
        if self._fits(result, nearest - 1, count) or self._fits(result, nearest + 1, count):
            raise EditRefusedError("several sums have this average, and no sum of the same column is beside it")
        return nearest

    def _fits(self, result: Any, total: Any, count: int) -> bool:
        """Return whether so many values with this sum have that average."""
        return count > 0 and repr(self.quotient(total, count)) == repr(result)

    def _share(self, result: Any) -> Any:
        """Return the share of one of several equal values in a sum that is a whole number."""
        return Fraction(result) if isfinite(result) else result

    def quotient(self, total: Any, count: int) -> Any:
        """Return the physical form of the average."""
        return total / count


class FloatAverage(Average):
    """An average of floats.

    Args:
        of: the sum.
    """

    def __init__(self, of: FloatSum) -> None:
        super().__init__(of, pa.float64())
        self._floats = of

    def results(self, states: Array) -> Array:
        counts, sums = states.flatten()
        numbers, there = integers(counts), present(states)
        if ((numbers < 1) | ~present(sums))[there].any():
            raise ValueError("a state has no values")
        with np.errstate(all="ignore"):
            averages = self._floats.totals(sums) / numbers
        return pa.array(averages, mask=~there, from_pandas=False)


class RoundedAverage(Average):
    """An average of decimals or durations, rounded half up (away from zero).

    Spark divides decimals to 38 digits behind the point, rounded half up, and then rounds to the scale of the result.

    Args:
        of: the sum.
        scale: the scale of the sum, in decimal digits.
        type_: the type of the result.
    """

    def __init__(self, of: Sum, scale: int, type_: Any) -> None:
        super().__init__(of, type_)
        is_decimal = pa.types.is_decimal(type_)
        self._finer = 10 ** (_MAX_DIGITS - scale)
        self._coarser = 10 ** (_MAX_DIGITS - type_.scale) if is_decimal else self._finer
        self._highest = 10**type_.precision - 1 if is_decimal else _INT64

    def _share(self, result: Any) -> Any:
        return Fraction(whole(result) * self._coarser, self._finer)

    def quotient(self, total: Any, count: int) -> Any:
        average = _half_up(_half_up(total * self._finer, count), self._coarser)
        if abs(average) > self._highest:
            raise OverflowError(f"the average, unscaled {average}, does not fit {self.type}")
        return physical(average, self.type)


def _half_up(dividend: int, divisor: int) -> int:
    """Return the nearest integer to the quotient; of two, that which is further from zero."""
    rounded = (2 * abs(dividend) + divisor) // (2 * divisor)
    return rounded if dividend >= 0 else -rounded


def bind_sum(path: str, type_: Any) -> Sum:
    """Return the sum of a column of that type.

    Raises:
        ConfigurationError: such values have no sum.
    """
    if pa.types.is_integer(type_):
        return NarrowSum(pa.int64())
    if pa.types.is_floating(type_):
        return FloatSum()
    if pa.types.is_duration(type_):
        return NarrowSum(DURATION)
    if pa.types.is_decimal(type_):
        wider = pa.decimal128(min(_MAX_DIGITS, type_.precision + 10), type_.scale)
        return _decimal_sum(wider)
    raise refusal(path, type_, "only numbers and durations can be added")


def _decimal_sum(type_: pa.Decimal128Type) -> Sum:
    highest = 10**type_.precision - 1
    return WideSum(type_, highest) if type_.precision > SHORT_DECIMAL else NarrowSum(type_, -highest, highest)


def bind_average(path: str, type_: Any) -> Average:
    """Return the average of a column of that type.

    Raises:
        ConfigurationError: such values have no average.
    """
    if pa.types.is_integer(type_):
        return Average(WideSum(pa.int64(), 10**_MAX_DIGITS), pa.float64())
    of = bind_sum(path, type_)
    if isinstance(of, FloatSum):
        return FloatAverage(of)
    if pa.types.is_duration(type_):
        return RoundedAverage(of, 0, DURATION)
    if isinstance(of, WideSum):  # It need not fit a type of its own.
        of = WideSum(of.type, _INT128 - 1)
    precision, scale = min(_MAX_DIGITS, type_.precision + 4), min(_MAX_DIGITS, type_.scale + 4)
    return RoundedAverage(of, type_.scale, pa.decimal128(precision, scale))
