"""Conjunctions, disjunctions and the like: of booleans, and of the bits of integers.

Rule of this module: the state is the result, nil as long as there is no value.
"""

from collections.abc import Callable
from operator import and_, or_, xor
from typing import Any, Final

import numpy as np
import pyarrow as pa

from millpond.processors.verbs.functions.columns import Array, Integers, chained, integers
from millpond.processors.verbs.functions.function import AggregateFunction, refusal
from millpond.processors.verbs.functions.picks import Extreme
from millpond.stores.encoding.rows.physical import from_integers

Combine = Callable[[Any, Any], Any]

_COMBINING: Final[dict[Combine, tuple[Any, int]]] = {
    and_: (np.bitwise_and, -1),
    or_: (np.bitwise_or, 0),
    xor: (np.bitwise_xor, 0),
}
"""The same for columns, and the value that leaves all others as they are."""


class Bits(AggregateFunction):
    """The bits of integers in two's complement, combined one by one.

    Args:
        type_: the type of the values.
        combine: ``and_``, ``or_`` or ``xor``.
    """

    def __init__(self, type_: pa.DataType, combine: Combine) -> None:
        self.type = self.state_type = type_
        self._combine = combine

    def add(self, state: Any, value: Any, time: int) -> Any:
        return self.merge(state, value)

    def merge(self, left: Any, right: Any) -> Any:
        if left is None or right is None:
            return right if left is None else left
        return self._combine(left, right)

    def add_columns(self, states: Array, values: Array, times: Array, groups: Integers) -> Array:
        return self._combined(*chained(states, values, groups), len(states))

    def merge_columns(self, states: Array, groups: Integers, size: int) -> Array:
        return self._combined(*chained(pa.nulls(size, states.type), states, groups), size)

    def _combined(self, values: Array, groups: Integers, size: int) -> Array:
        combine, neutral = _COMBINING[self._combine]
        bits = np.full(size, neutral, np.int64)
        combine.at(bits, groups, integers(values))
        return from_integers(pa.array(bits, mask=np.bincount(groups, minlength=size) == 0), self.state_type)

    def state_of(self, result: Any) -> Any:
        return result

    def results(self, states: Array) -> Array:
        return states


def bind_booleans(path: str, type_: pa.DataType, *, before: Combine) -> Extreme:
    """Return the function that tells whether all booleans of a column are true, or some.

    Args:
        path: the name of the column in errors.
        type_: the type of the values.
        before: ``lt`` for all, ``gt`` for some: false is less than true.

    Raises:
        ConfigurationError: the column has other values.
    """
    if not pa.types.is_boolean(type_):
        raise refusal(path, type_, "only booleans can be combined so")
    return Extreme(type_, before)


def bind_bits(path: str, type_: pa.DataType, *, combine: Combine) -> Bits:
    """Return the function that combines the bits of a column's integers.

    Args:
        path: the name of the column in errors.
        type_: the type of the values.
        combine: ``and_`` for bits that all have, ``or_`` for bits that some has, ``xor`` for bits that an odd number
            of them has.

    Raises:
        ConfigurationError: the column has other values.
    """
    if not pa.types.is_integer(type_):
        raise refusal(path, type_, "only integers have such bits")
    return Bits(type_, combine)
