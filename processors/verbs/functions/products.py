"""Products and geometric means, of one product that is exact up to 1,024 bits.

Rule of this module: digits that are cut off lie so far behind those of a float that the order of the values makes no
difference to a result.

The state, whose digits ``millpond.processors.verbs.functions.exact_sums`` writes::

    nil, or [count, power of 2, digits, nil]
    [count, power of 2, digits, product of the values that are not finite]

The product of the finite values is ``digits * 2 ** power``, with the fewest digits; decimals count as they
are, not as unscaled numbers.
"""

from abc import abstractmethod
from collections.abc import Sequence
from math import inf, ldexp, log2, nan
from typing import Any, Final

import pyarrow as pa

from millpond.processors.verbs.functions.exact_sums import ExactSums, Unit, from_bytes, quotient, to_bytes

_BITS: Final = 1024
"""The number of bits of a product that are kept."""
_HIGHEST: Final = 1_100
"""The binary logarithm of a product that is far beyond the greatest float."""
_LOWEST: Final = -1_200
"""The binary logarithm of a product that is far below the least float."""


class Products(ExactSums):
    """A function of the product of values.

    Args:
        unit: the unit of the values.
    """

    state_type = pa.struct(
        [("count", pa.int64()), ("power", pa.int64()), ("digits", pa.binary()), ("beyond", pa.float64())]
    )

    def __init__(self, unit: Unit) -> None:
        self._unit = unit

    @abstractmethod
    def finished(self, count: int, power: int, digits: int, beyond: float | None) -> float:
        """Return the result; ``beyond`` is the product of the values that are not finite, None if all are."""

    def factor(self, value: Any) -> tuple[int, int] | float:
        """Return the power and the digits of a value, or the value if it is not finite."""
        made = self._unit.wholes([value])
        if made is None:
            return float(value)
        bits, (digits,) = made
        if self._unit.denominator == 1:
            return _cut(-bits, digits)
        more = _BITS + self._unit.denominator.bit_length()
        size = (abs(digits) << more) // self._unit.denominator
        return _cut(-more, size if digits > 0 else -size)

    def state_of_values(self, values: Sequence[Any]) -> list[Any]:
        count, power, digits, beyond = 0, 0, 1, None
        for value in values:
            factor = self.factor(value)
            count += 1
            if isinstance(factor, float):
                beyond = factor if beyond is None else beyond * factor
            else:
                power, digits = _cut(power + factor[0], digits * factor[1])
        return [count, power, to_bytes(digits), beyond]

    def extended(self, state: Any, values: Sequence[Any]) -> Any:
        # One by one, so that it makes no difference which of them come together.
        for value in values:
            state = self.merge(state, self.state_of_values([value]))
        return state

    def merged(self, left: Sequence[Any], right: Sequence[Any]) -> list[Any]:
        power, digits = _cut(left[1] + right[1], from_bytes(left[2]) * from_bytes(right[2]))
        beyond = right[3] if left[3] is None or right[3] is None else left[3] * right[3]
        return [left[0] + right[0], power, to_bytes(digits), left[3] if beyond is None else beyond]

    def result(self, state: Sequence[Any]) -> float:
        count, power, digits, beyond = state
        return self.finished(count, power, from_bytes(digits), beyond)


class Product(Products):
    """The product."""

    def finished(self, count: int, power: int, digits: int, beyond: float | None) -> float:
        size = power + digits.bit_length()
        if beyond is not None or size > _HIGHEST:
            return float((digits > 0) - (digits < 0)) * (inf if beyond is None else beyond)
        return 0.0 if size < _LOWEST else quotient(digits << max(0, power), 1 << max(0, -power))


class GeometricMean(Products):
    """The root of the product, as many times as there are values."""

    def factor(self, value: Any) -> tuple[int, int] | float:
        factor = super().factor(value)
        negative = factor < 0 if isinstance(factor, float) else factor[1] < 0
        return nan if negative else factor

    def finished(self, count: int, power: int, digits: int, beyond: float | None) -> float:
        if beyond is not None:
            return beyond if digits else nan
        if not digits:
            return 0.0
        size = digits.bit_length()
        whole, rest = divmod(power + size, count)
        return ldexp(2 ** ((rest + log2(digits / (1 << size))) / count), whole)


def _cut(power: int, digits: int) -> tuple[int, int]:
    """Return the same product with as few digits as tell it, and no more than are kept."""
    if not digits:
        return 0, 0
    size = abs(digits)
    more = max(size.bit_length() - _BITS, 0)
    size >>= more
    zeros = (size & -size).bit_length() - 1
    size >>= zeros
    return power + more + zeros, size if digits > 0 else -size


def bind_product(path: str, type_: Any) -> Product:
    """Return the product of a column.

    Raises:
        ConfigurationError: such values have none.
    """
    return Product(Unit(path, type_, "a product"))


def bind_geometric_mean(path: str, type_: Any) -> GeometricMean:
    """Return the geometric mean of a column.

    Raises:
        ConfigurationError: such values have none.
    """
    return GeometricMean(Unit(path, type_, "a geometric mean"))
