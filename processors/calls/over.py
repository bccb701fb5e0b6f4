"""``over`` as a user calls it, for whatever has the rows."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeAlias

from millpond.errors import ArgumentConflictError, InvalidArgumentError
from millpond.processors.calls.account import GRACE, TTL, Allowance
from millpond.processors.calls.arguments import INPUT, check_distinct, check_ttl, column_names, in_micros
from millpond.processors.calls.made import MadeVerb
from millpond.processors.calls.readings import Begin, Column, Read, VerbRows, begun_anew, check_rows_stay
from millpond.processors.calls.waiting import over_account
from millpond.processors.verbs.aggregates import AggregateCall
from millpond.processors.verbs.aggregates.call import MOST_ROWS
from millpond.processors.verbs.ordered.over import over
from millpond.processors.verbs.ordered.over_spec import Calls, Frame
from millpond.stores.encoding.times import Duration

Binding: TypeAlias = Callable[[Callable[..., Calls]], Calls]
"""Binds calls to their places in a state, given what binds them with ``slots`` of ``Calls``."""


def bound_anew(bind: Callable[..., Calls]) -> Calls:
    """Return the calls of a state that begins with them."""
    return bind()


def call_over(
    rows: VerbRows[Column, Read],
    begin: Begin[Read],
    calls: Mapping[str, AggregateCall],
    *,
    key: str | Sequence[str],
    time: Column,
    last: int | None,
    within: Duration | None,
    grace: Duration,
    order: Column | None,
    ttl: Duration | None,
    name: str | None,
    binding: Binding = bound_anew,
) -> MadeVerb[Read]:
    """Return the verb, as ``Millpond.over`` says.

    Raises:
        ConfigurationError: an argument is invalid, a column is absent or of a type that does not do, or the rows are a
            change feed.
    """
    keys = column_names(key, "key")
    check_ttl(ttl)
    frame = _frame(last, within)
    check_rows_stay(f"by {', '.join(keys)},", rows, "each row comes out once, with what was before it")
    return make_over(
        name or f"over-{'-'.join(keys)}",
        rows,
        calls,
        key=keys,
        time=time,
        frame=frame,
        grace=in_micros(grace, "grace"),
        ttl=None if ttl is None else in_micros(ttl, "ttl"),
        order=order,
        begin=begin,
        binding=binding,
    )


def _frame(last: int | None, within: Duration | None) -> Frame:
    """Return which rows count for each one.

    Raises:
        ConfigurationError: they are given in two ways, or ``last`` is no number of rows.
    """
    if last is not None and within is not None:
        raise ArgumentConflictError(
            f"last is {last!r} and within is {within!r}; give one of them, and another verb the other, behind this one"
        )
    if last is not None and (type(last) is not int or not 1 <= last <= MOST_ROWS):
        raise InvalidArgumentError(
            f"last is {last!r}; give how many rows count, each itself included, up to {MOST_ROWS}, such as last=10"
        )
    return Frame(last, None if within is None else in_micros(within, "within"))


def make_over(
    name: str,
    rows: VerbRows[Column, Read],
    calls: Mapping[str, AggregateCall],
    *,
    key: str | Sequence[str],
    time: Column,
    frame: Frame,
    grace: int = 0,
    ttl: int | None = None,
    order: Column | None = None,
    begin: Begin[Read] = begun_anew,
    binding: Binding = bound_anew,
) -> MadeVerb[Read]:
    """Return the verb, with lengths of time in microseconds.

    Raises:
        ConfigurationError: a column is absent or of a type that does not do.
    """
    keys = [key] if isinstance(key, str) else list(key)
    values = rows.rest(keys, (), order=order)
    check_distinct([*keys, *values, *calls], changes=False, remedy=rows.remedy)
    read, arguments = rows.beside(keys, values, time, calls, order)
    when = rows.time(time, rows.names)
    wait, lives = Allowance(GRACE, grace, when.bound), None if ttl is None else Allowance(TTL, ttl, 0)
    packing = begin(name, [read])
    schema = read.schema(read.values)
    bound = binding(partial(Calls, calls, {result: schema.field(column).type for result, column in arguments.items()}))
    verb = over(
        name,
        packing.input(read),
        bound,
        arguments,
        frame,
        late=wait.total,
        ttl=ttl,
        columns=values,
    )
    return MadeVerb(verb, {INPUT: read}, over_account(name, frame, wait, lives, when))
