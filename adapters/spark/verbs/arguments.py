"""What a user writes for a verb, checked where it is written down.

Rule of this module: it turns arguments into what verbs take and runs nothing.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from itertools import pairwise
from typing import Any, Final, ParamSpec, TypeAlias, cast

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from millpond.adapters.spark.job.options import moment_of
from millpond.adapters.spark.rows.column_types import check_leaf_types, compared_otherwise
from millpond.adapters.spark.rows.intervals import is_in_months
from millpond.adapters.spark.rows.lengths import is_length, lengths_in_micros
from millpond.adapters.spark.rows.names import named
from millpond.adapters.spark.verbs.account import TTL, Allowance
from millpond.adapters.spark.verbs.expressions import Expression
from millpond.adapters.spark.verbs.feeds import feed_in
from millpond.adapters.spark.verbs.inputs import RowInput, check_column, check_names, check_undirected, field_of
from millpond.errors import ConfigurationError
from millpond.processors.options.join_windows import JoinWindows
from millpond.processors.options.joins import JoinType
from millpond.processors.options.windows import SessionWindows, TimeWindows
from millpond.processors.verbs.aggregate import Windows, windows_in_micros
from millpond.processors.verbs.aggregates import AggregateCall
from millpond.processors.verbs.projections import SEQUENCE
from millpond.processors.verbs.stream_join import BOUNDS, OwnBounds
from millpond.stores.encoding.times import FARTHEST, Duration, Instant, TimeUnit, to_micros
from millpond.stores.typed.expiry import Expired
from millpond.stores.typed.windows.grids import EVERYWHERE

Bound: TypeAlias = Duration | Column
"""How far apart times may be: a length of time for all rows, or a column of the left side with that of each."""

On: TypeAlias = str | Sequence[str] | Mapping[str, str]
"""The columns that must be equal: names that both sides have, or left names with the right ones."""

INPUT: Final = "input"
"""What messages, topics and files call the only input of a verb."""

PAIR: Final = ("first", "second")
"""The fields of what rows bring for a call of two columns."""

_Arguments = ParamSpec("_Arguments")


def named_in_errors(verb: Callable[_Arguments, DataFrame]) -> Callable[_Arguments, DataFrame]:
    """Begin each message about an argument with the verb, and with the name that the user gave it."""

    @wraps(verb)
    def named_verb(*arguments: _Arguments.args, **options: _Arguments.kwargs) -> DataFrame:
        try:
            return verb(*arguments, **options)
        except ConfigurationError as error:
            name, message = options.get("name"), str(error)
            if name is None or repr(name) not in message:
                error.args = (f"{verb.__name__}{'' if name is None else f' {name!r}'}: {message}",)
            raise

    return named_verb


def check_calls(calls: Mapping[str, AggregateCall], window: Windows | None) -> None:
    """Refuse what is no aggregate call, or no window.

    Raises:
        ConfigurationError: there is such a one.
    """
    if not isinstance(calls, Mapping):
        raise ConfigurationError(f"calls is {calls!r}; give a mapping from the name of each result to its function")
    for name, call in calls.items():
        if not isinstance(call, AggregateCall):
            raise ConfigurationError(
                f"the aggregate {name!r} is {call!r}; give a function of millpond.processors.verbs.aggregates, such as "
                "aggregates.count()"
            )
    check_window(window)


def check_window(window: Windows | None) -> None:
    """Refuse what is no window.

    Raises:
        ConfigurationError: so it is.
    """
    if window is not None and not isinstance(window, Windows):
        raise ConfigurationError(
            f"window is {window!r}; give TimeWindows, SlidingWindows or SessionWindows of millpond.processors"
        )


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


def until_in_micros(window: Windows | None, until: Mapping[Instant | str, Windows] | None) -> dict[int, Windows]:
    """The windows that begin before some time, by that time in microseconds.

    Raises:
        ConfigurationError: there is no window after them, they are of another kind, or none begins at that time.
    """
    found: dict[int, Windows] = {}
    for time, before in (until or {}).items():
        moment = moment_of(time, "a time of until")
        if moment is None or not isinstance(before, TimeWindows | SessionWindows) or type(before) is not type(window):
            raise ConfigurationError(
                f"until is {until!r}, and window is {window!r}; both are TimeWindows, or both SessionWindows, as in "
                "window=TimeWindows('2 hours'), until={'2026-06-01T00:00:00Z': TimeWindows('1 hour')}; other windows "
                "take another name of the verb"
            )
        found[moment] = before
    eras = [*sorted(found), None]
    for moment, following in pairwise(eras):
        after = window if following is None else found[following]
        cut = None if after is None else windows_in_micros(after)
        grid = cut.grid if isinstance(cut, TimeWindows) else EVERYWHERE
        if moment is not None and grid.last(moment) != moment:
            shown = TimeUnit.MICROSECOND.shown
            raise ConfigurationError(
                f"until has the time {shown(moment)!r}, at which none of the windows after it begins, which are "
                f"{after}; the next that does is {shown(grid.next(moment))!r}"
            )
    return found


def check_zones(windows: Collection[Windows | None], instants: bool, time: str | Column) -> None:
    """Refuse windows of the calendar of a zone for times without one, and such without a zone for instants.

    Raises:
        ConfigurationError: there are such windows.
    """
    for one in windows:
        calendar = one.calendar if isinstance(one, TimeWindows) else None
        if calendar is None or instants == (calendar.zone is not None):
            continue
        if instants:
            raise ConfigurationError(
                f"windows are of the calendar, {calendar.text!r}, but not of which time zone, and the times of "
                f"{time!r} are moments; give it: TimeWindows({calendar.unit.value!r}, zone='Europe/Berlin')"
            )
        raise ConfigurationError(
            f"windows are of the calendar of {calendar.zone!r}, but the times of {time!r} are of no time zone "
            "(timestamp_ntz); leave out zone for the calendar that they show, or give time as a timestamp, such as "
            f"time=F.col({time!r}).cast('timestamp')"
        )


def emits_final(emit: str, window: Windows | None) -> bool:
    """Whether only final results come out.

    Raises:
        ConfigurationError: neither ``"updates"`` nor ``"final"``, or ``"final"`` without a window.
    """
    if emit not in ("updates", "final"):
        raise ConfigurationError(f"emit is {emit!r}; give 'updates' or 'final'")
    if emit == "final" and window is None:
        raise ConfigurationError("a result that has no window is never final; give a window, or emit='updates'")
    return emit == "final"


def check_ttl(ttl: Duration | None, expired: str = "silent", window: Windows | None = None) -> None:
    """Refuse a time to live where windows end what is kept, and what says what expires where nothing does.

    Raises:
        ConfigurationError: so it is, or one of them is no such thing.
    """
    chosen = Expired.of(expired)
    if ttl is None:
        if chosen is not Expired.SILENT:
            raise ConfigurationError(
                f"expired is {expired!r}, but nothing expires; give ttl='30 days', or leave out expired"
            )
        return
    if window is not None:
        raise ConfigurationError(
            "results of windows are kept until their window and its grace are over; leave out ttl, or give a window "
            "with another grace"
        )
    if in_micros(ttl, "ttl") == 0:
        raise ConfigurationError(f"ttl is {ttl!r}; give a length of time such as '30 days', or leave it out")


def ttl_allowance(ttl: Duration | None, late: int) -> Allowance | None:
    """A time to live, for rows that come so much later; None for none."""
    return None if ttl is None else Allowance(TTL, in_micros(ttl, "ttl"), late)


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


def chosen_join(how: str, known: Iterable[JoinType]) -> JoinType:
    """The type of join called ``how``, which must be among those that are known.

    Raises:
        ConfigurationError: it is not.
    """
    known = list(known)
    for join_type in known:
        if join_type.value == how:
            return join_type
    raise ConfigurationError(f"how is {how!r}; give {' or '.join(repr(one.value) for one in known)}")


def column_names(columns: str | Sequence[str], what: str) -> list[str]:
    """The names of one column or of several; ``what`` names them in errors.

    Raises:
        ConfigurationError: there are none, or not different ones.
    """
    names = [columns] if isinstance(columns, str) else list(columns) if isinstance(columns, Sequence) else []
    if not names or not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        raise ConfigurationError(f"{what} is {columns!r}; give the name of a column, or a list of different names")
    return names


def grouping_names(by: str | Sequence[str]) -> list[str]:
    """The names of the columns that rows are grouped by: none for all rows together.

    Raises:
        ConfigurationError: they are not different, or no names.
    """
    return [] if isinstance(by, list | tuple) and not by else column_names(by, "by")


def in_micros(duration: Duration, name: str) -> int:
    """A length of time in microseconds.

    Raises:
        ConfigurationError: it is negative, or no length of time.
    """
    micros = to_micros(duration, name)
    if micros < 0:
        raise ConfigurationError(f"{name} is {duration!r}; it must not be negative")
    return micros


def column_pairs(on: On) -> dict[str, str]:
    """The right name of each left name.

    Raises:
        ConfigurationError: there are no names, or not different ones.
    """
    if not isinstance(on, Mapping):
        return {name: name for name in column_names(on, "on")}
    left = column_names(list(on), "the left side of on")
    return dict(zip(left, column_names(list(on.values()), "the right side of on"), strict=True))


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


def join_windows(
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
    wait = in_micros(grace, "grace")
    for name, one in (("within", within), ("before", before), ("after", after)):
        if isinstance(one, str) and one in left.columns:
            raise ConfigurationError(
                f"{name} is {one!r}, a column of left; text is a length of time: give {name}=F.col({one!r}) and the "
                "greatest that it may be, such as at_most='1 hour'"
            )
    if within is not None:
        if before is not None or after is not None:
            raise ConfigurationError("give either within=..., or before=... and after=...")
        if not isinstance(within, Column):
            in_micros(within, "within")
        before = after = within
    if before is None and after is None:
        raise ConfigurationError("a join of streams needs a window: within='10 minutes', or before=... and after=...")
    bound_of = {name: 0 if one is None else one for name, one in (("before", before), ("after", after))}
    bounds = _own_bounds([name for name, bound in bound_of.items() if isinstance(bound, Column)], at_most)
    own = {} if bounds is None else dict.fromkeys(bounds.columns, bounds.at_most)
    lengths = {
        name: own[name] if name in own else to_micros(cast(Duration, one), name) for name, one in bound_of.items()
    }
    if bounds is not None and max(map(abs, (*lengths.values(), wait))) > FARTHEST // 8:
        raise ConfigurationError(
            f"at_most is {at_most!r}, and grace {grace!r}; where bounds are columns, give lengths of less than "
            "9000 years"
        )
    return JoinWindows(lengths["before"], lengths["after"], wait, drop_late=True), bounds


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
