"""Random Arrow types and columns, made the slow way: value by value, out of physical values and Arrow's own reading."""

from collections.abc import Sequence
from decimal import Context, Decimal
from typing import Any

import msgpack
import pyarrow as pa
from hypothesis import strategies as st

from millpond.stores.encoding.rows.physical import to_physical

LEAVES: list[Any] = [
    pa.bool_(),
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.string(),
    pa.binary(),
    pa.date32(),
    pa.time64("us"),
    pa.timestamp("us"),
    pa.timestamp("us", "UTC"),
    pa.duration("us"),
]
NAMES = ("alpha", "beta", "gamma", "delta")

_EXACT = Context(prec=60)


def decimals() -> st.SearchStrategy[Any]:
    return st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: pa.decimal128(p, s)))


def leaves() -> st.SearchStrategy[Any]:
    return st.one_of(st.sampled_from(LEAVES), decimals(), st.just(pa.null()))


def types() -> st.SearchStrategy[Any]:
    return st.recursive(leaves(), _nested, max_leaves=5)


def _nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    keys = st.one_of(st.sampled_from(LEAVES), decimals())
    return st.one_of(
        inner.map(lambda type_: pa.list_(pa.field("element", type_))),
        st.tuples(keys, inner).map(lambda pair: map_type(*pair)),
        structs(inner),
    )


def structs(inner: st.SearchStrategy[Any], least: int = 0) -> st.SearchStrategy[Any]:
    return st.lists(inner, min_size=least, max_size=4).map(
        lambda fields: pa.struct([pa.field(name, type_) for name, type_ in zip(NAMES, fields, strict=False)])
    )


def map_type(key: Any, value: Any) -> Any:
    fields: Any = (pa.field("key", key, nullable=False), pa.field("value", value))
    return pa.map_(*fields)


def values(type_: Any, nullable: bool = True) -> st.SearchStrategy[Any]:
    """Return physical values of a type."""
    if pa.types.is_null(type_):
        return st.none()
    some = _some(type_)
    return st.none() | some if nullable else some


def _some(type_: Any) -> st.SearchStrategy[Any]:
    if pa.types.is_struct(type_):
        return st.tuples(*(values(field.type) for field in type_)).map(list)
    if pa.types.is_map(type_):
        entries = st.tuples(values(type_.key_type, nullable=False), values(type_.item_type)).map(list)
        return st.lists(entries, max_size=3)
    if pa.types.is_list(type_):
        return st.lists(values(type_.value_type), max_size=3)
    if pa.types.is_decimal(type_):
        return _unscaled(type_.precision)
    if pa.types.is_floating(type_):
        return st.floats(width=32 if type_.bit_width == 32 else 64) | st.sampled_from(
            [0.0, -0.0, float("nan"), float("inf")]
        )
    if pa.types.is_boolean(type_):
        return st.booleans()
    if pa.types.is_string(type_):
        return st.text(st.characters(codec="utf-8"), max_size=6) | st.sampled_from(["", "\0", "a\0", "ÿ"])
    if pa.types.is_binary(type_):
        return st.binary(max_size=6) | st.sampled_from([b"", b"\0", b"\0\xff", b"\xff"])
    if pa.types.is_time64(type_):
        return st.integers(0, 86_400_000_000 - 1)
    most = 2 ** (type_.bit_width - 1)
    return st.integers(-most, most - 1) | st.sampled_from([-most, most - 1, 0, -1])


def _unscaled(precision: int) -> st.SearchStrategy[Any]:
    most = 10**precision - 1
    numbers = st.integers(-most, most) | st.sampled_from([-most, most, 0, -1])
    return numbers if precision <= 18 else numbers.map(lambda number: number.to_bytes(16, "big", signed=True))


def logical(value: Any, type_: Any) -> Any:
    """Return what ``pa.array`` takes for a physical value."""
    if value is None:
        return None
    if pa.types.is_struct(type_):
        return {field.name: logical(part, field.type) for part, field in zip(value, type_, strict=True)}
    if pa.types.is_map(type_):
        return [(logical(key, type_.key_type), logical(item, type_.item_type)) for key, item in value]
    if pa.types.is_list(type_):
        return [logical(element, type_.value_type) for element in value]
    if pa.types.is_decimal(type_):
        number = int.from_bytes(value, "big", signed=True) if isinstance(value, bytes) else value
        return Decimal(number).scaleb(-type_.scale, _EXACT)
    return value


def column(physical: Sequence[Any], type_: Any) -> Any:
    """Return an Arrow array, made by Arrow out of Python's objects."""
    return pa.array([logical(value, type_) for value in physical], type_)


def physical_rows(table: pa.Table) -> list[Any]:
    """Return the rows of a table, as lists of physical values."""
    columns = [to_physical(column) for column in table.columns]
    return [[values[row] for values in columns] for row in range(table.num_rows)]


def bits(physical: Any) -> bytes:
    """Return bytes that are equal for equal values, with NaN and the sign of zero told apart."""
    data: bytes = msgpack.packb(physical)
    return data


@st.composite
def columns(draw: st.DrawFn, of: st.SearchStrategy[Any] | None = None) -> tuple[Any, list[Any]]:
    """Return a type, and physical values of it."""
    type_ = draw(types() if of is None else of)
    return type_, draw(st.lists(values(type_), max_size=6))
