"""Functions that pick values and keep them as they are: by their order (min, max) or by event time.

Rule of this module: a value that was picked is never changed, so it may be shared with the row that it came from.

The states::

    min, max       nil, or the value
    first, last    nil, or [time, value]
    collect        nil, or [array of times, array of values], by time; of equal values the earliest, if it is distinct
"""

from bisect import bisect_right
from collections.abc import Callable
from math import copysign, isnan
from operator import gt, itemgetter, lt
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.processors.verbs.functions.column_forms import canonical_values, ranks_of
from millpond.processors.verbs.functions.columns import (
    Array,
    Integers,
    chained,
    listed,
    lists_of,
    picked,
    present,
)
from millpond.processors.verbs.functions.forms import Form, equality_form, order_form, same
from millpond.processors.verbs.functions.function import AggregateFunction, without_notes

_TIME: Final[Callable[[tuple[int, Any]], int]] = itemgetter(0)


class Extreme(AggregateFunction):
    """The value that comes before all others.

    Args:
        type_: the type of the values.
        before: ``before(value, other)`` tells whether a value comes before another one.
        form: the form in which values are compared; None to compare them as they are.

    Attributes:
        greatest: whether the greatest value comes first, or else the least.
    """

    def __init__(self, type_: pa.DataType, before: Callable[[Any, Any], bool], form: Form | None = None) -> None:
        self.type = type_
        self.state_type = without_notes(type_)
        self.greatest = before(1, 0)
        self._before = before
        self._form = form

    def add(self, state: Any, value: Any, time: int) -> Any:
        if value is None or state is None:
            return state if value is None else value
        if self._form is None:
            return value if self._before(value, state) else state
        return value if self._before(self._form(value), self._form(state)) else state

    def add_columns(self, states: Array, values: Array, times: Array, groups: Integers) -> Array:
        return self._extremes(*chained(states, values, groups), len(states))

    def merge_columns(self, states: Array, groups: Integers, size: int) -> Array:
        return self._extremes(*chained(pa.nulls(size, states.type), states, groups), size)

    def _extremes(self, candidates: Array, groups: Integers, size: int) -> Array:
        return picked(candidates, ranks_of(candidates), groups, size, greatest=self.greatest, last=False)

    def merge(self, left: Any, right: Any) -> Any:
        return self.add(left, right, 0)

    def state_of(self, result: Any) -> Any:
        return result

    def results(self, states: Array) -> Array:
        return states


class First(AggregateFunction):
    """The value of the earliest row.

    Args:
        type_: the type of the values.
        times: the type of times.
        ignore_nulls: whether rows without a value do not count.

    Attributes:
        greatest: whether the row of the greatest time counts, or else that of the least.
        ignore_nulls: as given.
    """

    greatest = False

    def __init__(self, type_: pa.DataType, times: pa.DataType, *, ignore_nulls: bool) -> None:
        self.type = type_
        self.state_type = pa.struct([("time", times), ("value", without_notes(type_))])
        self.ignore_nulls = ignore_nulls

    def add(self, state: Any, value: Any, time: int) -> Any:
        if value is None and self.ignore_nulls:
            return state
        return [time, value] if state is None or time < state[0] else state

    def add_columns(self, states: Array, values: Array, times: Array, groups: Integers) -> Array:
        nulls: Any = values.is_null() if self.ignore_nulls else None
        given = pa.StructArray.from_arrays([times, values], fields=list(states.type), mask=nulls)
        return self._picked(*chained(states, given, groups), len(states))

    def merge_columns(self, states: Array, groups: Integers, size: int) -> Array:
        return self._picked(*chained(pa.nulls(size, states.type), states, groups), size)

    def _picked(self, candidates: Array, groups: Integers, size: int) -> Array:
        ranks, latest = ranks_of(candidates.field(0)), self.greatest
        return picked(candidates, ranks, groups, size, greatest=latest, last=latest)

    def results(self, states: Array) -> Array:
        return states.flatten()[1]

    def merge(self, left: Any, right: Any) -> Any:
        if left is None or right is None:
            return right if left is None else left
        return right if right[0] < left[0] else left


class Last(First):
    """The value of the latest row."""

    greatest = True

    def add(self, state: Any, value: Any, time: int) -> Any:
        if value is None and self.ignore_nulls:
            return state
        return [time, value] if state is None or time >= state[0] else state

    def merge(self, left: Any, right: Any) -> Any:
        if left is None or right is None:
            return right if left is None else left
        return left if right[0] < left[0] else right


