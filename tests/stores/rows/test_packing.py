"""Packed rows come back as they were, and bytes that are no packed rows are refused by position."""

import pickle
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.errors import ConfigurationError, RecordError, SerdeError
from millpond.stores.encoding.rows.packing import RowCodec
from millpond.stores.encoding.rows.schemas import Schemas
from tests.drawing import tries
from tests.stores.rows.columns import bits, column, physical_rows, structs, types, values

TABLE = pa.table({"id": pa.array([1, 2, 3], pa.int32()), "name": ["a", None, "c"]})
CODEC = RowCodec(Schemas.first(TABLE.schema))


@pytest.fixture(autouse=True, scope="module", params=[0, 1_000_000], ids=["columns", "objects"])
def forms(request: pytest.FixtureRequest) -> Iterator[None]:
    """Rows are packed and read as columns, however few they are, or as objects, however many."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("millpond.stores.encoding.rows.packing.FEW", request.param)
        yield


@st.composite
def tables(draw: st.DrawFn) -> tuple[Any, list[Any]]:
    """Return a struct as the type of rows, and physical rows without a null one."""
    type_ = draw(structs(types()))
    rows = st.tuples(*(values(field.type) for field in type_)).map(list)
    return type_, draw(st.lists(rows, max_size=5))


@settings(deadline=None)
@given(tables())
def test_rows_of_any_types_come_back_bit_by_bit(made: tuple[Any, list[Any]]) -> None:
    type_, rows = made
    codec = RowCodec(Schemas.first(pa.schema(list(type_))))
    packed = codec.pack(column(rows, type_))
    unpacked = codec.unpack(packed)
    assert packed == [bits([1, *row]) for row in rows]
    assert unpacked.schema.equals(codec.schemas.current, check_metadata=True)
    assert bits(physical_rows(unpacked)) == bits(rows)


@settings(deadline=None)
@given(tables())
def test_a_table_packs_as_its_structs_do(made: tuple[Any, list[Any]]) -> None:
    type_, rows = made
    array = column(rows, type_)
    codec = RowCodec(Schemas.first(pa.schema(list(type_))))
    table = pa.Table.from_batches([pa.RecordBatch.from_struct_array(part) for part in (array, array[1:])])
    assert codec.pack(table) == codec.pack(array) + codec.pack(array[1:])


def test_none_becomes_a_row_of_nulls_and_all_columns_nullable() -> None:
    fields: Any = [pa.field("id", pa.int32(), nullable=False), pa.field("name", pa.string())]
    codec = RowCodec(Schemas.first(pa.schema(fields)))
    one, two, three = codec.pack(TABLE)
    unpacked = codec.unpack([None, three, None, one, two])
    assert unpacked.to_pydict() == {"id": [None, 3, None, 1, 2], "name": [None, "c", None, "a", None]}
    assert unpacked.schema.field("id").nullable
    assert not codec.unpack([one]).schema.field("id").nullable
    assert codec.unpack([None]).to_pylist() == [{"id": None, "name": None}]


def test_no_rows_are_an_empty_table() -> None:
    assert CODEC.pack(TABLE.slice(0, 0)) == []
    assert CODEC.unpack([]).schema == TABLE.schema


def test_rows_without_columns_keep_their_number() -> None:
    codec = RowCodec(Schemas.first(pa.schema([])))
    packed = codec.pack(column([[], []], pa.struct([])))
    assert packed == [b"\x91\x01"] * 2
    assert codec.unpack([*packed, None]).num_rows == 3


def test_a_codec_can_be_pickled() -> None:
    assert pickle.loads(pickle.dumps(CODEC)) == CODEC
    assert pickle.loads(pickle.dumps(CODEC)).pack(TABLE) == CODEC.pack(TABLE)


def test_types_in_another_form_pack_alike() -> None:
    fields: Any = [("id", pa.int32()), ("name", pa.large_string())]
    other = TABLE.cast(pa.schema(fields))
    assert CODEC.pack(other) == CODEC.pack(TABLE)


def test_other_columns_than_agreed_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"the columns are \['name', 'id'\], but should be \['id', 'name'\]"):
        CODEC.pack(TABLE.select(["name", "id"]))
    with pytest.raises(ConfigurationError, match="column 'id' is of type int64, but should be int32"):
        CODEC.pack(pa.table({"id": [1], "name": ["a"]}))


NOT_NULL: list[tuple[Any, Any, str]] = [
    (pa.int32(), [1, None], "column 'c' is NOT NULL, but is null in row 1"),
    (pa.list_(pa.field("element", pa.int32(), nullable=False)), [[1], [2, None]], r"'c\.element'"),
    (pa.struct([pa.field("a", pa.int32(), nullable=False)]), [{"a": None}], r"'c\.a'"),
    (pa.map_(pa.int8(), pa.field("value", pa.int8(), nullable=False)), [[(1, None)]], r"'c\.value'"),
]


@pytest.mark.parametrize(("type_", "data", "message"), NOT_NULL, ids=lambda part: str(part))
def test_a_null_where_there_must_be_none_is_refused_by_name(type_: Any, data: Any, message: str) -> None:
    codec = RowCodec(Schemas.first(pa.schema([pa.field("c", type_, nullable=pa.types.is_nested(type_))])))
    with pytest.raises(RecordError, match=message):
        codec.pack(pa.table({"c": pa.array(data, type_)}))


def test_a_null_around_a_field_that_is_not_null_is_none_within() -> None:
    type_ = pa.struct([pa.field("a", pa.list_(pa.field("element", pa.int8(), nullable=False)), nullable=False)])
    codec = RowCodec(Schemas.first(pa.schema([("c", type_)])))
    table = pa.table({"c": pa.array([None, {"a": [1]}], type_)})
    assert codec.unpack(codec.pack(table)).to_pydict() == table.to_pydict()


def test_a_value_that_cannot_be_held_is_refused_with_its_column() -> None:
    damaged = pa.table({"id": pa.array([1], pa.int32()), "name": pa.array([b"\xff"]).view(pa.string())})
    with pytest.raises(RecordError, match="column 'name': a string is not UTF-8"):
        CODEC.pack(damaged)


COALESCED: Any = pc.coalesce(pa.array([1, None], pa.int32()), pa.scalar(0, pa.int32()))
REQUIRED: Any = pa.schema([pa.field("c", pa.int32(), nullable=False)])
TIMES: Any = pa.schema([("c", pa.timestamp("us"))])
STRUCTS: Any = pa.StructArray.from_arrays([pa.array([1, 2])], ["c"], mask=pa.array([False, True]))
BROKEN: Any = pa.array([b"a", b"\xff"]).view(pa.string())
FAR: Any = pa.array([0, 2**60], pa.timestamp("s"))
ADVISED: list[tuple[str, Any, Any, list[tuple[Any, Any, list[Any]]]]] = [
    (
        "column 'c' is NOT NULL, but is null in row 1; filter such rows out, or coalesce",
        REQUIRED,
        pa.table({"c": pa.array([1, None], pa.int32())}),
        [
            (REQUIRED, pa.table({"c": pa.array([1], pa.int32())}), [1]),
            (REQUIRED, pa.table({"c": COALESCED}), [1, 0]),
        ],
    ),
    (
        "row 1 is null as a whole; filter such rows out",
        pa.schema([("c", pa.int64())]),
        STRUCTS,
        [(pa.schema([("c", pa.int64())]), STRUCTS.filter(STRUCTS.is_valid()), [1])],
    ),
    (
        "column 'c': a string is not UTF-8 .*; make the column binary, or clean it",
        pa.schema([("c", pa.string())]),
        pa.table({"c": BROKEN}),
        [
            (pa.schema([("c", pa.binary())]), pa.table({"c": BROKEN.view(pa.binary())}), [b"a", b"\xff"]),
            (pa.schema([("c", pa.string())]), pa.table({"c": ["a", "?"]}), ["a", "?"]),
        ],
    ),
    (
        r"column 'c': a timestamp\[s\] cannot be kept as timestamp\[us\]: .*; filter such rows out",
        TIMES,
        pa.table({"c": FAR}),
        [(TIMES, pa.table({"c": FAR[:1]}), [datetime(1970, 1, 1)])],
    ),
]


@pytest.mark.parametrize(("message", "schema", "rows", "advised"), ADVISED, ids=lambda part: str(part)[:40])
def test_what_cannot_be_packed_is_packed_as_the_message_says(
    message: str, schema: Any, rows: Any, advised: list[tuple[Any, Any, list[Any]]]
) -> None:
    with pytest.raises(RecordError, match=message):
        RowCodec(Schemas.first(schema)).pack(rows)
    for columns, others, expected in advised:
        codec = RowCodec(Schemas.first(columns))
        assert codec.unpack(codec.pack(others))["c"].to_pylist() == expected


DAMAGED: list[tuple[bytes, str]] = [
    (b"", "not a packed row"),
    (b"\x93\x01\x07", "not a packed row"),
    (b"\x93\x01\x07\xa1a\x00", "not a packed row"),
    (b"\x07", "it is no array"),
    (b"\x90", "not a packed row"),
    (b"\x92\xa1a\x07", "it does not begin with the number of a schema"),
    (b"\x93\x02\x07\xa1a", "it is of schema 2, but the newest one known here is 1"),
    (b"\x93\x00\x07\xa1a", "it is of schema 0"),
    (b"\x92\x01\x07", "a struct does not have 3 values"),
    (b"\x93\x01\xa1a\xa1a", "cannot be read as"),
]


@pytest.mark.parametrize(("data", "message"), DAMAGED, ids=lambda part: part.hex() if isinstance(part, bytes) else "")
def test_a_damaged_row_is_refused_by_its_position(data: bytes, message: str) -> None:
    good = CODEC.pack(TABLE)
    with pytest.raises(SerdeError, match=f"row 2 of 5.*{message}"):
        CODEC.unpack([good[0], None, data, good[1], data])


@settings(deadline=None, max_examples=tries(150))
@given(tables(), st.data())
def test_truncated_and_flipped_bytes_are_refused_or_read_but_never_crash(
    made: tuple[Any, list[Any]], data: st.DataObject
) -> None:
    type_, rows = made
    codec = RowCodec(Schemas.first(pa.schema(list(type_))))
    for row in codec.pack(column(rows, type_)):
        cut = row[: data.draw(st.integers(0, len(row) - 1))]
        place, mask = data.draw(st.integers(0, len(row) - 1)), data.draw(st.integers(1, 255))
        flipped = row[:place] + bytes([row[place] ^ mask]) + row[place + 1 :]
        with pytest.raises(SerdeError):
            codec.unpack([cut])
        with suppress(SerdeError):
            codec.unpack([flipped]).validate()
