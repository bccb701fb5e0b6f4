"""Functions of how often each value comes: the most frequent one, and percentiles.

Rule of this module: a state has each value once, in the one form that stands for all that are equal to it, ascending,
with how often it has come::

    nil, or [array of values, array of counts]
"""

from abc import abstractmethod
from bisect import bisect_left
from typing import Any, cast

import numpy as np
import pyarrow as pa

from millpond.processors.verbs.functions.column_forms import canonical_values, ranks_of
from millpond.processors.verbs.functions.columns import Array, Integers, integers, listed, lists_of, picked, present
from millpond.processors.verbs.functions.forms import Form, canonical_form, order_form, same
from millpond.processors.verbs.functions.function import AggregateFunction, refusal, without_notes
from millpond.processors.verbs.functions.sums import DURATION, whole
from millpond.stores.encoding.rows.physical import from_physical, to_physical


class Tally(AggregateFunction):
    """Counts each value.

    Args:
        path: the name of the column in errors.
        type_: the type of the values.

    Raises:
        ConfigurationError: such values cannot be compared.
    """

    def __init__(self, path: str, type_: pa.DataType) -> None:
        self._canonical = canonical_form(path, type_) or same
        self._order: Form = order_form(path, type_) or same
        self._lists = [pa.list_(without_notes(type_)), pa.list_(pa.int64())]
        self.state_type = pa.struct(list(zip(("values", "counts"), self._lists, strict=True)))

    def add(self, state: Any, value: Any, time: int) -> Any:
        return state if value is None else self.merge(state, [[self._canonical(value)], [1]])

    def merge(self, left: Any, right: Any) -> Any:
        if left is None or right is None:
            return right if left is None else left
        values, counts = left
        for value, count in zip(*right, strict=True):
            rank = self._order(value)
            place = bisect_left(values, rank, key=self._order)
            if place < len(values) and self._order(values[place]) == rank:
                counts[place] += count
            else:
                values.insert(place, value)
                counts.insert(place, count)
        return left

    def add_columns(self, states: Array, values: Array, times: Array, groups: Integers) -> Array:
        there = present(values)
        given = canonical_values(values.drop_null())
        return self._counted(states, np.arange(len(states)), given, groups[there], len(states))

    def merge_columns(self, states: Array, groups: Integers, size: int) -> Array:
        nothing: Any = pa.array([], self._lists[0].value_type)
        return self._counted(states, groups, nothing, np.empty(0, np.int64), size)

    def _counted(self, states: Array, owners: Integers, values: Array, groups: Integers, size: int) -> Array:
        """Return the values in states of groups, and more values, with their counts; null where there are none."""
        kept, before, lengths = tallied(states)
        both = pa.concat_arrays([kept, values])
        numbers, ranks = np.concatenate([owners.repeat(lengths), groups]), ranks_of(both)
        counts = np.concatenate([before, np.ones(len(values), np.int64)])
        order = np.lexsort((ranks, numbers))
        numbers, ranks = numbers[order], ranks[order]
        new = np.ones(len(order), np.bool_)
        new[1:] = (numbers[1:] != numbers[:-1]) | (ranks[1:] != ranks[:-1])
        firsts = np.flatnonzero(new)
        sums = np.add.reduceat(counts[order], firsts) if len(firsts) else counts
        lengths = np.bincount(numbers[new], minlength=size)
        columns = [
            lists_of(column, lengths, of)
            for column, of in zip((both.take(pa.array(order[firsts])), pa.array(sums)), self._lists, strict=True)
        ]
        fields: Any = list(cast(pa.StructType, self.state_type))
        return pa.StructArray.from_arrays(columns, fields=fields, mask=pa.array(lengths == 0))

    @abstractmethod
    def results(self, states: Array) -> Array: ...


class Mode(Tally):
    """The value that comes most often; of several the least."""

    def __init__(self, path: str, type_: pa.DataType) -> None:
        super().__init__(path, type_)
        self.type = type_

    def results(self, states: Array) -> Array:
        values, counts, lengths = tallied(states)
        owners = np.arange(len(states)).repeat(lengths)
        return picked(values, counts, owners, len(states), greatest=True, last=False)


class Percentile(Tally):
    """The value below which a share of all values is, or between two neighbors.

    Args:
        path: the name of the column in errors.
        type_: the type of the values: numbers or durations.
        percentage: the share, from 0 to 1.
    """

    def __init__(self, path: str, type_: Any, percentage: float) -> None:
        super().__init__(path, type_)
        self.type = DURATION if pa.types.is_duration(type_) else pa.float64()
        self._percentage = percentage
        self._unit = 10**type_.scale if pa.types.is_decimal(type_) else 1

    def results(self, states: Array) -> Array:
        values, counts, lengths = tallied(states)
        ends = np.cumsum(counts)
        starts = np.concatenate([[0], ends])[np.cumsum(lengths) - lengths]
        some = lengths > 0
        totals = np.zeros(len(states), np.int64)
        np.add.at(totals, np.arange(len(states)).repeat(lengths), counts)
        positions = (totals[some] - 1) * self._percentage
        near, far = (
            values.take(pa.array(np.searchsorted(ends, starts[some] + whole_part.astype(np.int64), side="right")))
            for whole_part in (np.floor(positions), np.ceil(positions))
        )
        numbers = map(self._between, to_physical(near), to_physical(far), positions.tolist())
        made = iter(list(numbers))
        return from_physical([next(made) if one else None for one in some.tolist()], self.type)

    def _between(self, near: Any, far: Any, position: float) -> Any:
        """Return the value between two neighbors, as Spark rounds it."""
        one, other = self._number(near), self._number(far)
        beyond = position - int(position)
        number = one if near == far or not beyond else (int(position) + 1 - position) * one + beyond * other
        return int(number) if pa.types.is_duration(self.type) else number

    def _number(self, value: Any) -> float:
        return value if isinstance(value, float) else whole(value) / self._unit


def tallied(states: Array) -> tuple[Array, Integers, Integers]:
    """Return the values of all states one behind the other, their counts, and how many values each state has.

    Raises:
        pyarrow.ArrowInvalid: a state is damaged: a value has no count.
    """
    (values, lengths), (counts, others) = map(listed, states.flatten())
    if (lengths != others).any():
        raise pa.ArrowInvalid("a state has more values than counts, or fewer")
    return values, integers(counts), lengths


def bind_mode(path: str, type_: pa.DataType) -> Mode:
    """Return the most frequent value of a column of that type.

    Raises:
        ConfigurationError: such values cannot be compared.
    """
    return Mode(path, type_)


def bind_percentile(path: str, type_: pa.DataType, *, percentage: float) -> Percentile:
    """Return a percentile of a column of that type.

    Raises:
        ConfigurationError: such values have none.
    """
    is_number = pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_)
    if not (is_number or pa.types.is_duration(type_)):
        raise refusal(path, type_, "only numbers and durations have percentiles")
    return Percentile(path, type_, percentage)
