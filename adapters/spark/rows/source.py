"""The columns of an input DataFrame that make a topic's records, and the way in which they are read.

Rule of this module: everything that can be known from the schema is checked here, in the driver, before the query
starts. A column whose type is the serde's own is taken as it is; a binary column holds what the serde wrote (as from
Kafka), and is deserialized with it. A serde of structs takes its fields out of a struct, or out of the whole row.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from millpond.adapters.spark.rows.column_types import check_leaf_types, check_operations
from millpond.adapters.spark.rows.names import named
from millpond.adapters.spark.rows.records import Source
from millpond.errors import ColumnTypeError, MissingSerdeError, UnknownColumnError
from millpond.processors.distribution.header_column import HEADERS
from millpond.processors.options.on_error import OnError
from millpond.processors.options.records import Consumed
from millpond.processors.rows.event_times import EventTimes
from millpond.stores.durability.storage.storage import Storage
from millpond.stores.encoding.serdes import BYTES, JSON, MSGPACK, Serde, StructSerde, serde
from millpond.stores.encoding.times import TimeUnit

_NATIVE: Final[Mapping[str, tuple[type[T.DataType], ...]]] = {
    "string": (T.StringType, T.CharType, T.VarcharType),
    "int64": (T.LongType, T.IntegerType, T.ShortType, T.ByteType),
    "float64": (T.DoubleType, T.FloatType),
    "bytes": (T.BinaryType,),
}
"""The types that the column must have for these serdes."""

_FIELDS: Final[Mapping[str, tuple[type[T.DataType], ...]]] = {
    "long": _NATIVE["int64"],
    "double": _NATIVE["float64"],
    "boolean": (T.BooleanType,),
    "string": _NATIVE["string"],
    "binary": _NATIVE["bytes"],
}
"""The types that a column must have for these fields of a struct."""

_PLAIN: Final = (
    T.NullType,
    T.BooleanType,
    T.IntegralType,
    T.FloatType,
    T.DoubleType,
    T.StringType,
    T.CharType,
    T.VarcharType,
)
_TYPED: Final = (
    T.BinaryType,
    T.DecimalType,
    T.DateType,
    T.TimeType,
    T.TimestampType,
    T.TimestampNTZType,
    T.DayTimeIntervalType,
)
_CARRIED: Final[Sequence[tuple[Serde[Any], tuple[type[T.DataType], ...]]]] = (
    (JSON, _PLAIN),
    (MSGPACK, (*_PLAIN, *_TYPED)),
)
"""The types that these serdes can carry, and arrays, maps and structs of them. Other serdes may carry anything."""

_WHOLE_ROW: Final = "(the whole row)"


def select_source(
    frame: DataFrame,
    topic: str,
    consumed: Consumed,
    on_error: OnError,
    *,
    keyed: bool,
    max_ahead: int | None = None,
    storage: Storage | None = None,
    beside: Sequence[Column] = (),
    called: str | None = None,
) -> tuple[DataFrame, Source]:
    """Return the DataFrame's records as columns key, value, timestamp (long, milliseconds), and how to read them.

    Args:
        frame: the input.
        topic: which topic's records they are.
        consumed: names the columns and the serdes.
        on_error: what happens to unusable records.
        keyed: whether a key's bytes decide where its record goes.
        max_ahead: how far timestamps may be ahead of the wall clock, in microseconds; None for any distance.
        storage: the state directory, whose clock is the wall clock where the worker's is apart from it.
        beside: what else is selected.
        called: how errors call it; by default the topic.

    Raises:
        ConfigurationError: a column is missing or of a type that its serde cannot take, or keys need a serde.
    """
    what = called or f"topic {topic!r}"
    key_type = _column_type(frame, what, consumed.key, "key")
    key_serde = None if consumed.key_serde is None else serde(consumed.key_serde)
    value_serde = None if consumed.value_serde is None else serde(consumed.value_serde)
    value_name, value = _value(frame, what, consumed, value_serde)
    value_type = frame.select(value).schema[0].dataType
    if isinstance(key_type, T.ArrayType | T.MapType | T.StructType | T.NullType):
        raise ColumnTypeError(
            f"{what}: the key column {consumed.key!r} is of type {key_type.simpleString()}, which cannot be a "
            "key; turn it into a string or a number first"
        )
    if keyed and key_serde is None:
        raise MissingSerdeError(
            f"{what}: a record goes to the task of its serialized key, but there is no serde for keys; give "
            "one: Consumed(key_serde=...)"
        )
    decode_key = _decodes(what, consumed.key, key_type, key_serde)
    decode_value = _decodes(what, value_name, value_type, value_serde)
    if not decode_key:
        _check_carried(what, "key", consumed.key, key_type, key_serde)
    if not decode_value:
        _check_carried(what, "value", "" if value_name == _WHOLE_ROW else value_name, value_type, value_serde)
    source = Source(
        topic=topic,
        key=consumed.key,
        value=value_name,
        timestamp=consumed.timestamp,
        key_serde=key_serde,
        value_serde=value_serde if decode_value else None,
        decode_key=decode_key,
        op=consumed.op or "",
        event_times=EventTimes(TimeUnit.MILLISECOND, max_ahead, storage),
        on_error=on_error,
    )
    time = in_milliseconds(frame, what, consumed.timestamp)
    columns = [named(consumed.key).alias("key"), value.alias("value"), time.alias("timestamp")]
    columns += [*_operation(frame, what, consumed), *_headers(frame, what, consumed)]
    return frame.select(*columns, *beside), source


def _column_type(frame: DataFrame, what: str, column: str, role: str) -> T.DataType:
    for field in frame.schema.fields:
        if field.name == column:
            return field.dataType
    raise UnknownColumnError(
        f"the DataFrame for {what} has no column {column!r} for the {role}, only {', '.join(frame.columns)}. "
        f"Name the column: Consumed(..., {role}=...)"
    )


def _value(frame: DataFrame, what: str, consumed: Consumed, reader: Serde[Any] | None) -> tuple[str, Column]:
    name = consumed.value or ("value" if "value" in frame.columns else None)
    if name is None:
        rest = [field for field in frame.schema.fields if field.name != consumed.op]
        if isinstance(reader, StructSerde):
            return _WHOLE_ROW, _struct(what, _WHOLE_ROW, reader, rest, named)
        return _WHOLE_ROW, F.struct(*(named(field.name) for field in rest))
    type_ = _column_type(frame, what, name, "value")
    value = named(name)
    if isinstance(reader, StructSerde) and isinstance(type_, T.StructType):
        return name, F.when(value.isNotNull(), _struct(what, name, reader, type_.fields, value.getField))
    return name, value


def _struct(
    what: str, column: str, reader: StructSerde, there: Sequence[T.StructField], get: Callable[[str], Column]
) -> Column:
    """Return the fields of the serde, each of its type, out of those that are there."""
    types = {field.name: field.dataType for field in there}
    fields = []
    for name, type_ in reader.layout.fields:
        if not isinstance(types.get(name), _FIELDS[type_]):
            found = f"is of type {types[name].simpleString()}" if name in types else "is not there"
            raise ColumnTypeError(
                f"{what}: the {reader.name} serde takes {name!r} out of {column!r} as {type_}, but it "
                f"{found}; cast the column, or name another serde in Consumed"
            )
        fields.append(get(name).cast(type_).alias(name))
    return F.struct(*fields)


def _operation(frame: DataFrame, what: str, consumed: Consumed) -> list[Column]:
    """Return the column that says what the rows of a change feed do, if there is one."""
    if consumed.op is None:
        return []
    operations = f"{what}: the operations in column {consumed.op!r}"
    check_operations(operations, _column_type(frame, what, consumed.op, "op"))
    return [named(consumed.op).alias("op")]


def _headers(frame: DataFrame, what: str, consumed: Consumed) -> list[Column]:
    """Return the column of headers, if there is one."""
    if consumed.headers is None:
        return []
    type_ = _column_type(frame, what, consumed.headers, HEADERS)
    pair = type_.elementType if isinstance(type_, T.ArrayType) else None
    fields = [(field.name, type(field.dataType)) for field in pair.fields] if isinstance(pair, T.StructType) else []
    if fields != [("key", T.StringType), ("value", T.BinaryType)]:
        raise ColumnTypeError(
            f"{what}: the column {consumed.headers!r} of headers is of type {type_.simpleString()}; give an "
            "array<struct<key:string,value:binary>>, as Spark's Kafka source does with includeHeaders=true"
        )
    return [named(consumed.headers).alias(HEADERS)]


def in_milliseconds(frame: DataFrame, what: str, column: str) -> Column:
    """Return a column of times in milliseconds since 1970.

    Raises:
        ConfigurationError: it is missing, or holds no times.
    """
    type_ = _column_type(frame, what, column, "timestamp")
    if isinstance(type_, T.TimestampType | T.TimestampNTZType | T.DateType):
        return F.unix_millis(named(column).cast("timestamp"))
    if isinstance(type_, T.IntegralType):
        return named(column).cast("long")
    raise ColumnTypeError(
        f"{what}: the timestamp column {column!r} is of type {type_.simpleString()}; "
        "give a timestamp, or a long of milliseconds since 1970"
    )


def _decodes(what: str, column: str, type_: T.DataType, reader: Serde[Any] | None) -> bool:
    """Return whether the column holds what the serde wrote, rather than plain values."""
    if reader is None or (reader is BYTES and isinstance(type_, T.BinaryType)):
        return False
    if isinstance(type_, T.BinaryType):
        return True
    native = (T.StructType,) if isinstance(reader, StructSerde) else _NATIVE.get(reader.name)
    if native is not None and not isinstance(type_, native):
        raise ColumnTypeError(
            f"{what}: column {column!r} is of type {type_.simpleString()}, which the {reader.name} serde "
            "cannot take; cast the column or name another serde in Consumed"
        )
    return False


def _check_carried(what: str, role: str, column: str, type_: T.DataType, writer: Serde[Any] | None) -> None:
    """Refuse what would fail in the middle of the query, where the serde meets the first value."""

    def refusal(_: str, part: T.DataType) -> str | None:
        objection = _objection(part, writer)
        better = f", or name a serde that can: Consumed({role}_serde='msgpack')" if isinstance(part, _TYPED) else ""
        advice = f"cast it (to a string, for example) or leave it out of the DataFrame{better}"
        return None if objection is None else f"which {objection}; {advice}"

    check_leaf_types(what, column, type_, refusal)


def _objection(type_: T.DataType, writer: Serde[Any] | None) -> str | None:
    if isinstance(type_, T.YearMonthIntervalType):
        return "Spark cannot hand to Python in Arrow's form"
    for known, carried in _CARRIED:
        if writer is known and not isinstance(type_, carried):
            return f"the {known.name} serde cannot carry"
    return None
