"""Rows as text, for people and for other programs.

Rule of this module: times are in the form of ISO 8601, bytes in hexadecimal digits, and what JSON has no form for as
Python writes it. Nothing is lost of a number.
"""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as _compute

from millpond.errors import InvalidArgumentError, PlaceTakenError
from millpond.stores.encoding.times import TimeUnit

pc: Any = _compute

_UNITS: Final = {"us": TimeUnit.MICROSECOND, "ms": TimeUnit.MILLISECOND}


def objects(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """Return the rows as objects of JSON."""
    columns = [_shown(column) for column in batch.columns]
    return (dict(zip(batch.schema.names, row, strict=True)) for row in zip(*columns, strict=True))


def line_of(row: dict[str, Any]) -> str:
    """Return an object of JSON as a line."""
    return json.dumps(row, ensure_ascii=False, default=_without_json)


def cells(row: dict[str, Any]) -> list[str]:
    """Return the values of a row as text; an empty text for a missing one."""
    return ["" if value is None else value if isinstance(value, str) else line_of(value) for value in row.values()]


class Writer:
    """Writes rows into a file as they come; use it as a context.

    Args:
        path: ends with ``.parquet``, ``.csv`` or ``.json`` (an object on each line).
        schema: the columns.

    Raises:
        ConfigurationError: the path ends with something else, or the file cannot be written.
    """

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        makers = {".parquet": self._parquet, ".csv": self._csv, ".json": self._json}
        if path.suffix not in makers:
            raise InvalidArgumentError(
                f"{path} ends with {path.suffix!r}; give a file that ends with {', '.join(makers)}"
            )
        self._path = path
        self._schema = schema
        self._make = makers[path.suffix]
        self._stack = ExitStack()

    def __enter__(self) -> "Writer":
        try:
            self._write = self._make()
        except OSError as error:
            raise PlaceTakenError(f"{self._path} cannot be written: {error}") from error
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the rows of a batch."""
        self._write(batch)

    def _parquet(self) -> Any:
        from pyarrow import parquet as pq

        # Parquet has no form for structs without fields, such as the key of all rows together.
        names = [field.name for field in self._schema if not pa.types.is_struct(field.type) or field.type.num_fields]
        schema = pa.schema([self._schema.field(name) for name in names])
        writer: Any = self._stack.enter_context(pq.ParquetWriter(str(self._path), schema, compression="zstd"))
        return lambda batch: writer.write_batch(batch.select(names))

    def _csv(self) -> Any:
        from csv import writer

        rows = writer(self._stack.enter_context(self._path.open("w", newline="", encoding="utf-8")))
        rows.writerow(self._schema.names)
        return lambda batch: rows.writerows(map(cells, objects(batch)))

    def _json(self) -> Any:
        file = self._stack.enter_context(self._path.open("w", encoding="utf-8"))
        return lambda batch: file.writelines(f"{line_of(row)}\n" for row in objects(batch))


def _shown(column: Any) -> list[Any]:
    """Return the values of a column."""
    type_ = column.type
    if pa.types.is_timestamp(type_) and type_.tz is not None:
        unit = _UNITS[type_.unit]
        return [None if time is None else unit.shown(time) for time in column.cast(pa.int64()).to_pylist()]
    if pa.types.is_struct(type_):
        fields = [_shown(field) for field in column.flatten()]
        names = [field.name for field in type_]
        rows = (
            [dict(zip(names, row, strict=True)) for row in zip(*fields, strict=True)] if names else [{}] * len(column)
        )
        return [row if there else None for row, there in zip(rows, column.is_valid().to_pylist(), strict=True)]
    found: list[Any] = column.to_pylist(**({"maps_as_pydicts": "strict"} if pa.types.is_nested(type_) else {}))
    return found


def _without_json(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
