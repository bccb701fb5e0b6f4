"""``top_n`` as a user calls it, for whatever has the rows."""

from collections.abc import Mapping, Sequence

from millpond.errors import InvalidArgumentError
from millpond.processors.calls.arguments import (
    INPUT,
    check_distinct,
    check_one_gap,
    check_ttl,
    check_window,
    check_zones,
    column_names,
    emits_final,
    in_micros,
    ttl_allowance,
    until_in_micros,
)
from millpond.processors.calls.made import MadeVerb
from millpond.processors.calls.readings import Begin, Column, Read, VerbRows, begun_anew, check_rows_stay
from millpond.processors.calls.waiting import extended, top_n_account
from millpond.processors.verbs.aggregate import WINDOW, Windows
from millpond.processors.verbs.aggregates.call import MOST_ROWS
from millpond.processors.verbs.projections import CHANGE_COLUMNS
from millpond.processors.verbs.top_n import INPUT_SERDE, RANK, OrderedRows, top_n
from millpond.processors.verbs.verb import INSTANT
from millpond.stores.encoding.times import Duration, Instant
from millpond.stores.typed.expiry import Expired


def call_top_n(
    rows: VerbRows[Column, Read],
    begin: Begin[Read],
    n: int,
    *,
    by: str | Sequence[str],
    order: Column | Sequence[Column],
    descending: bool | Sequence[bool],
    time: Column,
    window: Windows | None,
    until: Mapping[Instant | str, Windows] | None,
    emit: str,
    ttl: Duration | None,
    expired: str,
    name: str | None,
) -> MadeVerb[Read]:
    """Return the verb, as ``Millpond.top_n`` says.

    Raises:
        ConfigurationError: an argument is invalid, a column is absent or of a type that does not do, or the rows are a
            change feed.
    """
    keys = column_names(by, "by")
    where = f"by {', '.join(keys)},"
    check_window(window)
    check_one_gap([window], "top_n")
    check_ttl(ttl, expired, window)
    others = until_in_micros(window, until)
    final = emits_final(emit, window)
    _check_number(where, n)
    check_rows_stay(where, rows, "n rows are kept and the others forgotten", None if final else time)
    directions = _directions(where, descending, rows.directions(where, order))
    return make_top_n(
        name or f"top_n-{'-'.join(keys)}",
        rows,
        n,
        by=keys,
        order=order,
        time=time,
        descending=directions,
        window=window,
        final=final,
        until=others,
        ttl=None if ttl is None else in_micros(ttl, "ttl"),
        expired=Expired(expired),
        begin=begin,
    )


def make_top_n(
    name: str,
    rows: VerbRows[Column, Read],
    n: int,
    *,
    by: str | Sequence[str],
    order: Column | Sequence[Column],
    time: Column,
    descending: tuple[bool, ...] = (False,),
    window: Windows | None = None,
    final: bool = False,
    until: Mapping[int, Windows] | None = None,
    ttl: int | None = None,
    expired: Expired = Expired.SILENT,
    begin: Begin[Read] = begun_anew,
) -> MadeVerb[Read]:
    """Return the verb, with lengths of time in microseconds, but windows as a user gives them.

    Raises:
        ConfigurationError: a column is absent or of a type that does not do.
    """
    keys, others = [by] if isinstance(by, str) else list(by), until or {}
    values = rows.rest(keys, CHANGE_COLUMNS, order=order)
    taken = [RANK, *([] if window is None else [WINDOW])]
    check_distinct([*keys, *taken, *values], changes=not final, remedy=rows.remedy)
    read = rows.read(INPUT, keys, values, time, order=order)
    late = rows.time(time).bound
    check_zones([window, *others.values()], read.times == INSTANT, time, rows.zoned(time))
    lives = ttl_allowance(ttl, late)
    verb = top_n(
        name,
        OrderedRows.of(begin(name, [read]).input(read), descending),
        n,
        extended(window, late),
        columns=values,
        final=final,
        until={moment: extended(one, late) for moment, one in others.items()},
        ttl=None if lives is None else lives.total,
        expired=expired,
    )
    account = top_n_account(name, n, window, late, final=final, until=others.values(), ttl=lives)
    return MadeVerb(verb, {INPUT: read}, account, INPUT_SERDE)


def _check_number(where: str, n: int) -> None:
    """Refuse a value that is not a number of rows.

    Raises:
        ConfigurationError: it is none.
    """
    if type(n) is not int or not 1 <= n <= MOST_ROWS:
        raise InvalidArgumentError(f"{where} n is {n!r}; give a number from 1 to {MOST_ROWS}, such as n=3")


def _directions(where: str, descending: bool | Sequence[bool], size: int) -> tuple[bool, ...]:
    """Return whether the greatest comes first, for each in the order, or for all of them at once.

    Raises:
        ConfigurationError: they are not as many, or no directions.
    """
    given = [descending] if isinstance(descending, bool) else descending
    several = isinstance(given, Sequence) and all(isinstance(one, bool) for one in given)
    if not several or len(given) not in (1, size) or not given:
        one_each = f", or a list of {size}, one for each" if size > 1 else ""
        raise InvalidArgumentError(f"{where} descending is {descending!r}; give True or False{one_each}")
    return tuple(given) if len(set(given)) > 1 else (given[0],)
