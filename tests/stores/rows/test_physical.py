"""Physical values are exact, for every type of Spark, and what cannot be held is refused by name."""

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.errors import ConfigurationError, RecordError, SerdeError
from millpond.stores.encoding.rows.physical import from_physical, normalized, normalized_schema, to_physical
from tests.stores.rows.columns import bits, column, columns


@settings(deadline=None)
@given(columns())
def test_a_column_becomes_the_physical_values_that_it_was_made_of(made: tuple[Any, list[Any]]) -> None:
    type_, values = made
    assert bits(to_physical(column(values, type_))) == bits(values)


@settings(deadline=None)
@given(columns())
def test_physical_values_become_the_column_again(made: tuple[Any, list[Any]]) -> None:
    type_, values = made
    array = from_physical(values, type_)
    array.validate(full=not pa.types.is_time(type_))
    assert array.type == type_
    assert [value.is_valid for value in array] == [value is not None for value in values]
    assert bits(to_physical(array)) == bits(values)


@settings(deadline=None)
@given(columns(), st.integers(0, 6), st.integers(0, 6))
def test_slices_and_chunks_are_read_as_what_they_show(made: tuple[Any, list[Any]], start: int, size: int) -> None:
    type_, values = made
    array = column(values, type_)
    sliced = array.slice(min(start, len(values)), size)
    assert bits(to_physical(sliced)) == bits(values[start:][:size])
    chunked = pa.chunked_array([array, sliced, sliced.slice(1)] if len(sliced) else [array, sliced], type_)
    assert bits(to_physical(chunked)) == bits([*values, *values[start:][:size], *values[start:][:size][1:]])


PLAIN: list[tuple[Any, Any]] = [
    (pa.large_string(), pa.string()),
    (pa.large_binary(), pa.binary()),
    (pa.large_list(pa.int8()), pa.list_(pa.int8())),
    (pa.timestamp("s"), pa.timestamp("us")),
    (pa.timestamp("ms", "Europe/Berlin"), pa.timestamp("us", "UTC")),
    (pa.timestamp("us", "+02:00"), pa.timestamp("us", "UTC")),
    (pa.duration("ms"), pa.duration("us")),
    (pa.time32("s"), pa.time64("us")),
    (pa.time64("ns"), pa.time64("us")),
    (pa.struct([("a", pa.large_string())]), pa.struct([("a", pa.string())])),
    (pa.map_(pa.large_string(), pa.time32("ms")), pa.map_(pa.string(), pa.time64("us"))),
]


@pytest.mark.parametrize(("type_", "plain"), PLAIN, ids=lambda pair: str(pair))
def test_types_that_hold_the_same_values_have_one_form(type_: Any, plain: Any) -> None:
    assert normalized(type_) == plain
    assert normalized(plain) == plain


def test_values_of_other_forms_are_read_as_those_of_the_plain_one() -> None:
    times: Any = pa.array([1, None, -1], pa.timestamp("ms", "Asia/Tokyo"))
    assert to_physical(times) == [1000, None, -1000]
    assert to_physical(pa.array([["a"], None, []], pa.large_list(pa.large_string()))) == [["a"], None, []]


def test_nullability_and_metadata_of_fields_stay() -> None:
    variant = pa.struct(
        [
            pa.field("value", pa.large_binary(), nullable=False),
            pa.field("metadata", pa.binary(), nullable=False, metadata={b"variant": b"true"}),
        ]
    )
    plain: Any = normalized(pa.list_(pa.field("item", variant, nullable=False)))
    assert (plain.value_field.name, plain.value_field.nullable) == ("element", False)
    assert not plain.value_type.field(0).nullable
    assert plain.value_type.field(1).metadata == {b"variant": b"true"}


@pytest.mark.parametrize(
    "type_",
    [
        pa.timestamp("ns"),
        pa.duration(
            "ns",
        ),
        pa.uint8(),
        pa.float16(),
        pa.decimal256(40, 2),
    ],
    ids=str,
)
def test_a_type_without_a_physical_form_is_refused_with_the_column_s_path(type_: Any) -> None:
    schema = pa.schema([("order", pa.struct([("items", pa.list_(pa.field("x", type_)))]))])
    with pytest.raises(ConfigurationError, match=r"'order\.items\.element'") as refused:
        normalized_schema(schema)
    assert str(type_) in str(refused.value)


def test_columns_of_the_same_name_are_refused() -> None:
    twice = pa.struct([pa.field("b", pa.int8()), pa.field("b", pa.int8())])
    with pytest.raises(ConfigurationError, match=r"more than one column is called 'b' in 'a'"):
        normalized_schema(pa.schema([("a", twice)]))
    with pytest.raises(ConfigurationError, match=r"more than one column is called 'b'; rename"):
        normalized_schema(pa.schema(list(twice)))


def test_a_time_beyond_what_microseconds_can_tell_is_refused() -> None:
    seconds: Any = pa.array([2**62], pa.timestamp("s"))
    with pytest.raises(RecordError, match=r"a timestamp\[s\] cannot be kept as timestamp\[us\]"):
        to_physical(seconds)


def test_a_time_of_day_finer_than_microseconds_is_refused() -> None:
    assert to_physical(pa.array([1_000, None], pa.time64("ns"))) == [1, None]
    with pytest.raises(RecordError, match=r"a time64\[ns\] cannot be kept as time64\[us\]"):
        to_physical(pa.array([1_001], pa.time64("ns")))


def test_a_string_that_is_not_utf_8_is_refused() -> None:
    damaged: Any = pa.array([b"\xff"]).view(pa.string())
    with pytest.raises(RecordError, match="a string is not UTF-8"):
        to_physical(damaged)


WRONG: list[tuple[Any, Any]] = [
    (1.5, pa.int64()),
    (True, pa.int32()),
    (2**31, pa.int32()),
    (2**64, pa.int64()),
    ("1", pa.float64()),
    (1, pa.string()),
    ([1], pa.struct([("a", pa.int8()), ("b", pa.int8())])),
    (3, pa.list_(pa.int8())),
    ([[None, 1]], pa.map_(pa.int8(), pa.int8())),
    ([1], pa.map_(pa.int8(), pa.int8())),
    (100, pa.decimal128(2, 0)),
    (bytes(15), pa.decimal128(38, 0)),
    (Decimal(1), pa.decimal128(2, 0)),
    ((10**19).to_bytes(16, "big"), pa.decimal128(19, 0)),
]


@pytest.mark.parametrize(("value", "type_"), WRONG, ids=str)
def test_what_is_no_physical_value_of_a_type_is_refused(value: Any, type_: Any) -> None:
    with pytest.raises(SerdeError, match="a value cannot be read as"):
        from_physical([value], type_)


def test_an_empty_column_of_lists_needs_no_offsets() -> None:
    """As Spark 4.1 hands over lists within lists of which there are none."""
    type_ = pa.list_(pa.field("element", pa.int64()))
    empty = pa.Array.from_buffers(type_, 0, [None, pa.py_buffer(b"")], children=[pa.array([], pa.int64())])
    assert to_physical(empty) == []
