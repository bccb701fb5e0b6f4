"""Headers as a column: how they come in, travel between tasks and go out, in the form of Spark's Kafka connector.

Rule of this module: a table has the column only if one of its records has headers, so that others pay nothing.
"""

from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as _compute

from millpond.processors.runtime.batches.headers import NO_HEADERS, Headers

pc: Any = _compute

HEADERS: Final = "headers"
"""The name of the column."""

_PAIR: Any = [("key", pa.string()), ("value", pa.binary())]
HEADERS_TYPE: Final[Any] = pa.list_(pa.struct(_PAIR))
"""Its type; null is the same as empty."""


def header_column(headers: Iterable[Headers]) -> Any:
    """Return the headers of records as an Arrow array, null where there are none."""
    rows = [[{"key": name, "value": value} for name, value in one] if one else None for one in headers]
    return pa.array(rows, HEADERS_TYPE)


def headers_of(records: pa.Table) -> list[Headers] | None:
    """Return the headers of records; None if no record has any."""
    if HEADERS not in records.column_names or not has_headers(records[HEADERS]):
        return None
    rows = records[HEADERS].to_pylist()
    return [tuple((pair["key"], pair["value"]) for pair in row) if row else NO_HEADERS for row in rows]


def has_headers(column: Any) -> bool:
    """Return whether one of the records has headers, by their column."""
    return bool(pc.any(pc.greater(pc.list_value_length(column), 0)).as_py())


def has_nameless(column: Any) -> Any:
    """Return, for each record, whether it has a header without a name, as an Arrow array.

    >>> has_nameless(pa.chunked_array([pa.array([None, [{"key": None, "value": b"1"}]], HEADERS_TYPE)])).to_pylist()
    [False, True]
    """
    whole = column.combine_chunks()
    nameless = np.zeros(len(whole), np.bool_)
    missing = pc.is_null(pc.struct_field(pc.list_flatten(whole), "key"))
    nameless[pc.list_parent_indices(whole).filter(missing).to_numpy()] = True
    return pa.array(nameless)


def with_headers_column(records: pa.Table) -> pa.Table:
    """Return the records with the column, even if none of them has headers."""
    if HEADERS in records.column_names:
        return records
    empty: Any = pa.nulls(records.num_rows, HEADERS_TYPE)
    return records.append_column(HEADERS, empty)


def without_empty_headers(records: pa.Table) -> pa.Table:
    """Return the records without the column, if none of them has headers; in its usual type otherwise."""
    if HEADERS not in records.column_names:
        return records
    place = records.column_names.index(HEADERS)
    if not has_headers(records[HEADERS]):
        return records.remove_column(place)
    return records.set_column(place, HEADERS, records[HEADERS].cast(HEADERS_TYPE))


def is_headers_type(type_: Any) -> bool:
    """Return whether a column of Arrow can hold headers, whatever it calls its elements."""
    if not pa.types.is_list(type_) or not pa.types.is_struct(type_.value_type):
        return False
    fields = [(field.name, field.type) for field in type_.value_type]
    return bool(fields == _PAIR)
