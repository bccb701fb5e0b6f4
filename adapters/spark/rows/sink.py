"""From the records of a sink to the rows of an output DataFrame.

Rule of this module: a column called ``key``, ``value`` or ``timestamp`` is the record's own; any other is the entry
of that name in its value, a dict (null if the value is None, or if there is no such entry and it is optional). Of a
windowed key, ``key`` is the key alone, and ``window_start`` and ``window_end`` are the window's. Without a schema the
serdes give these columns their types.

A query's sink has more columns, if the schema names them and the value has no such entry: ``op`` (a string:
``"delete"`` if the value is None, else ``"upsert"``), ``sequence`` (a bigint that orders the rows of a task) and
``headers`` (an array of structs of a key, a string, and a value, binary; null if the record has none).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from operator import attrgetter
from types import NoneType
from typing import Any, Final, Protocol, cast

import pyarrow as pa
import pyarrow.compute as _compute
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema

from millpond.errors import InvalidOutputError, InvalidValueError
from millpond.processors.distribution.header_column import HEADERS, header_column, is_headers_type
from millpond.processors.options.records import Produced
from millpond.processors.options.windowed_serdes import SessionWindowedSerde, TimeWindowedSerde
from millpond.processors.rows.column_values import ColumnsOwner, ColumnValues, optional_columns
from millpond.processors.rows.sink_rows import SinkTables
from millpond.processors.runtime.batches.batch import Batch
from millpond.processors.runtime.batches.columns import Columns, Records
from millpond.processors.runtime.batches.headers import NO_HEADERS
from millpond.processors.runtime.batches.windowed_columns import WindowedArray
from millpond.stores.encoding.column_serdes import column_serde
from millpond.stores.encoding.serdes import Serde, StructSerde, serde
from millpond.stores.typed.windows.windowed import Windowed

pc: Any = _compute

_TYPES: Final[Mapping[str, str]] = {"string": "string", "int64": "bigint", "float64": "double", "json": "string"}
"""The Spark type of a serde's values if there is no schema. Structs are structs; all others ``binary``, serialized."""

_MILLIS: Final = pa.timestamp("ms", tz="UTC")
_OF_WINDOW: Final[Mapping[str, Callable[[Windowed[Any]], Any]]] = {
    "key": attrgetter("key"),
    "window_start": attrgetter("start"),
    "window_end": attrgetter("end"),
}
CHANGE_COLUMNS: Final[Mapping[str, pa.DataType]] = {"op": pa.string(), "sequence": pa.int64()}
"""The columns that make the rows of a sink a change feed."""

_TIMES: Final = frozenset(("timestamp", "window_start", "window_end"))


class SinkColumns(SinkTables, Protocol):
    """The conversion of a sink's records to rows of a DataFrame. Travels to the workers."""

    @property
    def columns(self) -> str | T.StructType:
        """The columns for Spark, or as its DDL."""

    @property
    def schema(self) -> pa.Schema:
        """The same for Arrow."""


