"""From the rows of an input DataFrame to records: which columns, of which types, and what happens to unusable rows.

Rule of this module: everything that can be known from the schema is checked in the driver before the query starts; what
only the data can tell is checked once, where the rows are packed. A column whose type is the serde's own is taken as it
is; a binary column is what the serde wrote (as from Kafka), and is deserialised with it.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from millpond.errors import ConfigurationError, RecordError, SerdeError
from millpond.processors.options.records import Consumed
from millpond.processors.runtime.counters import CounterName
from millpond.stores.serdes import BYTES, STRING, Serde, serde

SKIP_REASONS: Final = (
    CounterName.DROPPED_NULL_KEY,
    CounterName.DROPPED_BAD_KEY,
    CounterName.DROPPED_BAD_TIMESTAMP,
    CounterName.DROPPED_BAD_VALUE,
)
"""Why a record is unusable."""

_NATIVE: Final[Mapping[str, tuple[type[T.DataType], ...]]] = {
    "string": (T.StringType, T.CharType, T.VarcharType),
    "int64": (T.LongType, T.IntegerType, T.ShortType, T.ByteType),
    "float64": (T.DoubleType, T.FloatType),
    "bytes": (T.BinaryType,),
}


class OnError(StrEnum):
    """What happens to a record that cannot be processed."""

    FAIL = "fail"
    """The query fails with an error that names topic, column and row; nothing of the micro-batch is committed."""

    SKIP = "skip"
    """The record is left out and counted in the query's progress, under ``observedMetrics``."""


@dataclass(frozen=True)
class Source:
    """How the packed records of one source topic are read. Travels to the workers.

    Attributes:
        topic: the topic.
        key, value, timestamp: the names of the DataFrame's columns, for messages.
        key_serde: makes a key's bytes, or reads it where the column is binary.
        value_serde: reads binary values; None where values are taken as they are.
        decode_key: whether the key column holds serialised keys.
        keyed: whether a key's bytes decide where its record goes; if not, records without a key are welcome.
        on_error: what happens to unusable records.
    """

    topic: str
    key: str
    value: str
    timestamp: str
    key_serde: Serde[Any] | None
    value_serde: Serde[Any] | None
    decode_key: bool
    keyed: bool
    on_error: OnError


class Records(NamedTuple):
    """The usable rows, the bytes of their keys in the same order, and how many were skipped for which reason."""

    table: pa.Table
    keys: list[bytes]
    skipped: Counter[str]


def select_source(
    frame: DataFrame, topic: str, consumed: Consumed, on_error: OnError, *, keyed: bool
) -> tuple[DataFrame, Source]:
    """The DataFrame's records as columns key, value, timestamp (long, milliseconds), and how to read them.

    Raises:
        ConfigurationError: a column is missing or of a type that its serde cannot take.
    """
    key_type = _column_type(frame, topic, consumed.key, "key")
    value_name, value = _value(frame, topic, consumed)
    value_type = frame.select(value).schema[0].dataType
    key_serde = None if consumed.key_serde is None else serde(consumed.key_serde)
    value_serde = None if consumed.value_serde is None else serde(consumed.value_serde)
    if isinstance(key_type, T.ArrayType | T.MapType | T.StructType | T.NullType):
        raise ConfigurationError(
            f"topic {topic!r}: the key column {consumed.key!r} is of type {key_type.simpleString()}, which cannot be a "
            "key; make one string or number of it first"
        )
    decode_key = _decodes(topic, consumed.key, key_type, key_serde)
    decode_value = _decodes(topic, value_name, value_type, value_serde)
    source = Source(
        topic=topic,
        key=consumed.key,
        value=value_name,
        timestamp=consumed.timestamp,
        key_serde=key_serde,
        value_serde=value_serde if decode_value else None,
        decode_key=decode_key,
        keyed=keyed,
        on_error=on_error,
    )
    time = _milliseconds(frame, topic, consumed.timestamp)
    return frame.select(_named(consumed.key).alias("key"), value.alias("value"), time.alias("timestamp")), source


def internal_source(topic: str, consumed: Consumed) -> Source:
    """How the records of a repartition topic are read: as the sub-topology before serialised them."""
    return Source(
        topic=topic,
        key="key",
        value="value",
        timestamp="timestamp",
        key_serde=serde(consumed.key_serde or BYTES),
        value_serde=serde(consumed.value_serde or BYTES),
        decode_key=True,
        keyed=True,
        on_error=OnError.FAIL,
    )


def _named(column: str) -> Column:
    return F.col("`" + column.replace("`", "``") + "`")


def _column_type(frame: DataFrame, topic: str, column: str, role: str) -> T.DataType:
    for field in frame.schema.fields:
        if field.name == column:
            return field.dataType
    raise ConfigurationError(
        f"the DataFrame for topic {topic!r} has no column {column!r} for the {role}, only {', '.join(frame.columns)}. "
        f"Name the column: Consumed(..., {role}=...)"
    )


