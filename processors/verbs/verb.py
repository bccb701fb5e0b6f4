"""``Verb``: a topology on packed rows, with how rows become its records, and its records rows.

Rule of this module: no Python object is made of a column's value. Keys and values are bytes, or columns that stand for
them, from the moment a row is read until the result's columns are made. All times are integers in *microseconds* since
1970, which is what Spark's timestamps have: for a topology, times are just numbers.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as _compute

from millpond.processors.options.grouping import GroupingSets
from millpond.processors.runtime.batches.batch import Batch
from millpond.processors.runtime.batches.columns import Columns, Records
from millpond.processors.runtime.topology import Topology
from millpond.processors.tables.sorted_versions import ViewAt
from millpond.processors.verbs.change_feed import Change
from millpond.processors.verbs.encoding.foreign_keyed import with_foreign_keys, without_foreign_key
from millpond.processors.verbs.encoding.null_keys import NullKeys
from millpond.processors.verbs.encoding.ordered_rows import with_order
from millpond.processors.verbs.matching.matching import Matching
from millpond.stores.encoding.nulls import spread
from millpond.stores.encoding.rows.packing import RowCodec
from millpond.stores.encoding.rows.tuple_keys import KeyCodec
from millpond.stores.encoding.times import MAX_TIME, TimeUnit
from millpond.stores.typed.terms import Term, Written

pc: Any = _compute

MICROS: Final = 1_000
"""Microseconds in the millisecond, which is the unit of integers that a user gives as a duration."""

INSTANT: Final[pa.DataType] = pa.timestamp("us", "UTC")
"""The type of times that are points in time."""

WALL_TIME: Final[pa.DataType] = pa.timestamp("us")
"""The type of times without a time zone: dates, and what a clock on the wall shows."""

_DAY: Final = 86_400_000_000
"""Microseconds in a day."""

_DAYS: Final = MAX_TIME // _DAY
"""The greatest distance in days from 1970 of a time in microseconds."""

_TOGETHER: Final = 1 << 20
"""About so many rows are spread at once."""


@dataclass(frozen=True)
class Input(ABC):
    """The conversion of one input's rows to records. Travels to the workers.

    Rows come as the columns ``key``, ``value`` and, if there is one, ``foreign`` (structs), ``timestamp`` (int64,
    microseconds) and, for a change feed, ``op`` (string).

    Attributes:
        topic: the topic of the topology.
        keys: packs keys.
        null_keys: the treatment of rows with a null in their key.
        order: packs the column ``order`` (a struct), which decides among rows of one key and time; None if
            there is none, and their values decide.
        in_order: whether rows of one key and time go by the column ``place`` (int64) or, where there is none, come in
            the order in which they count, as in a change feed that a verb has made.
        in_turn: whether each row of a key replaces the one before it in that order, whatever their times, as changes
            of a table do that a verb has told of.
        untimed: whether rows without a time, whose ``timestamp`` is null, are kept: they meet nothing, and come out at
            once. Otherwise they are unusable.
        times: the type of the times as results show them, ``INSTANT`` or ``WALL_TIME``.
        versions: whether a row's time is the time since which it is valid; then some may never be valid.
        most: by column of ``value`` (int64, microseconds), the longest length of time with which a row is usable.
        gap: the column of ``value`` (int64, microseconds) with the gaps of sessions: a row in which it is null, zero or
            negative is in none, and left out; None if rows have no gaps of their own.
        grouping: the sets of columns for each of which a row has a key; None if it has one key.
    """

    topic: str
    keys: KeyCodec
    null_keys: NullKeys
    order: KeyCodec | None = field(default=None, kw_only=True)
    in_order: bool = field(default=False, kw_only=True)
    in_turn: bool = field(default=False, kw_only=True)
    untimed: bool = field(default=False, kw_only=True)
    times: pa.DataType = field(default=INSTANT, kw_only=True)
    versions: bool = field(default=False, kw_only=True)
    most: Mapping[str, int] = field(default_factory=dict, kw_only=True)
    gap: str | None = field(default=None, kw_only=True)
    grouping: GroupingSets | None = field(default=None, kw_only=True)

    @property
    def copies(self) -> int:
        """The number of keys of each row."""
        return 1 if self.grouping is None else len(self.grouping.sets)

    def spread(self, rows: pa.Table) -> Iterator[pa.Table]:
        """Yield rows as often as they have keys: all of some of them for one key, then for the next.

        Args:
            rows: their column ``key`` has the columns of rows; in the result it has those of ``keys``.
        """
        if self.grouping is None:
            yield rows
            return
        some, place = max(1, _TOGETHER // self.copies), rows.column_names.index("key")
        for first in range(0, rows.num_rows, some):
            part = rows.slice(first, some)
            keys = self.grouping.keys(flattened(part["key"]))
            yield pa.concat_tables([part.set_column(place, "key", key) for key in keys])

    def keys_of(self, rows: pa.Table) -> Any:
        """Return the packed keys, a binary column."""
        return self.null_keys.pack(self.keys, flattened(rows["key"]), self.topic, rows["timestamp"])

    def values_of(self, rows: pa.Table, changes: Sequence[Change | None] | None = None) -> Any:
        """Return the packed values, an Arrow array; null for a delete, whose columns may be anything."""
        if changes is None or Change.DELETE not in changes:
            return self.packed(rows)
        kept = np.array([change is not Change.DELETE for change in changes], np.bool_)
        mask: Any = pa.array(kept)
        return spread(self.packed(rows.filter(mask)), kept)

    def key_columns(self, keys: Sequence[bytes]) -> pa.Table:
        """Return the columns of keys that ``keys_of`` has made.

        Raises:
            SerdeError: bytes that it has not made.
        """
        return self.null_keys.unpack(self.keys, keys, [self.topic])

    @abstractmethod
    def columns_of(self, values: Sequence[Any]) -> pa.Table:
        """Return the columns of rows from their values as operators see them, after their orders were taken away.

        Raises:
            SerdeError: a value is no row of this input.
        """

    @abstractmethod
    def packed(self, rows: pa.Table) -> Any:
        """Return each row's packed value, an Arrow array of bytes, or of a type that becomes such bytes as objects."""


