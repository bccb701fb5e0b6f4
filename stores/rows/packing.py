"""Packed rows: a row of columns as one MessagePack array.

Rule of this module: bytes of rows are written and read here and nowhere else. A row is::

    [number of its schema, value 1, value 2, ...]

with the physical values (``millpond.stores.rows.physical``) of the columns of that schema, in its order. Names are not
repeated in rows, so the schemas must be kept beside them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from operator import itemgetter
from typing import Any, Final

import msgpack
import numpy as np
import pyarrow as pa

from millpond.errors import SerdeError
from millpond.stores.rows.agreed import agreed_columns, naming
from millpond.stores.rows.columns import struct_of
from millpond.stores.rows.conversion import convert
from millpond.stores.rows.physical import from_physical, to_physical
from millpond.stores.rows.schemas import Schemas

_SHOWN: Final = 40
_NUMBER: Final = pa.field("number of the schema", pa.int32())
_UNREADABLE: Final = (ValueError, TypeError, LookupError, OverflowError, msgpack.UnpackException)

_unpack = partial(msgpack.unpackb, use_list=False, strict_map_key=False)


@dataclass(frozen=True)
class RowCodec:
    r"""Packs rows of the current schema, and reads rows of every schema of the history as rows of the current one.

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
        """The bytes of each row.

        Args:
            rows: columns of the current schema, in its order; types may be of another form (``normalized``).

        Raises:
            ConfigurationError: names or types are not those of the current schema.
            RecordError: a null in a column that is NOT NULL, or a value that cannot be held.
        """
        schema = self.schemas.current
        values = []
        for name, column in zip(schema.names, agreed_columns(rows, schema), strict=True):
            with naming(name):
                values.append(to_physical(column))
        pack = msgpack.Packer().pack
        return list(map(pack, zip(repeat(self.schemas.number, len(rows)), *values, strict=True)))

    def unpack(self, rows: Sequence[bytes | None]) -> pa.Table:
        """The rows as columns of the current schema.

        Args:
            rows: what ``pack`` returned, with any schema of the history; None becomes a row of nulls, and then all
                columns of the result are nullable.

        Raises:
            SerdeError: a row has the number of a schema that is not in the history, or is damaged.
        """
        present = [row for row in rows if row is not None]
        try:
            structs = self._structs(present)
        except SerdeError:
            self._refuse(rows)
            raise
        if len(present) < len(rows):
            structs = _spread(structs, rows)
        return _table(structs)

    def _structs(self, rows: Sequence[bytes]) -> Any:
        """``rows`` as structs of the current columns."""
        values, numbers = _decoded(rows)
        if set(numbers) <= {self.schemas.number}:
            return self._of_version(values, self.schemas.number)
        parts, places = [], []
        for number in set(numbers):
            places.append([place for place, found in enumerate(numbers) if found == number])
            parts.append(self._of_version([values[place] for place in places[-1]], number))
        order = np.argsort(np.concatenate(places))
        return pa.concat_arrays(parts).take(pa.array(order))

    def _of_version(self, values: list[Any], number: int) -> Any:
        """``values`` of the schema of that number as structs of the current columns."""
        versions = self.schemas.versions
        if not 1 <= number <= len(versions):
            raise SerdeError(f"it is of schema {number}, but the newest one known here is {len(versions)}")
        columns = versions[number - 1]
        numbered: Any = from_physical(values, pa.struct([_NUMBER, *(column.field for column in columns)]))
        fields = [numbered.field(place + 1) for place in range(len(columns))]
        structs = _struct_array(fields, struct_of(columns), len(values))
        return convert(structs, columns, versions[-1])

    def _refuse(self, rows: Sequence[bytes | None]) -> None:
        """Raise the error of the first row that cannot be read, with its position and bytes."""
        for position, row in enumerate(rows):
            try:
                self._structs([] if row is None else [row])
            except SerdeError as error:
                raise SerdeError(f"row {position} of {len(rows)} ({_shown(row)}): {error}") from error


def _decoded(rows: Sequence[bytes]) -> tuple[list[Any], list[int]]:
    """The arrays, and the numbers of their schemas."""
    try:
        values = list(map(_unpack, rows))
        if not set(map(type, values)) <= {tuple}:
            raise ValueError("it is no array")
        numbers = list(map(itemgetter(0), values))
        if not set(map(type, numbers)) <= {int}:
            raise ValueError("it does not begin with the number of a schema")
    except _UNREADABLE as error:
        raise SerdeError(f"this is not a packed row: {error or type(error).__name__}") from error
    return values, numbers


def _spread(structs: Any, rows: Sequence[bytes | None]) -> Any:
    """``structs`` with nulls in all fields where a row is None."""
    present = np.fromiter((row is not None for row in rows), np.bool_, len(rows))
    spread = structs.take(pa.array(np.cumsum(present) - 1, mask=~present))
    fields = pa.struct([field.with_nullable(True) for field in structs.type])
    return _struct_array(spread.flatten(), fields, len(rows))


def _struct_array(fields: Sequence[Any], type_: Any, length: int) -> Any:
    return pa.Array.from_buffers(type_, length, [None], children=fields)


def _table(structs: Any) -> pa.Table:
    table: pa.Table = pa.Table.from_batches([pa.RecordBatch.from_struct_array(structs)])
    return table


def _shown(row: bytes | None) -> str:
    return "" if row is None else row[:_SHOWN].hex() + ("..." if len(row) > _SHOWN else "")