def _value(frame: DataFrame, topic: str, consumed: Consumed) -> tuple[str, Column]:
    if consumed.value is not None:
        _column_type(frame, topic, consumed.value, "value")
        return consumed.value, _named(consumed.value)
    if "value" in frame.columns:
        return "value", _named("value")
    return "(the whole row)", F.struct(*map(_named, frame.columns))


def _milliseconds(frame: DataFrame, topic: str, column: str) -> Column:
    type_ = _column_type(frame, topic, column, "timestamp")
    if isinstance(type_, T.TimestampType | T.TimestampNTZType | T.DateType):
        return F.unix_millis(_named(column).cast("timestamp"))
    if isinstance(type_, T.IntegralType):
        return _named(column).cast("long")
    raise ConfigurationError(
        f"topic {topic!r}: the timestamp column {column!r} is of type {type_.simpleString()}; "
        "give a timestamp, or a long of milliseconds since 1970"
    )


def _decodes(topic: str, column: str, type_: T.DataType, reader: Serde[Any] | None) -> bool:
    """Whether the column holds what the serde wrote, rather than plain values."""
    if reader is None or (reader is BYTES and isinstance(type_, T.BinaryType)):
        return False
    if isinstance(type_, T.BinaryType):
        return True
    native = _NATIVE.get(reader.name)
    if native is not None and not isinstance(type_, native):
        raise ConfigurationError(
            f"topic {topic!r}: column {column!r} is of type {type_.simpleString()}, which the {reader.name} serde "
            "cannot take; cast the column or name another serde in Consumed"
        )
    return False


class RecordReader:
    """Turns packed rows into records, applying the policy for unusable ones."""

    def __init__(self, source: Source, split: int) -> None:
        self._source = source
        self._split = split
        self._rows = 0

    def read(self, table: pa.Table) -> Records:
        """The usable records of the next rows of this split.

        Raises:
            RecordError: a record is unusable, and the policy is to fail.
        """
        skipped: Counter[str] = Counter()
        source = self._source
        if source.keyed:
            table = self._drop(table, pc.is_null(table["key"]), CounterName.DROPPED_NULL_KEY, source.key, skipped)
        times: Any = table["timestamp"]
        untimed: Any = pc.fill_null(pc.less(times, pa.scalar(0)), True)
        table = self._drop(table, untimed, CounterName.DROPPED_BAD_TIMESTAMP, source.timestamp, skipped)
        if source.value_serde is not None:
            bad = _failures(source.value_serde.deserialize, table["value"].to_pylist())
            table = self._drop(table, bad, CounterName.DROPPED_BAD_VALUE, source.value, skipped)
        table, keys = self._serialised_keys(table, skipped)
        self._rows += table.num_rows
        return Records(table, keys, skipped)

    def _serialised_keys(self, table: pa.Table, skipped: Counter[str]) -> tuple[pa.Table, list[bytes]]:
        """The rows with good keys, and the keys' bytes where they decide anything."""
        source, column = self._source, table["key"]
        if source.key_serde is None or not (source.keyed or source.decode_key):
            return table, []
        if source.key_serde is STRING and not source.decode_key:
            text: list[Any] = column.cast(pa.binary()).to_pylist()
            return table, text
        check = source.key_serde.deserialize if source.decode_key else source.key_serde.serialize
        table = self._drop(
            table, _failures(check, column.to_pylist()), CounterName.DROPPED_BAD_KEY, source.key, skipped
        )
        keys: list[Any] = table["key"].to_pylist()
        return table, keys if source.decode_key else list(map(source.key_serde.serialize, keys))

    def _drop(self, table: pa.Table, bad: Any, reason: CounterName, column: str, skipped: Counter[str]) -> pa.Table:
        count = 0 if bad is None else pc.sum(bad).as_py() or 0
        if not count:
            return table
        if self._source.on_error is OnError.FAIL:
            raise self._error(table, pc.index(bad, True).as_py(), reason, column)
        skipped[reason.value] += count
        return table.filter(pc.invert(bad))

    def _error(self, table: pa.Table, row: int, reason: CounterName, column: str) -> RecordError:
        fault = reason.removeprefix("dropped-").replace("-", " ")
        shown = ", ".join(f"{name}={table[name][row].as_py()!r:.200}" for name in table.column_names)
        return RecordError(
            f"topic {self._source.topic!r}: column {column!r}: {fault} in row {self._rows + row} of "
            f"Spark partition {self._split} ({shown}); clean the input, or set on_error='skip' to leave such records "
            "out and count them"
        )


def _failures(operation: Callable[[Any], Any], values: list[Any]) -> Any:
    """Which of the values the operation refuses; None where it takes them all. Nulls are left alone."""
    try:
        for value in values:
            if value is not None:
                operation(value)
    except SerdeError:
        return pa.array([value is not None and _fails(operation, value) for value in values], pa.bool_())
    return None


def _fails(operation: Callable[[Any], Any], value: Any) -> bool:
    try:
        operation(value)
    except SerdeError:
        return True
    return False
