"""Physical values: values that MessagePack can hold, for every Arrow type that Spark has, and back.

Rule of this module: a value that is converted there and back is the same, bit by bit, and no conversion is silent. It
knows neither bytes of rows nor schemas. ::

    Arrow type                        physical value
    bool                              bool
    int8, int16, int32, int64         int
    float32, float64                  float
    decimal128(p, s), p <= 18         int: the unscaled value
    decimal128(p, s), p > 18          bytes: the unscaled value, 16 bytes, two's complement, big-endian
    string                            str
    binary                            bytes
    date32                            int: days since 1970-01-01
    timestamp[us], with zone or not   int: microseconds since 1970-01-01 00:00, in UTC or of the same clock
    time64[us]                        int: microseconds since midnight
    duration[us]                      int: microseconds
    list                              list
    map                               list of [key, value]
    struct                            list of the values of its fields, in their order
    null, and any null                None

Besides, there is ``WHOLE``, which no column of a user has.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, pairwise
from operator import itemgetter
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.errors import ColumnTypeError, DuplicateColumnError, InvalidValueError, RecordError, SerdeError

SHORT_DECIMAL: Final = 18
"""The most digits of a decimal that is an int; wider ones are bytes."""

WHOLE: Final[pa.DataType] = pa.binary(16)
"""Integers of 128 bits as Arrow's decimals have them: an int if 64 bits hold it, else the bytes of a wide decimal."""

_MICROS: Final = {"s", "ms", "us"}
_PLAIN: Final[Mapping[str, pa.DataType]] = {
    "large_string": pa.string(),
    "string_view": pa.string(),
    "large_binary": pa.binary(),
    "binary_view": pa.binary(),
    "time32[s]": pa.time64("us"),
    "time32[ms]": pa.time64("us"),
    "time64[ns]": pa.time64("us"),  # Spark's TIME in Arrow, whatever its precision; finer values are refused
}
_WORDS: Final[Mapping[pa.DataType, str]] = {
    pa.int8(): "<i1",
    pa.int16(): "<i2",
    pa.int32(): "<i4",
    pa.int64(): "<i8",
    pa.float32(): "<f4",
    pa.float64(): "<f8",
    pa.date32(): "<i4",
    pa.time64("us"): "<i8",
    pa.timestamp("us"): "<i8",
    pa.timestamp("us", "UTC"): "<i8",
    pa.duration("us"): "<i8",
}
"""The types whose values are numbers of a fixed width, and the form of these in memory."""
_OBJECTS: Final = {pa.bool_(), pa.string(), pa.binary()}


def normalized(type_: pa.DataType, path: str = "") -> pa.DataType:
    """Return the one form of all types that hold the same values, recursively; nullability and metadata of fields stay.

    Large and view types become the plain ones, times and durations microseconds, zones UTC. Elements of lists are
    called ``element``, keys and values of maps ``key`` and ``value``, as Spark does.

    Args:
        type_: any Arrow type.
        path: the name of the column for errors.

    Raises:
        ConfigurationError: there is no physical form for the type; nanoseconds, for example, would lose digits.

    >>> normalized(pa.large_list(pa.field("item", pa.timestamp("ms", "Europe/Berlin"))))
    ListType(list<element: timestamp[us, tz=UTC]>)
    """
    if type_ in _WORDS or type_ in _OBJECTS or pa.types.is_null(type_) or pa.types.is_decimal128(type_):
        return type_
    if pa.types.is_timestamp(type_) and type_.unit in _MICROS:
        return pa.timestamp("us", None if type_.tz is None else "UTC")
    if pa.types.is_duration(type_) and type_.unit in _MICROS:
        return pa.duration("us")
    if pa.types.is_struct(type_):
        return pa.struct([_normalized_field(field, field.name, path) for field in type_])
    if pa.types.is_map(type_):
        return _map_type(
            _normalized_field(type_.key_field, "key", path), _normalized_field(type_.item_field, "value", path)
        )
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return pa.list_(_normalized_field(type_.value_field, "element", path))
    if str(type_) in _PLAIN:
        return _PLAIN[str(type_)]
    of = f"column {path!r} is of type {type_}, which" if path else f"the type {type_}"
    raise ColumnTypeError(f"{of} cannot be kept in packed rows; cast it to one of Spark's types first")


