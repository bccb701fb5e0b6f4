"""Rows as users have them, as Arrow tables in the types that verbs keep.

Rule of this module: whatever can be told from names and types is told before the first row is processed, and nothing is
converted that could come out as another value. No library of data frames is imported: they hand out Arrow streams.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as _compute

from millpond.errors import (
    ColumnTypeError,
    ConfigurationError,
    DuplicateColumnError,
    InvalidArgumentError,
    InvalidValueError,
    UnknownColumnError,
)
from millpond.processors.calls.arguments import INPUT
from millpond.processors.calls.calling import several_tables
from millpond.processors.options.known_names import did_you_mean
from millpond.stores.encoding.rows.physical import normalized

pc: Any = _compute

Frame: TypeAlias = object
"""A table of Arrow, a DataFrame of pandas or Polars or whatever else has ``__arrow_c_stream__``, or a list of dicts."""

_INDEX: Final = re.compile(r"__index_level_\d+__")
"""The names of pandas for the levels of an index without a name."""

_WIDER: Final[Mapping[pa.DataType, pa.DataType]] = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.int64(),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
}
"""Types that are kept as others, which have all their values, or refuse those that they have not."""


def table_of(role: str, rows: Frame, schema: pa.Schema | None = None) -> pa.Table:
    """Return the rows as a table in the types that verbs keep.

    Args:
        role: their name in messages: ``left``, ``right`` or ``input``.
        rows: the rows.
        schema: the columns that they must have, in these types; None for the columns that they have.

    Raises:
        ConfigurationError: these are no rows, or lack the columns, or a column is of a type that cannot be kept.
        RecordError: a value cannot be kept, such as a time with nanoseconds.
    """
    table = _arrow(role, rows, schema)
    wanted = kept_schema(role, table.schema) if schema is None else schema
    if schema is not None:
        table = _chosen(role, table, schema)
    columns = [_cast(role, field.name, column, field.type) for column, field in zip(table.columns, wanted, strict=True)]
    return pa.Table.from_arrays(columns, schema=wanted)


def kept_schema(role: str, schema: pa.Schema) -> pa.Schema:
    """Return the columns in the types that verbs keep; what verbs have noted of them stays.

    Raises:
        ConfigurationError: two have the same name, or one is of a type that cannot be kept.
    """
    twice = sorted({name for name in schema.names if schema.names.count(name) > 1})
    if twice:
        raise DuplicateColumnError(f"{role!r} has more than one column {twice[0]!r}; rename all but one")
    return pa.schema([pa.field(one.name, _kept(role, one.name, one.type), metadata=one.metadata) for one in schema])


def _kept(role: str, name: str, type_: Any) -> pa.DataType:
    if pa.types.is_dictionary(type_):
        return _kept(role, name, type_.value_type)
    if pa.types.is_timestamp(type_) or pa.types.is_duration(type_):
        return pa.timestamp("us", "UTC" if type_.tz else None) if pa.types.is_timestamp(type_) else pa.duration("us")
    if type_ in _WIDER:
        return _WIDER[type_]
    try:
        return normalized(type_)
    except ConfigurationError:
        raise ColumnTypeError(
            f"the column {name!r} of {role!r} is of type {type_}, which verbs cannot keep; cast it, for example to a "
            "string, or leave it out"
        ) from None


def _arrow(role: str, rows: Any, schema: pa.Schema | None) -> pa.Table:
    """Return the rows as a table in types of their own."""
    if isinstance(rows, pa.Table):
        return rows
    if hasattr(rows, "__arrow_c_stream__"):
        table = pa.table(rows)
        return table.drop_columns([name for name in table.column_names if _INDEX.fullmatch(name)])
    if isinstance(rows, pa.RecordBatch):
        return pa.Table.from_batches([rows])
    if isinstance(rows, list | tuple) and all(isinstance(row, Mapping) for row in rows):
        return _of_dicts(role, rows, schema)
    later = "; for rows that come in micro-batches, call Pond().in_batches" if isinstance(rows, pa.Schema) else ""
    raise InvalidArgumentError(
        f"{_parameter(role)} is of type {type(rows).__name__}; give a pyarrow.Table, a DataFrame of pandas or Polars, "
        f"or a list of dicts{later or several_tables(rows)}"
    )


def _parameter(role: str) -> str:
    """Return the parameter as which a user gave the rows of an input."""
    return "rows" if role == INPUT else repr(role)


def _of_dicts(role: str, rows: Sequence[Mapping[str, Any]], schema: pa.Schema | None) -> pa.Table:
    names = dict.fromkeys(name for row in rows for name in row) if schema is None or rows else schema.names
    if schema is None and not names:
        raise InvalidArgumentError(
            f"{_parameter(role)} is {rows!r}, which has no columns; give a table with columns, also where it has no "
            "rows: pa.schema([...]).empty_table()"
        )
    columns = {}
    for name in names:
        known = None if schema is None or name not in schema.names else schema.field(name).type
        try:
            columns[name] = pa.array([row.get(name) for row in rows], known)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise ColumnTypeError(
                f"the column {name!r} of {role!r} has values that are not of one type: {error}; give all of "
                "them one type"
            ) from error
    if schema is not None:
        columns |= {one.name: pa.nulls(len(rows), one.type) for one in schema if one.name not in columns}
    return pa.table(columns)


def _chosen(role: str, table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the columns in the order of the schema, in types that become its types."""
    for name in schema.names:
        field_of(role, table.schema, name)
    others = [name for name in table.column_names if name not in schema.names]
    if others:
        raise UnknownColumnError(
            f"{role!r} has a column {others[0]!r}, which it had not where the verb was made; leave it out, or make "
            f"the verb with it{did_you_mean(others[0], schema.names)}"
        )
    for wanted in schema:
        type_ = table.schema.field(wanted.name).type
        if not pa.types.is_null(type_) and _kept(role, wanted.name, type_) != wanted.type:
            raise ColumnTypeError(
                f"the column {wanted.name!r} of {role!r} is of type {type_}, but was {wanted.type} where the verb was "
                "made; cast it"
            )
    return table.select(schema.names)


def field_of(role: str, schema: pa.Schema, name: str) -> Any:
    """Return the column of that name.

    Raises:
        ConfigurationError: there is none.
    """
    if name not in schema.names:
        hint = did_you_mean(name, schema.names)
        raise UnknownColumnError(f"{role!r} has no column {name!r}, only {', '.join(schema.names) or 'none'}{hint}")
    return schema.field(name)


def _cast(role: str, name: str, column: Any, type_: pa.DataType) -> Any:
    try:
        return column.cast(type_)
    except pa.ArrowInvalid as error:
        raise InvalidValueError(
            f"the column {name!r} of {role!r} has a value that {type_} cannot hold: {error}; round it, or cast the "
            "column to another type"
        ) from error
