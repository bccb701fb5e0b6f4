"""Columns as plain Python values: rows as a user's own code sees them, and times on their way to it and back.

Rule of this module: a value has one form, whatever release of Arrow made it. Points in time are datetimes in UTC, or
without a zone where the column has none; maps are dicts; structs are dicts; nulls are None.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pyarrow as pa

from millpond.errors import ColumnTypeError, InvalidValueError, SerdeError, TimeZoneError
from millpond.stores.encoding.rows.tuple_keys import KeyCodec
from millpond.stores.encoding.times import TimeUnit
from millpond.stores.typed.windows.windowed import Windowed

_LOCAL_EPOCH: Final = datetime(1970, 1, 1)
_EPOCH: Final = _LOCAL_EPOCH.replace(tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)

_Change = Callable[[Any], Any]


def to_datetime(micros: int) -> datetime:
    """Return the datetime in UTC of microseconds since 1970.

    Raises:
        OverflowError: it lies outside the years 1 to 9999.
    """
    return _EPOCH + timedelta(microseconds=micros)


def from_datetime(time: datetime, what: str) -> int:
    """Return microseconds since 1970; ``what`` names the datetime in errors.

    Raises:
        ConfigurationError: it has no time zone.
    """
    if time.tzinfo is None:
        raise TimeZoneError(f"{what} {time!r} has no time zone; give it one, as in {time.replace(tzinfo=UTC)!r}")
    return (time - _EPOCH) // _MICROSECOND


def check_readable(schema: pa.Schema, what: str) -> None:
    """Refuse columns that have no form in Python: maps whose keys cannot be keys of a dict.

    Raises:
        ConfigurationError: there is such a column; ``what`` names the place.
    """
    for field in schema:
        _check(field.type, field.name, what)


def python_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Return each row as a dict of its columns.

    Raises:
        RecordError: Python cannot hold a value, such as a time after the year 9999.
    """
    if not table.num_columns:
        return [{} for _ in range(table.num_rows)]
    names = table.column_names
    return [dict(zip(names, values, strict=True)) for values in zip(*_python_columns(table), strict=True)]


def python_keys(table: pa.Table) -> list[Any]:
    """Return the value of the only column in each row, or the tuple of all columns' values.

    Raises:
        RecordError: Python cannot hold a value, such as a time after the year 9999.
    """
    columns = _python_columns(table)
    return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))


def shown_key(codec: KeyCodec, key: Any) -> str:
    """Return a packed key by its columns, with the window if there is one, in one line."""
    if isinstance(key, Windowed):
        start, end = (TimeUnit.MICROSECOND.shown(time) for time in (key.start, key.end))
        return f"{shown_key(codec, key.key)}, window from {start} to {end}"
    try:
        return shown_columns(codec.unpack([key]).to_pylist()[0]) or "all rows"
    except SerdeError:
        return "a key that cannot be read"


def shown_columns(row: Mapping[str, Any]) -> str:
    """Return the columns of a row in one line."""
    return ", ".join(
        f"{name}={value}" if isinstance(value, datetime) else f"{name}={value!r}" for name, value in row.items()
    )


def python_values(name: str, column: Any) -> list[Any]:
    """Return the values of a column; ``name`` is what errors call it.

    Raises:
        RecordError: Python cannot hold a value, such as a time after the year 9999.
    """
    try:
        return _python_column(column)
    except (OverflowError, ValueError) as error:
        raise InvalidValueError(
            f"column {name!r} has a value that Python cannot hold ({error}); filter such rows out, or cast the "
            "column to a string or a number"
        ) from error


def _python_columns(table: pa.Table) -> list[list[Any]]:
    return [python_values(name, column) for name, column in zip(table.column_names, table.columns, strict=True)]


def _python_column(column: Any) -> list[Any]:
    if pa.types.is_timestamp(column.type):
        epoch = _LOCAL_EPOCH if column.type.tz is None else _EPOCH
        micros = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()).to_pylist()
        return [None if value is None else epoch + timedelta(0, 0, value) for value in micros]
    change = _change(column.type)
    values: list[Any] = column.to_pylist()
    return values if change is None else [None if value is None else change(value) for value in values]


def _change(type_: Any) -> _Change | None:
    """Return the function from Arrow's Python values of a type to their one form; None where they are that form."""
    if pa.types.is_timestamp(type_) and type_.tz is not None:
        return lambda value: value.astimezone(UTC)
    if pa.types.is_map(type_):
        return _map_change(type_)
    if pa.types.is_list(type_):
        item = _change(type_.value_type)
        return None if item is None else lambda values: [_changed(item, value) for value in values]
    if pa.types.is_struct(type_):
        changes = {field.name: _change(field.type) for field in type_}
        if any(changes.values()):
            return lambda value: {name: _changed(changes[name], part) for name, part in value.items()}
    return None


def _map_change(type_: Any) -> _Change:
    key, item = _change(type_.key_type), _change(type_.item_type)
    return lambda entries: {_changed(key, name): _changed(item, value) for name, value in entries}


def _changed(change: _Change | None, value: Any) -> Any:
    return value if change is None or value is None else change(value)


def _check(type_: Any, path: str, what: str) -> None:
    if pa.types.is_map(type_):
        if pa.types.is_nested(type_.key_type):
            raise ColumnTypeError(
                f"{what}: the keys of column {path!r} of type {type_} cannot be those of a dict; select the column as "
                "an array of entries (map_entries), or leave it out"
            )
        _check(type_.item_type, f"{path}.value", what)
    elif pa.types.is_list(type_):
        _check(type_.value_type, f"{path}.element", what)
    elif pa.types.is_struct(type_):
        for field in type_:
            _check(field.type, f"{path}.{field.name}", what)
