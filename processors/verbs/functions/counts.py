"""Counts: of values, of different values, and about how many different values there are.

The states, where a *form* is what ``equality_form`` makes of a value::

    count                    int
    count_distinct           nil, or an array of forms, ascending
    approx_count_distinct    nil, or bytes: an HLL sketch of Apache DataSketches
"""

from bisect import bisect_left
from importlib import import_module
from math import ceil, log2
from typing import Any, Final

import pyarrow as pa

from millpond.errors import ConfigurationError
from millpond.processors.verbs.functions.columns import Array, Integers, counted, integers, totals
from millpond.processors.verbs.functions.forms import Form, equality_form
from millpond.processors.verbs.functions.function import AggregateFunction, ColumnarFunction

_ERROR_OF_ONE: Final = 1.04
"""The relative error of a sketch is this, divided by the square root of the number of its registers."""

_FEWEST: Final = 7
"""The binary logarithm of the number of registers of the smallest sketch."""


class Count(ColumnarFunction):
    """How many values are not null."""

    type = pa.int64()
    nullable = False
    initial = 0
    state_type = pa.int64()

    def add(self, state: Any, value: Any, time: int) -> Any:
        return state if value is None else state + 1

    def add_columns(self, states: Array, values: Array, times: Array, groups: Integers) -> Array:
        return pa.array(integers(states) + counted(values, groups, len(states)))

    def merge_columns(self, states: Array, groups: Integers, size: int) -> Array:
        return totals(states, groups, size)

    def results(self, states: Array) -> Array:
        return states

    def merge(self, left: Any, right: Any) -> Any:
        return left + right

    def result(self, state: Any) -> Any:
        return state


class CountDistinct(AggregateFunction):
    """How many different values there are besides null.

    Args:
        form: of the values, in which they are compared; None to compare them as they are.
    """

    type = pa.int64()
    nullable = False

    def __init__(self, form: Form | None) -> None:
        self._form = form

    def add(self, state: Any, value: Any, time: int) -> Any:
        if value is None:
            return state
        if self._form is not None:
            value = self._form(value)
        if state is None:
            return [value]
        place = bisect_left(state, value)
        if place == len(state) or state[place] != value:
            state.insert(place, value)
        return state

    def merge(self, left: Any, right: Any) -> Any:
        if left is None or right is None:
            return right if left is None else left
        return sorted({*left, *right})

    def result(self, state: Any) -> Any:
        return 0 if state is None else len(state)


class ApproxCountDistinct(AggregateFunction):
    """About how many different values there are besides null. A sketch that was changed stays an object until stored.

    Args:
        form: of the values, in which they are compared; None to compare them as they are.
        registers: the binary logarithm of the number of the sketch's registers.
    """

    type = pa.int64()
    nullable = False

    def __init__(self, form: Form | None, registers: int) -> None:
        self._form = form
        self._registers = registers
        self._sketches = sketches()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._form, self._registers)

    def add(self, state: Any, value: Any, time: int) -> Any:
        if value is None:
            return state
        sketch = self._sketches.hll_sketch(self._registers, self._hll_8) if state is None else self._opened(state)
        sketch.update(self._item(value))
        return sketch

    def merge(self, left: Any, right: Any) -> Any:
        if left is None or right is None:
            return right if left is None else left
        union = self._sketches.hll_union(self._registers)
        union.update(self._opened(left))
        union.update(self._opened(right))
        return union.get_result(self._hll_8)

    def result(self, state: Any) -> Any:
        return 0 if state is None else round(self._opened(state).get_estimate())

    @property
    def _hll_8(self) -> Any:
        return self._sketches.tgt_hll_type.HLL_8

    def _opened(self, state: Any) -> Any:
        return self._sketches.hll_sketch.deserialize(state) if state.__class__ is bytes else state

    def _item(self, value: Any) -> int | str:
        """The value as a sketch takes it: an int, or text that is not empty, which a sketch would pass over."""
        if self._form is not None:
            value = self._form(value)
        if isinstance(value, int):
            return int(value)
        return "=" + (value if isinstance(value, str) else value.decode("latin-1"))


def sketches() -> Any:
    """The package ``datasketches``.

    Raises:
        ConfigurationError: it is not installed.
    """
    try:
        return import_module("datasketches")
    except ImportError as error:
        raise ConfigurationError(
            "approx_count_distinct needs the package datasketches, which cannot be imported "
            f"({error}); pip install 'millpond[sketches]', or use count_distinct"
        ) from error


def bind_count(path: str, type_: pa.DataType) -> Count:
    """The count of a column of any type."""
    return Count()


def bind_count_distinct(path: str, type_: pa.DataType) -> CountDistinct:
    """The exact count of different values in a column of that type.

    Raises:
        ConfigurationError: such values cannot be told to be equal.
    """
    return CountDistinct(equality_form(path, type_))


def bind_approx_count_distinct(path: str, type_: pa.DataType, *, relative_error: float) -> ApproxCountDistinct:
    """The sketched count of different values in a column of that type.

    Raises:
        ConfigurationError: such values cannot be told to be equal, or datasketches is not installed.
    """
    registers = max(_FEWEST, ceil(2 * log2(_ERROR_OF_ONE / relative_error)))
    return ApproxCountDistinct(equality_form(path, type_), registers)
