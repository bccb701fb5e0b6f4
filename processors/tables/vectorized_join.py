"""Table-table join with a joiner of whole columns: the other side is looked up once for each distinct key of a run.

Rule of this module: matches are the same as update by update (``millpond.processors.tables.join``). Updates
that come as objects become columns for the joiner, of the types of the tables' stores, or else of types that
Arrow finds for them.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from millpond.processors.options.joins import JoinType, Side
from millpond.processors.runtime.batches.columns import Array, Columns, as_column, valid
from millpond.processors.runtime.processor import ProcessorContext
from millpond.processors.tables.join import JoinView, TableTableJoin, latest_of
from millpond.processors.tables.latest_only import latest_only
from millpond.processors.tables.table_view import TableView
from millpond.stores.encoding.nulls import spread
from millpond.stores.encoding.times import MIN_TIME
from millpond.stores.typed.timestamped_keyvalue import ValueAndTimestamp

ColumnJoiner = Callable[[Array, Array, Array], Any]
"""``joiner(keys, left, right)``: takes Arrow arrays of one length, and returns an array of as many."""


class ValueType(NamedTuple):
    """The type of a table's values as an Arrow array.

    Attributes:
        type: the type that the table's serde has; None if it has none.
        kept: whether the values are in a store, and so of this type. Otherwise only nulls are taken for it.
    """

    type: Any
    kept: bool

    def column(self, values: list[Any]) -> Array:
        """Return values that are objects as an array."""
        column: Array = pa.array(values, self.type if self.kept else None)
        if self.type is not None and pa.types.is_null(column.type):
            column = pa.nulls(len(values), self.type)
        return column


class JoinedColumns:
    """Calls a joiner of whole columns for the rows that have a result.

    Args:
        joiner: the joiner.
        join_type: the type of the join.
        left, right: the types of values that come as objects.
    """

    def __init__(self, joiner: ColumnJoiner, join_type: JoinType, left: ValueType, right: ValueType) -> None:
        self._joiner = joiner
        self._join_type = join_type
        self._left, self._right = left, right
        self._result: Any = pa.null()

    def join(self, keys: Array, left: Array, right: Array) -> Array:
        """Return the results, null where there is none."""
        joins = self._joins(left, right)
        if not joins.any():
            nulls: Array = pa.nulls(len(keys), self._result)
            return nulls
        if joins.all():
            return self._called(keys, left, right)
        mask: Any = pa.array(joins)
        return spread(self._called(keys.filter(mask), left.filter(mask), right.filter(mask)), joins)

    def join_values(self, keys: list[Any], left: list[Any], right: list[Any]) -> list[Any]:
        """Return the same for objects."""
        joined = self.join(pa.array(keys), self._left.column(left), self._right.column(right))
        results: list[Any] = joined.to_pylist()
        return results

    def join_one(self, key: Any, left: Any, right: Any) -> Any:
        """Return the result of one row."""
        return self.join_values([key], [left], [right])[0]

    def _joins(self, left: Array, right: Array) -> Any:
        """Return which rows have a result, as a NumPy array."""
        if self._join_type is JoinType.INNER:
            return valid(left, right)
        return valid(left) if self._join_type is JoinType.LEFT else valid(left) | valid(right)

    def _called(self, keys: Array, left: Array, right: Array) -> Array:
        results = as_column(self._joiner(keys, left, right), len(keys))
        self._result = results.type
        return results


class VectorizedTableTableJoin(TableTableJoin):
    """One side of a join: takes that side's updates as columns, and looks up the other.

    Args:
        columns: calls the joiner.
        options: the options of ``TableTableJoin``.
    """

    def __init__(self, columns: JoinedColumns, **options: Any) -> None:
        super().__init__(joiner=columns.join_one, **options)
        self._columns = columns

    def process_columns(self, columns: Columns) -> None:
        kept = latest_only(self.context, columns, self._versioned)
        try:
            joined = self._join_columns(kept)
        except Exception:  # a user's code may raise anything, and one by one shows for which update
            joined = None
        if joined is None:
            self.context.attempt(self._join_all, kept.to_batch())
        else:
            self.context.forward_columns(joined)

    def _join_columns(self, columns: Columns) -> Columns | None:
        """Return the results; None if the other side has to be looked up by objects."""
        found = self._view.get_columns(columns.keys)
        if found is None:
            return None
        others, times = found
        changing = self._changing_columns(columns, valid(times))
        if not changing.all():
            mask: Any = pa.array(changing)
            columns, others, times = columns.select(changing), others.filter(mask), times.filter(mask)
        olds = None
        if self._result.send_olds:
            before: Array = pa.nulls(len(columns), columns.values.type) if columns.olds is None else columns.olds
            olds = self._results_of(columns.keys, before, others)
        news = self._results_of(columns.keys, columns.values, others)
        later = np.maximum(columns.timestamps, times.fill_null(MIN_TIME).to_numpy())
        return Columns(columns.keys, news, later, columns.positions, olds, columns.latest)

    def _changing_columns(self, columns: Columns, matched: Any) -> Any:
        """Return ``_changing`` of columns, as a NumPy array."""
        if not self._join_type.keeps(self._side) or matched.all():
            return matched
        changing = matched | valid(columns.values)
        return changing if columns.olds is None else changing | valid(columns.olds)

    def _results_of(self, keys: Array, these: Array, others: Array) -> Array:
        left, right = (these, others) if self._side is Side.LEFT else (others, these)
        return self._columns.join(keys, left, right)

    def _joined(self, keys: list[Any], left: list[Any], right: list[Any]) -> list[Any]:
        return self._columns.join_values(keys, left, right)


class VectorizedJoinView(JoinView):
    """Reads a joined table without a store through its two sides, many keys at once.

    Args:
        left, right: the sides.
        columns: calls the joiner.
        join_type: the type of the join.
        context: the context of the reading processor.
    """

    def __init__(
        self,
        left: TableView,
        right: TableView,
        columns: JoinedColumns,
        join_type: JoinType,
        context: ProcessorContext,
    ) -> None:
        super().__init__(left, right, columns.join_one, join_type, context)
        self._columns = columns

    def get_many(self, keys: Sequence[Any]) -> list[ValueAndTimestamp[Any] | None]:
        left, right = self._left.get_many(keys), self._right.get_many(keys)
        sides = [[None if one is None else one.value for one in side] for side in (left, right)]
        try:
            values = self._columns.join_values(list(keys), *sides)
        except Exception:  # a user's code may raise anything, and one by one shows for which row
            return list(map(self._joined, keys, left, right))
        return [
            None if value is None else ValueAndTimestamp(value, latest_of(one, other))
            for value, one, other in zip(values, left, right, strict=True)
        ]

    def get_columns(self, keys: Array) -> tuple[Array, Array] | None:
        left, right = self._left.get_columns(keys), self._right.get_columns(keys)
        if left is None or right is None:
            return None
        try:
            values = self._columns.join(keys, left[0], right[0])
        except Exception:  # a user's code may raise anything, and one by one shows for which row
            return None
        times = np.maximum(*(side[1].fill_null(MIN_TIME).to_numpy() for side in (left, right)))
        return values, pa.array(times, mask=~valid(values))
