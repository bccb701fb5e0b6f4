"""``lookup_join`` as a user calls it, for whatever has the left rows."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import MAXYEAR, datetime
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa

from millpond.errors import ColumnTypeError, InvalidArgumentError, TimeZoneError, UnknownColumnError
from millpond.processors.calls.arguments import (
    LEFT,
    RIGHT,
    On,
    check_distinct,
    check_exact,
    check_null_safe,
    chosen_join,
    column_pairs,
    defaults_of,
    in_micros,
)
from millpond.processors.calls.joins.asof_join import Where, check_ahead
from millpond.processors.calls.joins.key_kinds import check_equal_keys
from millpond.processors.calls.made import MadeVerb
from millpond.processors.calls.readings import Begin, Column, Packing, Read, VerbRows
from millpond.processors.calls.tables import Rows, Selection
from millpond.processors.calls.waiting import lookup_join_account
from millpond.processors.options.joins import ASOF_JOINS, AsofDirection, Side, Unfit
from millpond.processors.options.known_names import did_you_mean, unused_name
from millpond.processors.options.versioned_table import VersionedTable
from millpond.processors.verbs.encoding.null_keys import NullKeys
from millpond.processors.verbs.joins.lookup_join import lookup_join
from millpond.processors.verbs.joins.table_rows import TableRows
from millpond.processors.verbs.verb import INSTANT
from millpond.stores.encoding.times import Duration

MAX_BYTES: Final = 1 << 30
"""The bytes that the rows of a table may take in memory by default."""

_MOST_BYTES: Final = (1 << 31) - 1
"""The greatest number of bytes in a column of Arrow's."""

_NEVER: Final = (datetime(MAXYEAR, 1, 1) - datetime(1970, 1, 1)).days * 86_400_000_000


@dataclass(frozen=True)
class TableSide:
    """A table as the right side of a verb.

    Attributes:
        table: reads it.
        schema: its columns, in the types that verbs keep.
        columns: by their names in the result, the columns wanted there; None for all that are not in ``on``.
    """

    table: VersionedTable
    schema: pa.Schema
    columns: Sequence[str] | Mapping[str, str] | None

    def in_result(self, keys: Collection[str], op: str | None) -> dict[str, str]:
        """Return the columns that reach the result, by their names there.

        Args:
            keys: the columns in ``on``.
            op: the column that says which rows are deletes.

        Raises:
            ConfigurationError: there is no such column, or a name is not one.
        """
        if self.columns is None:
            return {name: name for name in self.schema.names if name not in (*keys, op)}
        given: Any = self.columns
        several = isinstance(given, Collection) and not isinstance(given, str)
        names: list[Any] = list(given) if several else [None]
        if not all(isinstance(one, str) for one in names):
            raise InvalidArgumentError(
                f"columns is {given!r}; give a list of names, or, to rename them, a mapping such as "
                "columns={'quoted': 'at'}, of the name in the result to that in the table"
            )
        wanted = {name: given[name] if isinstance(given, Mapping) else name for name in names}
        for column in wanted.values():
            self.field(column, "columns")
        return wanted

    def field(self, name: Any, what: str) -> Any:
        """Return the column that the user gave as the parameter ``what``.

        Raises:
            ConfigurationError: there is none.
        """
        if not isinstance(name, str) or name not in self.schema.names:
            hint = did_you_mean(name, self.schema.names) if isinstance(name, str) else ""
            raise UnknownColumnError(
                f"{what} has {name!r}, which is no column of {self.table!r}, only {', '.join(self.schema.names)}{hint}"
            )
        return self.schema.field(name)

    def named(self, shown: Mapping[str, str]) -> pa.Schema:
        """Return the columns of the result by the names that they have there."""
        return pa.schema([self.field(column, "columns").with_name(name) for name, column in shown.items()])

    def check_time(self, name: str) -> None:
        """Refuse a column without times.

        Raises:
            ConfigurationError: it is one.
        """
        type_ = self.field(name, "right_time").type
        if not (pa.types.is_timestamp(type_) or pa.types.is_date(type_)):
            raise ColumnTypeError(f"right_time is {name!r}, a column of type {type_}; give one of timestamps or dates")

    def check_operation(self, name: str | None) -> None:
        """Refuse a column without operations.

        Raises:
            ConfigurationError: it is one.
        """
        if name is not None and not pa.types.is_string(type_ := self.field(name, "right_op").type):
            raise ColumnTypeError(
                f"right_op is {name!r}, a column of type {type_}; give one of strings such as 'upsert' and 'delete'"
            )


