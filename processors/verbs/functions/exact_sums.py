"""``ExactSums``: the base of functions whose states are exact sums of whole numbers.

Rule of this module: nothing is rounded before a result is made, so the order of the values makes no difference.

All values of a column are whole multiples of some unit: for decimals their last digit, for floats a power of two,
which is the finest that any of them needs. So a state has whole numbers, and there is one of it for the same values.
They are bytes in two's complement, big-endian, as few as can be.
"""

from abc import abstractmethod
from collections.abc import Sequence
from itertools import pairwise
from math import inf, isfinite, isqrt
from typing import Any, Final

import numpy as np
import pyarrow as pa

from millpond.processors.runtime.order.time_order import stable_order
from millpond.processors.verbs.functions.columns import Array, Integers, present
from millpond.processors.verbs.functions.function import AggregateFunction, refusal
from millpond.processors.verbs.functions.sums import whole
from millpond.stores.encoding.rows.physical import from_physical, to_physical

_FINEST: Final = 1074
"""The most bits behind the point that a float has."""
_DIGITS: Final = 109
"""As many bits of a square root decide its rounding to a float."""


class ExactSums(AggregateFunction):
    """A function of a count and of exact sums; a state is nil before any value."""

    type = pa.float64()

    @abstractmethod
    def state_of_values(self, values: Sequence[Any]) -> list[Any]:
        """Return the state of some values, none of which is null."""

    @abstractmethod
    def merged(self, left: Sequence[Any], right: Sequence[Any]) -> list[Any]:
        """Return the state of the values of two states."""

    @abstractmethod
    def result(self, state: Sequence[Any]) -> float | None:
        """Return the result of a state."""

    def extended(self, state: Any, values: Sequence[Any]) -> Any:
        """Return a state with more values, none of which is null."""
        return self.merge(state, self.state_of_values(values))

    def add(self, state: Any, value: Any, time: int) -> Any:
        return state if value is None else self.merge(state, self.state_of_values([value]))

    def merge(self, left: Any, right: Any) -> Any:
        if left is None or right is None:
            return right if left is None else left
        return self.merged(left, right)

    def add_columns(self, states: Array, values: Array, times: Array, groups: Integers) -> Array:
        there = present(values)
        numbers, given = groups[there], to_physical(values.drop_null())
        order = stable_order(numbers)
        bounds = np.flatnonzero(np.diff(numbers[order], prepend=-1, append=-1)).tolist()
        made = to_physical(states)
        for start, stop in pairwise(bounds):
            group, rows = int(numbers[order[start]]), order[start:stop].tolist()
            made[group] = self.extended(made[group], [given[row] for row in rows])
        return from_physical(made, self.state_type)

    def merge_columns(self, states: Array, groups: Integers, size: int) -> Array:
        made: list[Any] = [None] * size
        for group, state in zip(groups.tolist(), to_physical(states), strict=True):
            made[group] = self.merge(made[group], state)
        return from_physical(made, self.state_type)

    def results(self, states: Array) -> Array:
        found = [None if state is None else self.result(state) for state in to_physical(states)]
        return pa.array(found, self.type, from_pandas=False)


class Unit:
    """The unit of a column's numbers, by which they become whole. Can be pickled.

    Args:
        path: the name of the column in errors.
        type_: the type of the column.
        wanted: the property that only numbers have, for errors.

    Attributes:
        denominator: how many units one is, except for the bits of floats.

    Raises:
        ConfigurationError: they are no numbers.
    """

    def __init__(self, path: str, type_: Any, wanted: str) -> None:
        decimal = pa.types.is_decimal(type_)
        if not (decimal or pa.types.is_integer(type_) or pa.types.is_floating(type_)):
            raise refusal(path, type_, f"only numbers have {wanted}")
        self._floats = pa.types.is_floating(type_)
        self.denominator = 10**type_.scale if decimal else 1

    def wholes(self, values: Sequence[Any]) -> tuple[int, list[int]] | None:
        """Return the values as whole units, of which 2 ** bits are one, behind the bits; None if one is not finite."""
        if not self._floats:
            return 0, list(map(whole, values))
        if not all(map(isfinite, values)):
            return None
        ratios = [value.as_integer_ratio() for value in values]
        bits = max(denominator.bit_length() for _, denominator in ratios) - 1
        return bits, [number << bits + 1 - denominator.bit_length() for number, denominator in ratios]


def checked_bits(bits: int) -> int:
    """Return the bits of a state; whatever was written otherwise never makes numbers of any size."""
    if not 0 <= bits <= _FINEST:
        raise ValueError(f"no float has {bits} bits behind the point")
    return bits


def to_bytes(number: int) -> bytes:
    """Return a whole number as a state has it."""
    return number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)


def from_bytes(data: bytes) -> int:
    """Return the whole number."""
    return int.from_bytes(data, "big", signed=True)


def quotient(numerator: int, denominator: int) -> float:
    """Return the quotient by a positive number, rounded once; infinite beyond the greatest float."""
    try:
        return numerator / denominator
    except OverflowError:
        return inf if numerator > 0 else -inf


def root(numerator: int, denominator: int) -> float:
    """Return the square root of a quotient, rounded once.

    It is cut off behind more digits than a float has, with the last one odd if something is behind it: so nothing is
    mistaken for a tie.
    """
    shift = (numerator.bit_length() - denominator.bit_length() - _DIGITS) // 2
    numerator, denominator = numerator << max(0, -2 * shift), denominator << max(0, 2 * shift)
    digits = isqrt(numerator // denominator)
    digits |= digits * digits * denominator != numerator
    return quotient(digits << max(0, shift), 1 << max(0, -shift))
