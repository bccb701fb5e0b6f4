"""From a DataFrame to the columns that a verb's input is packed from; Spark evaluates them.

Rule of this module: what can be known from the schema is checked here, before the query starts, and nothing is
converted that could come out as another value.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Final, Self

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_type

from millpond.adapters.spark.rows.column_types import check_leaf_types, check_operations, compared_otherwise
from millpond.adapters.spark.rows.flat_rows import FlatColumns, FlatRows, Moments, Part
from millpond.adapters.spark.rows.intervals import is_in_months, to_months, traveling
from millpond.adapters.spark.rows.names import named, written
from millpond.adapters.spark.rows.sink import arrow_schema
from millpond.adapters.spark.verbs.frames.expressions import Expression
from millpond.adapters.spark.verbs.frames.marks import without_marks
from millpond.errors import (
    ColumnTypeError,
    InvalidArgumentError,
    InvalidExpressionError,
    TimeZoneError,
    UnknownColumnError,
)
from millpond.processors.calls.arguments import parameter_of
from millpond.processors.calls.calling import several_tables
from millpond.processors.calls.feeds import Feed, Gone
from millpond.processors.calls.joins.key_kinds import MONTHS
from millpond.processors.distribution.exchange import PLACE
from millpond.processors.options.grouping import GroupingSets
from millpond.processors.options.known_names import did_you_mean
from millpond.processors.verbs.verb import INSTANT, WALL_TIME
from millpond.stores.encoding.rows.physical import normalized

ORDER: Final = "order"
"""The column, of prepared rows, that decides among those of one key and time."""

DAY: Final = 86_400_000_000
"""Microseconds in a day."""

REMEDY: Final = "df.withColumnRenamed(...), df.drop(...)"
"""The code that renames or drops columns of a DataFrame, for messages."""

_DIRECTED: Final = re.compile(r"Column<'(.*) (?:ASC|DESC) NULLS (?:FIRST|LAST)(?: AS \w+)?'>", re.DOTALL)
"""The text that Spark shows of a column with a direction to sort in."""

_MICROSECONDS: Final = 6
"""The digits after the second."""


@dataclass(frozen=True)
class RowInput:
    """One DataFrame as the input of a verb.

    Attributes:
        role: what messages call it: ``left``, ``right`` or ``input``, or the name of a table.
        frame: the rows.
        keys: the names of the columns of the key.
        values: the names of the columns that are packed.
        time: the column with the time of a row, or an expression.
        op: the column with what a row of a change feed does, or an expression; None if all rows are upserts.
        foreign: the names of the columns of the foreign key.
        order: the column, or an expression, which decides among rows of one key and time; None if nothing does.
        feed: the change feed that the rows are of; None if no verb has made them one.
        gone: what says when rows went that are deletes and show no time; None if they have those of all rows.
        given: what the user gave, by parameter, where the columns are not those of the user; None if they are.
        keyed: whether no row has a null in its key.
        stored: whether a store keeps its rows; if none does, nothing of an earlier run depends on its columns.
        added: the columns that the frame has beyond those of the user, with what makes them; None if there are none.
        shared: the columns that are the same as another one, with this; None if there are none.
        grouping: the sets of columns of the key for each of which a row has a key; None if it has one key.
    """

    role: str
    frame: DataFrame
    keys: Sequence[str]
    values: Sequence[str]
    time: str | Column
    op: str | Column | None = None
    foreign: Sequence[str] = ()
    order: str | Column | None = None
    feed: Feed | None = None
    gone: Gone | None = None
    given: Mapping[str, Expression] | None = None
    keyed: bool = False
    stored: bool = True
    added: Mapping[str, Column] | None = None
    shared: Mapping[str, str] | None = None
    grouping: GroupingSets | None = None

    def __post_init__(self) -> None:
        check_column(parameter_of(self.role), self.time)
        for what, one in (("order", self.order), ("op", self.op)):
            if one is not None:
                check_column(parameter_of(self.role, what), one)
        check_undirected("the order", self.order)

    @property
    def names(self) -> Sequence[str]:
        """All columns that the rows have."""
        names: list[str] = self.frame.columns
        return names

    @property
    def expressions(self) -> Mapping[str, Expression]:
        """The user's expressions for time, operations and order, by the parameters as they are written."""
        if self.given is not None:
            return self.given
        columns = {"time": self.time, "op": self.op, "order": self.order}
        return {
            parameter_of(self.role, what): Expression.of(self.frame, one)
            for what, one in columns.items()
            if one is not None
        }

    @property
    def in_order(self) -> bool:
        """True if the feed's order decides among rows of one key and time."""
        keys = self.keys if self.grouping is None else self.grouping.common
        return self.order is None and self.feed is not None and self.feed.orders(keys)

    @property
    def in_turn(self) -> bool:
        """True if each change of a key replaces the one before it, by the feed's order."""
        return self.order is None and self.feed is not None and self.feed.in_turn(self.keys, self.op)

    @property
    def ordered(self) -> bool:
        """True if an order given by the user decides among rows of one key and time."""
        return self.order is not None

    @property
    def carried(self) -> Sequence[str]:
        """The names of all columns that reach the result."""
        return [*self.keys, *self.foreign, *self.values]

    def selected(self) -> FlatRows:
        """Return the columns of a verb's ``Input``.

        Raises:
            ConfigurationError: the time is of a type that says no point in time, or the operation is not a string.
        """
        flat = FlatColumns()

        shared = self.shared or {}

        def fields(names: Sequence[str]) -> dict[str, int]:
            columns = {name: to_months(self.field(name), named(name)) for name in names}
            return {name: flat.number(column, shared.get(name, name)) for name, column in columns.items()}

        parts: dict[str, Part] = {"key": fields(self.keys), "value": fields(self.values)}
        parts["timestamp"] = Moments(flat.number(self._moments(), self._time_name))
        if self.foreign:
            parts["foreign"] = fields(self.foreign)
        if self.op is not None:
            check_operations(f"the operations of {self.role!r}", _type(self.role, self.frame, self.op))
            parts["op"] = flat.number(column_of(self.op))
        if self.order is not None:
            ordered = self._ordered().schema.fields[0]
            parts[ORDER] = {ORDER: flat.number(to_months(ordered, column_of(self.order)))}
        elif self.in_order and self.feed is not None and self.feed.sequence is not None:
            parts[PLACE] = flat.number(named(self.feed.sequence))
        return flat.rows(self.frame, parts)

    def unstored(self) -> Self:
        """Return the input, with rows that no store keeps."""
        return replace(self, stored=False)

    def grouped(self, grouping: GroupingSets | None) -> Self:
        """Return the input, with a key for each of some sets in each row."""
        return replace(self, grouping=grouping)

    def without_null_keys(self) -> "RowInput":
        """Return the input without rows that have a null in their key."""
        there = [named(key).isNotNull() for key in self.keys]
        return replace(self, frame=self.frame.where(reduce(Column.__and__, there)), keyed=True)

    def schema(self, names: Sequence[str]) -> pa.Schema:
        """Return some of the columns as they are packed.

        Raises:
            ConfigurationError: one of them is of a type that cannot be packed.
        """
        fields = [self.field(name) for name in names]
        for field in fields:
            _check_carried(self.role, field)
        schema = arrow_schema(traveling(T.StructType(fields)))
        packed = [field.with_type(normalized(field.type)) for field in schema]
        units = [dict(MONTHS) if is_in_months(field.dataType) else {} for field in fields]
        return pa.schema([field.with_metadata(unit) for field, unit in zip(packed, units, strict=True)])

    def key_schema(self, names: Sequence[str]) -> pa.Schema:
        """Return some of the columns as they are packed as a key.

        Raises:
            ConfigurationError: one of them is of a type that cannot be packed, or whose equal values differ.
        """
        for name in names:
            check_leaf_types(f"the key of {self.role!r}", name, self.field(name).dataType, compared_otherwise)
        return self.schema(names)

    def order_schema(self) -> pa.Schema:
        """Return the column ``order`` as it is packed.

        Raises:
            ConfigurationError: it is of a type that has no order.
        """
        assert self.order is not None
        if isinstance(self.order, str):
            field_of(self.role, self.frame, self.order)
        source = RowInput(self.role, self._ordered(), [ORDER], [], ORDER)
        check_leaf_types(f"the order of {self.role!r}", ORDER, source.field(ORDER).dataType, compared_otherwise)
        return source.schema([ORDER])

    @property
    def _time_name(self) -> str | None:
        """The name of the column that the times are as they are; None if they are made."""
        return self.time if isinstance(self.time, str) and self.gone is None else None

    def _moments(self) -> Column:
        """Return the times of rows: timestamps, or dates."""
        times = moments(self.role, self.frame, self.time)
        if self.gone is None:
            return times
        deleted = times.isNull() & (named(self.gone.op) == "delete")
        return F.when(deleted, self.went(self.gone)).otherwise(times.cast(self._kind))

    def went(self, gone: Gone) -> Column:
        """Return the times at which deleted rows went, of the kind of all rows' times."""
        went = named(gone.time)
        return went if self.field(gone.time).dataType == self._kind else went.cast(self._kind)

    @property
    def _kind(self) -> T.DataType:
        """The type of the times of rows, where they are no dates."""
        return T.TimestampType() if self.times == INSTANT else T.TimestampNTZType()

    def _ordered(self) -> DataFrame:
        """Return the order among rows of one key and time, as the only column."""
        assert self.order is not None
        return self.frame.select(column_of(self.order).alias(ORDER))

    @property
    def times(self) -> pa.DataType:
        """``INSTANT`` or ``WALL_TIME``, whichever its times are.

        Raises:
            ConfigurationError: the time is of a type that says no point in time.
        """
        moments(self.role, self.frame, self.time)
        return INSTANT if isinstance(_type(self.role, self.frame, self.time), T.TimestampType) else WALL_TIME

    def field(self, name: str) -> T.StructField:
        """Return the column of that name, without the marks of its fields, which are no part of its type.

        Raises:
            ConfigurationError: there is none.
        """
        field = field_of(self.role, self.frame, name)
        return T.StructField(name, without_marks(field.dataType), field.nullable, field.metadata)


