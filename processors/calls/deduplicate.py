"""``deduplicate`` as a user calls it, for whatever has the rows."""

from collections.abc import Sequence

from millpond.processors.calls.account import GRACE, WITHIN, Allowance
from millpond.processors.calls.arguments import INPUT, check_distinct, column_names, in_micros
from millpond.processors.calls.made import MadeVerb
from millpond.processors.calls.readings import Begin, Column, Read, VerbRows, begun_anew, check_rows_stay
from millpond.processors.calls.waiting import deduplicate_account
from millpond.processors.verbs.deduplicate import deduplicate
from millpond.stores.encoding.times import Duration


def call_deduplicate(
    rows: VerbRows[Column, Read],
    begin: Begin[Read],
    *,
    key: str | Sequence[str],
    time: Column,
    within: Duration,
    grace: Duration | None,
    order: Column | None,
    name: str | None,
) -> MadeVerb[Read]:
    """Return the verb, as ``Millpond.deduplicate`` says.

    Raises:
        ConfigurationError: an argument is invalid, a column is absent or of a type that does not do, or the rows are a
            change feed.
    """
    keys = column_names(key, "key")
    check_rows_stay(f"by {', '.join(keys)},", rows, "the first row of a key comes out and stays")
    return make_deduplicate(
        name or f"deduplicate-{'-'.join(keys)}",
        rows,
        key=keys,
        time=time,
        within=in_micros(within, "within"),
        grace=None if grace is None else in_micros(grace, "grace"),
        order=order,
        begin=begin,
    )


def make_deduplicate(
    name: str,
    rows: VerbRows[Column, Read],
    *,
    key: str | Sequence[str],
    time: Column,
    within: int,
    grace: int | None,
    order: Column | None = None,
    begin: Begin[Read] = begun_anew,
) -> MadeVerb[Read]:
    """Return the verb, with lengths of time in microseconds.

    Raises:
        ConfigurationError: a column is absent or of a type that does not do.
    """
    keys = [key] if isinstance(key, str) else list(key)
    values = rows.rest(keys, (), order=order)
    check_distinct([*keys, *values], changes=False, remedy=rows.remedy)
    read = rows.read(INPUT, keys, values, time, order=order)
    when = rows.time(time, rows.names)
    reach = Allowance(WITHIN, within, when.bound)
    wait = None if grace is None else Allowance(GRACE, grace, when.bound)
    verb = deduplicate(
        name,
        begin(name, [read]).input(read),
        within=within,
        late=(wait or reach).total,
        waits=wait is not None,
        columns=values,
    )
    return MadeVerb(verb, {INPUT: read}, deduplicate_account(name, reach, wait, when))
