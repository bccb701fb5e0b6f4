"""``Entries``: a map of one column to another, with the latest row's value of each key.

Rule of this module: a key is kept in the one form that stands for all equal keys. A state has each key
once, ascending::

    nil, or [array of times, array of keys, array of values]
"""

from bisect import bisect_left
from typing import Any, cast

import numpy as np
import pyarrow as pa

from millpond.processors.verbs.functions.column_forms import canonical_values, ranks_of
from millpond.processors.verbs.functions.columns import Array, Integers, listed, lists_of, present
from millpond.processors.verbs.functions.forms import Form, canonical_form, order_form, same
from millpond.processors.verbs.functions.function import AggregateFunction, without_notes


class Entries(AggregateFunction):
    """Keeps the value of the latest row of each key that is not null.

    Args:
        path: the name of the result in errors.
        type_: the struct of key and value.
        times: the type of times.

    Raises:
        ConfigurationError: such keys cannot be compared.
    """

    nullable = False

    def __init__(self, path: str, type_: pa.StructType, times: pa.DataType) -> None:
        key, value = type_.field(0).type, type_.field(1).type
        self._canonical = canonical_form(f"{path}, the key", key) or same
        self._order: Form = order_form(f"{path}, the key", key) or same
        self.type = pa.map_(key, value)
        self._lists = [pa.list_(times), *(pa.list_(without_notes(one)) for one in (key, value))]
        self.state_type = pa.struct(list(zip(("times", "keys", "values"), self._lists, strict=True)))

    def add(self, state: Any, value: Any, time: int) -> Any:
        if value is None or value[0] is None:
            return state
        return self.merge(state, [[time], [self._canonical(value[0])], [value[1]]])

    def merge(self, left: Any, right: Any) -> Any:
        if left is None or right is None:
            return right if left is None else left
        times, keys, _ = left
        for entry in zip(*right, strict=True):
            rank = self._order(entry[1])
            place = bisect_left(keys, rank, key=self._order)
            known = place < len(keys) and self._order(keys[place]) == rank
            if known and entry[0] < times[place]:
                continue
            for column, one in zip(left, entry, strict=True):
                column[place : place + known] = [one]
        return left

    def add_columns(self, states: Array, values: Array, times: Array, groups: Integers) -> Array:
        keys, given = values.flatten()
        there = present(keys)
        mask: Any = pa.array(there)
        rows = [times.filter(mask), canonical_values(keys.filter(mask)), given.filter(mask)]
        return self._latest(states, np.arange(len(states)), rows, groups[there], len(states))

    def merge_columns(self, states: Array, groups: Integers, size: int) -> Array:
        nothing: list[Array] = [pa.array([], of.value_type) for of in self._lists]
        return self._latest(states, groups, nothing, np.empty(0, np.int64), size)

    def _latest(self, states: Array, owners: Integers, rows: list[Array], groups: Integers, size: int) -> Array:
        """Return, of entries in groups' states, then of rows, the latest of each key; null where there is none."""
        kept, lengths = zip(*map(listed, states.flatten()), strict=True)
        times, keys, values = map(pa.concat_arrays, zip(kept, rows, strict=True))
        numbers, ranks = np.concatenate([owners.repeat(lengths[0]), groups]), ranks_of(keys)
        order = np.lexsort((ranks_of(times), ranks, numbers))
        newest = np.ones(len(order), np.bool_)
        newest[:-1] = np.diff(numbers[order]).astype(np.bool_) | np.diff(ranks[order]).astype(np.bool_)
        order = order[newest]
        counts = np.bincount(numbers[order], minlength=size)
        columns = [
            lists_of(column.take(pa.array(order)), counts, of)
            for column, of in zip((times, keys, values), self._lists, strict=True)
        ]
        fields: Any = list(cast(pa.StructType, self.state_type))
        return pa.StructArray.from_arrays(columns, fields=fields, mask=pa.array(counts == 0))

    def results(self, states: Array) -> Array:
        (keys, lengths), (values, _) = map(listed, states.flatten()[1:])
        offsets: Any = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
        return pa.MapArray.from_arrays(offsets, keys, values)


def bind_entries(path: str, type_: Any, times: pa.DataType) -> Entries:
    """Return the map of two columns.

    Raises:
        ConfigurationError: such keys cannot be compared.
    """
    return Entries(path, type_, times)
