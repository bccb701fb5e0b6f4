"""A history of schemas is numbered, and survives as JSON that people can read."""

import json
import pickle
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings

from millpond.errors import ConfigurationError, FormatError, SerdeError
from millpond.stores.encoding.rows.schemas import Schemas
from tests.stores.rows.columns import structs, types

VARIANT = pa.struct(
    [
        pa.field("value", pa.binary(), nullable=False),
        pa.field("metadata", pa.binary(), nullable=False, metadata={b"variant": b"true"}),
    ]
)
FIELDS: Any = [
    pa.field("id", pa.int64(), nullable=False),
    pa.field("price", pa.decimal128(10, 2)),
    pa.field("at", pa.timestamp("ms", "Europe/Berlin")),
    pa.field("items", pa.list_(pa.struct([("sku", pa.large_string()), ("tags", pa.map_(pa.string(), pa.date32()))]))),
    pa.field("payload", VARIANT),
]
ORDERS = Schemas.first(pa.schema(FIELDS))


def test_the_first_schema_is_number_one_in_plain_types() -> None:
    assert ORDERS.number == 1
    assert ORDERS.current.names == ["id", "price", "at", "items", "payload"]
    assert ORDERS.current.field("at").type == pa.timestamp("us", "UTC")
    assert not ORDERS.current.field("id").nullable


def test_metadata_of_a_schema_is_not_kept_but_that_of_fields_is() -> None:
    schema = pa.schema(FIELDS, metadata={b"pandas": b"{}"})
    kept: Any = Schemas.first(schema).current
    assert kept.metadata is None
    assert kept.field("payload").type.field("metadata").metadata == {b"variant": b"true"}


def test_columns_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="more than one column is called 'id'"):
        Schemas.first(pa.schema([FIELDS[0], FIELDS[0]]))


def test_the_json_shows_every_column_with_its_id() -> None:
    text = ORDERS.to_json()
    assert text.splitlines()[:3] == [
        '{"format": 1, "schemas": [',
        '[{"id": 1, "name": "id", "type": "int64", "nullable": false},',
        ' {"id": 2, "name": "price", "type": "decimal(10,2)", "nullable": true},',
    ]
    items = json.loads(text)["schemas"][0][3]
    assert (items["type"], items["fields"][0]["name"]) == ("list", "element")
    assert [field["name"] for field in items["fields"][0]["fields"]] == ["sku", "tags"]
    payload = json.loads(text)["schemas"][0][4]
    assert payload["fields"][1]["metadata"] == {"variant": "true"}


@settings(deadline=None)
@given(structs(types()), structs(types()))
def test_a_history_comes_back_from_its_json(first: Any, second: Any) -> None:
    one, two = (Schemas.first(pa.schema(list(type_))) for type_ in (first, second))
    history = Schemas((*one.versions, *two.versions))
    assert Schemas.from_json(history.to_json()) == history
    assert Schemas.from_json(ORDERS.to_json()).current.equals(ORDERS.current, check_metadata=True)
    assert pickle.loads(pickle.dumps(history)) == history


def test_an_unknown_format_is_refused_by_number() -> None:
    with pytest.raises(FormatError, match="in the format 2, but this release reads 1"):
        Schemas.from_json(ORDERS.to_json().replace('"format": 1', '"format": 2'))


COLUMN = '{"id": 1, "name": "a", "type": "int8", "nullable": true}'


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "1",
        '{"format": 1}',
        '{"format": 1, "schemas": []}',
        '{"format": 1, "schemas": [[{}]]}',
        '{"format": 1, "schemas": [["a"]]}',
        f'{{"format": 1, "schemas": [[{COLUMN}, {COLUMN}]]}}',
        f'{{"format": 1, "schemas": [[{COLUMN.replace("int8", "int9")}]]}}',
        f'{{"format": 1, "schemas": [[{COLUMN.replace("int8", "decimal(99,1)")}]]}}',
        f'{{"format": 1, "schemas": [[{COLUMN.replace("int8", "list")}]]}}',
    ],
)
def test_damaged_json_is_refused(text: str) -> None:
    with pytest.raises(SerdeError, match="history of schemas"):
        Schemas.from_json(text)


def test_metadata_that_is_no_text_is_refused() -> None:
    field = pa.field("a", pa.int8(), metadata={b"k": b"\xff"})
    advice = r"'a' is not text: .*; leave it out, as the field's remove_metadata\(\) does \["
    with pytest.raises(ConfigurationError, match=advice):
        Schemas.first(pa.schema([field])).to_json()
    plain = Schemas.first(pa.schema([field.remove_metadata()]))
    assert Schemas.from_json(plain.to_json()) == plain
