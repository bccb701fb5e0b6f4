"""Variances and standard deviations, of exact sums of the values and of their squares.

The states, whose sums ``millpond.processors.verbs.functions.exact_sums`` writes::

    nil, or [count, bits, sum, squares]
    [count, nil, nil, nil]                if a value is not finite: the result is NaN

``bits`` is the binary logarithm of how many units one is, 0 for other numbers than floats; ``sum`` and ``squares`` are
of the values as so many units. They have as many digits as the greatest value has in that unit, and twice as many: for
prices 10 and 17 bytes, and in the worst case, of values from 1e-320 to 1e308 in one group, 270 and 540.
"""

from collections.abc import Callable, Sequence
from math import nan
from typing import Any

import pyarrow as pa

from millpond.processors.verbs.functions.exact_sums import ExactSums, Unit, checked_bits, from_bytes, to_bytes

Finish = Callable[[int, int], float]
"""Makes a result of the numerator and the denominator of a variance."""


class Moments(ExactSums):
    """What is made of the count, the sum and the sum of squares of values.

    Args:
        unit: of the values.
        sample: whether the values are a sample of those that the variance is of: then one value has none.
        finish: makes the result.
    """

    state_type = pa.struct(
        [("count", pa.int64()), ("bits", pa.int64()), ("sum", pa.binary()), ("squares", pa.binary())]
    )

    def __init__(self, unit: Unit, *, sample: bool, finish: Finish) -> None:
        self._unit = unit
        self._sample = sample
        self._finish = finish

    def state_of_values(self, values: Sequence[Any]) -> list[Any]:
        made = self._unit.wholes(values)
        if made is None:
            return [len(values), None, None, None]
        bits, numbers = made
        return [len(numbers), bits, to_bytes(sum(numbers)), to_bytes(sum(number * number for number in numbers))]

    def merged(self, left: Sequence[Any], right: Sequence[Any]) -> list[Any]:
        count = left[0] + right[0]
        if left[1] is None or right[1] is None:
            return [count, None, None, None]
        bits = max(checked_bits(left[1]), checked_bits(right[1]))
        totals, squares = (
            [from_bytes(state[place]) << power * (bits - state[1]) for state in (left, right)]
            for place, power in ((2, 1), (3, 2))
        )
        return [count, bits, to_bytes(sum(totals)), to_bytes(sum(squares))]

    def result(self, state: Sequence[Any]) -> float | None:
        count = state[0]
        if self._sample and count == 1:
            return None
        if state[1] is None:
            return nan
        bits = checked_bits(state[1])
        squares = count * from_bytes(state[3]) - from_bytes(state[2]) ** 2
        return self._finish(squares, count * (count - self._sample) * self._unit.denominator**2 << 2 * bits)


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
    return Moments(Unit(path, type_, "a variance"), sample=sample, finish=finish)