def check_rows(role: str, rows: object) -> None:
    """Refuse what is no DataFrame of Spark as an input.

    Raises:
        ConfigurationError: so it is.
    """
    if not isinstance(rows, DataFrame):
        raise InvalidArgumentError(
            f"{role!r} is of type {type(rows).__name__}; give a DataFrame of Spark, such as "
            f"spark.createDataFrame(rows), or call the verb of a millpond.Pond{several_tables(rows)}"
        )


def check_column(what: str, column: object) -> None:
    """Refuse what is neither the name of a column nor an expression; ``what`` begins the message.

    Raises:
        ConfigurationError: so it is.
    """
    if not isinstance(column, str | Column):
        raise InvalidExpressionError(
            f"{what} is {column!r}, which is no column; give the name of one, or an expression such as F.col('a')"
        )


def expression_of(what: str, frame: DataFrame, column: str | Column) -> T.StructField:
    """Return the column of an expression of the rows; ``what`` begins the message.

    Raises:
        ConfigurationError: it is none.
    """
    try:
        field: T.StructField = frame.select(column_of(column)).schema.fields[0]
    except AnalysisException as error:
        first_line = str(error).partition("\n")[0]
        raise InvalidExpressionError(
            f"{what} is {column}, which is no expression of the rows: {first_line}; give a column of "
            f"{', '.join(frame.columns)}, or an expression of these"
        ) from error
    return field


