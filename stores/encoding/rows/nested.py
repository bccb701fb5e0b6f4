"""The children of a nested type or column, in one order for lists, maps and structs; and columns with ids.

An id is the identity of a column, or of a field within it, whatever its name.

Rule of this module: it serves code that walks through nested types and does not care how they are nested. It knows one
column and what is within it, but no histories and no changes.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from millpond.stores.encoding.rows.byte_columns import buffer
from millpond.stores.encoding.rows.physical import around, elements, null_mask, validity


def child_fields(type_: Any) -> list[Any]:
    """Return the fields of a struct, the element of a list, key and value of a map; nothing for any other type."""
    if pa.types.is_struct(type_):
        return list(type_)
    if pa.types.is_map(type_):
        return [type_.key_field, type_.item_field]
    if pa.types.is_list(type_):
        return [type_.value_field]
    return []


def with_children(type_: Any, fields: Sequence[Any]) -> Any:
    """Return a type of the same kind as ``type_`` around other fields."""
    if pa.types.is_struct(type_):
        return pa.struct(fields)
    if pa.types.is_map(type_):
        return pa.map_(*fields)
    if pa.types.is_list(type_):
        return pa.list_(fields[0])
    return type_


def child_columns(column: Any) -> list[Any]:
    """Return the columns of ``child_fields``: the values that belong to rows of ``column`` that are not null."""
    present = column.drop_null() if column.null_count else column
    if isinstance(column.type, pa.StructType):
        return [present.field(number) for number in range(column.type.num_fields)]
    if not child_fields(column.type) and not pa.types.is_large_list(column.type):
        return []
    within, _ = elements(present)
    return child_columns(within) if pa.types.is_map(column.type) else [within]


def leaf_paths(fields: Sequence[Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield all fields at every level with their paths, parents before children."""
    for field in fields:
        path = f"{prefix}{field.name}"
        yield path, field
        yield from leaf_paths(child_fields(field.type), f"{path}.")


def with_leaves(column: Any, type_: Any, change: Callable[[Any], Any]) -> Any:
    """Return a column with another column in place of each one within it that is not nested.

    Args:
        column: the column, of lists, maps, structs or anything else.
        type_: the type of the result: nested as the column's, around the results of ``change``.
        change: makes a column of as many values from a column that is not nested.
    """
    if isinstance(column.type, pa.StructType):
        fields = [with_leaves(column.field(number), field.type, change) for number, field in enumerate(type_)]
        return pa.Array.from_buffers(type_, len(column), [validity(null_mask(column))], children=fields)
    if not child_fields(type_):
        return change(column)
    within, ends = elements(column)
    inner = pa.struct(child_fields(type_)) if pa.types.is_map(type_) else type_.value_type
    bounds = buffer(np.array(ends, np.int32))
    return around(with_leaves(within, inner, change), type_, len(column), [validity(null_mask(column)), bounds])


@dataclass(frozen=True)
class Column:
    """One column, or a field, element, key or value within one.

    Attributes:
        id: its id, the same in all schemas of a history, whatever the column's name.
        field: its name, type in its one form, nullability and metadata.
        children: its children: see ``child_fields``.
    """

    id: int
    field: Any
    children: "tuple[Column, ...]" = ()


Columns = tuple[Column, ...]


def numbered(field: Any, ids: Iterator[int]) -> Column:
    """Return ``field`` and all that is within it, with new ids."""
    id_ = next(ids)
    return Column(id_, field, tuple(numbered(child, ids) for child in child_fields(field.type)))


def struct_of(columns: Sequence[Column]) -> Any:
    """Return the type of a struct with these columns as fields."""
    return pa.struct([column.field for column in columns])


def all_ids(columns: Sequence[Column]) -> Iterator[int]:
    """Yield the ids of columns and of all that is within them."""
    for column in columns:
        yield column.id
        yield from all_ids(column.children)
