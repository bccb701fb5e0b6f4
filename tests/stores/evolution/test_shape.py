"""Shapes prove themselves, refuse what is none, and show how they differ."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.errors import FormatError
from millpond.stores.durability.storage.checked_text import checked_text
from millpond.stores.evolution.shape import Shape, StoreShape, difference
from millpond.stores.specs.store_spec import StoreKind
from millpond.stores.typed.layouts import Layout

COUNTS = StoreShape(1, "counts", StoreKind.TIMESTAMPED_KEY_VALUE, "string", "int64", None, "string")
BUFFER = StoreShape(1, "held", StoreKind.KEY_VALUE, "bytes", "bytes", Layout("suppress-buffer", 1), "string")
NAMES = StoreShape(0, "names", StoreKind.KEY_VALUE, "string", "string", None, "string", is_global=True)
SHAPE = Shape(4, (COUNTS, BUFFER, NAMES))

stores = st.builds(
    StoreShape,
    st.integers(0, 3),
    st.sampled_from(["a", "b", "ü"]),
    st.sampled_from(StoreKind),
    st.text(max_size=5),
    st.text(max_size=5),
    st.none() | st.builds(Layout, st.text(min_size=1), st.integers(1, 9), key_serde=st.none() | st.text()),
    st.text(max_size=5),
    st.booleans(),
)


@given(st.integers(1, 300), st.lists(stores, unique_by=lambda store: (store.subtopology, store.name)))
def test_a_shape_comes_back_from_its_json(partitions: int, found: list[StoreShape]) -> None:
    shape = Shape(partitions, tuple(found))
    back = Shape.from_json(shape.to_json())
    assert back == shape
    assert back.to_json() == shape.to_json()
    assert difference(shape, back) == ""


def test_the_json_of_a_shape_never_changes() -> None:
    assert Shape(2, (BUFFER,)).to_json() == (
        '{"shape":1,"partitions":2,"stores":[{"subtopology":1,"name":"held","kind":"key-value","key_serde":"bytes",'
        '"value_serde":"bytes","layout":["suppress-buffer",1,null],"record_key_serde":"string","is_global":false}],'
        '"crc32":2325714402}'
    )


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("partitions",), 0),
        (("partitions",), "4"),
        (("stores", 0, "kind"), "list"),
        (("stores", 0, "name"), "../counts"),
        (("stores", 0, "subtopology"), -1),
        (("stores", 0, "layout"), ["x", 0, None]),
        (("stores", 0, "is_global"), 1),
        (("stores", 1), SHAPE.content["stores"][2]),
        (("stores",), None),
        (("shape",), 2),
        (("shape",), None),
    ],
    ids=str,
)
def test_what_is_no_shape_is_refused(path: tuple[Any, ...], value: Any) -> None:
    content = SHAPE.content
    place: Any = content
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    with pytest.raises(FormatError, match="shape of state"):
        Shape.from_json(checked_text(content))


@pytest.mark.parametrize("text", ["", "[]", "{}", SHAPE.to_json()[:-1], SHAPE.to_json().replace("counts", "county")])
def test_damaged_text_is_refused(text: str) -> None:
    with pytest.raises(FormatError, match="shape of state"):
        Shape.from_json(text)


def test_a_difference_shows_the_old_beside_the_new() -> None:
    moved = StoreShape(2, "counts", StoreKind.VERSIONED, "string", "int64", Layout("x", 2), "json")
    assert difference(SHAPE, Shape(6, (moved, NAMES))).splitlines() == [
        "partitions: 4 -> 6",
        "store 'counts': sub-topology 1 -> 2, kind timestamped-key-value -> versioned, layout none -> x 2, "
        "serde of the records' keys string -> json",
        "store 'held': key-value, bytes to bytes, in sub-topology 1 -> none",
    ]
    beside = StoreShape(1, "names", StoreKind.KEY_VALUE, "string", "string", None, "string", is_global=True)
    assert difference(SHAPE, Shape(4, (*SHAPE.stores, beside))).splitlines() == [
        "store 'names': none -> key-value, string to string, in sub-topology 1"
    ]