@dataclass(frozen=True)
class Sink:
    """One sink's rows, as ``Produced`` describes them. Travels to the workers.

    Attributes:
        topic: the sink's topic.
        columns: the columns as Spark DDL.
        schema: the same for Arrow.
        key_serde, value_serde: turn keys and values into bytes or text if there is no schema; None if there is one.
        optional: the entries that not every value has.
    """

    topic: str
    columns: str
    schema: pa.Schema
    key_serde: Serde[Any] | None
    value_serde: Serde[Any] | None
    optional: frozenset[str] = frozenset()

    @classmethod
    def of(cls, topic: str, produced: Produced) -> "Sink":
        """Return the sink's rows as ``produced`` describes them.

        Raises:
            TopologyError: the schema cannot be read, or lacks an optional column.
        """
        if produced.schema is not None:
            owner = ColumnsOwner(topic)
            _, schema = parsed(owner, produced.schema)
            optional = optional_columns(owner, schema, produced.optional)
            return cls(topic, produced.schema, schema, None, None, optional)
        if produced.optional:
            raise InvalidOutputError(
                f"sink {topic!r}: optional columns need a schema; give Produced(schema='key string, ...')"
            )
        assert produced.key_serde is not None
        assert produced.value_serde is not None
        key, value = serde(produced.key_serde), serde(produced.value_serde)
        window = ""
        if isinstance(key, TimeWindowedSerde | SessionWindowedSerde):
            key, window = key.key_serde, "window_start timestamp, window_end timestamp, "
        ddl = f"key {_type(key)}, {window}value {_type(value)}, timestamp timestamp"
        return cls(topic, ddl, parsed(ColumnsOwner(topic), ddl)[1], key, value)

    def to_table(self, records: Records, first: int | None = None) -> pa.Table:
        """Return the rows of the records.

        Args:
            records: the records.
            first: the ``sequence`` of the first of them; None if they are not changes but a content, which has neither
                ``op`` nor ``sequence``.

        Raises:
            RecordError: a value does not fit its column, or lacks its entry.
        """
        columns = [self._taken(records, field, first) for field in self.schema]
        made = [
            self._column(records.to_batch(), field, first) if taken is None else taken
            for field, taken in zip(self.schema, columns, strict=True)
        ]
        return pa.Table.from_arrays(made, schema=self.schema)

    def _taken(self, records: Records, field: Any, first: int | None) -> Any:
        """Return the sink's column if the records have it already, in the very type; None otherwise."""
        if not isinstance(records, Columns) or (first is not None and field.name in CHANGE_COLUMNS):
            return None
        if field.name == "timestamp":
            if pa.types.is_timestamp(field.type):
                return self._times(field, records.timestamps)
            column: Any = pa.array(records.timestamps)
        elif field.name in _OF_WINDOW and isinstance(records.keys, WindowedArray):
            column = self._of_windowed(records.keys, field)
        elif field.name == "key":
            column = _plain(records.keys, self.key_serde)
        elif field.name == "value":
            column = _plain(records.values, self.value_serde)
        else:
            column = _entry(records.values, field.name)
        return column if column is not None and column.type == field.type else None

    def _of_windowed(self, keys: WindowedArray, field: Any) -> Any:
        """Return a column of windowed keys as the sink has it; None if it is none of these."""
        if field.name == "key":
            return _plain(keys.entries("key"), self.key_serde)
        times = keys.entries(field.name.removeprefix("window_"))
        return self._times(field, times) if pa.types.is_timestamp(field.type) else times

    def _column(self, batch: Batch, field: Any, first: int | None) -> Any:
        if first is not None and CHANGE_COLUMNS.get(field.name) == field.type:
            return self._values.to_array(field.name, field.type, _of_change(batch, field.name, first))
        if first is not None and field.name == HEADERS and is_headers_type(field.type):
            return self._values.to_array(field.name, field.type, _of_headers(batch))
        entries = self._entries(batch, field.name)
        if field.name in _TIMES and pa.types.is_timestamp(field.type) and set(map(type, entries)) <= {int, NoneType}:
            return self._times(field, entries)
        return self._values.to_array(field.name, field.type, entries)

    def _times(self, field: Any, millis: Any) -> Any:
        try:
            return pa.array(millis, pa.int64()).cast(_MILLIS).cast(field.type)
        except (pa.ArrowException, OverflowError) as error:
            raise InvalidValueError(
                f"sink {self.topic!r}: column {field.name!r}: a time in milliseconds is out of range: {error}"
            ) from error

    def _entries(self, batch: Batch, name: str) -> Sequence[Any]:
        if name == "timestamp":
            return batch.timestamps
        if name in _OF_WINDOW and batch.keys and isinstance(batch.keys[0], Windowed):
            parts = list(map(_OF_WINDOW[name], batch.keys))
            return parts if name != "key" or self.key_serde is None else _flat(parts, self.key_serde)
        if name == "key":
            return batch.keys if self.key_serde is None else _flat(batch.keys, self.key_serde)
        if name == "value":
            return batch.values if self.value_serde is None else _flat(batch.values, self.value_serde)
        return self._values.entries(name, name, batch.values)

    @property
    def _values(self) -> ColumnValues:
        return ColumnValues(ColumnsOwner(self.topic), self.optional, type_named)


