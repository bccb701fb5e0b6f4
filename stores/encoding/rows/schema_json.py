"""The JSON of a history of schemas, for people to read, too.

Rule of this module: the format has a number, which never changes its meaning; an unknown one is refused. A history
is ``{"format": 1, "schemas": [<columns of schema 1>, <columns of schema 2>, ...]}``, and a column::

    {"id": 1, "name": "price", "type": "decimal(10,2)", "nullable": true}

with ``fields`` (columns) if the type is struct, list or map, and ``metadata`` if there is any.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from millpond.errors import ColumnTypeError, FormatError, SerdeError
from millpond.stores.encoding.rows.nested import Column, Columns, all_ids, with_children
from millpond.stores.encoding.rows.physical import check_names

SCHEMA_FORMAT: Final = 1

_LEAVES: Final[Mapping[str, Any]] = {
    "bool": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp without zone": pa.timestamp("us"),
    "duration": pa.duration("us"),
    "null": pa.null(),
}
_NAMES: Final[Mapping[Any, str]] = {type_: name for name, type_ in _LEAVES.items()}
_NESTED: Final[Mapping[str, int | None]] = {"struct": None, "list": 1, "map": 2}
"""The number of columns within; None for any number."""
_DECIMAL: Final = re.compile(r"decimal\((\d{1,3}),(-?\d{1,3})\)")
_IDS: Final = 2**31
"""The bound of ids, which are less: no schema has had so many columns."""

_UNREADABLE: Final = (LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)


def type_name(type_: Any) -> str:
    """Return the name of a type in its one form; for a nested one, only the kind.

    >>> type_name(pa.decimal128(10, 2)), type_name(pa.list_(pa.int8()))
    ('decimal(10,2)', 'list')
    """
    if pa.types.is_decimal(type_):
        return f"decimal({type_.precision},{type_.scale})"
    if pa.types.is_struct(type_):
        return "struct"
    if pa.types.is_map(type_):
        return "map"
    return "list" if pa.types.is_list(type_) else _NAMES[type_]


def to_json(versions: Sequence[Columns]) -> str:
    """Return the JSON of a history: a line for each column.

    Raises:
        ConfigurationError: the metadata of a column is not text.
    """
    schemas = ",\n".join(_lines(columns, "") for columns in versions)
    return f'{{"format": {SCHEMA_FORMAT}, "schemas": [\n{schemas}\n]}}'


def from_json(text: str) -> tuple[Columns, ...]:
    """Return the history whose JSON is ``text``.

    Raises:
        FormatError: the format has a number that this release does not know.
        SerdeError: it is not the JSON of a history.
    """
    try:
        found = json.loads(text)
        number, schemas = found["format"], found.get("schemas")
    except _UNREADABLE as error:
        raise SerdeError(f"this is not the JSON of a history of schemas: {error}") from error
    if number != SCHEMA_FORMAT:
        raise FormatError(
            f"schemas are in the format {number!r}, but this release reads {SCHEMA_FORMAT}; "
            "run the release that wrote them or a newer one"
        )
    try:
        versions = tuple(tuple(map(_from_dict, columns)) for columns in schemas)
        _check(versions)
    except _UNREADABLE as error:
        raise SerdeError(f"the JSON of a history of schemas is damaged: {error}") from error
    return versions


def _lines(columns: Columns, indent: str) -> str:
    """Return an array with a line for each column."""
    inner = f",\n{indent} ".join(_text(column, f"{indent}  ") for column in columns)
    return f"{indent}[{inner}]"


def _text(column: Column, indent: str) -> str:
    text = json.dumps(_to_dict(column), ensure_ascii=False)
    if type_name(column.field.type) not in _NESTED:
        return text
    return f'{text[:-1]}, "fields":\n{_lines(column.children, indent)}}}'


def _to_dict(column: Column) -> dict[str, Any]:
    """Return the JSON of a column, without its children."""
    field = column.field
    found = {"id": column.id, "name": field.name, "type": type_name(field.type), "nullable": field.nullable}
    if field.metadata:
        try:
            found["metadata"] = {key.decode(): value.decode() for key, value in field.metadata.items()}
        except UnicodeDecodeError as error:
            raise ColumnTypeError(
                f"the metadata of column {field.name!r} is not text: {error}; leave it out, "
                "as the field's remove_metadata() does"
            ) from error
    return found


def _from_dict(found: Any) -> Column:
    children = tuple(map(_from_dict, found.get("fields", ())))
    fields = [child.field for child in children]
    name, nullable, id_ = found["name"], found["nullable"], found["id"]
    if (type(name), type(nullable), type(id_)) != (str, bool, int) or not 0 <= id_ < _IDS:
        raise TypeError(f"a column has the name {name!r}, the id {id_!r} and is nullable: {nullable!r}")
    field = pa.field(name, _type(found["type"], fields), nullable, found.get("metadata"))
    return Column(id_, field, children)


def _type(name: str, fields: Sequence[Any]) -> Any:
    if name in _NESTED:
        if len(fields) != (len(fields) if _NESTED[name] is None else _NESTED[name]):
            raise ValueError(f"a {name} does not have {len(fields)} fields")
        check_names([field.name for field in fields], name)
        return with_children(_EXAMPLES[name], fields)
    decimal = _DECIMAL.fullmatch(name)
    if decimal:
        return pa.decimal128(*map(int, decimal.groups()))
    if name not in _LEAVES:
        raise ValueError(f"the type {name!r} is unknown")
    return _LEAVES[name]


def _check(versions: Sequence[Columns]) -> None:
    if not versions:
        raise ValueError("there is no schema")
    for columns in versions:
        ids = list(all_ids(columns))
        if len(set(ids)) < len(ids):
            raise ValueError("an id is used twice in a schema")
        check_names([column.field.name for column in columns], "")


_EXAMPLES: Final[Mapping[str, Any]] = {
    "struct": pa.struct([]),
    "list": pa.list_(pa.null()),
    "map": pa.map_(pa.string(), pa.null()),
}
