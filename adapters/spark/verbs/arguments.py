"""What a user writes for a verb, checked where it is written down.

Rule of this module: it turns arguments into what verbs take and runs nothing.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from millpond.adapters.spark.rows.column_types import check_leaf_types, compared_otherwise
from millpond.adapters.spark.rows.intervals import is_in_months
from millpond.adapters.spark.rows.lengths import is_length, lengths_in_micros
from millpond.adapters.spark.rows.names import named
from millpond.adapters.spark.verbs.expressions import Expression
from millpond.adapters.spark.verbs.feeds import feed_in
from millpond.adapters.spark.verbs.inputs import RowInput, check_column, check_names, check_undirected, field_of
from millpond.errors import ConfigurationError
from millpond.processors.calls.arguments import INPUT, in_micros, join_windows
from millpond.processors.options.join_windows import JoinWindows
from millpond.processors.verbs.aggregates import AggregateCall
from millpond.processors.verbs.projections import SEQUENCE
from millpond.processors.verbs.stream_join import BOUNDS, OwnBounds
from millpond.stores.encoding.times import FARTHEST, Duration, to_micros

Bound: TypeAlias = Duration | Column
"""How far apart times may be: a length of time for all rows, or a column of the left side with that of each."""

PAIR: Final = ("first", "second")
"""The fields of what rows bring for a call of two columns."""


def condition_of(rows: DataFrame, what: str, where: Any, example: str) -> Column:
    """A condition on rows; ``what`` and an ``example`` are for errors.

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
    raise ConfigurationError(
        f"{what} is {where!r}: {wrong}; give a condition as DataFrame.where takes it, such as where={example}"
    ) from cause


def columns_of(call: AggregateCall) -> list[Any]:
    """The columns or expressions that a call is applied to."""
    return [column for column in (call.column, call.second) if column is not None]


def _argument(rows: DataFrame, name: str, call: AggregateCall) -> Column | None:
    """What rows bring for a call: null where they do not count; None if they bring nothing.

    Raises:
        ConfigurationError: the column is missing, or the condition is none.
    """
    columns = [_column(rows, column, f"the argument of {name!r}") for column in columns_of(call)]
    value = columns[0] if columns else None
    if call.second is not None:
        value = F.struct(*(column.alias(part) for column, part in zip(columns, PAIR, strict=True)))
    if call.where is None:
        return value
    present = F.lit(1) if value is None else value
    condition = condition_of(rows, f"where of {name!r}", call.where, "\"status = 'paid'\"")
    return F.when(condition, F.struct(present.alias("value")) if call.wraps else present)


def aggregated_input(
    rows: DataFrame,
    keys: Sequence[str],
    time: str | Column,
    calls: Mapping[str, AggregateCall],
    order: str | Column | None,
) -> RowInput:
    """Key, time and the arguments of the calls, as Spark evaluates them; arguments have the names of the results.

    Raises:
        ConfigurationError: a column is missing, or of a type that cannot be aggregated, or a condition is none.
    """
    check_undirected("the order", order)
    found = {name: _argument(rows, name, call) for name, call in calls.items()}
    arguments = {name: argument for name, argument in found.items() if argument is not None}
    compared = {name for name, call in calls.items() if call.compares}
    taken = {name.casefold() for name in (*keys, *arguments)}
    moment, decides, place = (_free(name, taken) for name in ("time", "order", SEQUENCE))
    feed = feed_in(rows)
    selected = rows.select(
        *(_column(rows, key, "by") for key in keys),
        _column(rows, time, "time").alias(moment),
        *(argument.alias(name) for name, argument in arguments.items()),
        *([] if order is None else [_column(rows, order, "order").alias(decides)]),
        *([] if feed is None or feed.sequence is None else [named(feed.sequence).alias(place)]),
    )
    if feed is not None and feed.sequence is not None:
        feed = replace(feed, sequence=place)
    for column in selected.schema.fields:
        type_: Any = column.dataType
        if column.name in arguments and is_in_months(type_[0].dataType if calls[column.name].wraps else type_):
            raise ConfigurationError(
                f"the argument of {column.name!r} is of type {type_.simpleString()}, which cannot be aggregated; give "
                "an int of months"
            )
        if column.name in compared:
            one = type_ if calls[column.name].second is None else type_[0].dataType
            check_leaf_types(f"the argument of {column.name!r}", column.name, one, compared_otherwise)
    kept = None if order is None else decides
    columns = {"time": time} | ({} if order is None else {"order": order})
    given = {name: Expression.of(rows, column) for name, column in columns.items()}
    return RowInput(INPUT, selected, keys, list(arguments), moment, order=kept, feed=feed, given=given)


def named_calls(rows: DataFrame, calls: Mapping[str, AggregateCall]) -> dict[str, AggregateCall]:
    """The calls, with the names of columns in place of expressions that are nothing else."""

    def named_column(column: Any) -> Any:
        found = Expression.of(rows, column) if isinstance(column, Column) else None
        return column if found is None or found.release is not None else found.text

    return {
        name: replace(call, column=named_column(call.column), second=named_column(call.second))
        for name, call in calls.items()
    }


