"""Counts: of values, of different values, and about how many different values there are.

The states, where a *form* is what ``equality_form`` makes of a value::

    count                    int
    count_distinct           nil, or an array of forms, ascending
    approx_count_distinct    nil, or bytes: an HLL sketch of Apache DataSketches
"""

from bisect import bisect_left
from importlib import import_module
from itertools import pairwise
from math import ceil, log2
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as _compute

from millpond.errors import ConfigurationError
from millpond.processors.verbs.functions.column_forms import equal_forms, equal_type, ranks_of
from millpond.processors.verbs.functions.columns import (
    Array,
    Integers,
    counted,
    integers,
    listed,
    lists_of,
    present,
    totals,
)
from millpond.processors.verbs.functions.forms import Form, equality_form
from millpond.processors.verbs.functions.function import AggregateFunction
from millpond.stores.encoding.rows.physical import to_physical

pc: Any = _compute

_ERROR_OF_ONE: Final = 1.04
"""The relative error of a sketch is this, divided by the square root of the number of its registers."""

_FEWEST: Final = 7
"""The binary logarithm of the number of registers of the smallest sketch."""


class Count(AggregateFunction):
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

    def state_of(self, result: Any) -> Any:
        if result is None or result < 0:
            raise ValueError(f"a count is never {'null' if result is None else 'negative'}")
        return result

    def results(self, states: Array) -> Array:
        return states

    def merge(self, left: Any, right: Any) -> Any:
        return left + right


class CountDistinct(AggregateFunction):
    """How many different values there are besides null.

    Args:
        type_: of the values.
        form: of the values, in which they are compared; None to compare them as they are.
    """

    type = pa.int64()
    nullable = False

    def __init__(self, type_: pa.DataType, form: Form | None) -> None:
        self._form = form
        self._elements = equal_type(type_)
        self.state_type = pa.list_(self._elements)

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

    def add_columns(self, states: Array, values: Array, times: Array, groups: Integers) -> Array:
        forms = equal_forms(values.drop_null())
        return self._different(states, np.arange(len(states)), forms, groups[present(values)], len(states))

    def merge_columns(self, states: Array, groups: Integers, size: int) -> Array:
        return self._different(states, groups, pa.array([], self._elements), np.empty(0, np.int64), size)

    def _different(self, states: Array, owners: Integers, forms: Array, groups: Integers, size: int) -> Array:
        """The forms in states of some groups, and more of them, each once and ascending; null where there are none."""
        kept, lengths = listed(states)
        both = pa.concat_arrays([kept, forms])
        numbers, ranks = np.concatenate([owners.repeat(lengths), groups]), ranks_of(both)
        order = np.lexsort((ranks, numbers))
        numbers, ranks = numbers[order], ranks[order]
        new = np.ones(len(order), np.bool_)
        new[1:] = (numbers[1:] != numbers[:-1]) | (ranks[1:] != ranks[:-1])
        return lists_of(both.take(pa.array(order[new])), np.bincount(numbers[new], minlength=size), self.state_type)

    def results(self, states: Array) -> Array:
        return pc.list_value_length(states).fill_null(0).cast(self.type)

    def merge(self, left: Any, right: Any) -> Any:
        if left is None or right is None:
            return right if left is None else left
        return sorted({*left, *right})


class ApproxCountDistinct(AggregateFunction):
    """About how many different values there are besides null. A sketch that was changed stays an object until stored.

    Args:
        form: of the values, in which they are compared; None to compare them as they are.
        registers: the binary logarithm of the number of the sketch's registers.
    """

    type = pa.int64()
    nullable = False
    state_type = pa.binary()

    def __init__(self, form: Form | None, registers: int) -> None:
        self._form = form
        self._registers = registers
        self._sketches = sketches()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._form, self._registers)

    def add(self, state: Any, value: Any, time: int) -> Any:
        if value is None:
            return state
        sketch = self._opened(state)
        sketch.update(_item(value if self._form is None else self._form(value)))
        return sketch

    def add_columns(self, states: Array, values: Array, times: Array, groups: Integers) -> Array:
        # A value that has come before makes no difference to a sketch.
        encoded = equal_forms(values.drop_null()).dictionary_encode()
        items = list(map(_item, to_physical(encoded.dictionary)))
        codes = groups[present(values)] * max(len(items), 1) + encoded.indices.to_numpy()
        firsts = np.sort(np.unique(codes, return_index=True)[1])
        owners, numbers = np.divmod(codes[firsts], max(len(items), 1))
        made = states.to_pylist()
        order = owners.argsort(kind="stable")
        bounds = np.flatnonzero(np.diff(owners[order], prepend=-1, append=-1))
        chosen = numbers[order].tolist()
        for start, stop in pairwise(bounds.tolist()):
            group = int(owners[order[start]])
            sketch = self._opened(made[group])
            for number in chosen[start:stop]:
                sketch.update(items[number])
            made[group] = sketch.serialize_compact()
        return pa.array(made, pa.binary())

    def merge_columns(self, states: Array, groups: Integers, size: int) -> Array:
        made: list[Any] = [None] * size
        for group, state in zip(groups.tolist(), states.to_pylist(), strict=True):
            made[group] = self.merge(made[group], state)
        merged = [one if one is None or one.__class__ is bytes else one.serialize_compact() for one in made]
        return pa.array(merged, pa.binary())

    def results(self, states: Array) -> Array:
        estimates = (0 if one is None else round(self._opened(one).get_estimate()) for one in states.to_pylist())
        return pa.array(estimates, self.type)

    def merge(self, left: Any, right: Any) -> Any:
        if left is None or right is None:
            return right if left is None else left
        union = self._sketches.hll_union(self._registers)
        union.update(self._opened(left))
        union.update(self._opened(right))
        return union.get_result(self._hll_8)

    @property
    def _hll_8(self) -> Any:
        return self._sketches.tgt_hll_type.HLL_8

    def _opened(self, state: Any) -> Any:
        """The sketch of a state; an empty one of none."""
        if state is None:
            return self._sketches.hll_sketch(self._registers, self._hll_8)
        return self._sketches.hll_sketch.deserialize(state) if state.__class__ is bytes else state


def _item(form: Any) -> int | str:
    """A form as a sketch takes it: an int, or text that is not empty, which a sketch would pass over."""
    if isinstance(form, int):
        return int(form)
    return "=" + (form if isinstance(form, str) else form.decode("latin-1"))


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
    return CountDistinct(type_, equality_form(path, type_))


def bind_approx_count_distinct(path: str, type_: pa.DataType, *, relative_error: float) -> ApproxCountDistinct:
    """The sketched count of different values in a column of that type.

    Raises:
        ConfigurationError: such values cannot be told to be equal, or datasketches is not installed.
    """
    registers = max(_FEWEST, ceil(2 * log2(_ERROR_OF_ONE / relative_error)))
    return ApproxCountDistinct(equality_form(path, type_), registers)
