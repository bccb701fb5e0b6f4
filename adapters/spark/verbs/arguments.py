"""The arguments of verbs, checked where the user writes them.

Rule of this module: it turns arguments into what verbs take and runs nothing.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, TypeAlias

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from millpond.adapters.spark.rows.names import named
from millpond.adapters.spark.verbs.frames.expressions import Expression
from millpond.adapters.spark.verbs.frames.inputs import REMEDY, check_column, check_undirected, field_of
from millpond.errors import ColumnTypeError, InvalidExpressionError
from millpond.processors.calls.arguments import INPUT, check_distinct
from millpond.processors.options.windows import SessionWindows
from millpond.processors.verbs.aggregate import GAP, Windows
from millpond.processors.verbs.aggregates import AggregateCall
from millpond.processors.verbs.joins.stream_join import BOUNDS
from millpond.processors.verbs.verb import MICROS
from millpond.stores.encoding.times import FARTHEST, Duration, to_micros

Bound: TypeAlias = Duration | Column
"""The distance allowed between times: a length for all rows, or a column of the left side with the length of each."""

PAIR: Final = ("first", "second")
"""The fields of what rows bring for a call of two columns."""

_LONGEST: Final = "interval day to second"
_PARTS: Final = {"DAY": 86_400_000_000, "HOUR": 3_600_000_000, "MINUTE": 60_000_000}
"""Microseconds in what an interval has besides its seconds."""


def condition_of(rows: DataFrame, what: str, where: Any, example: str) -> Column:
    """Return a condition on rows; ``what`` and an ``example`` are for errors.

    Raises:
        ConfigurationError: it is none.
    """
    wrong, cause = "that is none", None
    try:
        if isinstance(where, str | Column):
            condition = F.expr(where) if isinstance(where, str) else where
            (found,) = rows.select(condition).schema.fields
            if isinstance(found.dataType, T.BooleanType):
                return condition
            wrong = f"that is of type {found.dataType.simpleString()}"
    except AnalysisException as error:
        wrong, cause = str(error), error
    raise InvalidExpressionError(
        f"{what} is {where!r}: {wrong}; give a condition as DataFrame.where takes it, such as where={example}"
    ) from cause


def columns_of(call: AggregateCall) -> list[Any]:
    """Return the columns or expressions that a call is applied to."""
    return [column for column in (call.column, call.second) if column is not None]


def argument_of(rows: DataFrame, name: str, call: AggregateCall) -> Column | None:
    """Return the column that rows bring for a call, null where they do not count; None if they bring nothing.

    Raises:
        ConfigurationError: the column is missing, or the condition is none.
    """
    columns = [column_argument(rows, column, f"the argument of {name!r}") for column in columns_of(call)]
    value = columns[0] if columns else None
    if call.second is not None:
        value = F.struct(*(column.alias(part) for column, part in zip(columns, PAIR, strict=True)))
    if call.where is None:
        return value
    present = F.lit(1) if value is None else value
    condition = condition_of(rows, f"where of {name!r}", call.where, "\"status = 'paid'\"")
    return F.when(condition, F.struct(present.alias("value")) if call.wraps else present)


def named_calls(rows: DataFrame, calls: Mapping[str, AggregateCall]) -> dict[str, AggregateCall]:
    """Return the calls, with the names of columns in place of expressions that are nothing else."""

    def named_column(column: Any) -> Any:
        found = Expression.of(rows, column) if isinstance(column, Column) else None
        return column if found is None or found.release is not None else found.text

    return {
        name: replace(call, column=named_column(call.column), second=named_column(call.second))
        for name, call in calls.items()
    }


def column_argument(rows: DataFrame, column: str | Column, what: str) -> Column:
    """Return a column, or an expression, that is called ``what`` in messages.

    Raises:
        ConfigurationError: it is none of the rows, or says in which direction to sort.
    """
    check_column(what, column)
    check_undirected(what, column)
    return named(field_of(INPUT, rows, column).name) if isinstance(column, str) else column


def own_bounds(left: DataFrame, given: Mapping[str, Any]) -> dict[str, Column]:
    """Return the columns of ``BOUNDS``, which the left rows of a join of streams get.

    Args:
        left: the rows.
        given: by parameter, what the user gave.

    Raises:
        ConfigurationError: a column is no length of time, or there is one of that name already.
    """
    names = [*(name.casefold() for name in left.columns), *BOUNDS.values()]
    check_distinct(names, changes=False, remedy=REMEDY)
    made: dict[str, Column] = {}
    for name, hidden in BOUNDS.items():
        bound = given[name]
        if not isinstance(bound, Column):
            # Nullable as that of a column is: state takes one for the other, and its terms say what has changed.
            made[hidden] = F.when(F.lit(True), F.lit(to_micros(bound or 0, name)).cast("long"))
            continue
        made[hidden] = _own_length(name, left, bound)
    return made


def with_own_gap(rows: DataFrame, gap: Column) -> DataFrame:
    """Return the rows with ``GAP`` among their columns: the gaps of their sessions.

    Args:
        rows: the rows.
        gap: the column that gives them.

    Raises:
        ConfigurationError: it is no length of time, or there is a column of that name already.
    """
    check_distinct([*(name.casefold() for name in rows.columns), GAP], changes=False, remedy=REMEDY)
    return rows.withColumn(GAP, _own_length("the gap of window", rows, gap))


def rows_with_gap(rows: DataFrame, window: Windows | None) -> DataFrame:
    """Return the rows that are in sessions of a window, where each has a gap of its own; all rows, if it has none.

    Raises:
        ConfigurationError: the gap is no length of time.
    """
    if not isinstance(window, SessionWindows) or window.gap_of is None:
        return rows
    return rows.where(_own_length("the gap of window", rows, window.gap_of).between(1, window.gap * MICROS))


def _in_micros(type_: T.DataType, length: Column) -> Column:
    """Return lengths of time in microseconds, none further from 0 than ``FARTHEST``; null where they are null."""
    if isinstance(type_, T.DayTimeIntervalType):
        length = length.cast(_LONGEST)
        whole = [F.extract(F.lit(part), length).cast("long") * micros for part, micros in _PARTS.items()]
        seconds = (F.extract(F.lit("SECOND"), length) * 1_000_000).cast("long")
        return _cut(sum(whole, seconds), FARTHEST, 1)
    return _cut(length.cast("long"), FARTHEST // MICROS, MICROS)


def _cut(number: Column, most: int, times: int) -> Column:
    """Return a number, or the one of its sign that is ``most`` if it is greater, so many times."""
    # The column is nullable, whatever the number is: state knows it so.
    far = (
        F.when(number.isNull(), F.lit(None))
        .when(number > most, F.lit(most))
        .when(number < -most, F.lit(-most))
        .otherwise(number)
    )
    return far * F.lit(times)


def _own_length(what: str, rows: DataFrame, column: Column) -> Column:
    """Return a length of time of each row, in microseconds; ``what`` names it in errors.

    Raises:
        ConfigurationError: it is none.
    """
    check_undirected(what, column)
    type_ = rows.select(column).schema.fields[0].dataType
    if not isinstance(type_, T.DayTimeIntervalType | T.IntegralType):
        raise ColumnTypeError(
            f"{what} is of type {type_.simpleString()}; give an interval, such as F.make_dt_interval(mins=column), "
            "or an integer of milliseconds"
        )
    return _in_micros(type_, column)
