"""Columns in the very types that Spark has for Arrow.

Rule of this module: it changes the form of types, never a value. Arrow's own cast refuses a null struct that has fields
which are NOT NULL, at every level and even to the same type, so types that are nested are taken apart here.
"""

from typing import Any

import numpy as np
import pyarrow as pa

from millpond.stores.encoding.rows.physical import around, elements, null_mask


def in_type(column: Any, type_: Any) -> Any:
    """Return the column, an array or a chunked one, in another form of its type."""
    if column.type == type_:
        return column
    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array([in_type(chunk, type_) for chunk in column.chunks], type_)
    if pa.types.is_struct(type_):
        fields = [in_type(column.field(number), type_.field(number).type) for number in range(type_.num_fields)]
        return pa.Array.from_buffers(type_, len(column), [_validity(column)], children=fields)
    if pa.types.is_map(type_) or pa.types.is_list(type_):
        inner = pa.struct([type_.key_field, type_.item_field]) if pa.types.is_map(type_) else type_.value_type
        within, ends = elements(column)
        offsets = pa.py_buffer(np.array(ends, np.int32).tobytes())
        return around(in_type(within, inner), type_, len(column), [_validity(column), offsets])
    return column.cast(type_)


def _validity(column: Any) -> pa.Buffer | None:
    if not column.null_count:
        return None
    return pa.py_buffer(np.packbits(~null_mask(column), bitorder="little").tobytes())
