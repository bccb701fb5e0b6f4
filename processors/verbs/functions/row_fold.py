"""``RowFold``: several aggregate functions over whole columns of rows.

Rule of this module: it knows the places in rows and states; the functions know values.
"""

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from millpond.processors.aggregations.column_fold import Groups, MergingFold
from millpond.processors.verbs.functions.function import AggregateFunction, StatefulFunction, without_notes
from millpond.stores.encoding.rows.row_columns import PhysicalRowType

TIMES: Final[pa.DataType] = pa.int64()
"""The type of a row's time."""

MOMENTS: Final[pa.DataType] = pa.binary()
"""The type of bytes that compare as the times and orders of rows do."""


def rows_type(types: Sequence[pa.DataType], times: pa.DataType) -> pa.StructType:
    """Return the struct of the time of a row, of a type, and of its values."""
    values = [pa.field(str(place), without_notes(type_)) for place, type_ in enumerate(types)]
    return pa.struct([pa.field("time", times), *values])


def states_type(functions: Sequence[StatefulFunction]) -> pa.StructType:
    """Return the struct of the states of several functions."""
    return pa.struct([(str(place), function.state_type) for place, function in enumerate(functions)])


class RowFold(MergingFold):
    """Folds rows of ``rows_type`` into rows of states.

    Args:
        functions: the functions.
        places: the place in a row of each function's value.
    """

    def __init__(self, functions: Sequence[AggregateFunction], places: Sequence[int]) -> None:
        states = states_type(functions)
        self.result = PhysicalRowType(states)
        self._fields = list(states)
        self._parts = list(zip(functions, places, strict=True))

    def totals(self, groups: Groups, values: Any, before: Any) -> Any:
        columns, states = values.storage.flatten(), before.storage.flatten()
        folded = [
            function.add_columns(state, columns[place], columns[0], groups.numbers)
            for state, (function, place) in zip(states, self._parts, strict=True)
        ]
        return PhysicalRowType.of(pa.StructArray.from_arrays(folded, fields=self._fields))

    def merged(self, groups: Groups, aggregates: Any) -> Any:
        size = len(groups.keys)
        columns = [
            function.merge_columns(states, groups.numbers, size)
            for states, (function, _) in zip(aggregates.storage.flatten(), self._parts, strict=True)
        ]
        nothing: Any = pa.array(groups.sizes == 0)
        return PhysicalRowType.of(pa.StructArray.from_arrays(columns, fields=self._fields, mask=nothing))

    def running(self, groups: Groups, values: Any, before: Any) -> Any:
        raise pa.ArrowInvalid("the states after each row are made row by row")