def _plain(column: Any, writer: Serde[Any] | None) -> Any:
    """Return a column of keys or values as the sink has them; None if the serde first makes something else of them."""
    return column if writer is None or column_serde(writer) is not None else None


def _entry(values: Any, name: str) -> Any:
    """Return the entries of that name of structs; None if these have no such entry, or no single one."""
    found = pa.types.is_struct(values.type) and values.type.get_field_index(name) >= 0
    return pc.struct_field(values, name) if found else None


def _of_change(batch: Batch, name: str, first: int) -> list[Any]:
    """Return the column ``op`` or ``sequence``; an entry of that name goes first."""
    own: Iterable[Any]
    if name == "op":
        own = ("delete" if value is None else "upsert" for value in batch.values)
    else:
        own = range(first, first + len(batch))
    return [
        value[name] if isinstance(value, Mapping) and name in value else made
        for value, made in zip(batch.values, own, strict=True)
    ]


def _of_headers(batch: Batch) -> list[Any]:
    """Return the column ``headers``; an entry of that name goes first."""
    made = header_column(headers or NO_HEADERS for headers in batch.headers_of_each).to_pylist()
    return [
        value[HEADERS] if isinstance(value, Mapping) and HEADERS in value else own
        for value, own in zip(batch.values, made, strict=True)
    ]


def _type(reader: Serde[Any]) -> str:
    if isinstance(reader, StructSerde):
        return f"struct<{', '.join(f'`{name}`: {type_}' for name, type_ in reader.layout.fields)}>"
    return _TYPES.get(reader.name, "binary")


def arrow_schema(columns: T.StructType) -> pa.Schema:
    """Return the columns for Arrow, with times in UTC."""
    # Newer releases of Spark require the time zone that older ones assume.
    options: dict[str, Any] = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
    return to_arrow_schema(columns, **options)


def type_named(type_: pa.DataType) -> str:
    """Return Spark's name of a type."""
    name: str = from_arrow_type(type_, prefer_timestamp_ntz=True).simpleString()
    return name


def parsed(owner: ColumnsOwner, ddl: str | T.StructType) -> tuple[T.StructType, pa.Schema]:
    """Return the columns of ``ddl`` for Spark and for Arrow.

    Raises:
        TopologyError: it is not Spark DDL.
    """
    try:
        columns = ddl if isinstance(ddl, T.StructType) else cast(T.StructType, T.StructType.fromDDL(ddl))
        return columns, arrow_schema(columns)
    except Exception as error:  # Spark's parser and its gateway raise many kinds of errors
        said = str(error).strip().partition("\n")[0] if isinstance(ddl, str) else f"it is of type {type(ddl).__name__}"
        raise InvalidOutputError(
            f"{owner}: the schema {ddl!r} is not Spark DDL: {said}; write it as 'name string, total bigint', or give a "
            "StructType"
        ) from error


def _flat(entries: Sequence[Any], reader: Serde[Any]) -> Sequence[Any]:
    """Return the entries as their column takes them: plain if the serde has a type in Spark, else serialized."""
    if reader.name == "json":
        return [None if entry is None else reader.serialize(entry).decode() for entry in entries]
    if reader.name in _TYPES or reader.name == "bytes" or isinstance(reader, StructSerde):
        return entries
    return _map_present(reader.serialize, entries)


def _map_present(operation: Callable[[Any], Any], entries: Sequence[Any]) -> list[Any]:
    return [None if entry is None else operation(entry) for entry in entries]