def normalized_schema(schema: pa.Schema) -> pa.Schema:
    """Return ``schema`` with all types in their one form, and without metadata of its own.

    Raises:
        ConfigurationError: a column cannot be packed, or two have the same name.
    """
    fields = [_normalized_field(field, field.name, "") for field in schema]
    check_names([field.name for field in fields], "")
    return pa.schema(fields)


def check_names(names: Sequence[str], path: str) -> None:
    """Refuse columns that could not be told apart.

    Raises:
        ConfigurationError: two of ``names`` are equal.
    """
    twice = sorted(name for name, times in Counter(names).items() if times > 1)
    if twice:
        where = f" in {path!r}" if path else ""
        raise DuplicateColumnError(f"more than one column is called {twice[0]!r}{where}; rename all but one")


def to_physical(column: "pa.Array[Any] | pa.ChunkedArray[Any]") -> list[Any]:
    """Return the values of a column, as lists, ints, floats, strings, bytes and None.

    Raises:
        ConfigurationError: there is no physical form for the column's type.
        RecordError: a value cannot be held: a string that is not UTF-8, a time beyond the range of microseconds.
    """
    if isinstance(column, pa.ChunkedArray):
        return list(chain.from_iterable(map(to_physical, column.chunks)))
    type_ = column.type
    if pa.types.is_struct(type_):
        return _with_nulls(_structs(column), column)
    if pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_map(type_):
        return _with_nulls(_lists(column), column)
    if type_ == WHOLE:
        return _with_nulls(_wholes(column), column)
    return _leaves(plain_leaves(column))


def plain_leaves(column: Any) -> Any:
    """Return a column that is not nested, in the one form of its type.

    Raises:
        RecordError: a value does not fit: a time beyond the range of microseconds.
    """
    type_ = normalized(column.type)
    if type_ == column.type:
        return column
    try:
        return column.cast(type_)
    except pa.ArrowInvalid as error:
        raise InvalidValueError(f"a {column.type} cannot be kept as {type_}: {error}; filter such rows out") from error


def check_text(column: Any) -> None:
    """Refuse a column with a string that is not UTF-8.

    Raises:
        RecordError: a string is not UTF-8.
    """
    if pa.types.is_string(column.type):
        try:
            column.validate(full=True)
        except pa.ArrowInvalid as error:
            raise _not_text(error) from error


def _not_text(error: Exception) -> RecordError:
    return InvalidValueError(f"a string is not UTF-8 ({error}); make the column binary, or clean it")


def elements(column: Any) -> tuple[Any, list[int]]:
    """Return the elements of a column of lists or maps, and the bounds of the rows among them: n + 1 for n rows."""
    if not len(column):  # some releases of Arrow for Java leave out even the only offset that there is
        return column.values.slice(0, 0), [0]
    ends = column.offsets.to_numpy()
    within = column.values.slice(int(ends[0]), int(ends[-1] - ends[0]))
    return within, (ends - ends[0]).tolist()


def is_word(type_: pa.DataType) -> bool:
    """Return whether the values of a type in its one form are numbers of a fixed width, decimals apart."""
    return type_ in _WORDS


def words(column: "pa.Array[Any]") -> npt.NDArray[Any]:
    """Return the numbers of a column whose type is in its one form and of a fixed width; for a null, any number."""
    return _fixed(column, np.dtype(_WORDS[column.type]))


def unscaled(column: "pa.Array[Any]") -> npt.NDArray[np.uint64]:
    """Return the lower and upper half, in two's complement, of the integers of a ``decimal128`` or ``WHOLE`` column."""
    return _fixed(column, np.dtype(("<u8", 2)))


