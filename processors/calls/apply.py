"""``apply`` as a user calls it, for whatever has the rows."""

from collections.abc import Sequence

import pyarrow as pa

from millpond.processors.calls.account import LATENESS, Allowance
from millpond.processors.calls.arguments import INPUT, check_ttl, column_names, in_micros, ttl_allowance
from millpond.processors.calls.made import MadeVerb
from millpond.processors.calls.readings import Begin, Column, Read, VerbRows, begun_anew
from millpond.processors.calls.waiting import apply_account
from millpond.processors.verbs.apply import apply_topology
from millpond.processors.verbs.keyed_processor import KeyedProcessor
from millpond.processors.verbs.verb import Projection, Verb
from millpond.stores.encoding.times import Duration


def call_apply(
    rows: VerbRows[Column, Read],
    begin: Begin[Read],
    processor: KeyedProcessor,
    *,
    key: str | Sequence[str],
    time: Column,
    results: Projection,
    lateness: Duration,
    order: Column | None,
    ttl: Duration | None,
    name: str,
) -> MadeVerb[Read]:
    """Return the verb, as ``Millpond.apply`` says.

    Raises:
        ConfigurationError: an argument is invalid, or a column is absent or of a type that does not do.
    """
    check_ttl(ttl)
    return make_apply(
        name,
        rows,
        processor,
        key=column_names(key, "key"),
        time=time,
        results=results,
        lateness=in_micros(lateness, "lateness"),
        order=order,
        ttl=None if ttl is None else in_micros(ttl, "ttl"),
        begin=begin,
    )


def make_apply(
    name: str,
    rows: VerbRows[Column, Read],
    processor: KeyedProcessor,
    *,
    key: str | Sequence[str],
    time: Column,
    results: Projection,
    lateness: int,
    order: Column | None = None,
    ttl: int | None = None,
    begin: Begin[Read] = begun_anew,
) -> MadeVerb[Read]:
    """Return the verb, with lengths of time in microseconds.

    Args:
        name: its name.
        rows: the rows.
        processor: handles them.
        key, time, order: the columns with a row's key, time and order.
        results: the columns of the processor's results.
        lateness: how late a row may be.
        ttl: how long the state of a key lives after it was last set; None for ever.
        begin: packs rows.

    Raises:
        ConfigurationError: a column is absent or of a type that does not do.
    """
    keys = [key] if isinstance(key, str) else list(key)
    read = rows.read(INPUT, keys, rows.names, time, order=order)
    wait = Allowance(LATENESS, lateness, rows.time(time).bound)
    packed = begin(name, [read]).input(read)
    topology = apply_topology(name, processor, packed.keys, packed.rows, wait.total, ordered=read.ordered, ttl=ttl)
    times = [column.name for column in results.schema if pa.types.is_timestamp(column.type)]
    account = apply_account(name, type(processor).__name__, wait, times, ttl_allowance(ttl, 0))
    return MadeVerb(Verb(topology, {packed.topic: packed}, (results,)), {INPUT: read}, account)