def call_lookup_join(
    left: VerbRows[Column, Read],
    right: TableSide,
    begin: Begin[Read],
    *,
    on: On,
    times: tuple[Column, str],
    how: str,
    tolerance: Duration | None,
    exact: bool,
    direction: str,
    where: Callable[[Mapping[str, str]], Where] | None,
    otherwise: str,
    default: Mapping[str, Any] | None,
    right_order: str | None,
    right_op: str | None,
    null_safe: bool,
    max_bytes: int,
    name: str | None,
) -> MadeVerb[Read]:
    """Return the verb, as ``Millpond.lookup_join`` says; ``where`` takes the columns of the table in the result first.

    Raises:
        ConfigurationError: an argument is invalid, or a column is absent or of a type that does not do.
    """
    join_type, keys = chosen_join(how, ASOF_JOINS), column_pairs(on)
    most = None if tolerance is None else in_micros(tolerance, "tolerance")
    check_ahead(direction, tolerance)
    towards, unfit = AsofDirection.chosen(direction, 0, tolerance), Unfit.chosen(otherwise, where, tolerance)
    check_null_safe(null_safe)
    check_exact(exact)
    _check_max_bytes(max_bytes)
    verb = name or f"lookup_join-{'-'.join(keys)}"
    names, theirs = list(left.names), list(keys.values())
    for key in theirs:
        right.field(key, "on")
    right.check_time(times[1])
    right.check_operation(right_op)
    shown = right.in_result(theirs, right_op)
    if join_type.shows_right or where is not None:
        check_distinct([*names, *shown], changes=False, remedy=f"{left.remedy}, or columns=[...] of the table")
    else:
        shown = {}
    condition = None if where is None else where(shown)(list(shown))
    keeps_left = join_type.keeps(Side.LEFT)
    one = left.read(LEFT, list(keys), names, times[0], keyed=not (null_safe or keeps_left)).unstored()
    other = _read(right, theirs, shown, times[1], right_op, right_order, null_safe)
    check_equal_keys(verb, one, other)
    _check_times(one.times, other.times, times)
    packing = begin(verb, [one])
    packed = packing.input(one, NullKeys.EQUAL if null_safe else NullKeys.APART, untimed=keeps_left)
    rows = Packing().input(other, NullKeys.EQUAL if null_safe else NullKeys.DROPPED, versions=True)
    read = dict.fromkeys([*theirs, *shown.values(), times[1], *filter(None, (right_op, right_order))])
    columns = pa.schema([right.schema.field(column).with_nullable(True) for column in read])
    made = lookup_join(
        verb,
        packed,
        TableRows(right.table, columns, other.of, rows, _NEVER, max_bytes, uuid4().hex),
        join_type,
        tolerance=most,
        exact=exact,
        direction=towards,
        where=condition,
        unfit=unfit,
        columns=list(shown),
        default=defaults_of(default, join_type, rows.rows.schemas.current, list(shown)),
    )
    return MadeVerb(made, {LEFT: one}, lookup_join_account(verb, join_type, left.time(times[0], names)))


def _read(
    right: TableSide,
    keys: Sequence[str],
    shown: Mapping[str, str],
    time: str,
    op: str | None,
    order: str | None,
    null_safe: bool,
) -> Selection:
    """Return the columns of the table that the verb reads, under their names in the result if they are in it."""
    if order is not None:
        right.field(order, "right_order")
    apart = {"time": time, "op": op, "order": order}
    taken = {*keys, *shown}
    keyed = {key if shown.get(key, key) == key else unused_name(f"{key} of the table", taken): key for key in keys}
    taken |= set(keyed)
    named = {what: unused_name(f"millpond {what}", taken) for what, column in apart.items() if column is not None}
    columns = {**keyed, **shown, **{named[what]: str(apart[what]) for what in named}}
    plain = pa.schema([field.with_nullable(True) for field in right.schema])
    return (
        Rows.of(RIGHT, plain)
        .select(**columns)
        .read(
            RIGHT,
            list(keyed),
            list(shown),
            named["time"],
            op=named.get("op"),
            order=named.get("order"),
            keyed=not null_safe,
        )
    )


def _check_times(left: pa.DataType, right: pa.DataType, times: tuple[Any, str]) -> None:
    """Refuse to compare points in time with times that have no time zone.

    Raises:
        ConfigurationError: the verb would.
    """
    if left != right:
        kinds = ["a point in time" if one == INSTANT else "a time without a time zone" for one in (left, right)]
        raise TimeZoneError(
            f"left_time, {times[0]!r}, is {kinds[0]}, and right_time, {times[1]!r}, {kinds[1]}; cast the left one to "
            "the type of the right one, in Spark by .cast('timestamp') or .cast('timestamp_ntz')"
        )


def _check_max_bytes(max_bytes: object) -> None:
    """Refuse a value that is not a number of bytes that a column can have.

    Raises:
        ConfigurationError: it is none.
    """
    if not isinstance(max_bytes, int) or not 0 < max_bytes <= _MOST_BYTES:
        raise InvalidArgumentError(f"max_bytes is {max_bytes!r}; give a number of bytes up to {_MOST_BYTES:,}")
