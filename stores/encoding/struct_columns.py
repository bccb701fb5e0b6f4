"""Columns of structs as rows of bytes and back: ``millpond.stores.encoding.struct_serde`` for whole columns.

Rule of this module: no Python object is made of a row or of a value.
"""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as _compute

from millpond.stores.encoding.nulls import spread
from millpond.stores.encoding.struct_serde import IN_REST, NUMBER_SIZE, StructLayout

pc: Any = _compute
_Bytes = npt.NDArray[np.uint8]
_Integers = npt.NDArray[np.int64]

_ARROW: Final = {
    "long": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
    "binary": pa.binary(),
}

_NATIVE: Final[Mapping[str, type[np.generic]]] = {"long": np.int64, "double": np.float64, "boolean": np.bool_}


def struct_type(layout: StructLayout) -> pa.StructType:
    """Return the Arrow type of the structs of a layout."""
    return pa.struct([pa.field(name, _ARROW[type_]) for name, type_ in layout.fields])


def pack_structs(layout: StructLayout, structs: Any) -> Any:
    """Return the rows of structs of ``struct_type(layout)``, null where they are.

    Raises:
        pyarrow.ArrowInvalid: they do not fit into one column, which holds 2 GiB.
    """
    size = len(structs)
    rows = np.zeros((size, layout.size), np.uint8)
    ends = np.zeros(size, np.int64)
    rest = []
    for place, (_, type_) in enumerate(layout.fields):
        column = pc.struct_field(structs, [place])
        if column.null_count:
            nulls = column.is_null().to_numpy(zero_copy_only=False)
            rows[:, place >> 3] |= nulls.astype(np.uint8) << (place & 7)
        if type_ in IN_REST:
            rest.append(column.cast(pa.binary()).fill_null(b""))
            ends += pc.binary_length(rest[-1]).to_numpy()
            numbers: Any = ends
        else:
            zero = pa.scalar(0, column.type) if type_ != "boolean" else pa.scalar(False)
            numbers = column.fill_null(zero).to_numpy(zero_copy_only=False)
        start = layout.null_bytes + NUMBER_SIZE * place
        rows[:, start : start + NUMBER_SIZE] = _big_endian(numbers)
    fixed = pa.Array.from_buffers(pa.binary(layout.size), size, [None, _buffer(rows)]).cast(pa.binary())
    packed = pc.binary_join_element_wise(fixed, *rest, b"") if rest else fixed
    return pc.if_else(structs.is_valid(), packed, pa.scalar(None, pa.binary())) if structs.null_count else packed


def _big_endian(numbers: Any) -> _Bytes:
    """Return eight bytes of each number; booleans are 0 and 1."""
    wide = numbers.astype(">f8" if numbers.dtype.kind == "f" else ">i8")
    return np.frombuffer(wide.tobytes(), np.uint8).reshape(len(wide), NUMBER_SIZE)


def unpack_structs(layout: StructLayout, data: Any) -> Any:
    """Return the structs whose rows these are, of ``struct_type(layout)``, null where they are.

    Args:
        layout: the layout of the rows.
        data: the rows, of the type ``binary``.

    Raises:
        pyarrow.ArrowInvalid: some are no rows of this layout.
    """
    present = data.drop_null()
    return spread(_Rows(layout, present).structs(), data.is_valid().to_numpy(zero_copy_only=False))


class _Rows:
    """Rows that are read, none of them null."""

    def __init__(self, layout: StructLayout, data: Any) -> None:
        self._layout = layout
        self._size = len(data)
        offsets = np.frombuffer(data.buffers()[1], np.int32, self._size + 1, data.offset * 4) if self._size else None
        self._starts = np.zeros(0, np.int64) if offsets is None else offsets[:-1].astype(np.int64)
        self._stops = np.zeros(0, np.int64) if offsets is None else offsets[1:].astype(np.int64)
        whole = data.buffers()[2]
        self._bytes = np.zeros(0, np.uint8) if whole is None else np.frombuffer(whole, np.uint8)
        if (self._stops - self._starts < layout.size).any():
            raise pa.ArrowInvalid("a row is too short for its struct")
        self._fixed = self._bytes[self._starts[:, None] + np.arange(layout.size)]

    def structs(self) -> Any:
        ends = np.zeros(self._size, np.int64)
        columns = []
        for place, (_, type_) in enumerate(self._layout.fields):
            if type_ in IN_REST:
                starts, ends = ends, self._numbers(place, ">i8").astype(np.int64)
                columns.append(self._slices(type_, starts, ends, self._nulls(place)))
            else:
                numbers = self._numbers(place, ">f8" if type_ == "double" else ">i8")
                native: Any = numbers.astype(_NATIVE[type_])
                columns.append(pa.array(native, _ARROW[type_], mask=self._nulls(place)))
        if (ends != self._stops - self._starts - self._layout.size).any() or self._has_unknown_nulls():
            raise pa.ArrowInvalid("a row has more fields than its struct")
        return pa.StructArray.from_arrays(columns, fields=list(struct_type(self._layout)))

    def _numbers(self, place: int, dtype: str) -> npt.NDArray[Any]:
        start = self._layout.null_bytes + NUMBER_SIZE * place
        return np.ascontiguousarray(self._fixed[:, start : start + NUMBER_SIZE]).view(dtype).ravel()

    def _nulls(self, place: int) -> npt.NDArray[np.bool_]:
        nulls: npt.NDArray[np.bool_] = (self._fixed[:, place >> 3] >> (place & 7) & 1).astype(np.bool_)
        return nulls

    def _has_unknown_nulls(self) -> bool:
        used = len(self._layout.fields) % 8
        return bool(used and (self._fixed[:, self._layout.null_bytes - 1] >> used).any())

    def _slices(self, type_: str, starts: _Integers, ends: _Integers, nulls: npt.NDArray[np.bool_]) -> Any:
        """Return strings or binaries that lie between these places of the rest of each row."""
        rest = self._starts + self._layout.size
        lengths = ends - starts
        if (lengths < 0).any() or (rest + ends > self._stops).any():
            raise pa.ArrowInvalid("a field does not end within its row")
        offsets = np.zeros(self._size + 1, np.int32)
        np.cumsum(lengths, out=offsets[1:])
        data = self._bytes[np.repeat(rest + starts - offsets[:-1], lengths) + np.arange(offsets[-1])]
        validity = _validity(nulls)
        buffers = [validity, _buffer(offsets), _buffer(data)]
        column: Any = pa.Array.from_buffers(_ARROW[type_], self._size, buffers)
        column.validate(full=True)
        return column


def _buffer(numbers: Any) -> Any:
    return pa.py_buffer(numbers)


def _validity(nulls: npt.NDArray[np.bool_]) -> Any:
    return _buffer(np.packbits(~nulls, bitorder="little")) if nulls.any() else None


def in_order(layout: StructLayout, structs: Any) -> Any:
    """Return structs of the same fields, perhaps of narrower types and in another order, as ``struct_type(layout)``."""
    names = [name for name, _ in layout.fields]
    columns = [pc.struct_field(structs, name).cast(_ARROW[type_]) for name, type_ in layout.fields]
    mask = structs.is_null() if structs.null_count else None
    return pa.StructArray.from_arrays(columns, names, mask=mask)
