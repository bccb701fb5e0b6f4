"""Verbs on tables, made with what their inputs add to their graces, histories and times to live.

Rule of this module: arguments have been checked. Lengths of time are in microseconds; windows are as a user gives them.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import pyarrow as pa

from millpond.processors.calls.account import GRACE, HISTORY, TTL, WITHIN, Account, Allowance
from millpond.processors.calls.waiting import (
    aggregate_account,
    asof_allowances,
    asof_history,
    asof_join_account,
    deduplicate_account,
    extended,
    held_back,
    latest_account,
    stream_join_account,
    table_join_account,
    top_n_account,
)
from millpond.processors.options.join_windows import JoinWindows
from millpond.processors.options.joins import AsofDirection, JoinType, Side, Unfit
from millpond.processors.pond.tables import Rows, Selection
from millpond.processors.verbs.aggregate import AggregatedRows, Windows, aggregate
from millpond.processors.verbs.aggregates import AggregateCall
from millpond.processors.verbs.asof_join import asof_join
from millpond.processors.verbs.deduplicate import deduplicate
from millpond.processors.verbs.latest import latest
from millpond.processors.verbs.null_keys import NullKeys
from millpond.processors.verbs.projections import CHANGE_COLUMNS, ChangeColumns
from millpond.processors.verbs.row_aggregate import RowAggregate
from millpond.processors.verbs.state_serde import Slots
from millpond.processors.verbs.stream_join import BOUNDS, OwnBounds, stream_join
from millpond.processors.verbs.table_join import table_join
from millpond.processors.verbs.top_n import INPUT_SERDE, OrderedRows, top_n
from millpond.processors.verbs.verb import INSTANT, WALL_TIME, PackedRows, Verb, chosen
from millpond.stores.encoding.rows.packing import RowCodec
from millpond.stores.encoding.rows.schemas import Schemas
from millpond.stores.encoding.rows.tuple_keys import KeyCodec
from millpond.stores.encoding.serdes import Serde
from millpond.stores.typed.expiry import Expired


@dataclass(frozen=True)
class Made:
    """A verb and what it reads.

    Attributes:
        verb: the verb.
        selections: by topic, how it reads rows.
        account: what there is to say of its time.
        value_serde: reads packed values; None if processors take them as bytes.
    """

    verb: Verb
    selections: Mapping[str, Selection]
    account: Account
    value_serde: Serde[Any] | None = None

    @property
    def sources(self) -> dict[str, str]:
        """Whose rows each topic has."""
        return {topic: selection.rows.source for topic, selection in self.selections.items()}

    @property
    def rows(self) -> Rows:
        """What it puts out."""
        return Rows.of(self.verb.name, self.verb.schema, self.account.bounds, self.feed)

    @property
    def feed(self) -> Sequence[str] | None:
        """The key of the change feed that it puts out; None if it is none."""
        first = next(iter(self.selections.values()))
        return first.keys if any(isinstance(part, ChangeColumns) for part in self.verb.parts) else None


class Packing(Protocol):
    """How the rows of an input are packed, as ``KeptSchemas.input`` tells it."""

    def __call__(
        self,
        role: str,
        read: Selection,
        null_keys: NullKeys = NullKeys.EQUAL,
        *,
        untimed: bool = False,
        versions: bool = False,
    ) -> PackedRows: ...


def _keys(rows: Rows, names: Sequence[str]) -> KeyCodec:
    return KeyCodec(chosen(rows.schema, names))


def packed_rows(
    role: str,
    read: Selection,
    null_keys: NullKeys = NullKeys.EQUAL,
    *,
    untimed: bool = False,
    versions: bool = False,
) -> PackedRows:
    """Rows with which state begins."""
    codec = RowCodec(Schemas.first(chosen(read.rows.schema, read.values)))
    foreign = _keys(read.rows, read.foreign) if read.foreign else None
    order = _order(read)
    in_order = order is None and read.rows.in_order(read.keys, read.time)
    return PackedRows(
        role,
        _keys(read.rows, read.keys),
        null_keys,
        codec,
        foreign,
        order=order,
        in_order=in_order,
        untimed=untimed,
        times=_times(read),
        versions=versions,
    )


def _order(read: Selection) -> KeyCodec | None:
    """How what decides among rows of one key and time is packed."""
    return None if read.order is None else KeyCodec(pa.schema([("order", read.rows.schema.field(read.order).type)]))


def _times(read: Selection) -> pa.DataType:
    """``INSTANT`` or ``WALL_TIME``, whichever the times are."""
    return WALL_TIME if getattr(read.rows.schema.field(read.time).type, "tz", None) is None else INSTANT


def unused_name(name: str, taken: Collection[str]) -> str:
    """The name, with as many underscores behind it as it takes to be none of those that are taken."""
    while name in taken:
        name += "_"
    return name


def make_latest(
    name: str,
    rows: Rows,
    *,
    key: str | Sequence[str],
    time: str,
    history: int,
    op: str | None = None,
    order: str | None = None,
    ttl: int | None = None,
    expired: Expired = Expired.SILENT,
    packing: Packing = packed_rows,
) -> Made:
    """A table of the latest rows."""
    keys = [key] if isinstance(key, str) else list(key)
    read = Selection(rows, keys, _rest(rows, keys, op, CHANGE_COLUMNS), time, op, order=order)
    late = rows.time(time).bound
    kept, lives = Allowance(HISTORY, history, late), None if ttl is None else Allowance(TTL, ttl, late)
    verb = latest(
        name,
        packing("input", read, versions=True),
        history=kept.total,
        columns=read.values,
        ttl=None if lives is None else lives.total,
        expired=expired,
    )
    return Made(verb, {"input": read}, latest_account(name, kept, lives))


def make_aggregate(
    name: str,
    rows: Rows,
    calls: Mapping[str, AggregateCall],
    *,
    by: str | Sequence[str],
    time: str,
    window: Windows | None = None,
    final: bool = False,
    slots: Slots | None = None,
    until: Mapping[int, Windows] | None = None,
    since: Mapping[str, int] | None = None,
    ttl: int | None = None,
    expired: Expired = Expired.SILENT,
    order: str | None = None,
) -> Made:
    """Arguments of calls are names of columns, and so are conditions: of those that must not be null."""
    arguments = {
        result: str(call.where if call.column is None else call.column)
        for result, call in calls.items()
        if call.takes_values
    }
    keys = [by] if isinstance(by, str) else list(by)
    taken = {*keys, *arguments}
    moment, decides = unused_name("time", taken), None if order is None else unused_name("order", taken)
    named = {
        str(call.where): unused_name(f"where {call.where}", taken) for call in calls.values() if call.where is not None
    }
    where = {result: (named[str(call.where)], call.wraps) for result, call in calls.items() if call.where is not None}
    pairs = {
        result: unused_name(f"second {result}", taken) for result, call in calls.items() if call.second is not None
    }
    columns = {
        **{key: key for key in keys},
        **arguments,
        moment: time,
        **{name: condition for condition, name in named.items()},
        **{name: str(calls[result].second) for result, name in pairs.items()},
    }
    if order is not None and decides is not None:
        columns[decides] = order
    chosen_rows = rows.select(**columns)
    read = Selection(chosen_rows, keys, list(arguments), moment, order=decides, where=where, pairs=pairs)
    late = rows.time(time).bound
    types = {result: chosen_rows.schema.field(result).type for result in arguments}
    types |= {result: pa.struct([("value", types[result])]) for result, call in calls.items() if call.wraps}
    types |= {
        result: pa.struct([("first", types[result]), ("second", chosen_rows.schema.field(name).type)])
        for result, name in pairs.items()
    }
    bound = RowAggregate(calls, types, slots=slots, since=since, ordered=order is not None)
    packed = AggregatedRows(
        "input",
        _keys(read.rows, read.keys),
        NullKeys.EQUAL,
        list(arguments),
        order=_order(read),
        in_order=order is None and rows.in_order(keys, time),
        times=_times(read),
    )
    kept = None if ttl is None else Allowance(TTL, ttl, late)
    lives = None if kept is None else kept.total
    others = until or {}
    verb = aggregate(
        name, packed, bound, extended(window, late), final=final,
        until={time: extended(one, late) for time, one in others.items()}, ttl=lives, expired=expired,
    )  # fmt: skip
    account = aggregate_account(name, window, late, final=final, until=others.values(), ttl=kept)
    return Made(verb, {"input": read}, account, bound.input_serde)


def make_top_n(
    name: str,
    rows: Rows,
    n: int,
    *,
    by: str,
    order: str,
    time: str,
    descending: bool = False,
    window: Windows | None = None,
    final: bool = False,
    ttl: int | None = None,
    expired: Expired = Expired.SILENT,
    packing: Packing = packed_rows,
) -> Made:
    """The first rows of each key by a column."""
    read = Selection(rows, [by], _rest(rows, [by], None, CHANGE_COLUMNS), time, order=order)
    late = rows.time(time).bound
    lives = None if ttl is None else Allowance(TTL, ttl, late)
    verb = top_n(
        name,
        OrderedRows.of(packing("input", read), (descending,)),
        n,
        extended(window, late),
        columns=read.values,
        final=final,
        ttl=None if lives is None else lives.total,
        expired=expired,
    )
    account = top_n_account(name, n, window, late, final=final, until=(), ttl=lives)
    return Made(verb, {"input": read}, account, INPUT_SERDE)


def make_deduplicate(
    name: str,
    rows: Rows,
    *,
    key: str | Sequence[str],
    time: str,
    within: int,
    grace: int | None,
    order: str | None = None,
    packing: Packing = packed_rows,
) -> Made:
    """The first row of each key."""
    keys = [key] if isinstance(key, str) else list(key)
    read = Selection(rows, keys, [name for name in rows.schema.names if name not in keys], time, order=order)
    when = rows.time(time, rows.schema.names)
    reach = Allowance(WITHIN, within, when.bound)
    wait = None if grace is None else Allowance(GRACE, grace, when.bound)
    verb = deduplicate(
        name,
        packing("input", read),
        within=within,
        late=(wait or reach).total,
        waits=wait is not None,
        columns=read.values,
    )
    return Made(verb, {"input": read}, deduplicate_account(name, reach, wait, when))


def _pairs(on: str | Mapping[str, str]) -> Mapping[str, str]:
    """By the left columns, the right ones that equal them: one column of both sides has one name."""
    return {on: on} if isinstance(on, str) else on


def make_asof_join(
    name: str,
    left: Rows,
    right: Rows,
    *,
    on: str | Mapping[str, str],
    times: tuple[str, str],
    history: int,
    how: JoinType = JoinType.INNER,
    grace: int | None = None,
    tolerance: int | None = None,
    exact: bool = True,
    direction: AsofDirection = AsofDirection.BACKWARD,
    where: Callable[[pa.Table], Any] | None = None,
    unfit: Unfit = Unfit.MISS,
    default: Mapping[str, Any] | None = None,
    right_op: str | None = None,
    right_order: str | None = None,
    null_safe: bool = False,
    packing: Packing = packed_rows,
) -> Made:
    """Left rows with the right rows that were valid at their times."""
    one, other, rest = _sides(left, right, _pairs(on), times, how, right_op, null_safe=null_safe)
    other = replace(other, order=right_order)
    left_time, right_time = left.time(times[0], left.schema.names), right.time(times[1])
    late, kept = asof_allowances(grace, history, left_time, right_time)
    hold = held_back(late)
    packed = (
        packing("left", one, NullKeys.EQUAL if null_safe else NullKeys.APART, untimed=how.keeps(Side.LEFT)),
        packing("right", other, NullKeys.EQUAL if null_safe else NullKeys.DROPPED, versions=True),
    )
    ahead, back = direction.ahead(tolerance), unfit.back(tolerance, direction)
    reach = asof_history(kept, hold, exact, ahead, back)
    verb = asof_join(
        name,
        *packed,
        how,
        history=reach,
        grace=hold,
        tolerance=tolerance,
        exact=exact,
        direction=direction,
        where=where,
        unfit=unfit,
        columns=rest,
        default=default,
        null_safe=null_safe,
    )
    return Made(verb, {"left": one, "right": other}, asof_join_account(name, how, late, kept, left_time, ahead, back))


def make_stream_join(
    name: str,
    left: Rows,
    right: Rows,
    *,
    on: str | Mapping[str, str],
    times: tuple[str, str],
    before: int,
    after: int,
    grace: int,
    how: JoinType = JoinType.INNER,
    own: bool = False,
    null_safe: bool = False,
    packing: Packing = packed_rows,
) -> Made:
    """Pairs of rows whose times are close.

    With ``own``, left rows have ``BOUNDS``, of at most ``before`` and ``after``.
    """
    pairs = _pairs(on)
    one, other, rest = _sides(left, right, pairs, times, how, null_safe=null_safe)
    if not how.shows_right:
        other, rest = replace(other, values=other.keys), []
    windows = JoinWindows(before, after, grace, drop_late=True)
    sides = left.time(times[0], left.schema.names), right.time(times[1], rest)
    account = stream_join_account(name, how, windows, *sides)
    waiting = replace(windows, grace=account.allowances[0].total)
    null_keys = NullKeys.EQUAL if null_safe else NullKeys.APART
    packed = (
        packing("left", one, null_keys, untimed=how.keeps(Side.LEFT)),
        packing("right", other, null_keys, untimed=how.keeps(Side.RIGHT)),
    )
    shared = pairs if how.keeps(Side.RIGHT) else {}
    bounds = OwnBounds(max(before, after), [*BOUNDS]) if own else None
    verb = stream_join(name, *packed, how, waiting, columns=rest, shared=shared, bounds=bounds, null_safe=null_safe)
    return Made(verb, {"left": one, "right": other}, account)


def make_table_join(
    name: str,
    left: Rows,
    right: Rows,
    *,
    on: str | Mapping[str, str],
    times: tuple[str, str],
    ops: tuple[str | None, str | None] = (None, None),
    left_key: str | Sequence[str] | None = None,
    orders: tuple[str | None, str | None] = (None, None),
    how: JoinType = JoinType.INNER,
    history: int | None = None,
    ttl: int | None = None,
    expired: Expired = Expired.SILENT,
    null_safe: bool = False,
    packing: Packing = packed_rows,
) -> Made:
    """Two change feeds joined into one; the left key is that of ``on`` unless it is given."""
    pairs = _pairs(on)
    theirs = list(pairs.values())
    primary = list(pairs) if left_key is None else [left_key] if isinstance(left_key, str) else list(left_key)
    foreign = [] if primary == list(pairs) else list(pairs)
    rests = _rest(left, primary, ops[0], CHANGE_COLUMNS), _rest(right, theirs, ops[1], CHANGE_COLUMNS)
    inner, outer = how is JoinType.INNER and not foreign, how is JoinType.OUTER
    one = Selection(left, primary, rests[0], times[0], ops[0], foreign, keyed=inner and not null_safe, order=orders[0])
    other = Selection(
        right,
        theirs,
        rests[1] or theirs,
        times[1],
        ops[1],
        keyed=not null_safe and bool(foreign or not outer),
        order=orders[1],
    )
    null_keys = NullKeys.EQUAL if foreign or null_safe else NullKeys.OWN_SIDE
    late = max(left.time(times[0]).bound, right.time(times[1]).bound)
    kept = None if history is None else Allowance(HISTORY, history, late)
    lives = None if ttl is None else Allowance(TTL, ttl, late)
    packed = (
        replace(packing("left", one, null_keys, versions=True), null_safe=null_safe),
        packing("right", other, null_keys, versions=True),
    )
    verb = table_join(
        name,
        *packed,
        how,
        history=None if kept is None else kept.total,
        left_columns=rests[0],
        right_columns=rests[1],
        ttl=None if lives is None else lives.total,
        expired=expired,
        null_safe=null_safe,
    )
    return Made(verb, {"left": one, "right": other}, table_join_account(name, how, kept, late, lives))


def _sides(
    left: Rows,
    right: Rows,
    on: Mapping[str, str],
    times: tuple[str, str],
    how: JoinType,
    right_op: str | None = None,
    *,
    null_safe: bool,
) -> tuple[Selection, Selection, list[str]]:
    """How a join reads its sides, and the right columns that are not in the key."""
    keys, keeps_right = list(on.values()), how.keeps(Side.RIGHT)
    rest = _rest(right, keys, right_op, left.schema.names)
    one = Selection(left, list(on), left.schema.names, times[0], keyed=not (null_safe or how.keeps(Side.LEFT)))
    values = right.schema.names if keeps_right else rest or keys
    return one, Selection(right, keys, values, times[1], right_op, keyed=not (null_safe or keeps_right)), rest


def _rest(rows: Rows, keys: Sequence[str], op: str | None, taken: Sequence[str]) -> list[str]:
    return rows.carried([*keys, *([] if op is None else [op])], taken)
