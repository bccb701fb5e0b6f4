"""Variances, standard deviations, skewness and kurtosis, of exact sums of the powers of the values.

The states, whose sums ``millpond.processors.verbs.functions.exact_sums`` writes::

    variances, deviations    nil, or [count, bits, sum, sum of squares]
    skewness                 nil, or the same, and then the sum of cubes
    kurtosis                 nil, or the same, and then the sum of fourth powers

If a value is not finite, all is nil but the count, and the result is NaN. ``bits`` is the binary logarithm of how many
units one is, 0 for other numbers than floats; the sums are of the values as so many units. They have as many digits as
the greatest value has in that unit, twice, three and four times as many: for prices 10 and 17 bytes, and in the worst
case, of values from 1e-320 to 1e308 in one group, 270 and 540.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from math import nan
from typing import Any, ClassVar

import pyarrow as pa

from millpond.processors.verbs.functions.exact_sums import (
    ExactSums,
    Unit,
    checked_bits,
    from_bytes,
    quotient,
    root,
    to_bytes,
)

Finish = Callable[[int, int], float]
"""Makes a result of the numerator and the denominator of a variance."""


class Moments(ExactSums):
    """A function of the count and of the sums of powers of values.

    Args:
        unit: the unit of the values.
    """

    names: ClassVar[Sequence[str]]
    """Of the sums of the first, the second power, and so on, in columns of states."""

    def __init__(self, unit: Unit) -> None:
        self._unit = unit
        sums = [(name, pa.binary()) for name in self.names]
        self.state_type = pa.struct([("count", pa.int64()), ("bits", pa.int64()), *sums])

    @abstractmethod
    def finished(self, count: int, sums: Sequence[int], unit: int) -> float | None:
        """Return the result of whole numbers, of which so many units are one."""

    def state_of_values(self, values: Sequence[Any]) -> list[Any]:
        made = self._unit.wholes(values)
        if made is None:
            return self._not_finite(len(values))
        bits, numbers = made
        sums = (sum(number**power for number in numbers) for power, _ in enumerate(self.names, 1))
        return [len(numbers), bits, *map(to_bytes, sums)]

    def merged(self, left: Sequence[Any], right: Sequence[Any]) -> list[Any]:
        count = left[0] + right[0]
        if left[1] is None or right[1] is None:
            return self._not_finite(count)
        bits = max(checked_bits(left[1]), checked_bits(right[1]))
        sums = (
            sum(from_bytes(state[1 + power]) << power * (bits - state[1]) for state in (left, right))
            for power, _ in enumerate(self.names, 1)
        )
        return [count, bits, *map(to_bytes, sums)]

    def result(self, state: Sequence[Any]) -> float | None:
        if state[1] is None:
            return nan
        return self.finished(
            state[0], list(map(from_bytes, state[2:])), self._unit.denominator << checked_bits(state[1])
        )

    def _not_finite(self, count: int) -> list[Any]:
        return [count, None, *([None] * len(self.names))]


class Variance(Moments):
    """The variance or the standard deviation.

    Args:
        unit: the unit of the values.
        sample: whether the values are a sample of the population of the variance: then one value has none.
        finish: makes the result.
    """

    names = ("sum", "squares")

    def __init__(self, unit: Unit, *, sample: bool, finish: Finish) -> None:
        super().__init__(unit)
        self._sample = sample
        self._finish = finish

    def result(self, state: Sequence[Any]) -> float | None:
        return None if self._sample and state[0] == 1 else super().result(state)

    def finished(self, count: int, sums: Sequence[int], unit: int) -> float | None:
        return self._finish(_squares(count, sums), count * (count - self._sample) * unit**2)


class Skewness(Moments):
    """The third moment about the average, divided by the cube of the standard deviation. It has no unit."""

    names = ("sum", "squares", "cubes")

    def finished(self, count: int, sums: Sequence[int], unit: int) -> float | None:
        first, second, third = sums
        squares = _squares(count, sums)
        if not squares:
            return None
        cubes = count**2 * third - 3 * count * first * second + 2 * first**3
        size = root(cubes**2, squares**3)
        return -size if cubes < 0 else size


class Kurtosis(Moments):
    """The fourth moment about the average, divided by the square of the variance, less 3. It has no unit."""

    names = ("sum", "squares", "cubes", "fourths")

    def finished(self, count: int, sums: Sequence[int], unit: int) -> float | None:
        first, second, third, fourth = sums
        squares = _squares(count, sums)
        if not squares:
            return None
        fourths = count**3 * fourth - 4 * count**2 * first * third + 6 * count * first**2 * second - 3 * first**4
        return quotient(fourths - 3 * squares**2, squares**2)


def _squares(count: int, sums: Sequence[int]) -> int:
    """Return the count times the sum of the squares of distances from the average."""
    return count * sums[1] - sums[0] ** 2


def bind_variance(path: str, type_: Any, *, finish: Finish, sample: bool) -> Variance:
    """Return the function for the variance or the standard deviation of a column.

    Args:
        path: the name of the column in errors.
        type_: the type of the values.
        finish: ``quotient`` for the variance, ``root`` for the standard deviation.
        sample: whether it is of a population that the values sample, and not of the values themselves.

    Raises:
        ConfigurationError: such values have none.
    """
    return Variance(Unit(path, type_, "a variance"), sample=sample, finish=finish)


def bind_skewness(path: str, type_: Any) -> Skewness:
    """Return the skewness of a column.

    Raises:
        ConfigurationError: such values have none.
    """
    return Skewness(Unit(path, type_, "a skewness"))


def bind_kurtosis(path: str, type_: Any) -> Kurtosis:
    """Return the kurtosis of a column.

    Raises:
        ConfigurationError: such values have none.
    """
    return Kurtosis(Unit(path, type_, "a kurtosis"))
