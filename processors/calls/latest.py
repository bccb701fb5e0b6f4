"""``latest`` as a user calls it, for whatever has the rows."""

from collections.abc import Sequence

from millpond.errors import ChangeFeedError
from millpond.processors.calls.account import HISTORY, Allowance
from millpond.processors.calls.arguments import INPUT, check_distinct, check_ttl, column_names, in_micros, ttl_allowance
from millpond.processors.calls.feeds import as_written, key_of_feed
from millpond.processors.calls.made import MadeVerb
from millpond.processors.calls.readings import Begin, Column, Read, VerbRows, begun_anew
from millpond.processors.calls.waiting import latest_account
from millpond.processors.verbs.latest import latest
from millpond.processors.verbs.projections import CHANGE_COLUMNS
from millpond.stores.encoding.times import Duration
from millpond.stores.typed.expiry import Expired


def call_latest(
    rows: VerbRows[Column, Read],
    begin: Begin[Read],
    *,
    key: str | Sequence[str],
    time: Column,
    history: Duration,
    order: Column | None,
    op: Column | None,
    ttl: Duration | None,
    expired: str,
    name: str | None,
) -> MadeVerb[Read]:
    """Return the verb, as ``Millpond.latest`` says.

    Raises:
        ConfigurationError: an argument is invalid, or a column is absent or of a type that does not do.
    """
    check_ttl(ttl, expired)
    keys = column_names(key, "key")
    name = name or f"latest-{'-'.join(keys)}"
    own = key_of_feed(rows.told, keys, op)
    if own is not None:
        by = as_written(keys)
        raise ChangeFeedError(
            f"the verb {name!r} is given key={by}, and the rows of its feed replace each other by {own}, and a "
            f"delete has only those columns; write key={own}, and to know something of each {', '.join(keys)}, "
            f"aggregate the feed: by={by}"
        )
    return make_latest(
        name,
        rows,
        key=keys,
        time=time,
        history=in_micros(history, "history"),
        op=rows.operations(op),
        order=order,
        ttl=None if ttl is None else in_micros(ttl, "ttl"),
        expired=Expired(expired),
        begin=begin,
    )


def make_latest(
    name: str,
    rows: VerbRows[Column, Read],
    *,
    key: str | Sequence[str],
    time: Column,
    history: int,
    op: Column | None = None,
    order: Column | None = None,
    ttl: int | None = None,
    expired: Expired = Expired.SILENT,
    begin: Begin[Read] = begun_anew,
) -> MadeVerb[Read]:
    """Return the verb, with lengths of time in microseconds.

    Raises:
        ConfigurationError: a column is absent or of a type that does not do.
    """
    keys = [key] if isinstance(key, str) else list(key)
    values = rows.rest(keys, CHANGE_COLUMNS, op, order)
    check_distinct([*keys, *values], changes=True, remedy=rows.remedy)
    read = rows.read(INPUT, keys, values, time, op=op, order=order)
    late = rows.time(time).bound
    kept, lives = Allowance(HISTORY, history, late), ttl_allowance(ttl, late)
    verb = latest(
        name,
        begin(name, [read]).input(read, versions=True),
        history=kept.total,
        columns=values,
        ttl=None if lives is None else lives.total,
        expired=expired,
    )
    return MadeVerb(verb, {INPUT: read}, latest_account(name, kept, lives))
