"""Packed keys compare as the tuples of their values do, and come back as these."""

import math
import pickle
from collections.abc import Iterator
from contextlib import suppress
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.errors import ConfigurationError, RecordError, SerdeError
from millpond.stores.encoding.rows.tuple_keys import KeyCodec, null_rows
from tests.drawing import tries
from tests.stores.rows.columns import NAMES, bits, column, leaves, physical_rows, structs, values


@pytest.fixture(autouse=True, scope="module", params=[0, 1_000_000], ids=["side by side", "one by one"])
def forms(request: pytest.FixtureRequest) -> Iterator[None]:
    """Keys are read side by side, however few they are, or one by one, however many."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("millpond.stores.encoding.rows.key_reading.FEW", request.param)
        yield


def key_types() -> st.SearchStrategy[Any]:
    return st.recursive(
        leaves(),
        lambda inner: inner.map(lambda type_: pa.list_(pa.field("element", type_))) | structs(inner),
        max_leaves=4,
    )


@st.composite
def keys(draw: st.DrawFn, most: int = 3) -> tuple[list[Any], list[list[Any]]]:
    """Return types of columns, and rows of physical values, some of them alike."""
    types = draw(st.lists(key_types(), min_size=1, max_size=most))
    parts = [draw(st.lists(values(type_), min_size=1, max_size=3)) for type_ in types]
    rows = st.tuples(*(st.sampled_from(part) for part in parts)).map(list)
    return types, draw(st.lists(rows, max_size=8))


def table(types: list[Any], rows: list[list[Any]]) -> pa.Table:
    arrays = [column([row[place] for row in rows], type_) for place, type_ in enumerate(types)]
    return pa.Table.from_arrays(arrays, names=list(NAMES[: len(types)]))


def codec(types: list[Any]) -> KeyCodec:
    return KeyCodec(pa.schema([pa.field(name, type_) for name, type_ in zip(NAMES, types, strict=False)]))


def rank(value: Any, type_: Any) -> Any:
    """Return what Python compares as keys have to compare."""
    if value is None:
        return (0,)
    if pa.types.is_struct(type_):
        return (1, tuple(rank(part, field.type) for part, field in zip(value, type_, strict=True)))
    if pa.types.is_list(type_):
        return (1, tuple(rank(part, type_.value_type) for part in value))
    if pa.types.is_floating(type_):
        return (2,) if math.isnan(value) else (1, value)
    if pa.types.is_decimal(type_) and isinstance(value, bytes):
        return (1, int.from_bytes(value, "big", signed=True))
    return (1, value)


@settings(deadline=None, max_examples=tries(150))
@given(keys())
def test_keys_compare_as_tuples_do(made: tuple[list[Any], list[list[Any]]]) -> None:
    types, rows = made
    packed = codec(types).pack(table(types, rows))
    ranks = [[rank(value, type_) for value, type_ in zip(row, types, strict=True)] for row in rows]
    for left, left_rank in zip(packed, ranks, strict=True):
        for right, right_rank in zip(packed, ranks, strict=True):
            assert (left < right) == (left_rank < right_rank)
            assert (left == right) == (left_rank == right_rank)


@settings(deadline=None, max_examples=tries(150))
@given(keys())
def test_keys_come_back(made: tuple[list[Any], list[list[Any]]]) -> None:
    types, rows = made
    keyed = codec(types)
    packed = keyed.pack(table(types, rows))
    unpacked = keyed.unpack(packed)
    assert unpacked.schema == keyed.schema
    canonical = [[_canonical(value) for value in row] for row in rows]
    assert bits(physical_rows(unpacked)) == bits(canonical)
    assert keyed.pack(unpacked) == packed


def _canonical(value: Any) -> Any:
    if isinstance(value, list):
        return [_canonical(part) for part in value]
    if isinstance(value, float):
        return math.nan if math.isnan(value) else value + 0.0
    return value


@settings(deadline=None)
@given(keys())
def test_a_shorter_key_is_a_prefix_of_exactly_the_keys_that_begin_with_it(
    made: tuple[list[Any], list[list[Any]]],
) -> None:
    types, rows = made
    whole = codec(types).pack(table(types, rows))
    short = codec(types[:1]).pack(table(types[:1], [row[:1] for row in rows]))
    ranks = [rank(row[0], types[0]) for row in rows]
    for prefix, prefix_rank in zip(short, ranks, strict=True):
        assert [key.startswith(prefix) for key in whole] == [other == prefix_rank for other in ranks]


@settings(deadline=None)
@given(keys(), st.integers(0, 7), st.integers(0, 7))
def test_slices_and_chunks_are_packed_as_what_they_show(
    made: tuple[list[Any], list[list[Any]]], start: int, stop: int
) -> None:
    types, rows = made
    whole = table(types, rows)
    sliced = whole.slice(min(start, len(rows)), stop)
    packed = codec(types).pack(whole)
    assert codec(types).pack(pa.concat_tables([whole, sliced])) == packed + packed[start:][:stop]


GOLDEN: list[tuple[Any, Any, str]] = [
    (pa.int32(), None, "01"),
    (pa.bool_(), False, "02"),
    (pa.bool_(), True, "03"),
    (pa.int8(), -1, "10 7fffffffffffffff"),
    (pa.int64(), 300, "10 800000000000012c"),
    (pa.decimal128(10, 2), Decimal("12.50"), "11 80000000000004e2"),
    (pa.decimal128(38, 0), Decimal(-1), "12 7fffffffffffffffffffffffffffffff"),
    (pa.float32(), 1.5, "18 bfc00000"),
    (pa.float64(), -1.5, "19 4007ffffffffffff"),
    (pa.float64(), -0.0, "19 8000000000000000"),
    (pa.float64(), math.nan, "19 fff8000000000000"),
    (pa.binary(), b"\x00\xff", "20 00ffff00"),
    (pa.string(), "a\0b", "21 6100ff6200"),
    (pa.date32(), 19782, "30 8000000000004d46"),
    (pa.timestamp("us", "UTC"), 1, "31 8000000000000001"),
    (pa.timestamp("us"), -1, "32 7fffffffffffffff"),
    (pa.time64("us"), 0, "33 8000000000000000"),
    (pa.duration("us"), 1_000_000, "34 80000000000f4240"),
    (pa.list_(pa.string()), ["a", None], "40 216100 01 00"),
    (pa.struct([("a", pa.bool_()), ("b", pa.string())]), {"a": True, "b": ""}, "41 03 2100 00"),
]


@pytest.mark.parametrize(("type_", "value", "data"), GOLDEN, ids=str)
def test_the_bytes_never_change(type_: Any, value: Any, data: str) -> None:
    keyed = codec([type_])
    assert keyed.pack(pa.table({"alpha": pa.array([value], type_)})) == [bytes.fromhex(data)]


def test_integers_of_any_width_have_the_same_bytes() -> None:
    widths = [pa.int8(), pa.int16(), pa.int32(), pa.int64()]
    assert len({tuple(codec([width]).pack(pa.table({"alpha": pa.array([-3, 7], width)}))) for width in widths}) == 1


def test_all_nans_are_equal() -> None:
    nans: Any = pa.array(np.array([0x7FF8000000000000, 0xFFF0000000000001], np.uint64).view(np.float64))
    first, second = codec([pa.float64()]).pack(pa.table({"alpha": nans}))
    assert first == second


@pytest.mark.parametrize(
    ("type_", "message"),
    [
        (pa.map_(pa.string(), pa.string()), "column 'alpha' is a map"),
        (pa.list_(pa.map_(pa.string(), pa.string())), r"column 'alpha\.element' is a map"),
        (
            pa.struct([pa.field("v", pa.binary()), pa.field("metadata", pa.binary(), metadata={b"variant": b"true"})]),
            "column 'alpha' is a variant",
        ),
        (pa.timestamp("ns"), "column 'alpha' is of type"),
    ],
    ids=lambda part: str(part),
)
def test_what_has_no_order_is_refused_as_a_key(type_: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        codec([type_])


def test_without_columns_all_rows_have_one_key() -> None:
    keyed = KeyCodec(pa.schema([]))
    keys = keyed.pack(pa.table({"any": [1, None, 3]}))
    assert keys == [b"\x01"] * 3
    assert keyed.unpack(keys).to_pylist() == keyed.unpack(pa.array(keys)).to_pylist() == [{}] * 3
    assert keyed.pack(keyed.unpack(keys)) == keys
    assert keyed.pack(keyed.unpack([])) == []


@pytest.mark.parametrize("data", [b"", b"\x02", b"\x01\x01"])
def test_other_bytes_are_no_key_without_columns(data: bytes) -> None:
    with pytest.raises(SerdeError, match="is no packed key of no columns"):
        KeyCodec(pa.schema([])).unpack([b"\x01", data])


def test_a_null_where_there_must_be_none_is_refused() -> None:
    keyed = KeyCodec(pa.schema([pa.field("id", pa.string(), nullable=False)]))
    with pytest.raises(RecordError, match="column 'id' is NOT NULL"):
        keyed.pack(pa.table({"id": ["a", None]}))


def test_a_string_that_is_not_utf_8_is_refused_with_its_column() -> None:
    damaged: Any = pa.array([b"\xff"]).view(pa.string())
    with pytest.raises(RecordError, match="column 'alpha': a string is not UTF-8"):
        codec([pa.string()]).pack(pa.table({"alpha": damaged}))


def test_rows_with_a_null_in_any_column_are_told() -> None:
    columns = pa.table({"a": [1, None, 3], "b": [[1], [2], [None]], "c": ["x", "y", None]})
    assert null_rows(columns).tolist() == [False, True, True]
    assert null_rows(columns.slice(1)).tolist() == [True, True]
    assert null_rows(columns.slice(0, 0)).tolist() == []


def test_a_codec_can_be_pickled() -> None:
    keyed = codec([pa.string(), pa.int64()])
    assert pickle.loads(pickle.dumps(keyed)) == keyed


@settings(deadline=None, max_examples=tries(200))
@given(keys(), st.data())
def test_truncated_and_flipped_bytes_are_refused_or_read_but_never_crash(
    made: tuple[list[Any], list[list[Any]]], data: st.DataObject
) -> None:
    types, rows = made
    for key in codec(types).pack(table(types, rows)):
        place, mask = data.draw(st.integers(0, len(key) - 1)), data.draw(st.integers(1, 255))
        flipped = key[:place] + bytes([key[place] ^ mask]) + key[place + 1 :]
        with suppress(SerdeError):  # after the first byte of a NUL, what is left is the key of a shorter string
            assert codec(types).pack(codec(types).unpack([key[:place]])) == [key[:place]]
        with suppress(SerdeError):
            codec(types).unpack([flipped]).validate()


def test_what_is_left_of_a_key_is_refused_or_the_key_of_a_shorter_string() -> None:
    keyed = codec([pa.int8(), pa.string()])
    (key,) = keyed.pack(table([pa.int8(), pa.string()], [[1, "0\0"]]))
    left = []
    for end in range(len(key)):
        with suppress(SerdeError):
            left.append(keyed.unpack([key[:end]]).to_pylist())
    assert [list(row.values()) for (row,) in left] == [[1, "0"]]


def test_a_damaged_key_is_refused_by_its_position_and_bytes() -> None:
    with pytest.raises(SerdeError, match=r"key 1 of 2 \(2161\) is no packed key of string"):
        codec([pa.string()]).unpack([b"\x21a\0", b"\x21a"])
    with pytest.raises(SerdeError, match=r"key 0 of 1 \(0101\) is no packed key of int8"):
        codec([pa.int8()]).unpack([bytes([1, 1])])
    with pytest.raises(SerdeError, match="cannot be read as int8"):
        codec([pa.int8()]).unpack(codec([pa.int64()]).pack(pa.table({"alpha": [300]})))
    with pytest.raises(SerdeError, match="cannot be read as string"):
        codec([pa.string()]).unpack([b"\x21\xff\0"])


def test_no_keys_are_an_empty_table() -> None:
    keyed = codec([pa.string(), pa.list_(pa.int64())])
    assert keyed.pack(keyed.schema.empty_table()) == []
    assert keyed.unpack([]) == keyed.schema.empty_table()


def test_null_lists_and_long_ones_come_back() -> None:
    type_ = pa.list_(pa.struct([("a", pa.list_(pa.string())), ("b", pa.int64())]))
    lists = [None, [], [None, {"a": ["x", None, "\0"], "b": 1}] * 1000, [{"a": None, "b": None}]]
    columns = pa.table({"alpha": pa.array(lists, type_)})
    keyed = codec([type_])
    assert keyed.unpack(keyed.pack(columns)).to_pydict() == columns.to_pydict()
