"""``stream_join`` as a user calls it, for whatever has the rows."""

from collections.abc import Mapping
from dataclasses import replace

from millpond.processors.calls.arguments import (
    LEFT,
    RIGHT,
    On,
    check_distinct,
    check_null_safe,
    chosen_join,
    column_pairs,
)
from millpond.processors.calls.joins.key_kinds import check_equal_keys
from millpond.processors.calls.made import MadeVerb
from millpond.processors.calls.readings import Begin, Column, Read, VerbRows, begun_anew
from millpond.processors.calls.waiting import stream_join_account
from millpond.processors.options.join_windows import JoinWindows
from millpond.processors.options.joins import JoinType, Side
from millpond.processors.verbs.encoding.null_keys import NullKeys
from millpond.processors.verbs.joins.stream_join import BOUNDS, OwnBounds, stream_join


def call_stream_join(
    left: VerbRows[Column, Read],
    right: VerbRows[Column, Read],
    begin: Begin[Read],
    *,
    on: On,
    times: tuple[Column, Column],
    windows: JoinWindows,
    bounds: OwnBounds | None,
    how: str,
    null_safe: bool,
    name: str | None,
) -> MadeVerb[Read]:
    """Return the verb, as ``Millpond.stream_join`` says, with what ``join_bounds`` makes of its windows.

    Raises:
        ConfigurationError: an argument is invalid, or a column is absent or of a type that does not do.
    """
    join_type, keys = chosen_join(how, JoinType), column_pairs(on)
    check_null_safe(null_safe)
    return make_stream_join(
        name or f"stream_join-{'-'.join(keys)}",
        left,
        right,
        on=keys,
        times=times,
        before=windows.before,
        after=windows.after,
        grace=windows.grace,
        how=join_type,
        bounds=bounds,
        null_safe=null_safe,
        begin=begin,
    )


def make_stream_join(
    name: str,
    left: VerbRows[Column, Read],
    right: VerbRows[Column, Read],
    *,
    on: str | Mapping[str, str],
    times: tuple[Column, Column],
    before: int,
    after: int,
    grace: int,
    how: JoinType = JoinType.INNER,
    bounds: OwnBounds | None = None,
    null_safe: bool = False,
    begin: Begin[Read] = begun_anew,
) -> MadeVerb[Read]:
    """Return the verb, with lengths of time in microseconds; with ``bounds``, left rows have ``BOUNDS``.

    Raises:
        ConfigurationError: a column is absent or of a type that does not do.
    """
    keys = column_pairs(on)
    theirs, shown = list(keys.values()), [one for one in left.names if bounds is None or one not in BOUNDS.values()]
    rest = right.rest(theirs, shown) if how.shows_right else []
    values = right.names if how.keeps(Side.RIGHT) else rest if how.shows_right else theirs
    windows = JoinWindows(before, after, grace, drop_late=True)
    keyed = {side: not (null_safe or how.keeps(side)) for side in Side}
    one = left.read(LEFT, list(keys), left.names, times[0], keyed=keyed[Side.LEFT])
    other = right.read(RIGHT, theirs, values, times[1], keyed=keyed[Side.RIGHT])
    if how.shows_right:
        check_distinct([*shown, *rest], changes=False, remedy=left.remedy)
    check_equal_keys(name, one, other)
    account = stream_join_account(name, how, windows, left.time(times[0], shown), right.time(times[1], rest))
    packing, null_keys = begin(name, [one, other]), NullKeys.EQUAL if null_safe else NullKeys.APART
    packed = packing.input(one, null_keys, untimed=how.keeps(Side.LEFT))
    if bounds is not None:
        packed = replace(packed, most={BOUNDS[column]: bounds.at_most for column in bounds.columns})
    verb = stream_join(
        name,
        packed,
        packing.input(other, null_keys, untimed=how.keeps(Side.RIGHT)),
        how,
        replace(windows, grace=account.allowances[0].total),
        columns=rest,
        shared=keys if how.keeps(Side.RIGHT) else {},
        bounds=bounds,
        null_safe=null_safe,
    )
    return MadeVerb(verb, {LEFT: one, RIGHT: other}, account)
