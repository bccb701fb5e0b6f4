"""Packed keys: the columns of a key as bytes that compare as the tuples of their values do.

Rule of this module: bytes of keys are written here and nowhere else; ``millpond.stores.encoding.rows.key_codes`` draws
them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as _compute

from millpond.errors import ColumnTypeError, UnreadableRowError
from millpond.stores.encoding.rows.agreed import agreed_columns, naming
from millpond.stores.encoding.rows.byte_columns import binary_of, headed, or_null, runs_of
from millpond.stores.encoding.rows.key_codes import (
    BINARY,
    DECIMAL,
    END,
    ESCAPED,
    FALSE,
    FLOAT32,
    FLOAT64,
    LIST,
    NULL,
    SIGN,
    STRING,
    STRUCT,
    TRUE,
    WIDE_DECIMAL,
    code_of,
)
from millpond.stores.encoding.rows.key_reading import read_keys
from millpond.stores.encoding.rows.nested import child_fields
from millpond.stores.encoding.rows.physical import (
    big_endian,
    check_text,
    elements,
    normalized_schema,
    null_mask,
    plain_leaves,
    unscaled,
    words,
)

pc: Any = _compute

_ONLY: Final = bytes([NULL])
"""The key of rows whose key has no columns."""


@dataclass(frozen=True)
class KeyCodec:
    r"""The codec of keys, which packs the columns of a key, and reads packed keys back.

    Attributes:
        schema: the columns of the key, with all types in their one form. Two codecs give equal values equal bytes if
            their types have the same codes; names make no difference. Without columns, all rows have one key.

    Raises:
        ConfigurationError: two columns have the same name, or one cannot be part of a key: maps and variants have no
            order.

    >>> codec = KeyCodec(pa.schema([("shop", pa.string()), ("order", pa.int32())]))
    >>> codec.pack(pa.table({"shop": ["b"], "order": pa.array([1], pa.int32())}))
    [b'!b\x00\x10\x80\x00\x00\x00\x00\x00\x00\x01']
    >>> codec.unpack([b"!b\x00\x10\x80\x00\x00\x00\x00\x00\x00\x01"]).to_pylist()
    [{'shop': 'b', 'order': 1}]
    """

    schema: pa.Schema

    def __post_init__(self) -> None:
        schema = normalized_schema(self.schema)
        for field in schema:
            _check_key(field, field.name)
        object.__setattr__(self, "schema", schema)

    def pack(self, columns: pa.Table) -> list[bytes]:
        """Return the result of ``pack_columns`` as a list."""
        packed: list[bytes] = self.pack_columns(columns).to_pylist()
        return packed

    def pack_columns(self, columns: pa.Table) -> Any:
        """Return the bytes of each row's key, a binary column.

        Args:
            columns: the columns of ``schema``, in its order; types may be of another form (``normalized``). If it has
                none, any columns: only their rows count.

        Raises:
            ConfigurationError: names or types are not those of ``schema``.
            RecordError: a null in a column that is NOT NULL, or a value that cannot be held.
        """
        if not self.schema.names:
            return pa.array([_ONLY] * columns.num_rows, pa.binary())
        parts = []
        for name, column in zip(self.schema.names, agreed_columns(columns, self.schema), strict=True):
            with naming(name):
                parts.append(_elements(column.combine_chunks()))
        return parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, b"")

    def unpack(self, keys: "Sequence[bytes] | pa.BinaryArray") -> pa.Table:
        """Return the columns of keys.

        Args:
            keys: keys from ``pack`` or ``pack_columns``.

        Raises:
            SerdeError: a key is no packed key of these columns.
        """
        if not self.schema.names:
            return _without_columns(keys)
        return pa.Table.from_arrays(read_keys(keys, self.schema.types), schema=self.schema)


def _without_columns(keys: Any) -> pa.Table:
    """Return a table of as many rows as there are keys."""
    for key in keys.to_pylist() if isinstance(keys, pa.Array) else keys:
        if key != _ONLY:
            raise UnreadableRowError(f"{key!r} is no packed key of no columns")
    return empty_rows(len(keys))


def empty_rows(count: int) -> pa.Table:
    """Return a table of so many rows without columns."""
    rows: Any = pa.array([{}] * count, pa.struct([]))
    return pa.Table.from_struct_array(rows)


def null_rows(columns: pa.Table) -> npt.NDArray[np.bool_]:
    """Return a mask of the rows in which a column is null; nulls within a value do not count."""
    nulls = np.zeros(columns.num_rows, np.bool_)
    for column in columns.columns:
        if column.null_count:
            nulls |= np.concatenate([null_mask(chunk) for chunk in column.chunks])
    return nulls


def without_order(field: Any, path: str) -> tuple[str, str] | None:
    """Return the path of the part of a column that has no order, and "map" or "variant"; None if all have one."""
    if any((child.metadata or {}).get(b"variant") == b"true" for child in child_fields(field.type)):
        return path, "variant"
    if pa.types.is_map(field.type):
        return path, "map"
    found = (without_order(child, f"{path}.{child.name}") for child in child_fields(field.type))
    return next((one for one in found if one is not None), None)


def _check_key(field: Any, path: str) -> None:
    found = without_order(field, path)
    if found is not None:
        name, kind = found
        raise ColumnTypeError(
            f"column {name!r} is a {kind}, which has no order and cannot be part of a key; take fields out of it"
        )


def _elements(column: Any) -> Any:
    """Return the element of each row, a binary column without nulls."""
    if isinstance(column.type, pa.StructType):
        fields = [_elements(column.field(number)) for number in range(column.type.num_fields)]
        begin = pa.array([bytes([STRUCT])] * len(column), pa.binary())
        return or_null(column, pc.binary_join_element_wise(begin, *fields, END, b""), NULL)
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        within, ends = elements(column)
        bodies = runs_of(_elements(within), np.array(ends))
        return or_null(column, pc.binary_join_element_wise(bytes([LIST]), bodies, END, b""), NULL)
    leaves = plain_leaves(column)
    code = code_of(leaves.type)
    write = _WRITERS.get(code)
    if write is not None:
        return write(leaves)
    return headed([code], _bits(leaves, code), null_mask(leaves) if leaves.null_count else None, NULL)


def _bits(column: Any, code: int) -> npt.NDArray[np.uint8]:
    """Return the bytes after the code, a row for each value."""
    sign = np.uint64(SIGN)
    if code in (FLOAT32, FLOAT64):
        return _float_bits(words(column))
    if code == WIDE_DECIMAL:
        return big_endian(unscaled(column) ^ np.array([0, sign], np.uint64)).reshape(-1, 16)
    numbers = unscaled(column)[:, 0] if code == DECIMAL else words(column).astype(np.int64).view(np.uint64)
    return _rows(numbers ^ sign)


def _float_bits(numbers: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    canonical = numbers.copy()
    canonical[np.isnan(numbers)] = np.nan
    canonical[canonical == 0] = 0
    signed = canonical.view(f"i{canonical.itemsize}")
    lowest = np.iinfo(signed.dtype).min
    return _rows(np.where(signed < 0, ~signed, signed ^ lowest))


def _rows(numbers: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    big_endian_numbers = numbers.astype(numbers.dtype.newbyteorder(">"))
    return big_endian_numbers.view(np.uint8).reshape(len(numbers), numbers.itemsize)


def _nulls(column: Any) -> Any:
    return binary_of(np.full((len(column), 1), NULL, np.uint8))


def _booleans(column: Any) -> Any:
    codes = pc.if_else(column, TRUE, FALSE).fill_null(NULL).to_numpy().astype(np.uint8)
    return binary_of(codes[:, None])


def _binaries(column: Any) -> Any:
    return _ended(column, BINARY)


def _strings(column: Any) -> Any:
    check_text(column)
    return _ended(column.view(pa.binary()), STRING)


def _ended(column: Any, code: int) -> Any:
    """Return elements that have no fixed length."""
    escaped = pc.replace_substring(column, END, ESCAPED)
    return or_null(column, pc.binary_join_element_wise(bytes([code]), escaped, END, b""), NULL)


_WRITERS: Final[Mapping[int, Callable[[Any], Any]]] = {
    NULL: _nulls,
    FALSE: _booleans,
    BINARY: _binaries,
    STRING: _strings,
}
