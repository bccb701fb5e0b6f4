"""``asof_join`` as a user calls it, for whatever has the rows."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from millpond.errors import (
    ArgumentConflictError,
    ChangeFeedError,
    MissingArgumentError,
    NoHistoryError,
    UnknownColumnError,
)
from millpond.processors.calls.account import Path
from millpond.processors.calls.arguments import (
    LEFT,
    RIGHT,
    On,
    check_distinct,
    check_emit,
    check_exact,
    check_history,
    check_null_safe,
    chosen_join,
    column_names,
    column_pairs,
    defaults_of,
    in_micros,
)
from millpond.processors.calls.feeds import as_written, key_of_feed
from millpond.processors.calls.joins.key_kinds import check_equal_keys
from millpond.processors.calls.made import MadeVerb
from millpond.processors.calls.readings import Begin, Column, Read, VerbRows, begun_anew, check_rows_stay
from millpond.processors.calls.waiting import (
    asof_allowances,
    asof_history,
    asof_join_account,
    corrected_account,
    held_back,
)
from millpond.processors.options.joins import ASOF_JOINS, AsofDirection, JoinType, Side, Unfit
from millpond.processors.options.known_names import did_you_mean
from millpond.processors.verbs.encoding.null_keys import NullKeys
from millpond.processors.verbs.joins.asof_join import Correcting, asof_join
from millpond.processors.verbs.projections import CHANGE_COLUMNS
from millpond.stores.encoding.times import Duration

Where: TypeAlias = Callable[[Sequence[str]], Callable[[pa.Table], Any]]
"""Gives the condition of a match on the columns of the left side and these of the right side, as ``Fitting`` has it."""


def call_asof_join(
    left: VerbRows[Column, Read],
    right: VerbRows[Column, Read],
    begin: Begin[Read],
    *,
    on: On,
    times: tuple[Column, Column],
    history: Duration | None,
    how: str,
    grace: Duration | None,
    tolerance: Duration | None,
    exact: bool,
    direction: str,
    where: Where | None,
    otherwise: str,
    default: Mapping[str, Any] | None,
    right_order: Column | None,
    right_op: Column | None,
    null_safe: bool,
    emit: str,
    left_key: str | Sequence[str] | None,
    name: str | None,
) -> MadeVerb[Read]:
    """Return the verb, as ``Millpond.asof_join`` says; without a ``history``, no left row is late.

    Raises:
        ConfigurationError: an argument is invalid, or a column is absent or of a type that does not do.
    """
    join_type, keys = chosen_join(how, ASOF_JOINS), column_pairs(on)
    reach = 0 if history is None else in_micros(history, "history")
    wait = None if grace is None else in_micros(grace, "grace")
    most = None if tolerance is None else in_micros(tolerance, "tolerance")
    corrected = _corrected_key(emit, left_key, grace, tolerance, direction)
    towards = AsofDirection.chosen(direction, grace if corrected is None else 0, tolerance)
    unfit = Unfit.chosen(otherwise, where, tolerance)
    if history is not None:
        check_history(grace, tolerance, history, towards.ahead(most))
        _check_reach(corrected, tolerance, history, towards.ahead(most))
    check_null_safe(null_safe)
    check_exact(exact)
    name, op = name or f"asof_join-{'-'.join(keys)}", right.operations(right_op)
    own = key_of_feed(right.told, list(keys.values()), right_op)
    if own is not None and op is not None:
        by = as_written(list(keys.values()))
        raise ChangeFeedError(
            f"the right side of the verb {name!r} is by {', '.join(keys.values())}, and the rows of its feed replace "
            f"each other by {own}, and a delete has only those columns; aggregate it before, with by={by}, or, to "
            f"take each of its upserts as a row that stays, write {right.upserts(op)}"
        )
    return make_asof_join(
        name,
        left,
        right,
        on=keys,
        times=times,
        history=reach,
        how=join_type,
        grace=wait,
        tolerance=most,
        exact=exact,
        direction=towards,
        where=where,
        unfit=unfit,
        default=default,
        right_op=op,
        right_order=right_order,
        null_safe=null_safe,
        left_key=corrected,
        begin=begin,
    )


def make_asof_join(
    name: str,
    left: VerbRows[Column, Read],
    right: VerbRows[Column, Read],
    *,
    on: str | Mapping[str, str],
    times: tuple[Column, Column],
    history: int,
    how: JoinType = JoinType.INNER,
    grace: int | None = None,
    tolerance: int | None = None,
    exact: bool = True,
    direction: AsofDirection = AsofDirection.BACKWARD,
    where: Where | None = None,
    unfit: Unfit = Unfit.MISS,
    default: Mapping[str, Any] | None = None,
    right_op: Column | None = None,
    right_order: Column | None = None,
    null_safe: bool = False,
    left_key: Sequence[str] | None = None,
    begin: Begin[Read] = begun_anew,
) -> MadeVerb[Read]:
    """Return the verb, with lengths of time in microseconds; results are corrected if there is a ``left_key``.

    Raises:
        ConfigurationError: a column is absent or of a type that does not do, or a condition is not one.
    """
    keys = column_pairs(on)
    theirs, keeps_left = list(keys.values()), how.keeps(Side.LEFT)
    names = list(left.names) if left_key is None else _rows_that_stay(keys, left, times[0])
    rest = right.rest(theirs, names if left_key is None else [*names, *CHANGE_COLUMNS], right_op, right_order)
    one = left.read(LEFT, list(keys), names, times[0], keyed=not (null_safe or keeps_left))
    other = right.read(RIGHT, theirs, rest, times[1], op=right_op, order=right_order, keyed=not null_safe)
    if how.shows_right or left_key is not None:
        check_distinct([*names, *(rest if how.shows_right else ())], changes=left_key is not None, remedy=left.remedy)
    check_equal_keys(name, one, other)
    left_times, right_times = left.time(times[0], names), right.time(times[1])
    feed = None if left_key is None else _feed_key(keys, left_times.path, left_key, names, times[0])
    late, kept = asof_allowances(grace, history, left_times, right_times)
    hold = held_back(late) if left_key is None else None
    # A left row that waits for nothing is joined where it arrives.
    one = one.unstored() if hold is None and left_key is None else one
    packing = begin(name, [one, other])
    packed = (
        packing.input(one, NullKeys.EQUAL if null_safe else NullKeys.APART, untimed=keeps_left),
        packing.input(other, NullKeys.EQUAL if null_safe else NullKeys.DROPPED, versions=True),
    )
    ahead, back = direction.ahead(tolerance), unfit.back(tolerance, direction)
    reach = asof_history(kept, hold, exact, ahead, back)
    verb = asof_join(
        name,
        *packed,
        how,
        # A left row that is kept may have a match so much later than the newest of them.
        history=reach if left_key is None else reach + ahead,
        grace=hold,
        tolerance=tolerance,
        exact=exact,
        direction=direction,
        where=None if where is None else where(rest),
        unfit=unfit,
        columns=rest,
        default=defaults_of(default, how, packed[1].rows.schemas.current, rest),
        null_safe=null_safe,
        correcting=None if left_key is None else Correcting(kept.total, left_key),
    )
    if feed is None:
        account = asof_join_account(name, how, late, kept, left_times, ahead, back)
    else:
        account = corrected_account(name, how, kept, left_times, ahead, back)
    return MadeVerb(verb, {LEFT: one, RIGHT: other}, account, key=feed)


def _corrected_key(
    emit: str,
    left_key: str | Sequence[str] | None,
    grace: Duration | None,
    tolerance: Duration | None,
    direction: str,
) -> list[str] | None:
    """Return the columns that tell left rows apart whose results are corrected; None if each comes out once.

    Raises:
        ConfigurationError: results are neither, or something is given that these have no use for, or missing.
    """
    check_emit(emit)
    if emit == "final":
        if left_key is not None:
            raise ArgumentConflictError(
                f"left_key is {left_key!r}, but each left row comes out once; give emit='updates' to have results "
                "corrected, or leave left_key out"
            )
        return None
    if left_key is None:
        raise MissingArgumentError(
            "emit='updates' needs the columns that tell left rows of one key and time apart; give "
            "left_key='id', or a list of columns"
        )
    if grace is not None:
        raise ArgumentConflictError(
            f"grace is {grace!r}, but with emit='updates' no row waits: a late right row corrects what has come out; "
            "leave grace out, and give history for as long as right rows may be late"
        )
    check_ahead(direction, tolerance)
    return column_names(left_key, "left_key")


def check_ahead(direction: str, tolerance: Duration | None) -> None:
    """Refuse a direction that looks ahead, if no tolerance limits it.

    Raises:
        ConfigurationError: the direction looks ahead, and there is no tolerance.
    """
    if AsofDirection.of(direction).looks_ahead and tolerance is None:
        raise MissingArgumentError(
            f"direction is {direction!r}, and nothing says how much newer than a left row its match may be; give "
            "tolerance='10 minutes'"
        )


def _check_reach(corrected: Sequence[str] | None, tolerance: Duration | None, history: Duration, ahead: int) -> None:
    """Refuse a history in which the match of a left row may not come, if results are corrected.

    Raises:
        ConfigurationError: it is shorter than a match may be newer.
    """
    if corrected is not None and ahead > in_micros(history, "history"):
        raise NoHistoryError(
            f"tolerance is {tolerance!r}, but left rows are corrected for a history of {history!r} only; make history "
            "as long"
        )


def _rows_that_stay(keys: Mapping[str, str], left: VerbRows[Column, Read], time: Column) -> list[str]:
    """Return the columns of left rows whose results are corrected.

    Raises:
        ConfigurationError: the rows are a change feed.
    """
    check_rows_stay(f"on {', '.join(keys)},", left, "left rows are kept as they come and their matches corrected", time)
    rest = left.rest(keys, CHANGE_COLUMNS)
    return [name for name in left.names if name in keys or name in rest]


def _feed_key(
    keys: Mapping[str, str], path: Path | None, left_key: Sequence[str], names: Sequence[str], time: Any
) -> list[str]:
    """Return the key of the change feed: the columns in ``on``, the time, and the columns that tell left rows apart.

    Raises:
        ConfigurationError: one of them is no column of the result.
    """
    for one in left_key:
        if one not in names:
            raise UnknownColumnError(f"left_key names {one!r}, which is no column of left{did_you_mean(one, names)}")
    if path is None or len(path) != 1:
        raise UnknownColumnError(
            f"left_time is {time!r}, which is no column of the result as it is, and with emit='updates' it is part of "
            "its key; give a column of left"
        )
    return list(dict.fromkeys([*keys, *path, *left_key]))
