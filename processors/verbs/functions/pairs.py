"""Functions of two columns: covariances, correlations and weighted averages, of exact sums of products.

Rule of this module: rows in which one of the two is null do not count.

The states, whose sums ``millpond.processors.verbs.functions.exact_sums`` writes, x and y being the two values::

    covariance          nil, or [count, bits of x, bits of y, sum of x, sum of y, sum of x * y]
    correlation         nil, or the same, and then the sum of x * x, and the sum of y * y
    weighted average    nil, or [count, bits of x, bits of y, sum of y, sum of x * y], y being the weight

If a value is not finite, all is nil except the count, and the result is NaN.
"""

from abc import abstractmethod
from collections.abc import Sequence
from math import nan
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as _compute

from millpond.processors.verbs.functions.chosen import Chosen
from millpond.processors.verbs.functions.columns import Array
from millpond.processors.verbs.functions.exact_sums import (
    ExactSums,
    Unit,
    checked_bits,
    from_bytes,
    quotient,
    root,
    to_bytes,
)
from millpond.processors.verbs.functions.function import AggregateFunction

pc: Any = _compute

Powers = tuple[int, int]
"""The powers of the first and the second value in a product."""


class Complete(Chosen):
    """Passes over rows in which a field is null."""

    def add(self, state: Any, value: Any, time: Any) -> Any:
        return state if value is None or None in value else self.function.add(state, value, time)

    def chosen(self, values: Array, times: Array) -> Array:
        first, second = values.flatten()
        return pc.and_(first.is_valid(), second.is_valid())


class Products(ExactSums):
    """A function of the sums of products of two values.

    Args:
        units: the units of the two values.
        least: the least number of rows with a result.
    """

    powers: ClassVar[Sequence[Powers]]

    def __init__(self, units: tuple[Unit, Unit], least: int) -> None:
        self._units = units
        self._least = least
        sums = [(f"sum{place}", pa.binary()) for place, _ in enumerate(self.powers)]
        self.state_type = pa.struct([("count", pa.int64()), ("first", pa.int64()), ("second", pa.int64()), *sums])

    @abstractmethod
    def finished(self, count: int, sums: Sequence[int], units: Powers) -> float | None:
        """Return the result of whole numbers; the first and the second have so many units in one."""

    def state_of_values(self, values: Sequence[Any]) -> list[Any]:
        made = [unit.wholes(column) for unit, column in zip(self._units, zip(*values, strict=True), strict=True)]
        if None in made:
            return self._not_finite(len(values))
        (first_bits, first), (second_bits, second) = (one for one in made if one is not None)
        pairs = list(zip(first, second, strict=True))
        sums = (sum(x**i * y**j for x, y in pairs) for i, j in self.powers)
        return [len(pairs), first_bits, second_bits, *map(to_bytes, sums)]

    def merged(self, left: Sequence[Any], right: Sequence[Any]) -> list[Any]:
        count = left[0] + right[0]
        if left[1] is None or right[1] is None:
            return self._not_finite(count)
        bits = [max(checked_bits(left[place]), checked_bits(right[place])) for place in (1, 2)]
        sums = [0] * len(self.powers)
        for state in (left, right):
            finer = bits[0] - state[1], bits[1] - state[2]
            for place, (i, j) in enumerate(self.powers):
                sums[place] += from_bytes(state[3 + place]) << i * finer[0] + j * finer[1]
        return [count, *bits, *map(to_bytes, sums)]

    def result(self, state: Sequence[Any]) -> float | None:
        count, *bits = state[:3]
        if count < self._least:
            return None
        if None in bits:
            return nan
        first, second = (unit.denominator << checked_bits(one) for unit, one in zip(self._units, bits, strict=True))
        return self.finished(count, list(map(from_bytes, state[3:])), (first, second))

    def _not_finite(self, count: int) -> list[Any]:
        return [count, None, None, *([None] * len(self.powers))]


class Covariance(Products):
    """The covariance of the values, or of a population of which they are a sample if ``least`` is 2."""

    powers = ((1, 0), (0, 1), (1, 1))

    def finished(self, count: int, sums: Sequence[int], units: Powers) -> float | None:
        first, second, both = sums
        return quotient(count * both - first * second, count * (count + 1 - self._least) * units[0] * units[1])


class Correlation(Products):
    """The correlation coefficient of Pearson, which has no unit."""

    powers = ((1, 0), (0, 1), (1, 1), (2, 0), (0, 2))

    def finished(self, count: int, sums: Sequence[int], units: Powers) -> float | None:
        first, second, both, first_squares, second_squares = sums
        shared = count * both - first * second
        variances = (count * first_squares - first**2) * (count * second_squares - second**2)
        if not variances:
            return None
        size = root(shared**2, variances)
        return -size if shared < 0 else size


class WeightedAverage(Products):
    """The average of the first value, each with the second one as its weight."""

    powers = ((0, 1), (1, 1))

    def finished(self, count: int, sums: Sequence[int], units: Powers) -> float | None:
        weights, weighted = sums
        sign = -1 if weights < 0 else 1
        return quotient(sign * weighted, sign * weights * units[0]) if weights else None


def bind_pairs(path: str, type_: Any, *, of: type[Products], least: int) -> AggregateFunction:
    """Return a function of two columns.

    Args:
        path: the name of the result in errors.
        type_: the struct of the two values.
        of: the function.
        least: the least number of rows with a result.

    Raises:
        ConfigurationError: one of them is of a type that it does not take.
    """
    first, second = (Unit(f"{path}, the {field.name} column", field.type, "that") for field in type_)
    return Complete(of((first, second), least))