def _free(name: str, taken: Collection[str]) -> str:
    """The name, with as many underscores behind it as it takes to be none of those that are taken."""
    while name in taken:
        name += "_"
    return name


def _column(rows: DataFrame, column: str | Column, what: str) -> Column:
    check_column(what, column)
    check_undirected(what, column)
    return named(field_of(INPUT, rows, column).name) if isinstance(column, str) else column


def operation_of(frame: DataFrame, op: str | Column | None) -> str | Column | None:
    """What says which rows are deletes: what the user gave, or else the column of the change feed that a verb made."""
    feed = feed_in(frame)
    return op if op is not None or feed is None else feed.op


def table_input(
    role: str,
    frame: DataFrame,
    keys: Sequence[str],
    time: str | Column,
    *,
    taken: Collection[str],
    op: str | Column | None = None,
    order: str | Column | None = None,
    foreign: Sequence[str] = (),
) -> RowInput:
    """An input of which all columns are packed but those of its key and of its change feed.

    Args:
        role, frame, keys, time, op, order, foreign: those of ``RowInput``.
        taken: the names of columns that the result has from elsewhere. A column of a change feed that has one of these
            names is left out; so is ``sequence``, if it is the order.

    Raises:
        ConfigurationError: a column of the key is missing.
    """
    for key in keys:
        field_of(role, frame, key)
    feed = feed_in(frame)
    of_feed = set() if feed is None else set(feed.changes)
    if isinstance(order, str) and order == SEQUENCE:
        of_feed.add(SEQUENCE)
    apart = {*keys, *of_feed.intersection(taken), *([op] if isinstance(op, str) else [])}
    values = [column for column in frame.columns if column not in apart]
    return RowInput(role, frame, keys, values, time, op, foreign, order, feed)


def join_bounds(
    left: DataFrame,
    within: Bound | None,
    before: Bound | None,
    after: Bound | None,
    at_most: Duration | None,
    grace: Duration,
) -> tuple[JoinWindows, OwnBounds | None]:
    """Which rows of two streams belong together, in microseconds, and the bounds that are columns, if there are any.

    Raises:
        ConfigurationError: there is no window, or one is given in two ways, or a column has no greatest bound.
    """
    given = {"within": within, "before": before, "after": after}
    for name, one in given.items():
        if isinstance(one, str) and one in left.columns:
            raise ConfigurationError(
                f"{name} is {one!r}, a column of left; text is a length of time: give {name}=F.col({one!r}) and the "
                "greatest that it may be, such as at_most='1 hour'"
            )
    sides = {name: given[name] if within is None else within for name in ("before", "after")}
    bounds = _own_bounds([name for name, one in sides.items() if isinstance(one, Column)], at_most)
    lengths = {name: at_most if isinstance(one, Column) else one for name, one in given.items()}
    windows = join_windows(lengths["within"], lengths["before"], lengths["after"], grace)
    if bounds is not None and max(map(abs, (windows.before, windows.after, windows.grace))) > FARTHEST // 8:
        raise ConfigurationError(
            f"at_most is {at_most!r}, and grace {grace!r}; where bounds are columns, give lengths of less than "
            "9000 years"
        )
    return windows, bounds


def _own_bounds(columns: Sequence[str], at_most: Duration | None) -> OwnBounds | None:
    """The bounds of a join that are columns; None if none is.

    Raises:
        ConfigurationError: nothing says how great they may be, or it says so of none.
    """
    if not columns:
        if at_most is not None:
            raise ConfigurationError(
                f"at_most is {at_most!r}, but neither before nor after is a column; give before=F.col('...'), or leave "
                "at_most out"
            )
        return None
    if at_most is None:
        raise ConfigurationError(
            f"{' and '.join(columns)} differ from row to row, and rows are kept for the greatest; give at_most='1 hour'"
        )
    return OwnBounds(in_micros(at_most, "at_most"), columns)


def with_own_bounds(left: RowInput, bounds: OwnBounds, given: Mapping[str, Bound | None]) -> RowInput:
    """The left rows of a join of streams with ``BOUNDS`` among the columns that are packed.

    Args:
        left: the rows.
        bounds: which of their bounds are columns.
        given: by parameter, what the user gave.

    Raises:
        ConfigurationError: a column is no length of time, or there is one of that name already.
    """
    check_names([*(name.casefold() for name in left.values), *BOUNDS.values()], changes=False)
    made = {}
    for name, hidden in BOUNDS.items():
        bound = given[name]
        if not isinstance(bound, Column):
            # Nullable as that of a column is: state takes one for the other, and its terms say what has changed.
            made[hidden] = F.when(F.lit(True), F.lit(to_micros(bound or 0, name)).cast("long"))
            continue
        check_undirected(name, bound)
        type_ = left.frame.select(bound).schema.fields[0].dataType
        if not is_length(type_):
            raise ConfigurationError(
                f"{name} is of type {type_.simpleString()}; give an interval, such as F.make_dt_interval(mins=column), "
                "or an integer of milliseconds"
            )
        made[hidden] = lengths_in_micros(type_, bound)
    return replace(left, frame=left.frame.withColumns(made), values=[*left.values, *made])
