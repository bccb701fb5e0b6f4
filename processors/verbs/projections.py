"""The parts of results: keys, rows of either side, and the columns that tell the changes of a change feed apart.

Rule of this module: a part looks at records only through its codec; the topology decides which records there are.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as _compute

from millpond.processors.runtime.batches.batch import Batch
from millpond.processors.runtime.batches.columns import Columns, nulls
from millpond.processors.verbs.encoding.foreign_keyed import without_foreign_keys
from millpond.processors.verbs.encoding.null_keys import NullKeys
from millpond.processors.verbs.verb import Input, Projection, chosen, nullable, widest
from millpond.stores.encoding.rows.packing import RowCodec
from millpond.stores.encoding.rows.row_columns import PhysicalRowType
from millpond.stores.encoding.rows.tuple_keys import KeyCodec

pc: Any = _compute

OP: Final = "op"
SEQUENCE: Final = "sequence"
CHANGE_TIME: Final = "change_time"
CHANGE_COLUMNS: Final = (OP, SEQUENCE, CHANGE_TIME)
"""The columns that a change feed has besides those of its rows."""


@dataclass(frozen=True)
class Keys(Projection):
    """The columns of the key, from its bytes, so that a delete has them too.

    Attributes:
        codec: reads keys.
        null_keys: the treatment of keys that have a null.
        topics: the topics of rows that keys may belong to.
    """

    codec: KeyCodec
    null_keys: NullKeys = NullKeys.EQUAL
    topics: Sequence[str] = ()

    @classmethod
    def of_rows(cls, *inputs: Input) -> "Keys":
        """Return the keys of the rows of these inputs, which are packed in the same way."""
        first, *others = inputs
        schema = reduce(widest, (one.keys.schema for one in others), first.keys.schema)
        return cls(KeyCodec(schema), first.null_keys, [one.topic for one in inputs])

    @property
    def schema(self) -> pa.Schema:
        return self.codec.schema if len(self.topics) < 2 else nullable(self.codec.schema)

    @property
    def identity(self) -> Sequence[str]:
        return self.codec.schema.names

    def columns(self, batch: Batch, first: int) -> list[Any]:
        return self._unpacked(batch.keys)

    def of_columns(self, columns: Columns, first: int) -> list[Any]:
        return self._unpacked(columns.keys)

    def _unpacked(self, keys: Any) -> list[Any]:
        return list(self.null_keys.unpack(self.codec, keys, self.topics).columns)


@dataclass(frozen=True)
class Rows(Projection):
    """Columns of rows that are the records' values; nulls where a value is None.

    Attributes:
        codec: reads the rows.
        names: the columns of them.
        foreign: whether a foreign key is in front of them.
    """

    codec: RowCodec
    names: Sequence[str]
    foreign: bool = False

    @property
    def schema(self) -> pa.Schema:
        return nullable(chosen(self.codec.schemas.current, self.names))

    def columns(self, batch: Batch, first: int) -> list[Any]:
        return self._columns(batch.values)

    def of_columns(self, columns: Columns, first: int) -> list[Any]:
        return self._columns(columns.values)

    def _columns(self, packed: Any) -> list[Any]:
        rows = self.codec.unpack(_rows(packed, self.foreign))
        return [rows.column(name) for name in self.names]


@dataclass(frozen=True)
class JoinedRows(Projection):
    """Columns of the left rows, then columns of the right rows; the values are pairs, structs of both, or None.

    Attributes:
        left, right: read the rows.
        left_names, right_names: the columns of them.
        shared: by the left name, the right column that fills a column of the left where there is no left row.
        default: by the right name, the value of a right column where there is no right row; null otherwise.
        foreign: whether a foreign key is in front of the left rows.
    """

    left: RowCodec
    right: RowCodec
    left_names: Sequence[str]
    right_names: Sequence[str]
    shared: Mapping[str, str] = field(default_factory=dict)
    default: Mapping[str, Any] = field(default_factory=dict)
    foreign: bool = False

    @property
    def schema(self) -> pa.Schema:
        right = self.right.schemas.current
        left = chosen(self.left.schemas.current, self.left_names)
        filling = [right.field(self.shared[one.name]) if one.name in self.shared else one for one in left]
        return nullable(pa.schema([*widest(left, pa.schema(filling)), *chosen(right, self.right_names)]))

    def columns(self, batch: Batch, first: int) -> list[Any]:
        pairs = list(map(_as_pair, batch.values))
        right = [row for _, row in pairs]
        matched = pa.array([row is not None for row in right], pa.bool_())
        return self._columns([row for row, _ in pairs], self.right.unpack(right), matched)

    def of_columns(self, columns: Columns, first: int) -> list[Any]:
        values = columns.values
        return self.of_pairs(values.storage if isinstance(values.type, PhysicalRowType) else values)

    def of_pairs(self, values: Any) -> list[Any]:
        """Return the columns for pairs of rows, structs of both."""
        left, right = values.flatten()
        # A right row is in many results, and read once.
        encoded = right.dictionary_encode()
        rows = self.right.unpack(pa.concat_arrays([encoded.dictionary, nulls(1, encoded.dictionary.type)]))
        found = rows.take(encoded.indices.fill_null(len(encoded.dictionary)))
        return self._columns(left, found, right.is_valid())

    def _columns(self, packed: Any, right: pa.Table, matched: Any) -> list[Any]:
        left = self.left.unpack(_rows(packed, self.foreign))
        columns = [
            pc.coalesce(left[name], right[self.shared[name]]) if name in self.shared else left[name]
            for name in self.left_names
        ]
        return columns + [
            pc.if_else(matched, right[name], self.default[name]) if name in self.default else right[name]
            for name in self.right_names
        ]


@dataclass(frozen=True)
class RowsOfSides(Projection):
    """Columns of the rows of many sides, one after the other; the values are structs of a row of each side, or None.

    Attributes:
        sides: for each, the reader of its rows, and the columns of them.
    """

    sides: Sequence[tuple[RowCodec, Sequence[str]]]

    @property
    def schema(self) -> pa.Schema:
        return nullable(pa.schema([one for codec, names in self.sides for one in chosen(codec.schemas.current, names)]))

    def columns(self, batch: Batch, first: int) -> list[Any]:
        nothing = dict.fromkeys(map(str, range(len(self.sides))))
        rows = [list((nothing if value is None else value).values()) for value in batch.values]
        return self._columns([[row[place] for row in rows] for place in range(len(self.sides))])

    def of_columns(self, columns: Columns, first: int) -> list[Any]:
        return self._columns(columns.values.flatten())

    def _columns(self, packed: Sequence[Any]) -> list[Any]:
        read = ((codec.unpack(rows), names) for (codec, names), rows in zip(self.sides, packed, strict=True))
        return [rows.column(name) for rows, names in read for name in names]


@dataclass(frozen=True)
class ChangeColumns(Projection):
    """The columns that tell the changes of a change feed apart: operation, order, and time.

    Attributes:
        times: the type of the times.
    """

    times: pa.DataType

    @property
    def schema(self) -> pa.Schema:
        types: list[tuple[str, pa.DataType]] = [(OP, pa.string()), (SEQUENCE, pa.int64()), (CHANGE_TIME, self.times)]
        return pa.schema(types)

    def columns(self, batch: Batch, first: int) -> list[Any]:
        return [
            pa.array(["delete" if value is None else "upsert" for value in batch.values], pa.string()),
            pa.array(range(first, first + len(batch)), pa.int64()),
            in_micros(batch.timestamps, self.times),
        ]

    def of_columns(self, columns: Columns, first: int) -> list[Any]:
        return [
            pc.if_else(columns.values.is_null(), "delete", "upsert"),
            pa.array(np.arange(first, first + len(columns))),
            in_micros(columns.timestamps, self.times),
        ]


@dataclass(frozen=True)
class Times(Projection):
    """The records' times.

    Attributes:
        name: the column.
        type: its type.
    """

    name: str
    type: pa.DataType

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([(self.name, self.type)])

    def columns(self, batch: Batch, first: int) -> list[Any]:
        return [in_micros(batch.timestamps, self.type)]


def in_micros(times: Any, type_: pa.DataType) -> Any:
    """Return integers, which are microseconds, as times of a type."""
    return pa.array(times, pa.int64()).cast(type_)


def _rows(values: Any, foreign: bool) -> Any:
    """Return the packed rows, a list or a column, without the foreign key in front of them if there is one."""
    if not foreign:
        return values
    return without_foreign_keys(values if isinstance(values, pa.Array) else pa.array(values, pa.binary()))


def _as_pair(value: Any) -> Any:
    """Return both rows of a result; a struct is a dict where it is an object, and a row of a store a list."""
    if value is None:
        return _NOTHING
    return tuple(value.values()) if isinstance(value, dict) else value


_NOTHING: Final[tuple[None, None]] = (None, None)


def pairs(left: Any, right: Any) -> Any:
    """Return structs of columns of rows of both sides, as a join makes them."""
    sides = [column.cast(pa.binary()) for column in (left, right)]
    return pa.StructArray.from_arrays(sides, ["left", "right"])
