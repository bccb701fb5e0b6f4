"""Counts: of values, and of different values.

The states, where a *form* is what ``equality_form`` makes of a value::

    count             int
    count_distinct    nil, or an array of forms, ascending
"""

from bisect import bisect_left
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as _compute

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

pc: Any = _compute


class Count(AggregateFunction):
    """The number of values that are not null."""

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
    """The number of different values besides null.

    Args:
        type_: the type of the values.
        form: the form in which values are compared; None to compare them as they are.
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
        """Return the forms in states of groups, and more forms, each once and ascending; null where there are none."""
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


def bind_count(path: str, type_: pa.DataType) -> Count:
    """Return the count of a column of any type."""
    return Count()


def bind_count_distinct(path: str, type_: pa.DataType) -> CountDistinct:
    """Return the exact count of different values in a column of that type.

    Raises:
        ConfigurationError: such values cannot be told to be equal.
    """
    return CountDistinct(type_, equality_form(path, type_))
