"""``RowFold``: several aggregate functions over whole columns of rows.

Rule of this module: it knows what lies where in rows and states; the functions know values.
"""

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from millpond.processors.aggregations.column_fold import Groups, MergingFold
from millpond.processors.verbs.functions.function import ColumnarFunction
from millpond.stores.rows.row_columns import PhysicalRowType

TIME: Final = pa.field("time", pa.int64())


def rows_type(types: Sequence[pa.DataType]) -> pa.StructType | None:
    """The struct of the time of a row and of its values; None if these are not all flat."""
    if any(map(pa.types.is_nested, types)):
        return None
    return pa.struct([TIME, *(pa.field(str(place), type_) for place, type_ in enumerate(types))])


class RowFold(MergingFold):
    """Folds rows of ``rows_type`` into rows of states.

    Args:
        functions: what is computed.
        places: where in a row each function finds its value.
        states: the struct of the states.
    """

    def __init__(self, functions: Sequence[ColumnarFunction], places: Sequence[int], states: pa.StructType) -> None:
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