def check_undirected(what: str, column: str | Column | None, instead: str = "") -> None:
    """Refuse a direction to sort in, which Spark would drop.

    Args:
        what: how errors call what the user gave.
        column: the column or expression.
        instead: what the user can write instead of a direction, where the verb has that.

    Raises:
        ConfigurationError: it is one.
    """
    directed = _DIRECTED.fullmatch(str(column)) if isinstance(column, Column) else None
    if directed is not None:
        raise InvalidExpressionError(
            f"{what} {column} says in which direction to sort, which an expression cannot; give the column or "
            f"expression alone, F.expr({directed[1]!r}){instead}"
        )


def moments(role: str, frame: DataFrame, column: str | Column) -> Column:
    """Return times as they are: timestamps, or dates.

    Raises:
        ConfigurationError: the column's type says no point in time.
    """
    type_ = _type(role, frame, column)
    if not isinstance(type_, T.TimestampType | T.TimestampNTZType | T.DateType):
        raise ColumnTypeError(
            f"{parameter_of(role)} is of type {type_.simpleString()}; give a timestamp or a date, or make one: "
            "F.timestamp_millis(column) of milliseconds, F.to_timestamp(column) of text"
        )
    return column_of(column)


def micros(role: str, frame: DataFrame, column: str | Column) -> Column:
    """Return a time in microseconds since 1970: that of its fields if it has no time zone.

    Raises:
        ConfigurationError: the column's type says no point in time.
    """
    value, type_ = moments(role, frame, column), _type(role, frame, column)
    if isinstance(type_, T.TimestampType):
        return F.unix_micros(value)
    if isinstance(type_, T.DateType):
        return F.unix_date(value).cast("long") * DAY
    return F.unix_date(value.cast("date")).cast("long") * DAY + _micros_of_day(value)


