"""Maps on their way out: Arrow wants the entries of a map as tuples, and most serdes give tuples back as lists.

Rule of this module: it changes nothing but the pairs of maps. Whatever is not of its column's type stays as it is, for
Arrow to refuse.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa


def with_pairs(entries: Sequence[Any], type_: pa.DataType) -> Sequence[Any]:
    """Return the entries of a column of that type, with a tuple for each entry of a map."""
    return [_paired(entry, type_) for entry in entries] if _has_map(type_) else entries


def _has_map(type_: Any) -> bool:
    if pa.types.is_list(type_):
        return _has_map(type_.value_type)
    return pa.types.is_map(type_) or (pa.types.is_struct(type_) and any(_has_map(field.type) for field in type_))


def _paired(entry: Any, type_: Any) -> Any:
    if pa.types.is_map(type_):
        return _pairs(entry, type_)
    if pa.types.is_list(type_) and isinstance(entry, list | tuple):
        return [_paired(element, type_.value_type) for element in entry]
    if pa.types.is_struct(type_) and isinstance(entry, Mapping):
        types = {field.name: field.type for field in type_}
        return {name: _paired(value, types[name]) if name in types else value for name, value in entry.items()}
    return entry


def _pairs(entry: Any, type_: Any) -> Any:
    items = list(entry.items()) if isinstance(entry, Mapping) else entry
    if not isinstance(items, list | tuple) or not all(isinstance(i, list | tuple) and len(i) == 2 for i in items):
        return entry
    return [(_paired(key, type_.key_type), _paired(value, type_.item_type)) for key, value in items]
