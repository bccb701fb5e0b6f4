"""The selection that filters make of keys is never too small: every key that passes them is within it."""

import operator
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from millpond.adapters.inspect.columns import KeyColumn, SerdeColumn
from millpond.adapters.inspect.packed_columns import PackedKeyColumn
from millpond.adapters.inspect.selection import EVERYTHING, Selection
from millpond.adapters.spark.reading.pushed_filters import narrowed
from millpond.stores.encoding.rows.tuple_keys import KeyCodec
from millpond.stores.encoding.serdes import BYTES, INT64, JSON, STRING

KEY = ("key",)
TESTS: dict[type, Callable[[Any, Any], bool]] = {
    EqualTo: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
    In: lambda key, values: key in values,
}
COLUMNS: dict[str, tuple[KeyColumn, st.SearchStrategy[Any]]] = {
    "string": (SerdeColumn(STRING), st.text(max_size=3)),
    "bytes": (SerdeColumn(BYTES), st.binary(max_size=3)),
    "int64": (SerdeColumn(INT64), st.integers(-3, 3) | st.sampled_from([-(2**63), 2**63 - 1])),
    "packed": (PackedKeyColumn(KeyCodec(pa.schema([("id", pa.int64())]))), st.integers(-3, 3)),
}


def within(selection: Selection, key: Any, column: KeyColumn) -> bool:
    """Return whether the rows of a key are read."""
    start, stop = (None if end is None else column.to_bytes(end) for end in (selection.key_from, selection.key_to))
    data = column.to_bytes(key)
    return (start is None or start <= data) and (stop is None or data < stop)


@pytest.mark.parametrize("name", COLUMNS)
@given(data=st.data())
def test_a_key_that_passes_is_selected(name: str, data: st.DataObject) -> None:
    column, values = COLUMNS[name]
    path = (*KEY, "id") if name == "packed" else KEY
    kinds = data.draw(st.lists(st.sampled_from(list(TESTS)), max_size=3))
    made = [(one, data.draw(st.lists(values, min_size=1).map(tuple) if one is In else values)) for one in kinds]
    selection = narrowed(EVERYTHING, [one(path, value) for one, value in made], column)
    key = data.draw(values)
    if all(TESTS[one](key, value) for one, value in made):
        assert within(selection, key, column)


@pytest.mark.parametrize("name", COLUMNS)
def test_one_key_is_all_that_a_filter_of_one_selects(name: str) -> None:
    column, _ = COLUMNS[name]
    samples: dict[str, tuple[Any, list[Any]]] = {
        "string": ("b", ["a", "b\0", "c"]),
        "bytes": (b"b", [b"a", b"b\0"]),
        "int64": (2, [-1, 1, 3]),
        "packed": (2, [-1, 1, 3]),
    }
    value, others = samples[name]
    path = (*KEY, "id") if name == "packed" else KEY
    selection = narrowed(EVERYTHING, [IsNotNull(path), EqualTo(path, value)], column)
    assert [key for key in [value, *others] if within(selection, key, column)] == [value]


def test_the_columns_of_a_key_select_together() -> None:
    fields: list[Any] = [pa.field("shop", pa.string()), pa.field("id", pa.int64())]
    column = PackedKeyColumn(KeyCodec(pa.schema(fields)))
    shop: Filter = EqualTo((*KEY, "shop"), "x")
    later = narrowed(EVERYTHING, [shop, GreaterThan((*KEY, "id"), 4)], column)
    assert later == Selection(key_from=["x", 5])
    assert narrowed(EVERYTHING, [shop, EqualTo((*KEY, "id"), 4)], column) == Selection(["x", 4], ["x", 5])
    assert narrowed(EVERYTHING, [EqualTo((*KEY, "id"), 4)], column) == EVERYTHING


def test_what_says_nothing_of_keys_selects_everything() -> None:
    asked = Selection(key_from="m")
    assert narrowed(asked, [EqualTo(KEY, "a")], SerdeColumn(STRING)) == asked
    for other in (Not(EqualTo(KEY, "a")), EqualTo(("value",), "a"), EqualTo(KEY, 1.5)):
        assert narrowed(EVERYTHING, [other], SerdeColumn(STRING)) == EVERYTHING
    assert narrowed(EVERYTHING, [EqualTo(KEY, '"a"')], SerdeColumn(JSON)) == EVERYTHING
