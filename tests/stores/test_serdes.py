"""Serdes: round trips, bytes that never change, and errors that say what and where."""

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.errors import ConfigurationError, SerdeError
from millpond.stores.serdes import BYTES, FLOAT64, INT64, JSON, MSGPACK, STRING, Serde, serde

PICKLE = serde("pickle")
ALL = (BYTES, STRING, INT64, FLOAT64, JSON, MSGPACK, PICKLE)

JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "bytes": st.binary(),
    "string": st.text(),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "float64": st.floats(allow_nan=False),
    "json": JSON_VALUES,
    "msgpack": JSON_VALUES,
    "pickle": JSON_VALUES,
}


@pytest.mark.parametrize("one", ALL, ids=repr)
def test_a_value_comes_back_equal(one: Serde[Any]) -> None:
    @given(VALUES[one.name])
    def check(value: Any) -> None:
        assert one.deserialize(one.serialize(value)) == value

    check()


@pytest.mark.parametrize("one", ALL, ids=repr)
def test_a_serde_survives_pickling_as_the_same_object(one: Serde[Any]) -> None:
    assert pickle.loads(pickle.dumps(one)) is one
    assert serde(one.name) is one
    assert serde(one) is one


@pytest.mark.parametrize(
    ("one", "value", "data"),
    [
        (BYTES, b"\x00\xff", b"\x00\xff"),
        (STRING, "é", b"\xc3\xa9"),
        (INT64, 1, b"\x00\x00\x00\x00\x00\x00\x00\x01"),
        (INT64, -1, b"\xff" * 8),
        (FLOAT64, 1.5, b"\x3f\xf8\x00\x00\x00\x00\x00\x00"),
        (JSON, {"b": [1, None], "a": "é"}, b'{"a":"\xc3\xa9","b":[1,null]}'),
        (MSGPACK, {"a": 1}, b"\x81\xa1a\x01"),
    ],
)
def test_the_bytes_never_change(one: Serde[Any], value: Any, data: bytes) -> None:
    assert one.serialize(value) == data
    assert one.deserialize(data) == value


@pytest.mark.parametrize(
    ("one", "value"),
    [
        (BYTES, "text"),
        (STRING, b"bytes"),
        (STRING, "\ud800"),
        (INT64, "1"),
        (INT64, 1.0),
        (INT64, 2**63),
        (FLOAT64, "1"),
        (FLOAT64, 10**400),
        (JSON, {1, 2}),
        (JSON, float("nan")),
        (MSGPACK, object()),
        (MSGPACK, 2**64),
        (PICKLE, lambda: None),
    ],
)
def test_a_value_that_does_not_fit_is_an_error_that_names_serde_and_value(one: Serde[Any], value: Any) -> None:
    with pytest.raises(SerdeError) as caught:
        one.serialize(value)
    assert f"the {one.name} serde" in str(caught.value)
    assert repr(value)[:20] in str(caught.value)


@pytest.mark.parametrize(
    ("one", "data"),
    [
        (STRING, b"\xff"),
        (INT64, b"1234567"),
        (FLOAT64, b""),
        (JSON, b"{"),
        (JSON, b"\xff"),
        (MSGPACK, b"\xc1"),
        (MSGPACK, b"\x01\x02"),
        (PICKLE, b"."),
    ],
)
def test_damaged_bytes_are_an_error_that_names_the_serde(one: Serde[Any], data: bytes) -> None:
    with pytest.raises(SerdeError, match=f"the {one.name} serde cannot read"):
        one.deserialize(data)


def test_a_long_value_is_shortened_in_the_error() -> None:
    with pytest.raises(SerdeError) as caught:
        INT64.serialize("x" * 10_000)  # type: ignore[arg-type]
    assert len(str(caught.value)) < 300


def test_a_serde_still_works_after_a_value_was_refused() -> None:
    for one, bad, good in ((MSGPACK, [1, object()], [1, 2]), (JSON, [1, object()], [1, 2])):
        with pytest.raises(SerdeError):
            one.serialize(bad)
        assert one.deserialize(one.serialize(good)) == good


def test_equal_json_values_have_equal_bytes() -> None:
    assert JSON.serialize({"a": 1, "b": 2}) == JSON.serialize({"b": 2, "a": 1})


def test_an_unknown_serde_is_refused_with_the_names_that_are_known() -> None:
    with pytest.raises(ConfigurationError, match=r"avro.*msgpack"):
        serde("avro")
    with pytest.raises(ConfigurationError):
        serde(3)  # type: ignore[arg-type]