def is_short(halves: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
    """Return a mask of the integers from ``unscaled`` that have no more than 64 bits."""
    short: npt.NDArray[np.bool_] = halves.view(np.int64)[:, 1] == halves.view(np.int64)[:, 0] >> 63
    return short


def of_halves(halves: npt.NDArray[Any], nulls: npt.NDArray[np.bool_], type_: Any) -> Any:
    """Return the column of a type of wide decimals, or of ``WHOLE``, from the halves that ``unscaled`` returns.

    Raises:
        pyarrow.ArrowInvalid: one is beyond its type.
    """
    return _decimals_of(halves, validity(nulls), type_)


def big_endian(halves: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint8]:
    """Return the result of ``unscaled`` as 16 big-endian bytes in each row."""
    return np.ascontiguousarray(halves[:, ::-1]).astype(">u8").view(np.uint8)


def null_mask(column: "pa.Array[Any]") -> npt.NDArray[np.bool_]:
    """Return a mask of the nulls of ``column``."""
    mask: npt.NDArray[np.bool_] = column.is_null().to_numpy(zero_copy_only=False)
    return mask


def around(elements: Any, type_: Any, length: int, buffers: list[Any]) -> Any:
    """Return a column of lists or maps around its elements.

    Args:
        elements: the elements of the lists; for maps, structs of key and value.
        type_: the type of the column.
        length: the length of the column.
        buffers: the nulls among the rows, and the bounds of each among the elements.

    Raises:
        ValueError: a key of a map is null.
    """
    # Arrow 15 ends the process for keys that may be null, and until somebody asks, any may.
    if pa.types.is_map(type_) and elements.field(0).null_count:
        raise ValueError("a key of a map is null")
    return pa.Array.from_buffers(type_, length, buffers, children=[elements])


def from_physical(values: Sequence[Any], type_: pa.DataType) -> "pa.Array[Any]":
    """Return the column for which ``to_physical`` returns ``values``; tuples may stand for lists.

    Args:
        values: one for each row.
        type_: a type as ``normalized`` returns it.

    Raises:
        SerdeError: a value is not the physical form of a value of that type.
    """
    try:
        array: pa.Array[Any] = _array(values, type_)
    except (pa.ArrowException, TypeError, ValueError, LookupError, OverflowError, RecursionError) as error:
        raise SerdeError(f"a value cannot be read as {type_}: {error}") from error
    return array


def _normalized_field(field: Any, name: str, path: str) -> Any:
    path = f"{path}.{name}" if path else name
    type_ = normalized(field.type, path)
    if pa.types.is_struct(type_):
        check_names([child.name for child in type_], path)
    return pa.field(name, type_, field.nullable, field.metadata)


def _map_type(key: Any, value: Any) -> pa.DataType:
    return pa.map_(key, value)


def _leaves(column: Any) -> list[Any]:
    if pa.types.is_null(column.type):
        return [None] * len(column)
    if column.type in _OBJECTS:
        return _objects(column)
    return _with_nulls(_decimals(column) if pa.types.is_decimal(column.type) else words(column).tolist(), column)


def _objects(column: Any) -> list[Any]:
    try:
        values: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
    except (UnicodeDecodeError, pa.ArrowException) as error:
        raise _not_text(error) from error
    return values


def _fixed(column: Any, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    data: Any = column.buffers()[1]
    if not len(column) or data is None:  # without a buffer, Arrow means that every value is null
        return np.zeros((len(column), *dtype.shape), dtype.base)
    numbers: npt.NDArray[Any] = np.frombuffer(data, dtype, len(column), column.offset * dtype.itemsize)
    return numbers


def _decimals(column: Any) -> list[Any]:
    halves = unscaled(column)
    if column.type.precision <= SHORT_DECIMAL:
        return list(halves[:, 0].astype(np.int64).tolist())
    return list(big_endian(halves).view("V16").ravel().tolist())


def _wholes(column: Any) -> list[Any]:
    halves = unscaled(column)
    values: list[Any] = halves[:, 0].astype(np.int64).tolist()
    long = np.flatnonzero(~is_short(halves))
    for row, value in zip(long.tolist(), big_endian(halves[long]).view("V16").ravel().tolist(), strict=True):
        values[row] = value
    return values


def _as_wide(value: Any) -> Any:
    """Return an int as the bytes of a wide decimal; bytes and None as they are."""
    return value.to_bytes(16, "big", signed=True) if value.__class__ is int else value


def _structs(column: Any) -> list[Any]:
    fields = [to_physical(column.field(number)) for number in range(column.type.num_fields)]
    return list(map(list, zip(*fields, strict=True))) if fields else [[] for _ in range(len(column))]


def _lists(column: Any) -> list[Any]:
    within, ends = elements(column)
    values = to_physical(within)
    return [values[start:stop] for start, stop in pairwise(ends)]


def _with_nulls(values: list[Any], column: Any) -> list[Any]:
    if column.null_count:
        for row in np.flatnonzero(null_mask(column)).tolist():
            values[row] = None
    return values


def _array(values: Sequence[Any], type_: Any) -> Any:
    if pa.types.is_struct(type_):
        return _struct_array(values, type_)
    if pa.types.is_map(type_):
        return _list_array(values, type_, pa.struct([type_.key_field, type_.item_field]))
    if pa.types.is_list(type_):
        return _list_array(values, type_, type_.value_field.type)
    if type_ == WHOLE or (pa.types.is_decimal128(type_) and type_.precision > SHORT_DECIMAL):
        return _wide_array(list(map(_as_wide, values)) if type_ == WHOLE else values, type_)
    if pa.types.is_decimal128(type_) or (type_ in _WORDS and not pa.types.is_floating(type_)):
        return from_integers(_int_array(values), type_)
    return pa.array(values, type_, from_pandas=False)


def _int_array(values: Sequence[Any]) -> Any:
    """Return an Arrow array of ints, and refuse other numbers, whose fractions ``pa.array`` would cut off."""
    array = pa.array(values, from_pandas=False)
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), pa.int64())
    if not pa.types.is_int64(array.type):
        raise TypeError(f"these are {array.type}, not int64")
    return array


