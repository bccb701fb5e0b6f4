"""Inputs of verbs read keys and rows back, to show those that are left out."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest

from millpond.errors import SerdeError
from millpond.processors import TimeWindows
from millpond.processors.runtime.batches.batch import Batch
from millpond.processors.runtime.failures import Place
from millpond.processors.verbs import aggregates
from millpond.processors.verbs.aggregate import AggregatedRows, aggregate
from millpond.processors.verbs.encoding.null_keys import NullKeys
from millpond.processors.verbs.projections import Keys
from millpond.processors.verbs.record_words import VerbWords
from millpond.processors.verbs.row_aggregate import RowAggregate
from millpond.processors.verbs.verb import PackedRows
from millpond.stores.encoding.rows.packing import RowCodec
from millpond.stores.encoding.rows.schemas import Schemas
from millpond.stores.encoding.rows.tuple_keys import KeyCodec

KEY = pa.schema([pa.field("k", pa.string())])
FIELDS: Any = [pa.field("at", pa.timestamp("us", "UTC")), pa.field("much", pa.decimal128(20, 2))]
VALUE = pa.schema(FIELDS)
KEYS = pa.array([{"k": "a"}, {"k": None}], pa.struct(list(KEY)))
VALUES = pa.table({"at": [0, 1], "much": ["1.50", None]}).cast(VALUE)
ROWS = pa.table(
    {
        "key": KEYS,
        "value": pa.StructArray.from_arrays([one.combine_chunks() for one in VALUES.columns], fields=list(VALUE)),
        "foreign": KEYS,
        "timestamp": pa.array([1, -2]),
        "order": pa.array([{"o": 1}, {"o": 2}], pa.struct([pa.field("o", pa.int32())])),
    }
)


def packed(null_keys: NullKeys, foreign: KeyCodec | None = None) -> PackedRows:
    return PackedRows("left", KeyCodec(KEY), null_keys, RowCodec(Schemas.first(VALUE)), foreign)


@pytest.mark.parametrize("null_keys", [NullKeys.APART, NullKeys.OWN_SIDE, NullKeys.EQUAL])
@pytest.mark.parametrize("foreign", [None, KeyCodec(KEY)])
def test_packed_keys_and_rows_come_back(null_keys: NullKeys, foreign: KeyCodec | None) -> None:
    one = packed(null_keys, foreign)
    assert one.key_columns(one.keys_of(ROWS)).to_pylist() == [{"k": "a"}, {"k": None}]
    assert one.columns_of(one.values_of(ROWS).to_pylist()).equals(VALUES)


@pytest.mark.parametrize("null_keys", [NullKeys.APART, NullKeys.OWN_SIDE])
def test_a_key_that_ends_like_one_with_a_null_comes_back_beside_such_keys(null_keys: NullKeys) -> None:
    key = pa.schema([("n", pa.int64())])
    rows = ROWS.set_column(0, "key", pa.array([{"n": int.from_bytes(b"abc\xffleft")}, {"n": None}], pa.struct(key)))
    one = PackedRows("left", KeyCodec(key), null_keys, RowCodec(Schemas.first(VALUE)))
    keys = one.keys_of(rows)
    assert keys.to_pylist()[0].endswith(b"\xffleft")
    assert one.key_columns(keys).to_pylist() == rows["key"].to_pylist()


def test_keys_of_two_sides_with_a_null_differ_and_come_back_as_null() -> None:
    sides = [PackedRows(side, KeyCodec(KEY), NullKeys.OWN_SIDE, RowCodec(Schemas.first(VALUE))) for side in "lr"]
    keys = [key for side in sides for key in side.keys_of(ROWS).to_pylist()]
    assert keys[0] == keys[2]
    assert keys[1] != keys[3]
    later = ROWS.set_column(3, "timestamp", pa.array([7, 8]))
    assert keys == [key for side in sides for key in side.keys_of(later).to_pylist()]
    both = Keys.of_rows(*sides)
    assert both.schema.field("k").nullable
    (column,) = both.columns(Batch(keys, [None] * 4, [0] * 4), 0)
    assert column.to_pylist() == ["a", None, "a", None]


def test_a_key_that_the_input_has_not_made_is_refused() -> None:
    for null_keys in (NullKeys.APART, NullKeys.OWN_SIDE, NullKeys.EQUAL):
        with pytest.raises(SerdeError):
            packed(null_keys).key_columns([b"!"])


CALLS: Mapping[str, aggregates.AggregateCall] = {
    "n": aggregates.count(),
    "at": aggregates.max("at"),
    "much": aggregates.sum("much"),
}


@pytest.mark.parametrize("ordered", [False, True])
def test_the_arguments_of_an_aggregate_come_back_by_their_results(ordered: bool) -> None:
    calls = RowAggregate(CALLS, {field.name: field.type for field in VALUE}, ordered=ordered)
    order = KeyCodec(pa.schema([pa.field("o", pa.int32())])) if ordered else None
    rows = AggregatedRows("input", KeyCodec(KEY), NullKeys.EQUAL, VALUE.names, order=order)
    one = aggregate("out", rows, calls, TimeWindows(10), final=False).inputs["input"]
    values = list(map(calls.input_serde.deserialize, one.values_of(ROWS).to_pylist()))
    assert one.columns_of(values).equals(VALUES)


@pytest.mark.parametrize("keys", [KEY, pa.schema([*KEY, pa.field("n", pa.int64())])], ids=["one column", "two columns"])
def test_a_verb_names_the_columns_of_a_key_and_none_where_there_is_no_key(keys: pa.Schema) -> None:
    rows = PackedRows("left", KeyCodec(keys), NullKeys.EQUAL, RowCodec(Schemas.first(VALUE)), None)
    words, place = VerbWords("sums", {"left": rows}), Place("node", "0_0", ("left",), "node")
    assert words.where(place) == "verb 'sums'"
    assert words.kept(place, None, None) == (None, None)
    assert words.where(place, b"\xff no key") == "verb 'sums'"
    key, shown = ("a", "k='a'") if len(keys) == 1 else (("a", 7), "k='a', n=7")
    assert words.where(place, key) == f"verb 'sums', {shown}"
