"""Whole Arrow columns as bytes and back, for the serdes whose values Arrow has, too.

Rule of this module: the bytes are those that the serde itself writes, value by value, and no Python object is made of
any of them. Null stays null.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final, TypeVar

import pyarrow as pa
import pyarrow.compute as _compute

from millpond.stores.encoding.serdes import BYTES, FLOAT64, INT64, STRING, Serde, StructSerde
from millpond.stores.encoding.struct_columns import in_order, pack_structs, struct_type, unpack_structs
from millpond.stores.encoding.struct_serde import StructLayout

pc: Any = _compute
T = TypeVar("T")
Array = Any
"""An Arrow array."""

_NUMBER_SIZE: Final = 8


class ColumnSerde(ABC):
    """The conversion of columns of one type to columns of bytes and back.

    Args:
        type_: the type of the columns that it reads.
        narrower: returns whether it can also write a type, because each value of that is one of ``type_``.
    """

    def __init__(self, type_: pa.DataType, narrower: Callable[[pa.DataType], bool]) -> None:
        self.type = type_
        self._narrower = narrower

    def takes(self, type_: pa.DataType) -> bool:
        """Return whether it can write columns of that type."""
        return bool(type_ == self.type or self._narrower(type_))

    def write(self, column: Array) -> Array:
        """Return the bytes of each value, of a type that it takes."""
        return self._write(self.own(column))

    def own(self, column: Array) -> Array:
        """Return the same values, of a type that it takes, in its own type."""
        return column.cast(self.type)

    @abstractmethod
    def _write(self, column: Array) -> Array:
        """Return the bytes of each value, of its own type."""

    def read(self, data: Array) -> Array:
        """Return the values whose bytes these are.

        Raises:
            pyarrow.ArrowInvalid: some are not bytes that ``write`` returns.
        """
        if not (pa.types.is_binary(data.type) or pa.types.is_large_binary(data.type)):
            raise pa.ArrowInvalid(f"a column of {data.type} holds no bytes")
        return self._read(data.cast(pa.binary()))

    @abstractmethod
    def _read(self, data: Array) -> Array:
        """Return the values whose bytes these are."""


class ColumnarSerde(Serde[T]):
    """A serde that has a serde for whole columns of its own."""

    @property
    @abstractmethod
    def columns(self) -> ColumnSerde | None:
        """The serde for whole columns; None if there is none."""


class _Flat(ColumnSerde):
    """Values that are bytes already."""

    def _write(self, column: Array) -> Array:
        return column.cast(pa.binary())

    def _read(self, data: Array) -> Array:
        return data.cast(self.type)


class _Numbers(ColumnSerde):
    """Numbers of eight bytes, big-endian."""

    def _write(self, column: Array) -> Array:
        return to_big_endian(column)

    def _read(self, data: Array) -> Array:
        return from_big_endian(data, self.type)


class _Structs(ColumnSerde):
    """Structs as rows of a fixed layout; it takes their fields in any order, and each of a narrower type."""

    def __init__(self, layout: StructLayout) -> None:
        self._layout = layout
        super().__init__(struct_type(layout), self._is_narrower)

    def _is_narrower(self, type_: pa.DataType) -> bool:
        fields = {name: _FIELDS[kind] for name, kind in self._layout.fields}
        return (
            isinstance(type_, pa.StructType)
            and sorted(field.name for field in type_) == sorted(fields)
            and all(pa.types.is_null(field.type) or fields[field.name](field.type) for field in type_)
        )

    def own(self, column: Array) -> Array:
        return column if column.type == self.type else in_order(self._layout, column)

    def _write(self, column: Array) -> Array:
        return pack_structs(self._layout, column)

    def _read(self, data: Array) -> Array:
        return unpack_structs(self._layout, data)


_FIELDS: Final[Mapping[str, Callable[[pa.DataType], bool]]] = {
    "long": pa.types.is_signed_integer,
    "double": lambda type_: pa.types.is_float64(type_) or pa.types.is_float32(type_),
    "boolean": pa.types.is_boolean,
    "string": lambda type_: pa.types.is_string(type_) or pa.types.is_large_string(type_),
    "binary": lambda type_: pa.types.is_binary(type_) or pa.types.is_large_binary(type_),
}
"""The types of columns that hold only values of a field's type."""

_BY_SERDE: Final[Mapping[str, tuple[Serde[Any], ColumnSerde]]] = {
    known.name: (known, columns)
    for known, columns in (
        (BYTES, _Flat(pa.binary(), pa.types.is_large_binary)),
        (STRING, _Flat(pa.string(), pa.types.is_large_string)),
        (INT64, _Numbers(pa.int64(), pa.types.is_signed_integer)),
        (FLOAT64, _Numbers(pa.float64(), pa.types.is_float32)),
    )
}


def column_serde(serde: Serde[Any]) -> ColumnSerde | None:
    """Return the counterpart of ``serde`` for whole columns; None if there is none.

    >>> from millpond.stores.encoding.serdes import INT64
    >>> numbers = column_serde(INT64)
    >>> numbers.read(numbers.write(pa.array([1, None, -7]))).to_pylist()
    [1, None, -7]
    """
    if isinstance(serde, StructSerde):
        return _of_structs(serde.name)
    if isinstance(serde, ColumnarSerde):
        return serde.columns
    known, columns = _BY_SERDE.get(serde.name, (None, None))
    return columns if known is serde else None


@cache
def _of_structs(name: str) -> ColumnSerde:
    return _Structs(StructSerde(name).layout)


def from_big_endian(data: Array, type_: pa.DataType) -> Array:
    """Return numbers of a type of eight bytes from byte strings of eight bytes, null where these are.

    Raises:
        pyarrow.ArrowInvalid: one has another length.
    """
    whole = pc.fill_null(data, b"\x00" * _NUMBER_SIZE) if data.null_count else data
    fixed = pc.binary_reverse(whole).cast(pa.binary(_NUMBER_SIZE))
    numbers = pa.Array.from_buffers(type_, len(fixed), [None, fixed.buffers()[1]], offset=fixed.offset)
    return pc.if_else(data.is_valid(), numbers, pa.scalar(None, type_)) if data.null_count else numbers


def to_big_endian(numbers: Array) -> Array:
    """Return the eight bytes of each number, null where it is."""
    fixed = pa.Array.from_buffers(
        pa.binary(_NUMBER_SIZE), len(numbers), numbers.buffers(), offset=numbers.offset, null_count=numbers.null_count
    )
    return pc.binary_reverse(fixed.cast(pa.binary()))