class Collect(AggregateFunction):
    """The values that are not null, by time.

    Args:
        type_: the type of the values.
        times: the type of times.
        limit: how many are kept, the earliest; None for all.
        form: a form that is equal if values are; of equal ones the earliest is kept; None to keep all.
    """

    nullable = False

    def __init__(
        self, type_: pa.DataType, times: pa.DataType, limit: int | None = None, form: Form | None = None
    ) -> None:
        self._limit, self._form = limit, form
        self.type = pa.list_(pa.field("element", type_, nullable=pa.types.is_null(type_)))
        self._lists = [pa.list_(times), pa.list_(without_notes(type_))]
        self.state_type = pa.struct(list(zip(("times", "values"), self._lists, strict=True)))

    def add(self, state: Any, value: Any, time: int) -> Any:
        if value is None:
            return state
        if state is None:
            return [[time], [value]]
        if self._form is not None or self._limit is not None:
            return self.merge(state, [[time], [value]])
        times, values = state
        if time >= times[-1]:
            times.append(time)
            values.append(value)
        else:
            place = bisect_right(times, time)
            times.insert(place, time)
            values.insert(place, value)
        return state

    def add_columns(self, states: Array, values: Array, times: Array, groups: Integers) -> Array:
        there = present(values)
        mask: Any = pa.array(there)
        rows = [times.filter(mask), values.filter(mask)]
        return self._by_time(states, np.arange(len(states)), rows, groups[there], len(states))

    def merge_columns(self, states: Array, groups: Integers, size: int) -> Array:
        nothing = [pa.array([], of.value_type) for of in self._lists]
        return self._by_time(states, groups, nothing, np.empty(0, np.int64), size)

    def _by_time(self, states: Array, owners: Integers, rows: list[Array], groups: Integers, size: int) -> Array:
        """Return the values in states of some groups, then the values of rows, by time; null where there are none."""
        kept, (lengths, _) = zip(*map(listed, states.flatten()), strict=True)
        times, values = map(pa.concat_arrays, zip(kept, rows, strict=True))
        numbers = np.concatenate([owners.repeat(lengths), groups])
        order = np.lexsort((ranks_of(times), numbers))
        if self._form is not None:
            order = order[_firsts(numbers[order], ranks_of(canonical_values(values))[order])]
        if self._limit is not None:
            ordered = numbers[order]
            order = order[np.arange(len(order)) - np.searchsorted(ordered, ordered) < self._limit]
        counts = np.bincount(numbers[order], minlength=size)
        columns = [
            lists_of(column.take(pa.array(order)), counts, of)
            for column, of in zip((times, values), self._lists, strict=True)
        ]
        fields: Any = list(cast(pa.StructType, self.state_type))
        return pa.StructArray.from_arrays(columns, fields=fields, mask=pa.array(counts == 0))

    def results(self, states: Array) -> Array:
        values, lengths = listed(states.flatten()[1])
        return lists_of(values, lengths, self._lists[1], nullable=False)

    def merge(self, left: Any, right: Any) -> Any:
        if left is None or right is None:
            return right if left is None else left
        pairs = [*zip(*left, strict=True), *zip(*right, strict=True)]
        pairs.sort(key=_TIME)
        form = self._form
        if form is not None:
            firsts = {form(pair[1]): pair for pair in reversed(pairs)}
            pairs = [pair for pair in pairs if firsts[form(pair[1])] is pair]
        return [list(column) for column in zip(*pairs[: self._limit], strict=True)]


def bind_min(path: str, type_: pa.DataType) -> Extreme:
    """Return the least value of a column of that type.

    Raises:
        ConfigurationError: such values have no order.
    """
    return _extreme(path, type_, lt)


def bind_max(path: str, type_: pa.DataType) -> Extreme:
    """Return the greatest value of a column of that type.

    Raises:
        ConfigurationError: such values have no order.
    """
    return _extreme(path, type_, gt)


def bind_first(path: str, type_: pa.DataType, times: pa.DataType, *, ignore_nulls: bool) -> First:
    """Return the earliest value of a column of any type."""
    return First(type_, times, ignore_nulls=ignore_nulls)


def bind_last(path: str, type_: pa.DataType, times: pa.DataType, *, ignore_nulls: bool) -> Last:
    """Return the latest value of a column of any type."""
    return Last(type_, times, ignore_nulls=ignore_nulls)


def bind_collect(
    path: str, type_: pa.DataType, times: pa.DataType, *, limit: int | None = None, distinct: bool = False
) -> Collect:
    """Return the values of a column of any type.

    Raises:
        ConfigurationError: they are to be different, and cannot be compared.
    """
    return Collect(type_, times, limit, (equality_form(path, type_) or same) if distinct else None)


def _firsts(numbers: Integers, ranks: Integers) -> npt.NDArray[np.bool_]:
    """Return which rows are the first of their number and rank."""
    order = np.lexsort((ranks, numbers))
    begins = np.ones(len(order), np.bool_)
    begins[1:] = (np.diff(numbers[order]) != 0) | (np.diff(ranks[order]) != 0)
    found = np.zeros(len(order), np.bool_)
    found[order[begins]] = True
    return found


def _extreme(path: str, type_: pa.DataType, before: Callable[[Any, Any], bool]) -> Extreme:
    if pa.types.is_floating(type_):
        return Extreme(type_, _less if before is lt else _greater)
    return Extreme(type_, before, order_form(path, type_))


def _less(value: float, other: float) -> bool:
    """Return whether a value is less; of zeros, -0.0 is less, so that it makes no difference which came first."""
    return value < other or isnan(other) or (value == other and copysign(1, value) < copysign(1, other))


def _greater(value: float, other: float) -> bool:
    return value > other or isnan(value) or (value == other and copysign(1, value) > copysign(1, other))
