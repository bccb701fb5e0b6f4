"""The agreement between columns that a caller gives and those of a schema.

Rule of this module: it decides about names, types and nulls, for rows and keys alike. It knows no bytes.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa

from millpond.errors import ColumnTypeError, InvalidValueError, RecordError, UnknownColumnError
from millpond.stores.encoding.rows.nested import child_columns, child_fields, with_children
from millpond.stores.encoding.rows.physical import normalized, null_mask


def agreed_columns(rows: "pa.Table | pa.StructArray", schema: pa.Schema) -> list[Any]:
    """Return the columns of ``rows``, which are those of ``schema``, in types that may have another form.

    Raises:
        ConfigurationError: names or types are not those of ``schema``.
        RecordError: a null where ``schema`` allows none.
    """
    names = rows.schema.names if isinstance(rows, pa.Table) else [field.name for field in rows.type]
    if names != schema.names:
        raise UnknownColumnError(f"the columns are {names}, but should be {schema.names}, in this order")
    columns = _columns(rows)
    for column, field in zip(columns, schema, strict=True):
        _check_type(column.type, field)
        check_nulls(column, field, field.name)
    return columns


@contextmanager
def naming(column: str) -> Iterator[None]:
    """Name the column in errors about values within."""
    try:
        yield
    except RecordError as error:
        raise InvalidValueError(f"column {column!r}: {error}") from error


def check_nulls(column: Any, field: Any, path: str) -> None:
    """Refuse a null that ``field`` excludes, at any level.

    Raises:
        RecordError: there is one.
    """
    if isinstance(column, pa.ChunkedArray):
        for chunk in column.chunks:
            check_nulls(chunk, field, path)
    elif column.null_count and not field.nullable:
        row = int(np.flatnonzero(null_mask(column))[0])
        raise InvalidValueError(
            f"column {path!r} is NOT NULL, but is null in row {row}; filter such rows out, or coalesce"
        )
    elif _is_strict(field.type):
        for part, child in zip(child_columns(column), child_fields(field.type), strict=True):
            check_nulls(part, child, f"{path}.{child.name}")


def nullable_type(type_: Any) -> Any:
    """Return ``type_`` with nulls allowed wherever Arrow allows them, and without metadata."""
    fields = [pa.field(field.name, nullable_type(field.type)) for field in child_fields(type_)]
    if pa.types.is_map(type_):
        fields[0] = fields[0].with_nullable(False)
    return with_children(type_, fields)


def _is_strict(type_: Any) -> bool:
    """Return whether a part of it excludes nulls that Arrow would allow."""
    fields = child_fields(type_)
    strict = not fields[-1].nullable if pa.types.is_map(type_) else any(not field.nullable for field in fields)
    return strict or any(_is_strict(field.type) for field in fields)


def _columns(rows: Any) -> list[Any]:
    if isinstance(rows, pa.Table):
        return list(rows.columns)
    if rows.null_count:
        raise InvalidValueError(
            f"row {int(np.flatnonzero(null_mask(rows))[0])} is null as a whole; filter such rows out"
        )
    return [rows.field(number) for number in range(rows.type.num_fields)]


def _check_type(type_: Any, field: Any) -> None:
    if type_ == field.type:
        return
    plain = normalized(type_, field.name)
    if plain != field.type and nullable_type(plain) != nullable_type(field.type):
        raise ColumnTypeError(f"column {field.name!r} is of type {type_}, but should be {field.type}")
