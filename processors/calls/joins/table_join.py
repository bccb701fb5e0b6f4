"""``table_join`` as a user calls it, for whatever has the rows."""

from collections.abc import Mapping, Sequence

from millpond.errors import ChangeFeedError
from millpond.processors.calls.account import HISTORY, Allowance
from millpond.processors.calls.arguments import (
    LEFT,
    RIGHT,
    On,
    check_distinct,
    check_foreign_ttl,
    check_left_key,
    check_null_safe,
    check_table_order,
    check_ttl,
    chosen_join,
    column_names,
    column_pairs,
    in_micros,
    ttl_allowance,
)
from millpond.processors.calls.feeds import as_written, key_of_feed
from millpond.processors.calls.joins.key_kinds import check_equal_keys
from millpond.processors.calls.made import MadeVerb
from millpond.processors.calls.readings import Begin, Column, Read, VerbRows, begun_anew
from millpond.processors.calls.waiting import table_join_account
from millpond.processors.options.joins import FOREIGN_KEY_JOINS, TABLE_JOINS, JoinType, Side
from millpond.processors.verbs.encoding.null_keys import NullKeys
from millpond.processors.verbs.joins.table_join import table_join
from millpond.processors.verbs.projections import CHANGE_COLUMNS
from millpond.stores.encoding.times import Duration
from millpond.stores.typed.expiry import Expired


def call_table_join(
    left: VerbRows[Column, Read],
    right: VerbRows[Column, Read],
    begin: Begin[Read],
    *,
    on: On,
    times: tuple[Column, Column],
    left_key: str | Sequence[str] | None,
    orders: tuple[Column | None, Column | None],
    ops: tuple[Column | None, Column | None],
    how: str,
    history: Duration | None,
    ttl: Duration | None,
    expired: str,
    null_safe: bool,
    name: str | None,
) -> MadeVerb[Read]:
    """Return the verb, as ``Millpond.table_join`` says.

    Raises:
        ConfigurationError: an argument is invalid, or a column is absent or of a type that does not do.
    """
    keys = column_pairs(on)
    primary = list(keys) if left_key is None else column_names(left_key, "left_key")
    foreign = [] if primary == list(keys) else list(keys)
    join_type = chosen_join(how, FOREIGN_KEY_JOINS if foreign else TABLE_JOINS)
    check_table_order(history, {"left_order": orders[0], "right_order": orders[1]})
    check_ttl(ttl, expired)
    check_foreign_ttl(primary, foreign, ttl)
    check_null_safe(null_safe)
    check_left_key(primary, foreign, join_type)
    name = name or f"table_join-{'-'.join(keys)}"
    _check_feeds(name, left, right, keys, primary, ops, join_type)
    return make_table_join(
        name,
        left,
        right,
        on=keys,
        times=times,
        ops=(left.operations(ops[0]), right.operations(ops[1])),
        left_key=primary,
        orders=orders,
        how=join_type,
        history=None if history is None else in_micros(history, "history"),
        ttl=None if ttl is None else in_micros(ttl, "ttl"),
        expired=Expired(expired),
        null_safe=null_safe,
        begin=begin,
    )


def make_table_join(
    name: str,
    left: VerbRows[Column, Read],
    right: VerbRows[Column, Read],
    *,
    on: str | Mapping[str, str],
    times: tuple[Column, Column],
    ops: tuple[Column | None, Column | None] = (None, None),
    left_key: str | Sequence[str] | None = None,
    orders: tuple[Column | None, Column | None] = (None, None),
    how: JoinType = JoinType.INNER,
    history: int | None = None,
    ttl: int | None = None,
    expired: Expired = Expired.SILENT,
    null_safe: bool = False,
    begin: Begin[Read] = begun_anew,
) -> MadeVerb[Read]:
    """Return the verb, with lengths of time in microseconds; the left key is ``on`` unless it is given.

    Raises:
        ConfigurationError: a column is absent or of a type that does not do.
    """
    keys = column_pairs(on)
    primary = list(keys) if left_key is None else column_names(left_key, "left_key")
    foreign, theirs = [] if primary == list(keys) else list(keys), list(keys.values())
    values = (
        left.rest(primary, CHANGE_COLUMNS, ops[0], orders[0]),
        right.rest(theirs, CHANGE_COLUMNS, ops[1], orders[1]),
    )
    keyed = not null_safe and not foreign and how is JoinType.INNER
    one = left.read(LEFT, primary, values[0], times[0], op=ops[0], order=orders[0], foreign=foreign, keyed=keyed)
    keyed = not null_safe and not how.keeps(Side.RIGHT)
    other = right.read(RIGHT, theirs, values[1], times[1], op=ops[1], order=orders[1], keyed=keyed)
    check_distinct([*primary, *values[0], *values[1]], changes=True, remedy=left.remedy)
    check_equal_keys(name, one, other)
    late = max(left.time(times[0]).bound, right.time(times[1]).bound)
    kept = None if history is None else Allowance(HISTORY, history, late)
    lives = ttl_allowance(ttl, late)
    packing, null_keys = begin(name, [one, other]), NullKeys.EQUAL if foreign or null_safe else NullKeys.OWN_SIDE
    # A result without a left key is a right row alone.
    of_left = NullKeys.REFUSED if foreign and how.keeps(Side.RIGHT) else null_keys
    verb = table_join(
        name,
        packing.input(one, of_left, versions=True, null_safe=null_safe),
        packing.input(other, null_keys, versions=True),
        how,
        history=None if kept is None else kept.total,
        left_columns=values[0],
        right_columns=values[1],
        ttl=None if lives is None else lives.total,
        expired=expired,
        null_safe=null_safe,
    )
    return MadeVerb(verb, {LEFT: one, RIGHT: other}, table_join_account(name, how, kept, late, lives))


def _check_feeds(
    name: str,
    left: VerbRows[Column, Read],
    right: VerbRows[Column, Read],
    on: Mapping[str, str],
    left_key: Sequence[str],
    ops: tuple[Column | None, Column | None],
    join_type: JoinType,
) -> None:
    """Refuse change feeds by other keys than their own.

    Raises:
        ConfigurationError: there is one.
    """
    own = key_of_feed(left.told, left_key, ops[0])
    if own is not None:
        raise ChangeFeedError(
            f"the left side of the verb {name!r} is by {', '.join(left_key)}, and the rows of its feed replace each "
            f"other by {own}, and a delete has only those columns; write left_key={own}"
        )
    theirs = list(on.values())
    own = key_of_feed(right.told, theirs, ops[1])
    if own is not None and (set(left_key) != set(on) or key_of_feed(left.told, list(on), ops[0]) is not None):
        # With the sides exchanged, the left rows would have to be a table by these columns, which they are not either.
        by = as_written(theirs)
        raise ChangeFeedError(
            f"the right side of the verb {name!r} is by {', '.join(theirs)}, and the rows of its feed replace each "
            f"other by {own}, and a delete has only those columns; aggregate it before, with by={by}, and join "
            "the result"
        )
    if own is not None:
        turned = as_written(theirs) if theirs == list(on) else repr(dict(zip(theirs, on, strict=True)))
        how = {JoinType.LEFT: ", how='right'", JoinType.RIGHT: ", how='left'"}.get(join_type, "")
        raise ChangeFeedError(
            f"the right side of the verb {name!r} is by {', '.join(theirs)}, and the rows of its feed replace each "
            f"other by {own}, and a delete has only those columns; make it the left side: on={turned}, "
            f"left_key={own}{how}"
        )