@dataclass(frozen=True)
class PackedRows(Input):
    """Rows that are kept or passed on as they are.

    Attributes:
        rows: packs them.
        foreign: packs the foreign key in front of each; None if there is none.
        null_safe: whether a null in the foreign key equals another one; otherwise such a row has none.
    """

    rows: RowCodec
    foreign: KeyCodec | None = None
    null_safe: bool = field(default=False, kw_only=True)

    def values_of(self, rows: pa.Table, changes: Sequence[Change | None] | None = None) -> Any:
        values = super().values_of(rows, changes)
        if self.order is None:
            return values
        return pa.array(with_order(self.order.pack(flattened(rows["order"])), values.to_pylist()), pa.binary())

    def columns_of(self, values: Sequence[Any]) -> pa.Table:
        return self.rows.unpack(values if self.foreign is None else list(map(without_foreign_key, values)))

    def packed(self, rows: pa.Table) -> Any:
        columns = flattened(rows["value"])
        if not self.rows.schemas.current.names:
            # Rows without columns come with one, as a struct without fields has no form on the way.
            columns = columns.select([])
        values = self.rows.pack_columns(columns)
        if self.foreign is None:
            return values
        foreign = flattened(rows["foreign"])
        return with_foreign_keys(self.foreign, foreign, values, null_safe=self.null_safe)


def flattened(column: Any) -> pa.Table:
    """Return the fields of a struct column as a table's columns."""
    whole: Any = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    names = [field.name for field in whole.type]
    return pa.Table.from_arrays(whole.flatten(), schema=pa.schema(list(whole.type))) if names else pa.table({})


