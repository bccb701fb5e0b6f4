"""The columns of a table as Spark writes them down in JSON, which is what Delta Lake does, too.

Rule of this module: a column of a type that is not here is left out, as if the table did not have it.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa

_PLAIN: Final[Mapping[str, pa.DataType]] = {
    "string": pa.string(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
UNREADABLE: Final = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""The exceptions that reading raises of JSON that is not as Spark writes it."""
_DECIMAL: Final = re.compile(r"decimal\((\d+), ?(-?\d+)\)")


def arrow_schema(text: str) -> pa.Schema:
    """Return the columns. Raises one of ``UNREADABLE`` if these are none.

    >>> fields = '[{"name": "at", "type": "timestamp"}, {"name": "nothing", "type": "void"}]'
    >>> arrow_schema(f'{{"type": "struct", "fields": {fields}}}')
    at: timestamp[us, tz=UTC]
    """
    return pa.schema(list(_fields(json.loads(text)["fields"])))


def _fields(fields: Any) -> Iterator[Any]:
    for field in fields:
        type_ = _type(field["type"])
        if type_ is not None:
            yield pa.field(field["name"], type_)


def _type(type_: Any) -> pa.DataType | None:
    """Return the type; None if it cannot be read."""
    if isinstance(type_, str):
        decimal = _DECIMAL.fullmatch(type_)
        return pa.decimal128(int(decimal[1]), int(decimal[2])) if decimal else _PLAIN.get(type_)
    if type_["type"] == "struct":
        fields = list(_fields(type_["fields"]))
        return pa.struct(fields) if len(fields) == len(type_["fields"]) else None
    if type_["type"] == "array":
        element = _type(type_["elementType"])
        return None if element is None else pa.list_(element)
    if type_["type"] == "map":
        key, value = _type(type_["keyType"]), _type(type_["valueType"])
        return None if key is None or value is None else pa.map_(key, value)
    return None
