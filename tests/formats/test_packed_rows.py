"""The bytes of packed rows and keys and the JSON of schemas never change, and docs/formats.md draws them."""

import re
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millpond.errors import FormatError, UnreadableRowError
from millpond.processors.verbs.encoding.foreign_keyed import (
    foreign_key_of,
    foreign_keys_of,
    with_foreign_keys,
    without_foreign_key,
    without_foreign_keys,
)
from millpond.stores.encoding.rows.packing import RowCodec
from millpond.stores.encoding.rows.schemas import Schemas
from millpond.stores.encoding.rows.tuple_keys import KeyCodec

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "formats.md").read_text()

HISTORY = """\
{"format": 1, "schemas": [
[{"id": 1, "name": "id", "type": "int64", "nullable": false},
 {"id": 2, "name": "name", "type": "string", "nullable": true},
 {"id": 3, "name": "price", "type": "decimal(10,2)", "nullable": true}],
[{"id": 1, "name": "id", "type": "int64", "nullable": false},
 {"id": 2, "name": "title", "type": "string", "nullable": true},
 {"id": 4, "name": "items", "type": "list", "nullable": true, "fields":
  [{"id": 5, "name": "element", "type": "struct", "nullable": true, "fields":
    [{"id": 6, "name": "sku", "type": "string", "nullable": true},
     {"id": 7, "name": "at", "type": "timestamp", "nullable": true}]}]},
 {"id": 8, "name": "stock", "type": "map", "nullable": true, "fields":
  [{"id": 9, "name": "key", "type": "string", "nullable": false},
   {"id": 10, "name": "value", "type": "float64", "nullable": true}]},
 {"id": 3, "name": "price", "type": "decimal(20,2)", "nullable": true}]
]}"""
OLD_ROW = "94 01 07 a3416461 cd04e2"
NEW_ROW = "96 02 08 c0 92 92 a161 ce000f4240 c0 91 92 a16b cb3ff8000000000000 c410 fffffffffffffffffffffffffffffb1e"
SECOND = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
VALUES: list[dict[str, Any]] = [
    {"id": 7, "title": "Ada", "items": None, "stock": None, "price": Decimal("12.50")},
    {
        "id": 8,
        "title": None,
        "items": [{"sku": "a", "at": SECOND}, None],
        "stock": [("k", 1.5)],
        "price": Decimal("-12.50"),
    },
]

KEYS: list[tuple[Sequence[Any], Sequence[Any], str]] = [
    ([pa.int32()], [None], "01"),
    ([pa.bool_()], [True], "03"),
    ([pa.int16()], [300], "10 800000000000012c"),
    ([pa.int64()], [-1], "10 7fffffffffffffff"),
    ([pa.decimal128(10, 2)], [Decimal("12.50")], "11 80000000000004e2"),
    ([pa.decimal128(38, 0)], [Decimal(-1)], "12 7fffffffffffffffffffffffffffffff"),
    ([pa.float32()], [1.5], "18 bfc00000"),
    ([pa.float64()], [-1.5], "19 4007ffffffffffff"),
    ([pa.float64()], [float("nan")], "19 fff8000000000000"),
    ([pa.string()], ["a\0b"], "21 6100ff6200"),
    ([pa.date32()], [date(2024, 2, 29)], "30 8000000000004d46"),
    ([pa.timestamp("us", "UTC")], [SECOND], "31 80000000000f4240"),
    ([pa.list_(pa.string())], [["a", None]], "40 216100 01 00"),
    ([pa.struct([("a", pa.bool_()), ("b", pa.string())])], [{"a": True, "b": ""}], "41 03 2100 00"),
    ([pa.string(), pa.int32()], ["b", 1], "21 6200 10 8000000000000001"),
]


def section(heading: str) -> str:
    """Return the last block of bytes or JSON of a section of the page."""
    text = PAGE.partition(f"\n### {heading}\n")[2].partition("\n### ")[0].partition("\n## ")[0]
    return text.split("```")[-2]


def test_the_json_of_schemas_is_read_and_written_as_ever() -> None:
    assert Schemas.from_json(HISTORY).to_json() == HISTORY
    assert section("Schemas of packed rows") == f"json\n{HISTORY}\n"


def test_rows_of_all_schemas_are_read_as_ever() -> None:
    codec = RowCodec(Schemas.from_json(HISTORY))
    assert codec.unpack([bytes.fromhex(OLD_ROW), bytes.fromhex(NEW_ROW)]).to_pylist() == VALUES


