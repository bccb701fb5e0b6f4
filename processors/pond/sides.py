"""The inputs of a verb of ``Pond``: their columns, as a user names them, checked before a row is read.

Rule of this module: it knows columns by their names and types, and no verb.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self, TypeAlias

import pyarrow as pa

from millpond.errors import ColumnTypeError, InvalidArgumentError, TimeZoneError
from millpond.processors.calls.arguments import LEFT, RIGHT, check_sides_times, parameter_of
from millpond.processors.calls.joins.lookup_join import TableSide
from millpond.processors.calls.tables import Rows, Selection
from millpond.processors.options.joins import JoinType, Side
from millpond.processors.options.versioned_table import VersionedTable
from millpond.processors.pond.frames import field_of, kept_schema
from millpond.processors.pond.marks import rows_of
from millpond.processors.verbs.aggregates import AggregateCall


@dataclass(frozen=True)
class CheckedRows(Rows):
    """Rows whose columns a user names; missing columns are refused."""

    def in_order(self, keys: Collection[str], time: str) -> bool:
        """Return whether rows of one of these keys come in the order that counts, as ``VerbSide`` sorts them."""
        return self.feed is not None and self.feed <= {self.paths[name] for name in keys}

    def operations(self, op: str | None) -> str | None:
        """Return the column that says which rows are deletes: the given one, or else that of the change feed.

        Raises:
            ConfigurationError: there is no such column, or it is no text.
        """
        if op is not None and not isinstance(op, str):
            raise InvalidArgumentError(
                f"{parameter_of(self.source, 'op')} is {op!r}; give the name of a column with the operations, such as "
                "op='change'"
            )
        if op is not None and not pa.types.is_string(field_of(self.source, self.schema, op).type):
            raise ColumnTypeError(
                f"the operations {op!r} of {self.source!r} are of type {self.schema.field(op).type}; give a column of "
                "strings such as 'upsert' and 'delete'"
            )
        return super().operations(op)

    def directions(self, where: str, order: str | Sequence[str]) -> int:
        """Return the number of directions that an order may have, of a column or of several.

        Raises:
            ConfigurationError: there is none, a column is missing, or one of them has no order.
        """
        given = [order] if isinstance(order, str) else order
        if not isinstance(given, Sequence) or not given or not all(isinstance(one, str) for one in given):
            raise InvalidArgumentError(
                f"{where} order is {order!r}; give a column such as order='score', or a list of them"
            )
        for name in given:
            type_ = field_of(self.source, self.schema, name).type
            if _has_no_order(type_):
                raise ColumnTypeError(
                    f"{where} the order has {name}, which is of type {type_}, and maps have no order; give a column "
                    "that has"
                )
        return super().directions(where, order)

    def read(
        self,
        role: str,
        keys: Sequence[str],
        values: Sequence[str],
        time: str,
        *,
        op: str | None = None,
        order: str | Sequence[str] | None = None,
        foreign: Sequence[str] = (),
        keyed: bool = False,
    ) -> Selection:
        """Return the columns that a verb reads.

        Raises:
            ConfigurationError: a column is absent, or the column of the time has none.
        """
        ordering = [] if order is None else order if isinstance(order, list | tuple) and order else [order]
        for name in (*keys, *foreign, *(_order_column(role, one) for one in ordering)):
            field_of(role, self.schema, name)
        check_time(role, self.schema, time, parameter_of(role))
        return super().read(role, keys, values, time, op=op, order=order, foreign=foreign, keyed=keyed)

    def aggregated(
        self,
        keys: Sequence[str],
        time: str,
        calls: Mapping[str, AggregateCall],
        order: str | None,
        gap: str | None = None,
    ) -> Selection:
        """Return the input of an aggregate.

        Raises:
            ConfigurationError: a column is absent, or the column of the time has none.
        """
        self._check_aggregated(keys, time, calls, order)
        return super().aggregated(keys, time, calls, order, gap)

    def beside(
        self,
        keys: Sequence[str],
        values: Sequence[str],
        time: str,
        calls: Mapping[str, AggregateCall],
        order: str | None,
    ) -> tuple[Selection, Mapping[str, str]]:
        """Return the input of a verb that shows rows beside results of calls.

        Raises:
            ConfigurationError: a column is absent, or the column of the time has none.
        """
        self._check_aggregated(keys, time, calls, order)
        return super().beside(keys, values, time, calls, order)

    def regrouped(
        self,
        key: Sequence[str],
        by: Sequence[str],
        time: str,
        calls: Mapping[str, AggregateCall],
        *,
        op: str,
        order: str | None,
    ) -> Selection:
        """Return the input of an aggregate over a change feed.

        Raises:
            ConfigurationError: a column is absent, or the column of the time has none.
        """
        self._check_aggregated([*key, *by], time, calls, order)
        return super().regrouped(key, by, time, calls, op=op, order=order)

    def _check_aggregated(
        self, keys: Sequence[str], time: str, calls: Mapping[str, AggregateCall], order: str | None
    ) -> None:
        """Refuse columns that are absent, and a column of times that has none."""
        for name in (*keys, *([] if order is None else [_order_column(self.source, order)])):
            field_of(self.source, self.schema, name)
        check_time(self.source, self.schema, time, "time")
        for result, call in calls.items():
            for column in (call.column, call.second):
                if column is not None and not isinstance(column, str):
                    raise InvalidArgumentError(f"the argument of {result!r} is {column!r}; give the name of a column")
                if column is not None:
                    field_of(self.source, self.schema, column)


Adding: TypeAlias = Mapping[str, tuple[pa.DataType, Callable[[pa.Table], Any]]]
"""Columns by name: the type of each, and what makes it of a table of the rows."""


@dataclass(frozen=True)
class VerbSide:
    """An input of a verb.

    Attributes:
        role: its name in messages.
        schema: its columns, in the types that verbs keep.
        table: its rows; None if they are yet to come.
        rows: its rows, by the notes on them, with the columns that are added.
        added: the columns that are made of the others.
    """

    role: str
    schema: pa.Schema
    table: pa.Table | None
    rows: CheckedRows
    added: Adding = field(default_factory=dict)

    @classmethod
    def of(cls, role: str, schema: pa.Schema, table: pa.Table | None = None) -> Self:
        """Return an input with these columns."""
        return cls(role, schema, table, rows_of(CheckedRows, role, schema))

    def adding(self, added: Adding) -> Self:
        """Return the input with more columns, which are made of its own."""
        whole, every = self.schema, {**self.added, **added}
        for name, (type_, _) in every.items():
            whole = whole.append(pa.field(name, type_))
        rows = replace(rows_of(CheckedRows, self.role, whole), hidden=self.rows.hidden)
        return replace(self, rows=rows, added=every)

    def prepared(self, table: pa.Table) -> pa.Table:
        """Return rows of it as they are read: in the order of their feed, and with the columns that are added."""
        told = self.rows.told
        if told is not None and told.sequence is not None:
            table = table.sort_by(told.sequence)
        columns = {name: made(table) for name, (_, made) in self.added.items()}
        for name, column in columns.items():
            table = table.append_column(name, column)
        return table


def check_time(role: str, schema: pa.Schema, name: object, what: str) -> str:
    """Return the column with the times.

    Args:
        role: the name of the input.
        schema: its columns.
        name: the name that the user gave.
        what: the parameter's name.

    Raises:
        ConfigurationError: there is none, or it has no times.
    """
    if not isinstance(name, str):
        raise InvalidArgumentError(f"{what} is {name!r}; give the name of a column with times, such as {what}='at'")
    type_ = field_of(role, schema, name).type
    if not (pa.types.is_timestamp(type_) or pa.types.is_date(type_)):
        raise ColumnTypeError(
            f"{what} is {name!r}, a column of type {type_}; give one of timestamps or dates, or make it one, such "
            "as of milliseconds: column.cast(pa.timestamp('ms', 'UTC'))"
        )
    return name


def _order_column(role: str, order: object) -> str:
    """Return the name of the column that decides among rows of an input.

    Raises:
        ConfigurationError: it is no name.
    """
    if not isinstance(order, str):
        raise InvalidArgumentError(
            f"{parameter_of(role, 'order')} is {order!r}; give the name of a column, such as order='score'"
        )
    return order


def joined_sides(
    one: VerbSide, other: VerbSide, times: tuple[str | None, str | None, str | None], join_type: JoinType
) -> tuple[VerbSide, VerbSide, tuple[str, str]]:
    """Return the inputs of a join and their times; a column of times that both have comes from the left side.

    Raises:
        ConfigurationError: times are not given, or given twice, or of two kinds.
    """
    time, left_time, right_time = times
    check_sides_times(*times)
    named = ("time", "time") if time is not None else ("left_time", "right_time")
    of_left = check_time(LEFT, one.schema, time or left_time, named[0])
    of_right = check_time(RIGHT, other.schema, time or right_time, named[1])
    if time is not None and not join_type.keeps(Side.RIGHT):
        other = replace(other, rows=replace(other.rows, hidden=frozenset([time])))
    left_type, right_type = one.schema.field(of_left).type, other.schema.field(of_right).type
    if _zoned(left_type) is not _zoned(right_type):
        raise TimeZoneError(
            f"the times {of_left!r} of 'left' are {left_type}, and {of_right!r} of 'right' {right_type}; give both a "
            "time zone, or neither"
        )
    return one, other, (of_left, of_right)


def check_times_of(sides: Sequence[VerbSide], times: Mapping[str, str]) -> None:
    """Refuse tables without times, or with times of two kinds; ``times`` are their columns, by the tables' names.

    Raises:
        ConfigurationError: a table has no times, or times of another kind.
    """
    first, *others = sides
    types = {side.role: side.schema.field(check_time(side.role, side.schema, times[side.role], "time")).type
             for side in sides}  # fmt: skip
    for other in others:
        if _zoned(types[first.role]) is not _zoned(types[other.role]):
            raise TimeZoneError(
                f"the times {times[first.role]!r} of {first.role!r} are {types[first.role]}, and {times[other.role]!r} "
                f"of {other.role!r} {types[other.role]}; give all a time zone, or none"
            )


def _zoned(type_: pa.DataType) -> bool:
    """Return whether times are moments."""
    return getattr(type_, "tz", None) is not None


def _has_no_order(type_: pa.DataType) -> bool:
    if pa.types.is_map(type_):
        return True
    return any(_has_no_order(type_.field(number).type) for number in range(type_.num_fields))


def table_side(table: Any, columns: Any) -> TableSide:
    """Return a table that others keep as the right side of a verb, with the columns that are wanted of it.

    Raises:
        ConfigurationError: it is no such table, it cannot be read, or verbs cannot keep one of its columns.
    """
    if isinstance(table, type) and issubclass(table, VersionedTable):
        raise InvalidArgumentError(
            f"right is the class {table.__name__}; give a table of it, such as {table.__name__}('quotes')"
        )
    if not isinstance(table, VersionedTable) or not callable(table.schema):
        raise InvalidArgumentError(
            f"right is of type {type(table).__name__}; give a table that is read by version, such as "
            "millpond.adapters.tables.ParquetTable('quotes'), or join rows by asof_join"
        )
    return TableSide(table, kept_schema(RIGHT, table.schema()), columns)