def _type(role: str, frame: DataFrame, column: str | Column) -> T.DataType:
    if isinstance(column, str):
        return field_of(role, frame, column).dataType
    return expression_of(parameter_of(role), frame, column).dataType


def field_of(role: str, frame: DataFrame, name: str) -> T.StructField:
    """Return the column of that name.

    Raises:
        ConfigurationError: there is none.
    """
    for field in frame.schema.fields:
        if field.name == name:
            return field
    hint = did_you_mean(name, frame.columns)
    raise UnknownColumnError(f"the DataFrame {role!r} has no column {name!r}, only {', '.join(frame.columns)}{hint}")


def _micros_of_day(column: Column) -> Column:
    """Return the time of day, taken from its fields: any other way would go by the session's time zone."""
    hours, minutes, seconds = (F.extract(F.lit(part), column) for part in ("HOUR", "MINUTE", "SECOND"))
    return (hours * 60 + minutes).cast("long") * 60_000_000 + (seconds * 1_000_000).cast("long")


def column_of(column: str | Column) -> Column:
    """Return the column of that name, or the expression."""
    return named(column) if isinstance(column, str) else column


def _check_carried(role: str, field: T.StructField) -> None:
    def refusal(path: str, part: T.DataType) -> str | None:
        return _refusal(part, nested=path != field.name)

    check_leaf_types(f"the DataFrame {role!r}", field.name, field.dataType, refusal)


def _refusal(type_: T.DataType, *, nested: bool) -> str | None:
    """Return why a column of that type cannot be packed, and what to do; None if it can."""
    if isinstance(type_, T.CalendarIntervalType | T.UserDefinedType):
        return "which Spark cannot hand to Python in Arrow's form; cast it, for example to a string, or leave it out"
    if is_in_months(type_) and nested:
        return (
            "which Spark cannot hand to Python within another column; make it a column of its own, or an int of months"
        )
    if isinstance(type_, T.TimeType) and type_.precision > _MICROSECONDS:
        return "but times are kept to the microsecond; cast it to time(6)"
    return None


def check_equal_times(name: str, inputs: Sequence[RowInput]) -> None:
    """Refuse to compare points in time with times that have no time zone, which take one to be points in time.

    Raises:
        ConfigurationError: the verb ``name`` would.
    """
    if len({rows.times for rows in inputs}) < 2:
        return
    one, *_, other = sorted(inputs, key=lambda rows: rows.times != INSTANT)
    types = {rows.role: _type(rows.role, rows.frame, rows.time).simpleString() for rows in inputs}
    time = f"F.col({written(other.time)!r})" if isinstance(other.time, str) else "(...)"
    raise TimeZoneError(
        f"the verb {name!r} compares {parameter_of(one.role)}, a {types[one.role]}, with {parameter_of(other.role)}, a "
        f"{types[other.role]}, which is a point in time only in some time zone; to take the session's, as Spark does "
        f"where it compares them, write {parameter_of(other.role)}={time}.cast('timestamp')"
    )


def type_name(field: Any) -> str:
    """Return the type of a column as a user writes it."""
    if dict(field.metadata or {}) == MONTHS:
        return T.YearMonthIntervalType().simpleString()
    return from_arrow_type(field.type, prefer_timestamp_ntz=True).simpleString()