def struct_of(columns: Mapping[str, Any], size: int) -> Any:
    """Return columns as one struct column of that size; one without fields has something in their place."""
    if not columns:
        columns = {"present": pa.array(np.ones(size, np.bool_))}
    return pa.StructArray.from_arrays(list(columns.values()), names=list(columns))


def microseconds(times: Any) -> Any:
    """Return times, or dates, in microseconds since 1970; dates beyond these are the first or the last such date."""
    if not pa.types.is_date(times.type):
        return times.cast(pa.int64())
    days = times.cast(pa.int32()).cast(pa.int64())
    within = pc.max_element_wise(pc.min_element_wise(days, _DAYS, skip_nulls=False), -_DAYS, skip_nulls=False)
    return pc.multiply(within, _DAY)


class Projection(ABC):
    """Some columns of a verb's result. Travels to the workers."""

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The columns."""

    @property
    def identity(self) -> Sequence[str]:
        """The columns among them by which rows of a change feed replace each other; by default none."""
        return ()

    @abstractmethod
    def columns(self, batch: Batch, first: int) -> list[Any]:
        """Return the columns for the records of a batch, the first of which has that ``sequence``."""

    def of_columns(self, columns: Columns, first: int) -> list[Any]:
        """Return ``columns`` of records that are columns themselves.

        By default they become Python objects first. An override is for parts that need none.
        """
        return self.columns(columns.to_batch(), first)

    def of(self, records: Records, first: int) -> list[Any]:
        """Return the columns for records in either form."""
        return self.of_columns(records, first) if isinstance(records, Columns) else self.columns(records, first)


@dataclass(frozen=True)
class Verb:
    """A verb, ready to be run by a driver. Travels to the workers.

    Attributes:
        topology: the topology; its only sink is called ``name``.
        inputs: the inputs, by topic.
        parts: the result's columns, from left to right.
        stores: by name, the columns of the stores that show the verb's state.
        follows_time: whether results, or late rows, depend on how far its inputs have come in time.
        terms: the parameters on which the rows of all its stores depend, by name, as a user writes them.
        matching: the rules by which a join matches rows; None for others.
        tables: the tables of others that it looks up, by name.
    """

    topology: Topology
    inputs: Mapping[str, Input]
    parts: Sequence[Projection]
    stores: Mapping[str, Sequence[Projection]] = field(default_factory=dict)
    follows_time: bool = True
    terms: Mapping[str, Term] = field(default_factory=dict)
    matching: Matching | None = None
    tables: Mapping[str, ViewAt] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "topology", self.topology.of_verb(self.name, self.terms, TimeUnit.MICROSECOND))

    @property
    def name(self) -> str:
        """The name of the verb and of its sink."""
        return next(iter(self.topology.sinks))

    @property
    def schema(self) -> pa.Schema:
        """The result's columns."""
        return schema_of(self.parts)


def null_safety(null_safe: bool) -> dict[str, Written]:
    """Return the terms of a verb whose rows depend on whether null keys are equal."""
    return {"null_safe": Written(null_safe)}


def schema_of(parts: Sequence[Projection]) -> pa.Schema:
    """Return the columns of all parts."""
    return pa.schema([column for part in parts for column in part.schema])


def nullable(schema: pa.Schema) -> pa.Schema:
    """Return the same columns, where each can be null."""
    return pa.schema([field.with_nullable(True) for field in schema])


def widest(keys: pa.Schema, others: pa.Schema) -> pa.Schema:
    """Return the columns of keys, with integers wide enough for those of other keys, as many and packed alike."""
    return pa.schema([_wider(one, other.type) for one, other in zip(keys, others, strict=True)])


def _wider(field: Any, type_: Any) -> Any:
    wider = pa.types.is_integer(type_) and type_.bit_width > field.type.bit_width
    return field.with_type(type_) if wider else field


def chosen(schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
    """Return some of the columns."""
    return pa.schema([schema.field(name) for name in names])
