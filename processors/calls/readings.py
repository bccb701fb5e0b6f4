"""The columns that a verb asks of rows, from tables or from Spark, and the form in which it packs them.

Rule of this module: tables (``tables``) and the DataFrames of Spark say here what verbs need to know, and no verb
knows which of the two it reads.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, Protocol, Self, TypeAlias, TypeVar

import pyarrow as pa

from millpond.errors import ChangeFeedError, ColumnTypeError, UnknownColumnError
from millpond.processors.calls.account import InputTime
from millpond.processors.calls.arguments import parameter_of
from millpond.processors.calls.feeds import Feed
from millpond.processors.options.grouping import GROUPING_ID, GroupingSets
from millpond.processors.verbs.aggregates import AggregateCall
from millpond.processors.verbs.aggregates.call import GROUPING
from millpond.processors.verbs.encoding.null_keys import NullKeys
from millpond.processors.verbs.verb import PackedRows
from millpond.stores.encoding.rows.packing import RowCodec
from millpond.stores.encoding.rows.schemas import Schemas
from millpond.stores.encoding.rows.tuple_keys import KeyCodec, without_order

ARGUMENT: Final = "millpond_argument_"
"""In front of the name of a result, the hidden column with what rows bring for its call."""


def hidden_arguments(calls: Mapping[str, AggregateCall], values: Collection[str]) -> dict[str, str]:
    """Return the columns of the arguments of calls, by the names of results: values, or else hidden columns."""

    def column(result: str, call: AggregateCall) -> str:
        as_it_is = isinstance(call.column, str) and call.where is None and call.second is None
        return str(call.column) if as_it_is and call.column in values else f"{ARGUMENT}{result}"

    return {result: column(result, call) for result, call in calls.items() if call.takes_values}


def groupings_of(
    calls: Mapping[str, AggregateCall], grouping: GroupingSets | None
) -> tuple[dict[str, int], dict[str, AggregateCall]]:
    """Return, by the names of results, the bits of ``grouping_id`` that some calls tell; and the calls that aggregate.

    Raises:
        ConfigurationError: a call tells of a column that is in none of the sets.
    """
    if grouping is None:
        return {}, dict(calls)
    told = {}
    for name, call in calls.items():
        if call.function == GROUPING:
            if call.column not in grouping.columns:
                raise UnknownColumnError(
                    f"{name!r}: grouping is given {call.column!r}, which is no column of the grouping sets; give one "
                    f"of {', '.join(grouping.columns)}"
                )
            told[name] = grouping.bit_of(call.column)
    return told, {name: call for name, call in calls.items() if name not in told}


class Reading(Protocol):
    """The columns of an input that a verb reads."""

    @property
    def role(self) -> str:
        """The name of the input in messages and topics: ``left``, ``right`` or ``input``."""

    @property
    def names(self) -> Sequence[str]:
        """All columns that the rows have."""

    @property
    def keys(self) -> Sequence[str]:
        """The columns of the key."""

    @property
    def values(self) -> Sequence[str]:
        """The columns that are packed beside it."""

    @property
    def foreign(self) -> Sequence[str]:
        """The columns of the foreign key."""

    @property
    def ordered(self) -> bool:
        """True if the user gave an order among rows of one key and time."""

    @property
    def in_order(self) -> bool:
        """True if the order of a change feed decides among them."""

    @property
    def in_turn(self) -> bool:
        """True if each change of a key replaces the one before it, by the order of a change feed."""

    @property
    def grouping(self) -> GroupingSets | None:
        """The sets of columns of the key for each of which a row has a key; None if it has one key."""

    @property
    def times(self) -> pa.DataType:
        """``INSTANT`` or ``WALL_TIME``, whichever its times are."""

    @property
    def stored(self) -> bool:
        """True if a store keeps its rows; if none does, nothing of an earlier run depends on its columns."""

    def unstored(self) -> Self:
        """Return the same input, without a store that keeps its rows."""

    def grouped(self, grouping: GroupingSets | None) -> Self:
        """Return the same input, with a key in each row for each of some sets of columns."""

    def schema(self, names: Sequence[str]) -> pa.Schema:
        """Return some of the columns as they are packed."""

    def key_schema(self, names: Sequence[str]) -> pa.Schema:
        """Return some of the columns as they are packed as a key."""

    def order_schema(self) -> pa.Schema:
        """Return the schema of the order among rows of one key and time: one column, ``order``."""


AnyReading = TypeVar("AnyReading", bound=Reading, covariant=True)
"""A selection of a table, or the input of a DataFrame."""

Read = TypeVar("Read", bound=Reading)
"""The same, where a function has it."""

Column = TypeVar("Column")
"""A column as the user gives it: its name, or on Spark also an expression."""


def packed_order(rows: Reading) -> pa.Schema:
    """Return the order among rows of one key and time, as it is packed.

    Raises:
        ConfigurationError: the column has no order.
    """
    schema = rows.order_schema()
    for field in schema:
        found = without_order(field, parameter_of(rows.role, "order"))
        if found is not None:
            raise ColumnTypeError(
                f"{found[0]} is a {found[1]}, which has no order; give a column that has one, or a value of this one"
            )
    return schema


def packed_key(rows: Reading) -> pa.Schema:
    """Return the columns of an input's keys as they are packed."""
    key = rows.key_schema(rows.keys)
    return key if rows.grouping is None else rows.grouping.packed(key)


