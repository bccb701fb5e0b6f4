"""``ColumnReduce``: a reducer that takes whole columns, such as ``pyarrow.compute.add``.

Rule of this module: the reducer is associative, so neighbors may be reduced before what comes before them, in a few
calls for all keys at once; their order is kept.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.processors.aggregations.aggregate import Aggregation, reducing
from millpond.processors.aggregations.column_fold import ColumnFold, Groups
from millpond.processors.runtime.batches.columns import Array, as_column
from millpond.processors.runtime.order.time_order import stable_order

ColumnReducer = Callable[[Any, Any], Any]
"""``reducer(aggregates, values)`` of two Arrow arrays of one length returns as many results."""

_Integers = npt.NDArray[np.int64]


class ColumnReduce(ColumnFold):
    """Reduces the values of each key.

    Args:
        reducer: the reducer.
        type_: the type of the values.
    """

    def __init__(self, reducer: ColumnReducer, type_: pa.DataType) -> None:
        self.result = type_
        self._reducer = reducer

    def totals(self, groups: Groups, values: Array, before: Array) -> Array:
        reduced, _, owners = self._reduced(groups, values, before)
        ends: Any = pa.array(np.bincount(owners, minlength=len(groups.keys)).cumsum() - 1)
        return reduced.take(ends)

    def running(self, groups: Groups, values: Array, before: Array) -> Array:
        reduced, order, _ = self._reduced(groups, values, before)
        places = np.empty(len(order), np.int64)
        places[order] = np.arange(len(order))
        return reduced.take(pa.array(places[len(order) - len(values) :]))

    def one(self, aggregate: Any, value: Any) -> Any:
        """Return the result for a single value."""
        return self._called(pa.array([aggregate], self.result), pa.array([value], self.result))[0].as_py()

    def _reduced(self, groups: Groups, values: Array, before: Array) -> tuple[Array, _Integers, _Integers]:
        """Return the results after each aggregate and value, by key; the order of these; and the numbers of their keys.

        An aggregate comes before the values of its key.
        """
        known = before.is_valid().to_numpy(zero_copy_only=False)
        owners = np.concatenate([np.flatnonzero(known), groups.numbers])
        order = stable_order(owners)
        sizes = np.bincount(owners, minlength=len(groups.keys))
        ranks = np.arange(len(order)) - np.repeat(sizes.cumsum() - sizes, sizes)
        chain = pa.concat_arrays([before.filter(pa.array(known)), values.cast(self.result)]).take(pa.array(order))
        try:
            return self._scanned(chain, ranks), order, owners
        except Exception as error:  # a user's code may raise anything; record by record it shows for which
            raise pa.ArrowInvalid(f"the reducer failed for a column: {error}") from error

    def _scanned(self, values: Array, ranks: _Integers) -> Array:
        """Return each value reduced with all before it of its key: with one, then two, then four, and so on."""
        most, step = int(ranks.max()), 1
        while step <= most:
            later = np.flatnonzero(ranks >= step)
            made = self._called(values.take(pa.array(later - step)), values.take(pa.array(later)))
            if made.null_count:
                raise ValueError("it returned null, which deletes an aggregate")
            places = np.arange(len(values))
            places[later] = len(values) + np.arange(len(later))
            values = pa.concat_arrays([values, made]).take(pa.array(places))
            step *= 2
        return values

    def _called(self, aggregates: Array, values: Array) -> Array:
        return as_column(self._reducer(aggregates, values), len(values)).cast(self.result)


def reducing_columns(reducer: ColumnReducer, type_: pa.DataType) -> Aggregation:
    """Return the aggregation that takes the first value as it is, then ``reducer(aggregates, values)``, by columns."""
    columns = ColumnReduce(reducer, type_)
    return replace(reducing(columns.one), columns=columns)
