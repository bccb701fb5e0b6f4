"""Packed rows: a row of columns as one MessagePack array.

Rule of this module: bytes of rows are written and read here and nowhere else. A row is::

    [number of its schema, value 1, value 2, ...]

with the physical values (``millpond.stores.encoding.rows.physical``) of the columns of that schema, in its order. Names
are not repeated in rows, so the schemas must be kept beside them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from operator import itemgetter
from typing import Any, Final, TypeAlias, cast

import msgpack
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.errors import SerdeError, UnreadableRowError
from millpond.stores.encoding.nulls import spread
from millpond.stores.encoding.rows.agreed import agreed_columns, naming
from millpond.stores.encoding.rows.msgpack_columns import FEW, first_integers, pack_values, packed_rows, unpack_columns
from millpond.stores.encoding.rows.nested import Column, Columns, struct_of
from millpond.stores.encoding.rows.physical import around, from_physical, null_mask, to_physical
from millpond.stores.encoding.rows.schemas import Schemas


def convert(structs: Any, old: Columns, new: Columns) -> Any:
    """Return rows of the columns ``old``, an array of structs, as rows of the columns ``new``, matched by ids.

    Raises:
        SerdeError: a value does not fit into the type to which its column was widened.
    """
    if old == new:
        return structs
    return pa.StructArray.from_buffers(
        struct_of(new), len(structs), structs.buffers()[:1], children=_fields(structs, old, new)
    )


def _fields(structs: Any, old: Sequence[Column], new: Sequence[Column]) -> list[Any]:
    places = {column.id: place for place, column in enumerate(old)}
    return [
        _column(structs.field(places[column.id]), old[places[column.id]], column)
        if column.id in places
        else pa.nulls(len(structs), column.field.type)
        for column in new
    ]


def _column(array: Any, old: Column, new: Column) -> Any:
    if old == new:
        return array
    if pa.types.is_struct(array.type):
        return convert(array, old.children, new.children)
    if not new.children:
        return _widened(array, new)
    if pa.types.is_map(array.type):
        entry = convert(array.values, old.children, new.children)
    else:
        entry = _column(array.values, old.children[0], new.children[0])
    return around(entry, new.field.type, len(array), array.buffers()[:2])


def _widened(array: Any, new: Column) -> Any:
    try:
        return array.cast(new.field.type)
    except pa.ArrowInvalid as error:
        raise SerdeError(f"column {new.field.name!r}: {error}") from error


_SHOWN: Final = 40
_NUMBER: Final = pa.field("number of the schema", pa.int32())
_UNREADABLE: Final = (ValueError, TypeError, LookupError, OverflowError, msgpack.UnpackException)

_unpack = partial(msgpack.unpackb, use_list=False, strict_map_key=False)


@dataclass(frozen=True)
class RowCodec:
    r"""The codec of rows, which packs rows of the current schema, and reads rows of all schemas as rows of that one.

    Attributes:
        schemas: the history.

    >>> codec = RowCodec(Schemas.first(pa.schema([("id", pa.int64()), ("name", pa.string())])))
    >>> codec.pack(pa.table({"id": [7], "name": ["Ada"]}))
    [b'\x93\x01\x07\xa3Ada']
    >>> codec.unpack([b"\x93\x01\x07\xa3Ada", None]).to_pylist()
    [{'id': 7, 'name': 'Ada'}, {'id': None, 'name': None}]
    """

    schemas: Schemas

    def pack(self, rows: "pa.Table | pa.StructArray") -> list[bytes]:
        """Return the result of ``pack_columns`` as a list."""
        packed: list[bytes] = self.pack_columns(rows).to_pylist()
        return packed

    def pack_columns(self, rows: "pa.Table | pa.StructArray") -> Any:
        """Return the bytes of each row, a binary column.

        Args:
            rows: columns of the current schema, in its order; types may be of another form (``normalized``).

        Raises:
            ConfigurationError: names or types are not those of the current schema.
            RecordError: a null in a column that is NOT NULL, or a value that cannot be held.
        """
        schema, number, size = self.schemas.current, self.schemas.number, len(rows)
        made = to_physical if size < FEW else _packed_values
        values = []
        for name, column in zip(schema.names, agreed_columns(rows, schema), strict=True):
            with naming(name):
                values.append(made(column))
        if size >= FEW:
            return packed_rows(values, size, number)
        pack = msgpack.Packer().pack
        return pa.array(list(map(pack, zip(repeat(number, size), *values, strict=True))), pa.binary())

    def unpack(self, rows: "Sequence[bytes | None] | pa.BinaryArray") -> pa.Table:
        """Return the rows as columns of the current schema.

        Args:
            rows: rows from ``pack`` or ``pack_columns``, of any schema of the history; None becomes a row of nulls, and
                then all columns of the result are nullable.

        Raises:
            UnreadableRowError: a row has the number of a schema that is not in the history, or is damaged.
        """
        data: Any = rows if isinstance(rows, pa.Array) else pa.array(rows, pa.binary())
        try:
            structs = self._structs(data.drop_null())
        except SerdeError:
            self._refuse(data.to_pylist())
            raise
        if data.null_count:
            fields = pa.struct([field.with_nullable(True) for field in structs.type])
            structs = _struct_array(spread(structs, ~null_mask(data)).flatten(), fields, len(data))
        return _table(structs)

    def _structs(self, rows: Any) -> Any:
        """Return ``rows``, a binary column without nulls, as structs of the current columns."""
        if len(rows) >= FEW:
            try:
                return self._of_versions(rows, first_integers(rows), _column_fields)
            except pa.ArrowInvalid:
                pass  # Reading row by row finds the fault.
        values, numbers = _decoded(rows.to_pylist())
        return self._of_versions(values, np.array(numbers, object), _value_fields)

    def _of_versions(self, rows: Any, numbers: npt.NDArray[Any], read: "_Reading") -> Any:
        """Return rows, which begin with the numbers of their schemas, as structs of the current columns."""
        if (numbers == self.schemas.number).all():
            return self._of_version(rows, self.schemas.number, read)
        parts, places = [], []
        for number in set(numbers.tolist()):
            places.append(np.flatnonzero(numbers == number))
            parts.append(self._of_version(_taken(rows, places[-1]), number, read))
        order: Any = pa.array(np.argsort(np.concatenate(places)))
        return pa.concat_arrays(parts).take(order)

    def _of_version(self, rows: Any, number: int, read: "_Reading") -> Any:
        """Return rows of the schema of that number as structs of the current columns."""
        versions = self.schemas.versions
        if not 1 <= number <= len(versions):
            raise UnreadableRowError(f"it is of schema {number}, but the newest one known here is {len(versions)}")
        columns = versions[number - 1]
        fields = read(rows, [_NUMBER, *(column.field for column in columns)])
        return convert(_struct_array(fields[1:], struct_of(columns), len(rows)), columns, versions[-1])

    def _refuse(self, rows: Sequence[bytes | None]) -> None:
        """Raise the error of the first row that cannot be read, with its position and bytes."""
        for position, row in enumerate(rows):
            try:
                self._structs(pa.array([] if row is None else [row], pa.binary()))
            except SerdeError as error:
                raise UnreadableRowError(f"row {position} of {len(rows)} ({_shown(row)}): {error}") from error


def _decoded(rows: Sequence[bytes]) -> tuple[list[Any], list[int]]:
    """Return the arrays, and the numbers of their schemas."""
    try:
        values = list(map(_unpack, rows))
        if not set(map(type, values)) <= {tuple}:
            raise ValueError("it is no array")
        numbers = list(map(itemgetter(0), values))
        if not set(map(type, numbers)) <= {int}:
            raise ValueError("it does not begin with the number of a schema")
    except _UNREADABLE as error:
        raise UnreadableRowError(f"this is not a packed row: {error or type(error).__name__}") from error
    return values, numbers


_Reading: TypeAlias = Callable[[Any, Sequence[Any]], list[Any]]
"""A function that reads rows as columns of these fields."""


def _column_fields(rows: Any, fields: Sequence[Any]) -> list[Any]:
    return unpack_columns(rows, [field.type for field in fields])


def _value_fields(values: Any, fields: Sequence[Any]) -> list[Any]:
    structs: Any = from_physical(values, pa.struct(list(fields)))
    return [structs.field(place) for place in range(len(fields))]


def _taken(rows: Any, places: npt.NDArray[np.intp]) -> Any:
    if isinstance(rows, pa.Array):
        return rows.take(cast(Any, pa.array(places)))
    return [rows[place] for place in places]


def _packed_values(column: Any) -> Any:
    return pack_values(column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column)


def _struct_array(fields: Sequence[Any], type_: Any, length: int) -> Any:
    return pa.Array.from_buffers(type_, length, [None], children=fields)


def _table(structs: Any) -> pa.Table:
    table: pa.Table = pa.Table.from_batches([pa.RecordBatch.from_struct_array(structs)])
    return table


def _shown(row: bytes | None) -> str:
    return "" if row is None else row[:_SHOWN].hex() + ("..." if len(row) > _SHOWN else "")
