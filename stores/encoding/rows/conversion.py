"""Columns of an older schema of a history as columns of the current one.

Rule of this module: it makes the changes that ``millpond.stores.encoding.rows.evolution`` allowed, matches by ids, and
decides nothing.
"""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from millpond.errors import SerdeError
from millpond.stores.encoding.rows.columns import Column, Columns, struct_of
from millpond.stores.encoding.rows.physical import around


def convert(structs: Any, old: Columns, new: Columns) -> Any:
    """Return rows of the columns ``old``, an array of structs, as rows of the columns ``new``.

    Raises:
        SerdeError: a value does not fit into the type to which its column was widened.
    """
    if old == new:
        return structs
    return pa.StructArray.from_buffers(
        struct_of(new), len(structs), structs.buffers()[:1], children=_fields(structs, old, new)
    )


def _fields(structs: Any, old: Sequence[Column], new: Sequence[Column]) -> list[Any]:
    places = {column.id: place for place, column in enumerate(old)}
    return [
        _column(structs.field(places[column.id]), old[places[column.id]], column)
        if column.id in places
        else pa.nulls(len(structs), column.field.type)
        for column in new
    ]


def _column(array: Any, old: Column, new: Column) -> Any:
    if old == new:
        return array
    if pa.types.is_struct(array.type):
        return convert(array, old.children, new.children)
    if not new.children:
        return _widened(array, new)
    if pa.types.is_map(array.type):
        entry = convert(array.values, old.children, new.children)
    else:
        entry = _column(array.values, old.children[0], new.children[0])
    return around(entry, new.field.type, len(array), array.buffers()[:2])


def _widened(array: Any, new: Column) -> Any:
    try:
        return array.cast(new.field.type)
    except pa.ArrowInvalid as error:
        raise SerdeError(f"column {new.field.name!r}: {error}") from error