def key_names(rows: Reading) -> list[str]:
    """Return the columns of an input's keys as results and state have them."""
    return [*rows.keys, *([] if rows.grouping is None else [GROUPING_ID])]


class VerbRows(Protocol[Column, AnyReading]):
    """The rows that a verb is given."""

    @property
    def names(self) -> Sequence[str]:
        """The columns."""

    @property
    def told(self) -> Feed | None:
        """The change feed that verbs have noted of these rows; None if they are none."""

    @property
    def remedy(self) -> str:
        """The code with which a user renames or drops columns, for messages."""

    def zoned(self, time: Column) -> str:
        """Return the code that makes the column one of moments, for messages."""

    def upserts(self, op: Column, added: Sequence[Column] = ()) -> str:
        """Return the code that takes the upserts of a change feed as rows that stay, for messages.

        Args:
            op: the column of the operation, which is dropped.
            added: columns of the feed that are dropped, too.
        """

    def directions(self, where: str, order: Column | Sequence[Column]) -> int:
        """Return the number of directions that an order may have, of a column or of several.

        Args:
            where: begins messages.
            order: the columns, of which the first decides first.

        Raises:
            ConfigurationError: there is none, a column is missing, or one of them has no order.
        """

    def as_rows(self, op: Column) -> str:
        """Return the code that takes the changes of a feed as rows, for messages."""

    def column(self, name: str) -> Column:
        """Return the column of that name, as a user would give it."""

    def is_column(self, given: Column, name: str) -> bool:
        """Return whether what a user gave is the column of that name."""

    def rest(
        self,
        keys: Collection[str],
        taken: Collection[str],
        op: Column | None = None,
        order: Column | Sequence[Column] | None = None,
    ) -> list[str]:
        """Return the columns that reach a result besides the key.

        Args:
            keys: the columns of the key.
            taken: the names of columns that the result has from elsewhere. A column of a change feed that has one of
                these names is left out; so is ``sequence``, if it is the order.
            op: the column with the operation, which is left out.
            order: the column that decides among rows of one key and time.
        """

    def time(self, time: Column, result: Collection[str] = ()) -> InputTime:
        """Return the bound of a column of times; ``result`` has the columns of the verb's result.

        Deletes of a verb's change feed that show no time have the time of the change, and so its bound.

        Raises:
            ConfigurationError: there is no such column, or it has no times.
        """

    def operations(self, op: Column | None) -> Column | None:
        """Return the column that says which rows are deletes: the given one, or else that of the change feed.

        Raises:
            ConfigurationError: there is no such column, or it is no text.
        """

    def read(
        self,
        role: str,
        keys: Sequence[str],
        values: Sequence[str],
        time: Column,
        *,
        op: Column | None = None,
        order: Column | Sequence[Column] | None = None,
        foreign: Sequence[str] = (),
        keyed: bool = False,
    ) -> AnyReading:
        """Return the columns that a verb reads.

        Args:
            role: the name of the input.
            keys, values, foreign: the columns that are packed.
            time, op, order: a row's time, its operation, and its order among rows of one key and time.
            keyed: whether rows with a null in their key are left out before.

        Deletes of a verb's change feed that show no time have the time of the change.

        Raises:
            ConfigurationError: a column is missing, or of a type that does not do.
        """

    def aggregated(
        self,
        keys: Sequence[str],
        time: Column,
        calls: Mapping[str, AggregateCall],
        order: Column | None,
        gap: str | None = None,
    ) -> AnyReading:
        """Return the input of an aggregate: its values are the arguments of the calls, by the names of the results.

        If there is a column with the gaps of sessions, it is the last of the values, under some other name.

        Raises:
            ConfigurationError: a column is missing, or of a type that cannot be aggregated, or a condition is not one.
        """

    def regrouped(
        self,
        key: Sequence[str],
        by: Sequence[str],
        time: Column,
        calls: Mapping[str, AggregateCall],
        *,
        op: Column,
        order: Column | None,
    ) -> AnyReading:
        """Return the input of an aggregate over a change feed: keys are those of the feed, ``foreign`` has the groups.

        Args:
            key: the columns by which rows replace each other.
            by: the columns by which rows are grouped.
            time, calls, order: as in ``aggregated``.
            op: the column that says which rows are deletes.

        Raises:
            ConfigurationError: as in ``aggregated``.
        """

    def beside(
        self,
        keys: Sequence[str],
        values: Sequence[str],
        time: Column,
        calls: Mapping[str, AggregateCall],
        order: Column | None,
    ) -> tuple[AnyReading, Mapping[str, str]]:
        """Return the input of a verb that shows rows beside results of calls.

        Returns:
            The columns, among them the arguments of the calls; and the arguments, by the names of results:
            columns of the rows as they are, or else hidden ones (``ARGUMENT``).

        Raises:
            ConfigurationError: a column is missing, or of a type that does not do, or a condition is not one.
        """


