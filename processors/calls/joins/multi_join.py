"""``multi_join`` as a user calls it, for whatever has the rows."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from millpond.errors import ChangeFeedError, DuplicateNameError, InvalidArgumentError, InvalidNameError
from millpond.processors.calls.account import HISTORY, Allowance
from millpond.processors.calls.arguments import (
    INPUT,
    LEFT,
    RIGHT,
    check_distinct,
    check_null_safe,
    check_table_order,
    check_ttl,
    chosen_join,
    column_names,
    in_micros,
    of_each,
    ttl_allowance,
)
from millpond.processors.calls.feeds import key_of_feed
from millpond.processors.calls.joins.key_kinds import check_equal_keys
from millpond.processors.calls.made import MadeVerb
from millpond.processors.calls.readings import Begin, Column, Read, VerbRows, begun_anew
from millpond.processors.calls.waiting import multi_join_account
from millpond.processors.options.joins import TABLE_JOINS, JoinType, TablesHow
from millpond.processors.tables.multi_join import shown_sides
from millpond.processors.verbs.encoding.null_keys import NullKeys
from millpond.processors.verbs.joins.multi_join import how_written, multi_join
from millpond.processors.verbs.projections import CHANGE_COLUMNS
from millpond.stores.encoding.times import Duration
from millpond.stores.typed.expiry import Expired

OnEach: TypeAlias = str | Sequence[str] | Mapping[str, str | Sequence[str]]
"""The columns of the key: names that all tables have, or those of each table by its name."""

HowEach: TypeAlias = TablesHow | Mapping[str, TablesHow]
"""The type of all joins, or, by name, of the join of each table but the first with those before it."""

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_TAKEN: Final = (INPUT, LEFT, RIGHT, "latest")
"""The names of inputs and stores of other verbs."""


def check_tables(tables: object) -> None:
    """Refuse a value that is not a mapping from names to two tables or more.

    Raises:
        ConfigurationError: it is none.
    """
    if not isinstance(tables, Mapping):
        raise InvalidArgumentError(
            f"tables is of type {type(tables).__name__}; give a mapping from a name of your choice to each table, such "
            "as {'orders': orders, 'payments': payments}"
        )
    for name in tables:
        if not isinstance(name, str) or not _NAME.fullmatch(name) or name in _TAKEN:
            raise InvalidNameError(
                f"tables has the name {name!r}; give one of letters, digits and underscores that is none of "
                f"{', '.join(_TAKEN)}, such as 'orders'"
            )
    if len(tables) < 2:
        raise InvalidArgumentError(
            f"tables has {len(tables)} of the two or more tables that a join needs; give more, such as "
            "{'orders': orders, 'payments': payments}, or take latest for one"
        )


def call_multi_join(
    tables: Mapping[str, VerbRows[Any, Read]],
    begin: Begin[Read],
    *,
    on: OnEach,
    time: object,
    order: object,
    op: object,
    how: str | Mapping[str, str],
    history: Duration | None,
    ttl: Duration | None,
    expired: str,
    null_safe: bool,
    name: str | None,
) -> MadeVerb[Read]:
    """Return the verb, as ``Millpond.multi_join`` says, of tables that ``check_tables`` has seen.

    Raises:
        ConfigurationError: an argument is invalid, or a column is absent or of a type that does not do.
    """
    keys = _keys_of(on, list(tables))
    types = _types_of(how, list(tables))
    check_table_order(history, {"order": order})
    check_ttl(ttl, expired)
    check_null_safe(null_safe)
    made = name or f"multi_join-{'-'.join(keys[next(iter(tables))])}"
    if made in tables:
        raise DuplicateNameError(
            f"the verb's name is {made!r}, which is also the name of one of its tables; give another"
        )
    ops = of_each(op, list(tables), "op")
    for table, rows in tables.items():
        own = key_of_feed(rows.told, keys[table], ops.get(table))
        if own is not None:
            raise ChangeFeedError(
                f"the table {table!r} of the verb {made!r} is by {', '.join(keys[table])}, and the rows of its feed "
                f"replace each other by {own}, and a delete has only those columns; join it by table_join, as the "
                f"left side, with left_key={own}"
            )
    return make_multi_join(
        made,
        tables,
        keys=keys,
        times=times_of(time, list(tables)),
        shared_time=time if isinstance(time, str) else None,
        ops=ops,
        orders=of_each(order, list(tables), "order"),
        types=types,
        history=None if history is None else in_micros(history, "history"),
        ttl=None if ttl is None else in_micros(ttl, "ttl"),
        expired=Expired(expired),
        null_safe=null_safe,
        begin=begin,
    )


def make_multi_join(
    name: str,
    tables: Mapping[str, VerbRows[Column, Read]],
    begin: Begin[Read] = begun_anew,
    *,
    keys: Mapping[str, Sequence[str]],
    times: Mapping[str, Column],
    types: Sequence[JoinType],
    shared_time: str | None = None,
    ops: Mapping[str, Column] | None = None,
    orders: Mapping[str, Column] | None = None,
    history: int | None = None,
    ttl: int | None = None,
    expired: Expired = Expired.SILENT,
    null_safe: bool = False,
) -> MadeVerb[Read]:
    """Return the verb, with lengths of time in microseconds; ``shared_time`` is a column of the first table only.

    Raises:
        ConfigurationError: a column is absent or of a type that does not do.
    """
    names, alone = list(tables), _alone(types)
    readings: dict[str, Read] = {}
    for table, rows in tables.items():
        op, order = rows.operations((ops or {}).get(table)), (orders or {}).get(table)
        rest = rows.rest(keys[table], CHANGE_COLUMNS, op, order)
        values = [one for one in rest if one != shared_time or table == names[0]]
        keyed = not null_safe and not alone[names.index(table)]
        readings[table] = rows.read(table, list(keys[table]), values, times[table], op=op, order=order, keyed=keyed)
    first, *others = readings.values()
    shown = [one for reading in readings.values() for one in reading.values]
    check_distinct([*first.keys, *shown], changes=True, remedy=tables[names[0]].remedy)
    for other in others:
        check_equal_keys(name, first, other)
    late = max(rows.time(times[table]).bound for table, rows in tables.items())
    kept = None if history is None else Allowance(HISTORY, history, late)
    lives = ttl_allowance(ttl, late)
    packing, null_keys = begin(name, list(readings.values())), NullKeys.EQUAL if null_safe else NullKeys.OWN_SIDE
    verb = multi_join(
        name,
        [packing.input(one, null_keys, versions=True) for one in readings.values()],
        types,
        history=None if kept is None else kept.total,
        columns=[reading.values for reading in readings.values()],
        ttl=None if lives is None else lives.total,
        expired=expired,
        null_safe=null_safe,
    )
    return MadeVerb(verb, readings, multi_join_account(name, how_written(names, types).strip("'"), kept, late, lives))


def times_of(time: object, tables: Sequence[str]) -> dict[str, Any]:
    """Return the column with the times of each table.

    Raises:
        ConfigurationError: a table has none, or there is no such table.
    """
    return of_each(time, tables, "time", "at")


def _keys_of(on: OnEach, tables: Sequence[str]) -> dict[str, list[str]]:
    """Return the columns of the key of each table.

    Raises:
        ConfigurationError: a table has none, or more or fewer than others, or there is no such table.
    """
    found = of_each(on, tables, "on", "id")
    keys = {table: column_names(columns, f"on of {table!r}") for table, columns in found.items()}
    if len({*map(len, keys.values())}) != 1:
        raise InvalidArgumentError(f"on is {on!r}; give each table as many columns as the others")
    return keys


def _types_of(how: str | Mapping[str, str], tables: Sequence[str]) -> list[JoinType]:
    """Return the join types of all tables but the first, each with the tables before it.

    Raises:
        ConfigurationError: a type is not one of table joins, or a table has none.
    """
    return [chosen_join(one, TABLE_JOINS) for one in of_each(how, tables[1:], "how", "left").values()]


def _alone(types: Sequence[JoinType]) -> list[bool]:
    """Return, for each table, whether a row of it has a result that meets no other one."""
    places = range(len(types) + 1)
    there = [[np.array([place == one]) for one in places] for place in places]
    return [any(bool(side[0]) for side in shown_sides(sides, types)) for sides in there]