def from_integers(array: Any, type_: Any) -> Any:
    """Return the column of a type of numbers, short decimals included, whose physical values are a column of int64.

    Raises:
        pyarrow.ArrowInvalid: one is beyond its type.
    """
    if pa.types.is_decimal(type_):
        lower = words(array)
        return _decimals_of(np.stack([lower, lower >> 63], axis=1), array.buffers()[0], type_)
    numbers = (array if type_.bit_width == array.type.bit_width else array.cast(f"int{type_.bit_width}")).view(type_)
    if pa.types.is_time(type_):
        numbers.validate(full=True)  # refuses times that are not within a day
    return numbers


def from_wide(data: npt.NDArray[np.uint8], nulls: npt.NDArray[np.bool_], type_: Any) -> Any:
    """Return the column of a type of wide decimals, whose physical values are rows of 16 bytes.

    Raises:
        pyarrow.ArrowInvalid: one is beyond its type.
    """
    halves = np.ascontiguousarray(data).view(">u8")[:, ::-1].astype("<u8", order="C")
    halves[nulls] = 0
    return _decimals_of(halves, validity(nulls), type_)


def _wide_array(values: Sequence[Any], type_: Any) -> Any:
    array = pa.array(values, pa.binary(16), from_pandas=False)
    return from_wide(_fixed(array, np.dtype((np.uint8, 16))), null_mask(array), type_)


def _decimals_of(halves: npt.NDArray[Any], validity: pa.Buffer | None, type_: Any) -> Any:
    numbers = pa.Array.from_buffers(type_, len(halves), [validity, pa.py_buffer(halves.tobytes())])
    numbers.validate(full=True)  # refuses numbers of more digits than the type has
    return numbers


def _list_array(values: Sequence[Any], type_: Any, element: pa.DataType) -> Any:
    ends = np.zeros(len(values) + 1, np.int32)
    np.cumsum([0 if value is None else len(value) for value in values], out=ends[1:])
    inner = _array(list(chain.from_iterable(value for value in values if value is not None)), element)
    return around(inner, type_, len(values), [_nulls(values), pa.py_buffer(ends.tobytes())])


def _struct_array(values: Sequence[Any], type_: Any) -> Any:
    count = type_.num_fields
    validity = _nulls(values)
    if validity is not None:
        nothing = (None,) * count
        values = [nothing if value is None else value for value in values]
    if not set(map(len, values)) <= {count}:
        raise ValueError(f"a struct does not have {count} values")
    pick: Callable[[int], Any] = itemgetter
    children = [_array(list(map(pick(number), values)), type_.field(number).type) for number in range(count)]
    return pa.Array.from_buffers(type_, len(values), [validity], children=children)


def _nulls(values: Sequence[Any]) -> pa.Buffer | None:
    if None not in values:
        return None
    return validity(np.fromiter((value is None for value in values), np.bool_, len(values)))


def validity(nulls: npt.NDArray[np.bool_]) -> pa.Buffer | None:
    """Return Arrow's validity bits, which are set where there is a value; None if there is one everywhere."""
    return pa.py_buffer(np.packbits(~nulls, bitorder="little").tobytes()) if nulls.any() else None
