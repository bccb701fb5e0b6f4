"""``aggregate`` as a user calls it, for whatever has the rows."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeAlias

from millpond.processors.calls.arguments import (
    INPUT,
    check_distinct,
    check_ttl,
    check_zones,
    emits_final,
    grouping_of,
    in_micros,
    ttl_allowance,
    until_in_micros,
)
from millpond.processors.calls.feed_aggregate import changes_in, check_feed_options, make_feed_aggregate
from millpond.processors.calls.made import MadeVerb
from millpond.processors.calls.readings import Begin, Column, Read, VerbRows, begun_anew, groupings_of
from millpond.processors.calls.waiting import aggregate_account, extended
from millpond.processors.options.grouping import GROUPING_ID, By
from millpond.processors.options.windows import SessionWindows
from millpond.processors.verbs.aggregate import GAP, WINDOW, AggregatedRows, Windows, aggregate
from millpond.processors.verbs.aggregates import AggregateCall
from millpond.processors.verbs.aggregates.call import shared_columns
from millpond.processors.verbs.encoding.null_keys import NullKeys
from millpond.processors.verbs.row_aggregate import RowAggregate
from millpond.processors.verbs.verb import INSTANT, MICROS
from millpond.stores.encoding.times import Duration, Instant
from millpond.stores.typed.expiry import Expired

Binding: TypeAlias = Callable[[Callable[..., RowAggregate]], RowAggregate]
"""Binds calls to their places in a state, given what binds them with ``slots`` and ``since`` of ``RowAggregate``."""


def bound_anew(bind: Callable[..., RowAggregate]) -> RowAggregate:
    """Return the calls of a state that begins with them."""
    return bind()


def call_aggregate(
    rows: VerbRows[Column, Read],
    begin: Begin[Read],
    calls: Mapping[str, AggregateCall],
    *,
    by: By,
    time: Column,
    order: Column | None,
    key: str | Sequence[str] | None,
    op: Column | None,
    window: Windows | None,
    until: Mapping[Instant | str, Windows] | None,
    emit: str,
    ttl: Duration | None,
    expired: str,
    name: str | None,
    binding: Binding = bound_anew,
) -> MadeVerb[Read]:
    """Return the verb, as ``Millpond.aggregate`` says; where rows have gaps of their own, their columns have ``GAP``.

    Raises:
        ConfigurationError: an argument is invalid, or a column is absent or of a type that does not do.
    """
    keys, _ = grouping_of(by)
    name = name or "-".join(["aggregate", *keys])
    by_time = any(call.by_time for call in calls.values())
    changes = changes_in(name, rows, key=key, op=op, order=order)
    if changes is not None:
        check_feed_options(name, window=window, until=until, emit=emit, ttl=ttl, expired=expired)
    check_ttl(ttl, expired, window)
    others = until_in_micros(window, until)
    final = emits_final(emit, window)
    if changes is not None:
        return make_feed_aggregate(name, rows, calls, changes, by=by, time=time, begin=begin, binding=binding)
    return make_aggregate(
        name,
        rows,
        calls,
        by=by,
        time=time,
        window=window,
        final=final,
        until=others,
        ttl=None if ttl is None else in_micros(ttl, "ttl"),
        expired=Expired(expired),
        # If no call goes by time, nothing depends on the order.
        order=order if by_time else None,
        begin=begin,
        binding=binding,
    )


def make_aggregate(
    name: str,
    rows: VerbRows[Column, Read],
    calls: Mapping[str, AggregateCall],
    *,
    by: By,
    time: Column,
    window: Windows | None = None,
    final: bool = False,
    until: Mapping[int, Windows] | None = None,
    ttl: int | None = None,
    expired: Expired = Expired.SILENT,
    order: Column | None = None,
    begin: Begin[Read] = begun_anew,
    binding: Binding = bound_anew,
) -> MadeVerb[Read]:
    """Return the verb, with lengths of time in microseconds, but windows as a user gives them, and gaps in ``GAP``.

    Raises:
        ConfigurationError: a column is absent or of a type that does not do.
    """
    (keys, grouping), others = grouping_of(by), until or {}
    added = [*([] if grouping is None else [GROUPING_ID]), *([] if window is None else [WINDOW])]
    check_distinct([*keys, *added, *calls], changes=not final, remedy=rows.remedy)
    told, calls = groupings_of(calls, grouping)
    at_most = window.gap * MICROS if isinstance(window, SessionWindows) and window.gap_of is not None else None
    read = rows.aggregated(keys, time, calls, order, None if at_most is None else GAP).grouped(grouping)
    gap = None if at_most is None else read.values[-1]
    late = rows.time(time).bound
    check_zones([window, *others.values()], read.times == INSTANT, time, rows.zoned(time))
    packing = begin(name, [read])
    types = {column.name: column.type for column in read.schema(read.values)}
    shared = shared_columns(calls)
    bound = binding(partial(RowAggregate, calls, types, ordered=read.ordered, gaps=gap is not None, shared=shared))
    packed = AggregatedRows(
        INPUT,
        packing.keys(read),
        NullKeys.EQUAL,
        read.values,
        shared=shared,
        order=packing.order(read),
        in_order=read.in_order,
        times=packing.times(read),
        most={} if gap is None or at_most is None else {gap: at_most},
        gap=gap,
        grouping=grouping,
    )
    lives = ttl_allowance(ttl, late)
    verb = aggregate(
        name,
        packed,
        bound,
        extended(window, late),
        final=final,
        until={moment: extended(one, late) for moment, one in others.items()},
        ttl=None if lives is None else lives.total,
        expired=expired,
        told=told,
    )
    account = aggregate_account(name, window, late, final=final, until=others.values(), ttl=lives)
    return MadeVerb(verb, {INPUT: read}, account, bound.input_serde)
