"""Users' functions of rows, whether they take the values of one row or columns of many.

Rule of this module: the caller says which row they fail for; here they only fail.
"""

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from millpond.processors.runtime.batches.columns import Array, as_column
from millpond.stores.encoding.rows.physical import from_physical
from millpond.stores.encoding.rows.row_columns import PhysicalRowType


class RowFunction:
    """A function of the values of one row."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def one(self, *values: Any) -> Any:
        """Return the result for one row."""
        return self._function(*values)

    def many(self, *columns: Sequence[Any]) -> list[Any]:
        """Return the results for many rows, given as one list for each argument."""
        return list(map(self._function, *columns))


class ColumnFunction(RowFunction):
    """A function of Arrow arrays of one length, which returns an array of as many results.

    Args:
        function: the function.
        types: the types of arguments that come as objects; None for those that Arrow finds.
    """

    def __init__(self, function: Callable[..., Any], types: Sequence[pa.DataType | None]) -> None:
        super().__init__(function)
        self._types = types

    def of_columns(self, *columns: Array) -> Array:
        """Return the results for many rows, given as one Arrow array for each argument; of no rows an array of no type.

        Raises:
            TypeError: Arrow cannot make an array of what the function returns.
            ValueError: it has another length.
        """
        size = len(columns[0])
        return as_column(self._function(*columns), size) if size else pa.nulls(0)

    def one(self, *values: Any) -> Any:
        return self.many(*([value] for value in values))[0]

    def many(self, *columns: Sequence[Any]) -> list[Any]:
        arrays = map(_array, columns, self._types)
        results: list[Any] = self.of_columns(*arrays).to_pylist()
        return results


def _array(values: Sequence[Any], type_: pa.DataType | None) -> Array:
    """Return objects as an array of that type."""
    if isinstance(type_, PhysicalRowType):
        return PhysicalRowType.of(from_physical(values, type_.storage_type))
    return pa.array(values, type_)
