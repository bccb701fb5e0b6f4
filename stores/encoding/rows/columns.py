"""Columns with ids: the identity of a column, whatever its name.

Rule of this module: it knows one column and its children, but no histories and no changes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from millpond.stores.encoding.rows.nested import child_fields


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
