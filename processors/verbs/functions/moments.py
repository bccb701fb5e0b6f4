"""Variances and standard deviations, of exact sums of the values and of their squares.

Rule of this module: nothing is rounded before the result is made, so the order of the values makes no difference.

All values of a column are whole multiples of some unit: of a decimal that of its last digit, of floats a power of two,
which is the finest that any of them needs. So a state has whole numbers, and there is one of it for the same values::

    nil, or [count, bits, sum, squares]
    [count, nil, nil, nil]                if a value is not finite: the result is NaN

``bits`` is the binary logarithm of how many units one is, 0 for other numbers than floats; ``sum`` and ``squares`` are
of the values as so many units, as bytes in two's complement, big-endian, as few as can be. They have as many digits as
the greatest value has in that unit, and twice as many: for prices 10 and 17 bytes, and in the worst case, of values
from 1e-320 to 1e308 in one group, 270 and 540.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import inf, isfinite, isqrt, nan
from typing import Any, Final

import numpy as np
import pyarrow as pa

from millpond.processors.verbs.functions.columns import Array, Integers, present
from millpond.processors.verbs.functions.function import AggregateFunction, refusal
from millpond.processors.verbs.functions.sums import whole
from millpond.stores.encoding.rows.physical import from_physical, to_physical

_FINEST: Final = 1074
"""The most bits behind the point that a float has."""
_DIGITS: Final = 109
"""As many bits of a square root decide its rounding to a float."""

Finish = Callable[[int, int], float]
"""Makes a result of the numerator and the denominator of a variance."""


class Moments(AggregateFunction):
    """What is made of the count, the sum and the sum of squares of values.

    Args:
        floats: whether values are floats, or else integers.
        scale: of decimals, how many digits are behind the point.
        sample: whether the values are a sample of those that the variance is of: then one value has none.
        finish: makes the result.
    """

    type = pa.float64()
    state_type = pa.struct(
        [("count", pa.int64()), ("bits", pa.int64()), ("sum", pa.binary()), ("squares", pa.binary())]
    )

    def __init__(self, *, floats: bool, scale: int, sample: bool, finish: Finish) -> None:
        self._floats = floats
        self._unit = 10 ** (2 * scale)
        self._sample = sample
        self._finish = finish

    def add(self, state: Any, value: Any, time: int) -> Any:
        return state if value is None else self.merge(state, self._state([value]))

    def merge(self, left: Any, right: Any) -> Any:
        if left is None or right is None:
            return right if left is None else left
        count = left[0] + right[0]
        if left[1] is None or right[1] is None:
            return [count, None, None, None]
        bits = max(_bits(left), _bits(right))
        totals, squares = (
            [_number(state[place]) << power * (bits - state[1]) for state in (left, right)]
            for place, power in ((2, 1), (3, 2))
        )
        return [count, bits, _bytes(sum(totals)), _bytes(sum(squares))]

    def add_columns(self, states: Array, values: Array, times: Array, groups: Integers) -> Array:
        there = present(values)
        numbers, given = groups[there], to_physical(values.drop_null())
        order = numbers.argsort(kind="stable")
        bounds = np.flatnonzero(np.diff(numbers[order], prepend=-1, append=-1)).tolist()
        made = to_physical(states)
        for start, stop in pairwise(bounds):
            group = int(numbers[order[start]])
            made[group] = self.merge(made[group], self._state([given[place] for place in order[start:stop].tolist()]))
        return from_physical(made, self.state_type)

    def merge_columns(self, states: Array, groups: Integers, size: int) -> Array:
        made: list[Any] = [None] * size
        for group, state in zip(groups.tolist(), to_physical(states), strict=True):
            made[group] = self.merge(made[group], state)
        return from_physical(made, self.state_type)

    def results(self, states: Array) -> Array:
        return pa.array(map(self._result, to_physical(states)), self.type, from_pandas=False)

    def _state(self, values: Sequence[Any]) -> list[Any]:
        """The state of values that are not null."""
        if not self._floats:
            return _state_of(0, list(map(whole, values)))
        if not all(map(isfinite, values)):
            return [len(values), None, None, None]
        ratios = [value.as_integer_ratio() for value in values]
        bits = max(denominator.bit_length() for _, denominator in ratios) - 1
        return _state_of(bits, [number << bits + 1 - denominator.bit_length() for number, denominator in ratios])

    def _result(self, state: Any) -> float | None:
        if state is None or (self._sample and state[0] == 1):
            return None
        count = state[0]
        if state[1] is None:
            return nan
        bits = _bits(state)
        squares = count * _number(state[3]) - _number(state[2]) ** 2
        return self._finish(squares, count * (count - self._sample) * self._unit << 2 * bits)


def _state_of(bits: int, numbers: Sequence[int]) -> list[Any]:
    return [len(numbers), bits, _bytes(sum(numbers)), _bytes(sum(number * number for number in numbers))]


def _bits(state: Sequence[Any]) -> int:
    """The bits of a state; whatever was written otherwise never makes numbers of any size."""
    bits: int = state[1]
    if not 0 <= bits <= _FINEST:
        raise ValueError(f"no float has {bits} bits behind the point")
    return bits


def _bytes(number: int) -> bytes:
    return number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)


def _number(data: bytes) -> int:
    return int.from_bytes(data, "big", signed=True)


def quotient(numerator: int, denominator: int) -> float:
    """The quotient, rounded once; infinite beyond the greatest float."""
    try:
        return numerator / denominator
    except OverflowError:
        return inf


def root(numerator: int, denominator: int) -> float:
    """The square root of a quotient, rounded once.

    It is cut off behind more digits than a float has, with the last one odd if something is behind it: so no tie is
    taken for one that is none.
    """
    shift = (numerator.bit_length() - denominator.bit_length() - _DIGITS) // 2
    numerator, denominator = numerator << max(0, -2 * shift), denominator << max(0, 2 * shift)
    digits = isqrt(numerator // denominator)
    digits |= digits * digits * denominator != numerator
    return quotient(digits << max(0, shift), 1 << max(0, -shift))


def bind_moments(path: str, type_: Any, *, finish: Finish, sample: bool) -> Moments:
    """The variance or the standard deviation of a column.

    Args:
        path: what errors call the column.
        type_: of the values.
        finish: ``quotient`` for the variance, ``root`` for the standard deviation.
        sample: whether it is that of a population of which the values are a sample, and not of the values themselves.

    Raises:
        ConfigurationError: such values have none.
    """
    decimal = pa.types.is_decimal(type_)
    if not (decimal or pa.types.is_integer(type_) or pa.types.is_floating(type_)):
        raise refusal(path, type_, "only numbers have a variance")
    scale = type_.scale if decimal else 0
    return Moments(floats=pa.types.is_floating(type_), scale=scale, sample=sample, finish=finish)
