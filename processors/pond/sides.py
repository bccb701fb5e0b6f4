"""The inputs of a verb of ``Pond``: their columns, as a user names them, checked before a row is read.

Rule of this module: it knows columns by their names and types, and no verb.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from millpond.errors import ConfigurationError
from millpond.processors.calls.arguments import check_null_safe
from millpond.processors.calls.key_kinds import check_kinds
from millpond.processors.options.joins import JoinType, Side
from millpond.processors.pond.frames import field_of
from millpond.processors.pond.made import unused_name
from millpond.processors.pond.marks import rows_of
from millpond.processors.pond.tables import Rows
from millpond.processors.verbs.aggregates import AggregateCall
from millpond.processors.verbs.projections import OP


@dataclass(frozen=True)
class VerbSide:
    """An input of a verb.

    Attributes:
        role: what messages call it.
        schema: its columns, in the types that verbs keep.
        table: its rows; None if they are yet to come.
        hidden: the columns that reach no result.
    """

    role: str
    schema: pa.Schema
    table: pa.Table | None
    hidden: frozenset[str] = frozenset()

    @property
    def rows(self) -> Rows:
        """Its rows, as far as is noted of them."""
        return replace(rows_of(self.role, self.schema), hidden=self.hidden)

    def rest(self, keys: Collection[str], op: str | None, taken: Collection[str]) -> list[str]:
        """The columns that reach a result besides the key."""
        return self.rows.carried([*keys, *([] if op is None else [op])], taken)

    def check(self, names: Sequence[str], *, order: str | None = None) -> None:
        """Refuse columns that are not there.

        Raises:
            ConfigurationError: there is one.
        """
        for name in (*names, *([] if order is None else [order])):
            field_of(self.role, self.schema, name)

    def check_time(self, name: object, what: str) -> str:
        """The column with the times.

        Raises:
            ConfigurationError: there is none, or it has no times.
        """
        if not isinstance(name, str):
            raise ConfigurationError(f"{what} is {name!r}; give the name of a column with times, such as {what}='at'")
        type_ = field_of(self.role, self.schema, name).type
        if not (pa.types.is_timestamp(type_) or pa.types.is_date(type_)):
            raise ConfigurationError(
                f"{what} is {name!r}, a column of type {type_}; give one of timestamps or dates, or make it one, such "
                "as of milliseconds: column.cast(pa.timestamp('ms', 'UTC'))"
            )
        return name

    def operations(self, op: str | None) -> str | None:
        """The column that says which rows are deletes: the one that is given, or else that of the change feed.

        Raises:
            ConfigurationError: there is no such column, or it is no text.
        """
        if op is None:
            return OP if self.rows.feed is not None and OP in self.schema.names else None
        type_ = field_of(self.role, self.schema, op).type
        if not pa.types.is_string(type_):
            raise ConfigurationError(
                f"the operations {op!r} of {self.role!r} are of type {type_}; give a column of strings such as "
                "'upsert' and 'delete'"
            )
        return op

    def kinds(self, names: Iterable[str]) -> pa.Schema:
        """Some of the columns, without what is noted of them."""
        return pa.schema([pa.field(name, self.schema.field(name).type) for name in names])

    def instants(self, time: str) -> bool:
        """Whether times are moments."""
        return getattr(self.schema.field(time).type, "tz", None) is not None


def joined_sides(
    one: VerbSide,
    other: VerbSide,
    keys: Mapping[str, str],
    times: tuple[str | None, str | None, str | None],
    join_type: JoinType,
    null_safe: bool,
) -> tuple[VerbSide, VerbSide, tuple[str, str]]:
    """The inputs of a join and their times; where both have one column of times, the result has that of the left side.

    Raises:
        ConfigurationError: a column is absent, or of a type that does not do, or null_safe is no bool.
    """
    check_null_safe(null_safe)
    time, left_time, right_time = times
    if (time is None) is (left_time is None and right_time is None):
        raise ConfigurationError(
            f"time is {time!r}, left_time {left_time!r} and right_time {right_time!r}; give time, a column that both "
            "sides have, or else left_time and right_time"
        )
    one.check(list(keys))
    other.check(list(keys.values()))
    if time is not None:
        of_left, of_right = one.check_time(time, "time"), other.check_time(time, "time")
        other = other if join_type.keeps(Side.RIGHT) else replace(other, hidden=frozenset([time]))
    else:
        of_left, of_right = one.check_time(left_time, "left_time"), other.check_time(right_time, "right_time")
    check_kinds("join", one.kinds(keys), other.kinds(keys.values()))
    if one.instants(of_left) is not other.instants(of_right):
        raise ConfigurationError(
            f"the times {of_left!r} of 'left' are {one.schema.field(of_left).type}, and {of_right!r} of 'right' "
            f"{other.schema.field(of_right).type}; give both a time zone, or neither"
        )
    return one, other, (of_left, of_right)


def with_conditions(side: VerbSide, calls: Mapping[str, AggregateCall]) -> tuple[VerbSide, dict[str, str]]:
    """The input with a column for each condition, and its name by that of the condition.

    Raises:
        ConfigurationError: a column is absent, or a condition is no column of bools.
    """
    found: dict[str, str] = {}
    schema = side.schema
    for result, call in calls.items():
        for column in (call.column, call.second):
            if column is not None:
                _check_argument(side, result, column)
        if call.where is None:
            continue
        where = call.where
        if where not in side.schema.names or not pa.types.is_boolean(side.schema.field(str(where)).type):
            raise ConfigurationError(
                f"where of {result!r} is {where!r}, which is no column of bools; add one to the rows, and give its name"
            )
        if str(where) not in found:
            found[str(where)] = unused_name(f"{where} is true", schema.names)
            schema = schema.append(pa.field(found[str(where)], pa.bool_()))
    return VerbSide(side.role, schema, side.table), found


def _check_argument(side: VerbSide, result: str, column: object) -> None:
    """Refuse an argument that is no column.

    Raises:
        ConfigurationError: so it is.
    """
    if not isinstance(column, str):
        raise ConfigurationError(f"the argument of {result!r} is {column!r}; give the name of a column")
    field_of(side.role, side.schema, column)
