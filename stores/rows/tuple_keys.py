"""Packed keys: the columns of a key as bytes that compare as the tuples of their values do.

Rule of this module: bytes of keys are written here and nowhere else; ``millpond.stores.rows.key_codes`` draws them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from operator import add
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millpond.errors import ConfigurationError
from millpond.stores.rows.agreed import agreed_columns, naming
from millpond.stores.rows.key_codes import (
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
from millpond.stores.rows.key_reading import read_keys
from millpond.stores.rows.nested import child_fields
from millpond.stores.rows.physical import (
    big_endian,
    check_text,
    elements,
    normalized_schema,
    null_mask,
    plain_leaves,
    to_physical,
    unscaled,
    words,
)

_NULL: Final = bytes([NULL])
_BOOLEANS: Final = {None: _NULL, False: bytes([FALSE]), True: bytes([TRUE])}


@dataclass(frozen=True)
class KeyCodec:
    r"""Packs the columns of a key, and reads packed keys back.

    Attributes:
        schema: the columns of the key, with all types in their one form. Two codecs give equal values equal bytes if
            their types have the same codes; names make no difference.

    Raises:
        ConfigurationError: there are no columns, two have the same name, or one cannot be part of a key: maps and
            variants have no order.

    >>> codec = KeyCodec(pa.schema([("shop", pa.string()), ("order", pa.int32())]))
    >>> codec.pack(pa.table({"shop": ["b"], "order": pa.array([1], pa.int32())}))
    [b'!b\x00\x10\x80\x00\x00\x00\x00\x00\x00\x01']
    >>> codec.unpack([b"!b\x00\x10\x80\x00\x00\x00\x00\x00\x00\x01"]).to_pylist()
    [{'shop': 'b', 'order': 1}]
    """

    schema: pa.Schema

    def __post_init__(self) -> None:
        schema = normalized_schema(self.schema)
        if not schema.names:
            raise ConfigurationError("a key needs at least one column")
        for field in schema:
            _check_key(field, field.name)
        object.__setattr__(self, "schema", schema)

    def pack(self, columns: pa.Table) -> list[bytes]:
        """The bytes of each row's key.

        Args:
            columns: those of ``schema``, in its order; types may be of another form (``normalized``).

        Raises:
            ConfigurationError: names or types are not those of ``schema``.
            RecordError: a null in a column that is NOT NULL, or a value that cannot be held.
        """
        parts = []
        for name, column in zip(self.schema.names, agreed_columns(columns, self.schema), strict=True):
            with naming(name):
                parts.append(list(chain.from_iterable(map(_elements, column.chunks))))
        return _joined(parts)

    def unpack(self, keys: Sequence[bytes]) -> pa.Table:
        """The columns of keys.

        Args:
            keys: what ``pack`` returned.

        Raises:
            SerdeError: bytes that are no packed key of these columns.
        """
        return pa.Table.from_arrays(read_keys(keys, self.schema.types), schema=self.schema)


def null_rows(columns: pa.Table) -> npt.NDArray[np.bool_]:
    """In which rows a column is null; nulls within a value do not count."""
    nulls = np.zeros(columns.num_rows, np.bool_)
    for column in columns.columns:
        if column.null_count:
            nulls |= np.concatenate([null_mask(chunk) for chunk in column.chunks])
    return nulls


def _check_key(field: Any, path: str) -> None:
    variant = any((child.metadata or {}).get(b"variant") == b"true" for child in child_fields(field.type))
    if variant or pa.types.is_map(field.type):
        kind = "variant" if variant else "map"
        raise ConfigurationError(
            f"column {path!r} is a {kind}, which has no order and cannot be part of a key; take fields out of it"
        )
    for child in child_fields(field.type):
        _check_key(child, f"{path}.{child.name}")


def _elements(column: Any) -> list[bytes]:
    """The element of each row."""
    if isinstance(column.type, pa.StructType):
        fields = [_elements(column.field(number)) for number in range(column.type.num_fields)]
        inner = _joined(fields) if fields else [b""] * len(column)
        return _with_nulls([b"%c%b%b" % (STRUCT, fields, END) for fields in inner], column)
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        within, ends = elements(column)
        parts = _elements(within)
        return _with_nulls([b"%c%b%b" % (LIST, b"".join(parts[i:j]), END) for i, j in pairwise(ends)], column)
    leaves = plain_leaves(column)
    code = code_of(leaves.type)
    write = _WRITERS.get(code)
    return write(leaves) if write else _with_nulls(_numbers(code, _bits(leaves, code)), leaves)


def _joined(parts: Sequence[list[bytes]]) -> list[bytes]:
    if len(parts) == 1:
        return parts[0]
    if len(parts) == 2:
        return list(map(add, *parts))
    return list(map(b"".join, zip(*parts, strict=True)))


def _with_nulls(parts: list[bytes], column: Any) -> list[bytes]:
    if column.null_count:
        for row in np.flatnonzero(null_mask(column)).tolist():
            parts[row] = _NULL
    return parts


def _numbers(code: int, bits: npt.NDArray[Any]) -> list[bytes]:
    """Elements of a fixed length out of rows of bytes."""
    rows = np.empty((len(bits), 1 + bits.shape[1]), np.uint8)
    rows[:, 0] = code
    rows[:, 1:] = bits
    return list(rows.view(f"V{rows.shape[1]}").ravel().tolist())


def _bits(column: Any, code: int) -> npt.NDArray[np.uint8]:
    """The bytes after the code, a row for each value."""
    sign = np.uint64(SIGN)
    if code in (FLOAT32, FLOAT64):
        return _float_bits(words(column))
    if code == WIDE_DECIMAL:
        return big_endian(unscaled(column) ^ np.array([0, sign], np.uint64))
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


def _nulls(column: Any) -> list[bytes]:
    return [_NULL] * len(column)


def _booleans(column: Any) -> list[bytes]:
    return [_BOOLEANS[value] for value in to_physical(column)]


def _binaries(column: Any) -> list[bytes]:
    return _ended(column, BINARY)


def _strings(column: Any) -> list[bytes]:
    check_text(column)
    return _ended(column.view(pa.binary()), STRING)


def _ended(column: Any, code: int) -> list[bytes]:
    """Elements that have no fixed length. Arrow joins them, so no Python object is made in between."""
    escaped = pc.replace_substring(column, END, ESCAPED)
    joined: Any = pc.binary_join_element_wise(bytes([code]), escaped, END, b"")
    return _with_nulls(to_physical(joined), column)


_WRITERS: Final[Mapping[int, Callable[[Any], list[bytes]]]] = {
    NULL: _nulls,
    FALSE: _booleans,
    BINARY: _binaries,
    STRING: _strings,
}
