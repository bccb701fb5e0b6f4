"""The arguments of verbs, checked where the user writes them.

Rule of this module: it turns arguments into what verbs take, knows no columns but by their names, and runs nothing.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any, Final, TypeAlias

import pyarrow as pa

from millpond.errors import (
    ArgumentConflictError,
    ColumnTypeError,
    DuplicateColumnError,
    InvalidArgumentError,
    InvalidTimeError,
    InvalidWindowError,
    MissingArgumentError,
    NoHistoryError,
    TimeZoneError,
    UnknownColumnError,
    UnknownNameError,
)
from millpond.processors.calls.account import TTL, Allowance
from millpond.processors.options.grouping import By, GroupingSets, product_of
from millpond.processors.options.join_windows import JoinWindows, ends_early
from millpond.processors.options.joins import JoinType, Side
from millpond.processors.options.known_names import did_you_mean
from millpond.processors.options.windows import SessionWindows, TimeWindows, calendar_of, in_a_zone, own_gap
from millpond.processors.verbs import aggregates
from millpond.processors.verbs.aggregate import Windows, windows_in_micros
from millpond.processors.verbs.aggregates import AggregateCall
from millpond.processors.verbs.aggregates.elsewhere import FUNCTIONS
from millpond.processors.verbs.projections import CHANGE_COLUMNS
from millpond.stores.encoding.times import Duration, Instant, TimeUnit, to_instant_micros, to_micros
from millpond.stores.typed.expiry import Expired
from millpond.stores.typed.windows.grids import EVERYWHERE

On: TypeAlias = str | Sequence[str] | Mapping[str, str]
"""The columns that must be equal: names that both sides have, or left names with the right ones."""

INPUT: Final = "input"
"""The name of the only input of a verb in messages, topics and files."""

LEFT: Final = "left"
RIGHT: Final = "right"
"""The names of the inputs of a join there."""


def check_calls(calls: Mapping[str, AggregateCall], window: Windows | None) -> None:
    """Refuse values that are not aggregate calls, and windows that are none.

    Raises:
        ConfigurationError: a value is not an aggregate call, or the window is not a window.
    """
    if not isinstance(calls, Mapping):
        raise InvalidArgumentError(
            f"calls is {_shown_calls(calls)}; give a mapping from the name of each result to its function, such as "
            "{'total': aggregates.sum('amount')}"
        )
    for name, call in calls.items():
        if not isinstance(name, str):
            raise InvalidArgumentError(
                f"calls has a result by the name {name!r}; give it that of a column, such as {{'count': count()}}"
            )
        if not isinstance(call, AggregateCall):
            raise InvalidArgumentError(
                f"the aggregate {name!r} is {call!r}; give a function of millpond.processors.verbs.aggregates, such as "
                f"{_meant_call(call)}"
            )
        if isinstance(call.column, str) and call.column == "*":
            raise InvalidArgumentError(
                f"the aggregate {name!r} is given the column '*'; all rows are counted by count()"
            )
    check_window(window)


def _shown_calls(calls: object) -> str:
    """Return a short form of what was given for calls."""
    if isinstance(calls, AggregateCall):
        return "one aggregate without a name"
    return "a list" if isinstance(calls, list | tuple) else repr(calls)


def _meant_call(given: object) -> str:
    """Return the call that is likely to be meant by something else, as pandas, Polars and SQL have it."""
    column, function = "amount", given
    if isinstance(given, tuple | list) and len(given) == 2 and isinstance(given[0], str):
        column, function = given
    name = function if isinstance(function, str) else getattr(function, "__name__", "")
    name = FUNCTIONS.get(name, name)
    if name == "count" or name not in aggregates.__all__ or not name.islower():
        return "aggregates.count()"
    return f"aggregates.{name}({column!r})"


def check_window(window: Windows | None) -> None:
    """Refuse a value that is not a window.

    Raises:
        ConfigurationError: it is none.
    """
    if window is not None and not isinstance(window, Windows):
        raise InvalidArgumentError(
            f"window is {window!r}; give TimeWindows, SlidingWindows or SessionWindows of millpond.processors, such as "
            f"{_meant_window(window)}"
        )


def _meant_window(given: object) -> str:
    """Return the windows that are likely to be meant by something else."""
    if isinstance(given, type) and issubclass(given, Windows):
        return f"{given.__name__}('1 minute')"
    if isinstance(given, tuple | list) and len(given) == 2:
        return f"TimeWindows({given[0]!r}, advance={given[1]!r})"
    return f"TimeWindows({given!r})" if isinstance(given, str) else "TimeWindows('1 minute')"


def until_in_micros(window: Windows | None, until: Mapping[Instant | str, Windows] | None) -> dict[int, Windows]:
    """Return the windows that begin before some time, by that time in microseconds.

    Raises:
        ConfigurationError: there is no window after them, they are of another kind, none begins at that time, or rows
            have gaps of their own.
    """
    if until is not None and not isinstance(until, Mapping):
        raise InvalidArgumentError(
            f"until is {until!r}; give a mapping from times to the windows that begin before them, such as "
            "until={'2026-06-01T00:00:00Z': TimeWindows('1 hour')}"
        )
    if until:
        check_one_gap([window, *until.values()], "until")
    found: dict[int, Windows] = {}
    for time, before in (until or {}).items():
        moment = moment_of(time, "a time of until")
        if moment is None or not isinstance(before, TimeWindows | SessionWindows) or type(before) is not type(window):
            raise ArgumentConflictError(
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
            raise InvalidWindowError(
                f"until has the time {shown(moment)!r}, at which none of the windows after it begins, which are "
                f"{after}; the next that does is {shown(grid.next(moment))!r}"
            )
    return found


def check_one_gap(windows: Collection[Windows | None], where: str) -> None:
    """Refuse sessions with a gap of each row where all rows have the same; ``where`` says what they are given to.

    Raises:
        ConfigurationError: a window has a gap of each row.
    """
    for one in windows:
        gap = own_gap(one)
        if gap is not None:
            raise InvalidWindowError(
                f"the gap of window is {gap!r}, one for each row, which {where} does not take; give one for all "
                "rows, such as SessionWindows('30 minutes')"
            )


def check_zones(windows: Collection[Windows | None], instants: bool, time: object, instead: str) -> None:
    """Refuse windows of a zone's calendar for times without a zone, and windows without a zone for instants.

    Args:
        windows: the windows.
        instants: whether times are moments.
        time: the column, or the expression, with the times.
        instead: the code that makes its times moments of some zone.

    Raises:
        ConfigurationError: there are such windows.
    """
    for one in windows:
        calendar = calendar_of(one)
        if calendar is None or instants == (calendar.zone is not None):
            continue
        if instants:
            raise TimeZoneError(
                f"windows of the calendar, {calendar.text!r}, need a time zone, because the times of {time!r} are "
                f"moments; give it: {in_a_zone(one, calendar)}"
            )
        raise TimeZoneError(
            f"windows are of the calendar of {calendar.zone!r}, but the times of {time!r} are of no time zone "
            "(timestamp_ntz); leave out zone for the calendar that they show, or give time as a timestamp, such as "
            f"time={instead}"
        )


def check_emit(emit: str) -> None:
    """Refuse a value that is neither ``"updates"`` nor ``"final"``.

    Raises:
        ConfigurationError: it is neither.
    """
    if not isinstance(emit, str) or emit not in ("updates", "final"):
        raise InvalidArgumentError(f"emit is {emit!r}; give 'updates' or 'final'")


def emits_final(emit: str, window: Windows | None) -> bool:
    """Return whether only final results come out.

    Raises:
        ConfigurationError: neither ``"updates"`` nor ``"final"``, or ``"final"`` without a window.
    """
    check_emit(emit)
    if emit == "final" and window is None:
        raise ArgumentConflictError("a result that has no window is never final; give a window, or emit='updates'")
    return emit == "final"


def check_ttl(ttl: Duration | None, expired: str = "silent", window: Windows | None = None) -> None:
    """Refuse a time to live of windows, which end by themselves, and ``expired`` without a time to live.

    Raises:
        ConfigurationError: they are given so, or one of them is invalid.
    """
    chosen = Expired.of(expired)
    if ttl is None:
        if chosen is not Expired.SILENT:
            raise ArgumentConflictError(
                f"expired is {expired!r}, but nothing expires; give ttl='30 days', or leave out expired"
            )
        return
    if window is not None:
        raise ArgumentConflictError(
            "results of windows are kept until their window and its grace are over; leave out ttl, or give a window "
            "with another grace"
        )
    if in_micros(ttl, "ttl") == 0:
        raise InvalidTimeError(f"ttl is {ttl!r}; give a length of time such as '30 days', or leave it out")


def ttl_allowance(ttl: int | None, late: int) -> Allowance | None:
    """Return a time to live in microseconds, for rows that come so much later; None for none."""
    return None if ttl is None else Allowance(TTL, ttl, late)


_SPELLINGS: Final = {"full": "outer", "leftouter": "left", "rightouter": "right", "fullouter": "outer"} | {
    "leftsemi": "semi",
    "leftanti": "anti",
}
"""Other names that Spark has for types of joins, without case and underscores."""


def chosen_join(how: str, known: Iterable[JoinType]) -> JoinType:
    """Return the type of join called ``how``, here or in Spark; it must be among the known ones.

    Raises:
        ConfigurationError: it is not.
    """
    known, plain = list(known), how.lower().replace("_", "") if isinstance(how, str) else None
    for join_type in known:
        if plain is not None and join_type.value == _SPELLINGS.get(plain, plain):
            return join_type
    raise InvalidArgumentError(f"how is {how!r}; give {' or '.join(repr(one.value) for one in known)}")


def column_names(columns: object, what: str) -> list[str]:
    """Return the names of one column or of several; ``what`` names them in errors.

    Raises:
        ConfigurationError: there is no name, or a name is there twice.
    """
    names = [columns] if isinstance(columns, str) else list(columns) if isinstance(columns, Sequence) else []
    if not names or not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        raise InvalidArgumentError(f"{what} is {columns!r}; give the name of a column, or a list of different names")
    return names


def grouping_of(by: By) -> tuple[list[str], GroupingSets | None]:
    """Return the names of the columns that rows are grouped by, and the sets of them; None if they are one set.

    Raises:
        ConfigurationError: they are not different, or something is no name and no grouping sets.
    """
    if isinstance(by, GroupingSets):
        return list(by.columns), by
    if not isinstance(by, list | tuple) or not any(isinstance(one, GroupingSets) for one in by):
        return ([] if isinstance(by, list | tuple) and not by else column_names(by, "by")), None
    if not all(isinstance(one, str | GroupingSets) for one in by):
        raise InvalidArgumentError(
            f"by is {by!r}; give names of columns and grouping sets, such as ['day', cube('region', 'product')]"
        )
    sets = product_of(by)
    return list(sets.columns), sets


def in_micros(duration: Duration, name: str) -> int:
    """Return a length of time in microseconds.

    Raises:
        ConfigurationError: it is negative, or no length of time.
    """
    micros = to_micros(duration, name)
    if micros < 0:
        raise InvalidTimeError(f"{name} is {duration!r}; it must not be negative")
    return micros


def column_pairs(on: On) -> dict[str, str]:
    """Return the right name of each left name.

    Raises:
        ConfigurationError: there are no names, or not different ones.
    """
    if not isinstance(on, Mapping):
        return {name: name for name in column_names(on, "on")}
    left = column_names(list(on), "the left side of on")
    return dict(zip(left, column_names(list(on.values()), "the right side of on"), strict=True))


def of_each(given: object, tables: Sequence[str], what: str, example: str | None = None) -> dict[str, Any]:
    """Return the value that each table is given, by name: one for all, or what a mapping has for each.

    Args:
        given: the argument.
        tables: their names.
        what: the parameter's name.
        example: what a table may be given, if none may lack it; None if one may.

    Raises:
        ConfigurationError: a mapping names an unknown table or lacks one, or the value is missing for all.
    """
    if given is None and example is not None:
        raise MissingArgumentError(
            f"{what} is None; give what all tables have, such as {what}={example!r}, or a mapping with that of each, "
            f"by the names {', '.join(tables)}"
        )
    if not isinstance(given, Mapping):
        return {} if given is None else dict.fromkeys(tables, given)
    for name in given:
        if name not in tables:
            hint = did_you_mean(str(name), tables)
            raise UnknownNameError(f"{what} names {name!r}, which is none of the tables {', '.join(tables)}{hint}")
    for table in tables:
        if example is not None and table not in given:
            raise MissingArgumentError(
                f"{what} says nothing of the table {table!r}; give {what}={{..., {table!r}: {example!r}}}"
            )
    return {table: given[table] for table in tables if table in given}


def named_tables(tables: object) -> Mapping[str, Any]:
    """Return the rows of tables by name, as a user gave them; None for none.

    Raises:
        ConfigurationError: it is no mapping.
    """
    if tables is None:
        return {}
    if not isinstance(tables, Mapping):
        raise InvalidArgumentError(
            f"tables is of type {type(tables).__name__}; give the rows by the names of the tables, such as "
            "tables={'orders': orders}"
        )
    return tables


def parameter_of(role: str, what: str = "time") -> str:
    """Return the parameter as which a user gave a time, operations or an order of an input."""
    if role == INPUT:
        return what
    return f"{role}_{what}" if role in (LEFT, RIGHT) else f"{what}[{role!r}]"


def check_sides_times(time: object, left_time: object, right_time: object) -> None:
    """Refuse times of a join's sides that are not given, or given twice.

    Raises:
        ConfigurationError: so they are.
    """
    if (time is None) is (left_time is None and right_time is None):
        raise ArgumentConflictError(
            f"time is {time!r}, left_time {left_time!r} and right_time {right_time!r}; give time, a column that both "
            "sides have, or else left_time and right_time"
        )


def join_windows(
    within: Duration | None, before: Duration | None, after: Duration | None, grace: Duration
) -> JoinWindows:
    """Return which rows of two streams belong together, in microseconds.

    Raises:
        ConfigurationError: there is no window, or one is given in two ways.
    """
    wait = in_micros(grace, "grace")
    if within is not None:
        if before is not None or after is not None:
            raise ArgumentConflictError("give either within=..., or before=... and after=...")
        return JoinWindows.of(in_micros(within, "within"), grace=wait, drop_late=True)
    if before is None and after is None:
        raise MissingArgumentError("a join of streams needs a window: within='10 minutes', or before=... and after=...")
    earlier, later = to_micros(before or 0, "before"), to_micros(after or 0, "after")
    if earlier + later < 0:
        raise ends_early(before or 0, after or 0)
    return JoinWindows(earlier, later, wait, drop_late=True)


def moment_of(moment: Instant | str | None, what: str) -> int | None:
    """Return a moment in microseconds since 1970; ``what`` names it in errors.

    Raises:
        ConfigurationError: it is no moment.
    """
    if isinstance(moment, str):
        try:
            moment = datetime.fromisoformat(moment)
        except ValueError:
            raise InvalidTimeError(
                f"{what} is {moment!r}; give a datetime, or text such as '2026-06-01T12:00:00Z'"
            ) from None
    return None if moment is None else to_instant_micros(moment, what)


def check_distinct(names: Sequence[str], *, changes: bool, remedy: str) -> None:
    """Refuse a result with two columns of the same name.

    Args:
        names: the names of the columns of the result.
        changes: whether it is a change feed, which has columns of its own.
        remedy: the code that renames or drops columns.

    Raises:
        ConfigurationError: a column occurs twice, or has the name of one that a change feed adds.
    """
    taken = [*names, *(CHANGE_COLUMNS if changes else ())]
    twice = sorted({name for name in taken if taken.count(name) > 1})
    if twice:
        reserved = f" (a change feed adds {', '.join(CHANGE_COLUMNS)})" if set(twice) & set(CHANGE_COLUMNS) else ""
        raise DuplicateColumnError(
            f"the result would have the columns {', '.join(map(repr, twice))} twice{reserved}; rename or drop them "
            f"before: {remedy}"
        )


def check_exact(exact: object) -> None:
    """Refuse a value that is not a bool.

    Raises:
        ConfigurationError: it is none.
    """
    if not isinstance(exact, bool):
        raise InvalidArgumentError(
            f"exact is {exact!r}; give exact=False if a right row of the very time of a left row is no match, and "
            "exact=True if it is"
        )


def check_null_safe(null_safe: object) -> None:
    """Refuse a value that is not a bool.

    Raises:
        ConfigurationError: it is none.
    """
    if not isinstance(null_safe, bool):
        raise InvalidArgumentError(
            f"null_safe is {null_safe!r}; give null_safe=True if nulls of all columns in on are to be equal"
        )


def defaults_of(
    default: Mapping[str, Any] | None, join_type: JoinType, schema: pa.Schema, columns: Sequence[str]
) -> dict[str, Any]:
    """Return the values that right columns have where there is no match, in the types of these columns.

    Raises:
        ConfigurationError: it is no mapping, no row lacks a match, or a column is not in the result, or has another
            type.
    """
    if default is None:
        return {}
    if not isinstance(default, Mapping):
        raise InvalidArgumentError(
            f"default is {default!r}; give a mapping from columns of right to what they have where there is no match, "
            "such as default={'price': 0}"
        )
    if default and join_type is not JoinType.LEFT:
        raise ArgumentConflictError(
            f"default is {default!r}, but in the result of a join with how={join_type.value!r} no row lacks a match; "
            "give how='left', or leave default out"
        )
    found = {}
    for name, value in default.items():
        if name not in columns:
            hint = did_you_mean(name, columns)
            raise UnknownColumnError(f"default names {name!r}, which is no column of right in the result{hint}")
        type_ = schema.field(name).type
        if isinstance(value, datetime) and value.tzinfo is None and getattr(type_, "tz", None) is not None:
            raise TimeZoneError(
                f"default[{name!r}] is {value!r}, which has no time zone; give it one: {value!r}.astimezone()"
            )
        try:
            found[name] = pa.scalar(value, type_)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            raise ColumnTypeError(
                f"default[{name!r}] is {value!r}, but the column is {type_}; give a value of that type"
            ) from None
    return found


def check_table_order(history: Duration | None, orders: Mapping[str, object]) -> None:
    """Refuse an order among changes of tables without a history; ``orders`` has it by parameter.

    Raises:
        ConfigurationError: an order is given, and no history.
    """
    given = next((name for name, order in orders.items() if order is not None), None)
    if history is None and given is not None:
        raise MissingArgumentError(
            f"{given} is given, but without a history a later micro-batch applies last; give history=..., for how "
            "long a change may come after another one of its time"
        )


def check_foreign_ttl(primary: Sequence[str], foreign: Sequence[str], ttl: Duration | None) -> None:
    """Refuse a time to live for a join by foreign key.

    Raises:
        ConfigurationError: there is one.
    """
    if foreign and ttl is not None:
        raise ArgumentConflictError(
            f"ttl of the table_join on {', '.join(foreign)} is {ttl!r}, but the sides of a join by foreign key "
            "have no time in common; leave it out, and let rows expire before: left=pond.latest(left, "
            f"key={primary!r}, time=..., history=..., ttl={ttl!r}, expired='delete', name=...), and the right side "
            "likewise"
        )


def check_left_key(primary: Sequence[str], foreign: Sequence[str], join_type: JoinType) -> None:
    """Refuse a join by foreign key that keeps right rows, if all columns of its left key are in the foreign key.

    Raises:
        ConfigurationError: the join is of this kind.
    """
    if foreign and join_type.keeps(Side.RIGHT) and set(primary) <= set(foreign):
        raise ArgumentConflictError(
            f"all columns of left_key={primary!r} are in on, so with how={join_type.value!r} nothing would tell the "
            "result of a left row from that of a right row alone; give how='left', or add a column to the left side "
            f"that is never null, such as one of 1, and name it, too: left_key={[*primary, 'there']!r}"
        )


def check_history(grace: Duration | None, tolerance: Duration | None, history: Duration, ahead: int) -> None:
    """Refuse a history that is shorter than left rows of an as-of join wait.

    Args:
        grace, tolerance, history: as the user gave them.
        ahead: how much newer than a left row its match may be, in microseconds.

    Raises:
        ConfigurationError: it is shorter.
    """
    if grace is not None and in_micros(grace, "grace") + ahead > in_micros(history, "history"):
        waits = f"tolerance and grace together are {tolerance!r} and {grace!r}" if ahead else f"grace is {grace!r}"
        raise NoHistoryError(f"{waits}, but only a history of {history!r} is kept; make history as long")
