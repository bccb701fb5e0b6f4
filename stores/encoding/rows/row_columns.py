"""Columns of whole rows: Arrow structs that stand for rows as Python objects, or as bytes.

Rule of this module: as long as rows stay columns, no Python object is made of a value. Objects (``to_pylist``) are
those of the serde of the rows: physical values (``millpond.stores.encoding.rows.physical``), or the MessagePack array
of these. The two are types of their own, so that a column tells which it is.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, cast

import msgpack
import pyarrow as pa
import pyarrow.compute as _compute

from millpond.errors import SerdeError
from millpond.stores.encoding.column_serdes import Array, ColumnSerde
from millpond.stores.encoding.nulls import spread
from millpond.stores.encoding.rows.msgpack_columns import FEW, pack_values, packed_rows, unpack_columns
from millpond.stores.encoding.rows.physical import from_physical, null_mask, to_physical

pc: Any = _compute

if TYPE_CHECKING:
    _ExtensionArray = pa.ExtensionArray[Any]
else:
    _ExtensionArray = pa.ExtensionArray


class _PhysicalArray(_ExtensionArray):
    def to_pylist(self, **options: Any) -> list[Any]:
        return to_physical(self.storage)


class _PackedArray(_ExtensionArray):
    def to_pylist(self, **options: Any) -> list[Any]:
        return _packed(self.storage)


class RowType(pa.ExtensionType):
    """The base of row types, which consist of their storage alone.

    Args:
        storage: a struct of the columns, with all types in their one form (``normalized``).
    """

    _name: ClassVar[str]
    _array: ClassVar[type[Any]]

    def __init__(self, storage: pa.DataType) -> None:
        super().__init__(storage, self._name)

    def __hash__(self) -> int:
        return hash((self._name, self.storage_type))

    @classmethod
    def of(cls, structs: Array) -> Array:
        """Return a column of such rows."""
        return pa.ExtensionArray.from_storage(cls(structs.type), structs)

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, serialized: bytes) -> Self:
        kind: Any = cls
        made: Self = _known(kind, storage)
        return made

    def __arrow_ext_class__(self) -> type[Any]:
        return self._array


@lru_cache(maxsize=256)
def _known(kind: Any, storage: pa.DataType) -> Any:
    """Return a type that lasts: Arrow makes a type anew each time, unless somebody holds it."""
    return kind(storage)


class PhysicalRowType(RowType):
    """Rows that are, as objects, lists of physical values.

    >>> PhysicalRowType.of(pa.array([{"id": 7, "name": "Ada"}, None])).to_pylist()
    [[7, 'Ada'], None]
    """

    _name = "millpond.physical-rows"
    _array = _PhysicalArray


class PackedRowType(RowType):
    r"""Rows that are, as objects, the bytes of MessagePack arrays of physical values.

    >>> PackedRowType.of(pa.array([{"id": 7, "name": "Ada"}])).to_pylist()
    [b'\x92\x07\xa3Ada']
    """

    _name = "millpond.packed-rows"
    _array = _PackedArray


_REGISTERED: Final[list[Any]] = [PhysicalRowType(pa.struct([])), PackedRowType(pa.struct([]))]
for _type in _REGISTERED:
    pa.register_extension_type(_type)


class RowColumnSerde(ColumnSerde):
    """The serde of whole columns for a serde of MessagePack arrays of physical values.

    Args:
        storage: the struct of the columns of a row.
    """

    def __init__(self, storage: pa.DataType) -> None:
        super().__init__(PhysicalRowType(storage), lambda type_: False)
        self._storage = storage

    def own(self, column: Array) -> Array:
        return column

    def _write(self, column: Array) -> Array:
        structs = column.storage
        if len(structs) < FEW:
            return pa.array(_packed(structs), pa.binary())
        fields = [pack_values(structs.field(place)) for place in range(structs.type.num_fields)]
        rows = packed_rows(fields, len(structs))
        return pc.if_else(structs.is_valid(), rows, None) if structs.null_count else rows

    def read(self, data: Array) -> Array:
        if isinstance(data.type, PackedRowType):
            if data.type.storage_type != self._storage:
                raise pa.ArrowInvalid(f"rows of {data.type.storage_type} are not rows of {self._storage}")
            return PhysicalRowType.of(data.storage)
        return super().read(data)

    def _read(self, data: Array) -> Array:
        try:
            return PhysicalRowType.of(self._structs(data))
        except (ValueError, TypeError, msgpack.UnpackException, SerdeError) as error:
            raise pa.ArrowInvalid(f"not all of the rows are {self._storage}: {error}") from error

    def _structs(self, data: Array) -> Array:
        if len(data) >= FEW:
            try:
                return self._of_columns(data)
            except pa.ArrowInvalid:
                pass  # Reading row by row finds the fault.
        values = [None if row is None else self._values(row) for row in data.to_pylist()]
        return from_physical(values, self._storage)

    def _of_columns(self, data: Array) -> Array:
        present, fields = data.drop_null(), list(cast(pa.StructType, self._storage))
        structs = pa.StructArray.from_arrays(self._fields(present, [field.type for field in fields]), fields=fields)
        return spread(structs, ~null_mask(data))

    def _values(self, row: bytes) -> Any:
        """Return the physical values of a row."""
        return msgpack.unpackb(row)

    def _fields(self, rows: Array, types: Sequence[pa.DataType]) -> list[Array]:
        """Return the columns of rows, of these types."""
        return unpack_columns(rows, types)


def _packed(structs: Array) -> list[Any]:
    pack = msgpack.Packer().pack
    return [None if row is None else pack(row) for row in to_physical(structs)]