class Packing:
    """The packing of rows in new state."""

    def input(
        self,
        rows: Reading,
        null_keys: NullKeys = NullKeys.EQUAL,
        *,
        untimed: bool = False,
        versions: bool = False,
        null_safe: bool = False,
    ) -> PackedRows:
        """Return the packing of an input's rows.

        Args:
            rows: the input.
            null_keys: what happens to rows with a null in their key.
            untimed: whether rows without a time are kept.
            versions: whether a row's time is the time since which it is valid.
            null_safe: whether a null in its foreign key equals another one.

        Raises:
            StateConflictError: the state has rows that cannot be read with these columns.
        """
        return PackedRows(
            rows.role,
            self.keys(rows),
            null_keys,
            RowCodec(self.rows(rows)),
            self.foreign(rows),
            order=self.order(rows),
            in_order=rows.in_order,
            in_turn=rows.in_turn,
            untimed=untimed,
            times=self.times(rows),
            versions=versions,
            null_safe=null_safe,
        )

    def keys(self, rows: Reading) -> KeyCodec:
        """Return the codec of an input's keys."""
        return KeyCodec(packed_key(rows))

    def rows(self, rows: Reading) -> Schemas:
        """Return the schemas that rows of an input may have been packed with."""
        return Schemas.first(rows.schema(rows.values))

    def foreign(self, rows: Reading) -> KeyCodec | None:
        """Return the codec of an input's foreign keys; None if it has none."""
        return KeyCodec(rows.key_schema(rows.foreign)) if rows.foreign else None

    def order(self, rows: Reading) -> KeyCodec | None:
        """Return the codec of the order among rows of one key and time; None if there is none."""
        return KeyCodec(packed_order(rows)) if rows.ordered else None

    def times(self, rows: Reading) -> pa.DataType:
        """Return the type of the times of an input."""
        return rows.times


Begin: TypeAlias = Callable[[str, Sequence[Read]], Packing]
"""Takes the name and the inputs of a verb once they have been checked, and gives how their rows are packed."""


def begun_anew(name: str, inputs: Sequence[Reading]) -> Packing:
    """Return a verb that begins with these inputs."""
    return Packing()


def check_rows_stay(where: str, rows: VerbRows[Column, Read], what: str, time: Column | None = None) -> None:
    """Refuse a change feed, where results or state of a row that goes later could not be put right.

    Args:
        where: begins the message.
        rows: the rows.
        what: the reason why rows have to stay.
        time: the column of times of a verb whose own results are a change feed, which cannot show the columns of
            another one; None for other verbs.

    Raises:
        ConfigurationError: the rows are a change feed.
    """
    op = rows.operations(None)
    if op is not None:
        added: list[Column] = []
        if rows.told is not None and time is not None:
            taken = (op, time)
            changes = rows.told.changes
            added = [rows.column(name) for name in changes if not any(rows.is_column(one, name) for one in taken)]
        raise ChangeFeedError(
            f"{where} {what}, but these are a change feed ({op!r}), whose rows are replaced and deleted; to "
            f"take each of its upserts as a row that stays, write {rows.upserts(op, added)}, or take the rows of which "
            "the feed was made"
        )
