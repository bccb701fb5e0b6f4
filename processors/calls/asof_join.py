"""``asof_join`` as a user calls it, for whatever has the rows."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from millpond.processors.calls.arguments import (
    LEFT,
    RIGHT,
    On,
    check_distinct,
    check_history,
    check_null_safe,
    chosen_join,
    column_pairs,
    defaults_of,
    in_micros,
)
from millpond.processors.calls.key_kinds import check_equal_keys
from millpond.processors.calls.made import MadeVerb
from millpond.processors.calls.readings import Begin, Column, Read, VerbRows, begun_anew
from millpond.processors.calls.waiting import asof_allowances, asof_history, asof_join_account, held_back
from millpond.processors.options.joins import ASOF_JOINS, AsofDirection, JoinType, Side, Unfit
from millpond.processors.verbs.asof_join import asof_join
from millpond.processors.verbs.null_keys import NullKeys
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
    name: str | None,
) -> MadeVerb[Read]:
    """The verb, as ``Millpond.asof_join`` says; without a ``history``, no left row is late.

    Raises:
        ConfigurationError: an argument is invalid, or a column is absent or of a type that does not do.
    """
    join_type, keys = chosen_join(how, ASOF_JOINS), column_pairs(on)
    reach = 0 if history is None else in_micros(history, "history")
    wait = None if grace is None else in_micros(grace, "grace")
    most = None if tolerance is None else in_micros(tolerance, "tolerance")
    towards = AsofDirection.chosen(direction, grace, tolerance)
    unfit = Unfit.chosen(otherwise, where, tolerance)
    if history is not None:
        check_history(grace, tolerance, history, towards.ahead(most))
    check_null_safe(null_safe)
    return make_asof_join(
        name or f"asof_join-{'-'.join(keys)}",
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
        right_op=right.operations(right_op),
        right_order=right_order,
        null_safe=null_safe,
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
    begin: Begin[Read] = begun_anew,
) -> MadeVerb[Read]:
    """The verb, with lengths of time in microseconds.

    Raises:
        ConfigurationError: a column is absent or of a type that does not do, or a condition is none.
    """
    keys = column_pairs(on)
    theirs, keeps_left = list(keys.values()), how.keeps(Side.LEFT)
    rest = right.rest(theirs, left.names, right_op, right_order)
    one = left.read(LEFT, list(keys), left.names, times[0], keyed=not (null_safe or keeps_left))
    other = right.read(RIGHT, theirs, rest, times[1], op=right_op, order=right_order, keyed=not null_safe)
    if how.shows_right:
        check_distinct([*left.names, *rest], changes=False, remedy=left.remedy)
    check_equal_keys(name, one, other)
    left_times, right_times = left.time(times[0], left.names), right.time(times[1])
    late, kept = asof_allowances(grace, history, left_times, right_times)
    hold = held_back(late)
    # A left row that waits for nothing is joined where it arrives.
    one = one.unstored() if hold is None else one
    packing = begin(name, [one, other])
    packed = (
        packing.input(one, NullKeys.EQUAL if null_safe else NullKeys.APART, untimed=keeps_left),
        packing.input(other, NullKeys.EQUAL if null_safe else NullKeys.DROPPED, versions=True),
    )
    ahead, back = direction.ahead(tolerance), unfit.back(tolerance, direction)
    verb = asof_join(
        name,
        *packed,
        how,
        history=asof_history(kept, hold, exact, ahead, back),
        grace=hold,
        tolerance=tolerance,
        exact=exact,
        direction=direction,
        where=None if where is None else where(rest),
        unfit=unfit,
        columns=rest,
        default=defaults_of(default or {}, how, packed[1].rows.schemas.current, rest),
        null_safe=null_safe,
    )
    account = asof_join_account(name, how, late, kept, left_times, ahead, back)
    return MadeVerb(verb, {LEFT: one, RIGHT: other}, account)