def test_rows_are_written_as_ever() -> None:
    schemas = Schemas.from_json(HISTORY)
    first = Schemas(schemas.versions[:1])
    old = pa.Table.from_pylist([{"id": 7, "name": "Ada", "price": Decimal("12.50")}], first.current)
    assert RowCodec(first).pack(old) == [bytes.fromhex(OLD_ROW)]
    assert RowCodec(schemas).pack(pa.Table.from_pylist(VALUES[1:], schemas.current)) == [bytes.fromhex(NEW_ROW)]
    assert section("Packed rows").split("\n")[1:-1] == [OLD_ROW, NEW_ROW]


@pytest.mark.parametrize(("types", "values", "data"), KEYS, ids=lambda part: str(part))
def test_keys_are_written_and_read_as_ever(types: Sequence[Any], values: Sequence[Any], data: str) -> None:
    names = ["a", "b"][: len(types)]
    arrays = [pa.array([value], type_) for value, type_ in zip(values, types, strict=True)]
    columns = pa.Table.from_arrays(arrays, names=names)
    codec = KeyCodec(columns.schema)
    assert codec.pack(columns) == [bytes.fromhex(data)]
    assert str(codec.unpack([bytes.fromhex(data)]).to_pylist()) == str(columns.to_pylist())


def test_the_page_shows_these_keys() -> None:
    shown = re.findall(r"  ((?:\d\d)(?: [0-9a-f]+)*)$", section("Packed keys"), re.MULTILINE)
    assert shown == [data for _, _, data in KEYS]


def test_a_foreign_key_stands_in_front_of_its_row() -> None:
    row = bytes.fromhex(OLD_ROW)
    for key, drawn in (("p", "01 00000003 217000"), (None, "01 ffffffff")):
        columns = pa.table({"f": pa.array([key], pa.string())})
        (value,) = with_foreign_keys(KeyCodec(columns.schema), columns, pa.array([row])).to_pylist()
        assert value == bytes.fromhex(f"{drawn} {OLD_ROW}")
        assert f"{drawn} {OLD_ROW}" in PAGE
        assert foreign_key_of(value) == (None if key is None else bytes.fromhex("217000"))
        assert without_foreign_key(value) == row
        assert [read(pa.array([value, None])).to_pylist() for read in (foreign_keys_of, without_foreign_keys)] == [
            [foreign_key_of(value), None],
            [row, None],
        ]


@pytest.mark.parametrize("null_safe", [False, True])
def test_columns_of_rows_with_foreign_keys_are_read_as_each_of_them(null_safe: bool) -> None:
    columns = pa.table({"f": pa.array(["p", None, "", "a longer one", "p"], pa.string())})
    rows = [b"row", b"", b"another", b"r", b"row"]
    column = with_foreign_keys(KeyCodec(columns.schema), columns, pa.array(rows), null_safe=null_safe)
    values = [b"", *column.to_pylist()]
    # A part of a longer column, as those are that come from a cut of a micro-batch.
    part = pa.array(values).slice(1)
    assert foreign_keys_of(part).to_pylist() == list(map(foreign_key_of, values[1:]))
    assert without_foreign_keys(part).to_pylist() == list(map(without_foreign_key, values[1:])) == rows
    assert without_foreign_keys(pa.array([None, values[1], None])).to_pylist() == [None, b"row", None]
    assert foreign_keys_of(part.slice(0, 0)).to_pylist() == []


DAMAGED = {
    "is empty": b"",
    "ends before its key does": bytes.fromhex("01 00000003 2170"),
    "ends before": bytes.fromhex("01 0000"),
    "version 2, but this release knows only 1": bytes.fromhex("02 00000000"),
}


@pytest.mark.parametrize("read", [foreign_keys_of, without_foreign_keys])
@pytest.mark.parametrize("said", DAMAGED)
def test_a_damaged_row_among_others_is_refused_as_alone(said: str, read: Callable[[Any], Any]) -> None:
    sound = bytes.fromhex("01 00000003 217000 91 01")
    with pytest.raises((FormatError, UnreadableRowError), match=said):
        read(pa.array([sound, DAMAGED[said], sound]))


def test_a_row_with_a_foreign_key_of_an_unknown_version_is_refused() -> None:
    with pytest.raises(FormatError, match="version 2, but this release knows only 1"):
        foreign_key_of(b"\x02" + bytes(10))
