"""Serdes: round trips, bytes that never change, and errors that say what and where."""

import pickle
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.errors import ConfigurationError, SerdeError
from millpond.stores.encoding.serdes import BYTES, FLOAT64, INT64, JSON, MSGPACK, STRING, Serde, serde

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
EXTENSIONS = (
    st.datetimes(timezones=st.just(UTC))
    | st.datetimes()
    | st.dates()
    | st.times()
    | st.timedeltas()
    | st.decimals(allow_nan=False)
    | st.uuids()
)
MSGPACK_VALUES = st.recursive(
    JSON_VALUES | st.binary() | EXTENSIONS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text() | EXTENSIONS, inner, max_size=3),
    max_leaves=8,
)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "bytes": st.binary(),
    "string": st.text(),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "float64": st.floats(allow_nan=False),
    "json": JSON_VALUES,
    "msgpack": MSGPACK_VALUES,
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
    ("one", "column"),
    [(BYTES, [b"", b"a"]), (STRING, ["é", ""]), (INT64, [1, -1]), (JSON, [[1], None]), (MSGPACK, [{"a": 1}, (2,)])],
    ids=repr,
)
def test_a_column_is_written_and_read_as_its_values_are(one: Serde[Any], column: list[Any]) -> None:
    data = one.serialize_many(column)
    assert data == list(map(one.serialize, column))
    assert one.deserialize_many(data) == list(map(one.deserialize, data))
    if one is not BYTES:
        with pytest.raises(SerdeError, match=f"the {one.name} serde cannot read"):
            one.deserialize_many([data[0], b"\xc1"])
    if one is not JSON:
        with pytest.raises(SerdeError, match=f"the {one.name} serde cannot serialize"):
            one.serialize_many([column[0], object()])


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


BERLIN = ZoneInfo("Europe/Berlin")
ID = UUID("00112233-4455-6677-8899-aabbccddeeff")

GOLDEN: list[tuple[Any, str]] = [
    (datetime(2024, 2, 29, 12, 0, 0, 1, tzinfo=UTC), "d7 70 00061283ffaff001"),
    (datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC), "d7 70 ffffffffffffffff"),
    (datetime(1970, 1, 1, 0, 0, 1), "d7 71 00000000000f4240"),
    (date(2024, 2, 29), "d6 72 00004d46"),
    (date(1969, 12, 31), "d6 72 ffffffff"),
    (time(23, 59, 58, 999999), "c7 07 73 17 3b 3a 000f423f"),
    (timedelta(days=-1, seconds=2, microseconds=3), "c7 0c 74 ffffffff 00000002 00000003"),
    (Decimal("-12.50"), "c7 05 75 2d31322e35"),
    (Decimal("12E+2"), "d6 75 31323030"),
    (Decimal("1.2E+41"), "c7 07 75 312e32452b3431"),
    (Decimal("-0.00"), "d4 75 30"),
    (Decimal("-Infinity"), "c7 09 75 2d496e66696e697479"),
    (ID, "d8 76 00112233445566778899aabbccddeeff"),
    ([{"at": date(1970, 1, 2)}, {date(1970, 1, 3): None}], "92 81 a2 6174 d6 72 00000001 81 d6 72 00000002 c0"),
]


@pytest.mark.parametrize(("value", "data"), GOLDEN, ids=lambda entry: str(entry)[:40])
def test_the_extension_types_of_msgpack_never_change(value: Any, data: str) -> None:
    assert MSGPACK.serialize(value).hex() == data.replace(" ", "")
    assert MSGPACK.deserialize(bytes.fromhex(data)) == value


BEFORE: list[tuple[Any, str]] = [
    (None, "c0"),
    (True, "c3"),
    (1, "01"),
    (1.0, "cb 3ff0000000000000"),
    (-(2**63), "d3 8000000000000000"),
    (2**64 - 1, "cf ffffffffffffffff"),
    ("é", "a2 c3a9"),
    (b"\x00\xff", "c4 02 00ff"),
    ({"b": [1, None], "a": {2: 0.5}}, "82 a1 62 92 01 c0 a1 61 81 02 cb 3fe0000000000000"),
    (msgpack.Timestamp(1, 5), "d7 ff 0000001400000001"),
    (msgpack.ExtType(5, b"xyz"), "c7 03 05 78797a"),
    (msgpack.ExtType(0x6F, b"x"), "d4 6f 78"),
]


@pytest.mark.parametrize(("value", "data"), BEFORE, ids=lambda entry: str(entry)[:40])
def test_what_msgpack_wrote_before_it_had_extension_types_is_written_and_read_as_it_was(value: Any, data: str) -> None:
    assert MSGPACK.serialize(value).hex() == data.replace(" ", "")
    read = MSGPACK.deserialize(bytes.fromhex(data))
    assert read == value
    assert type(read) is type(value)


def test_msgpack_gives_tuples_as_lists() -> None:
    assert MSGPACK.deserialize(MSGPACK.serialize((1, (date(2024, 1, 1),)))) == [1, [date(2024, 1, 1)]]


@given(EXTENSIONS)
def test_a_value_of_an_extension_type_comes_back_with_its_type(value: Any) -> None:
    read = MSGPACK.deserialize(MSGPACK.serialize(value))
    assert read == value
    assert type(read) is type(value)
    if isinstance(value, datetime):
        assert read.tzinfo is value.tzinfo


@given(st.datetimes(min_value=datetime(2, 1, 1), max_value=datetime(9998, 1, 1), timezones=st.timezones()))
def test_a_datetime_comes_back_as_the_same_instant_in_utc_and_equal_instants_have_equal_bytes(at: datetime) -> None:
    data = MSGPACK.serialize(at)
    read = MSGPACK.deserialize(data)
    assert read.tzinfo is UTC
    assert read == at.astimezone(UTC)
    assert MSGPACK.serialize(at.astimezone(BERLIN)) == data
    assert MSGPACK.serialize({"at": [read]}) == MSGPACK.serialize({"at": [at]})


def test_both_passes_of_a_repeated_hour_are_kept_apart() -> None:
    first, second = (datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN, fold=fold) for fold in (0, 1))
    assert MSGPACK.deserialize(MSGPACK.serialize(first)) == datetime(2024, 10, 27, 0, 30, tzinfo=UTC)
    assert MSGPACK.deserialize(MSGPACK.serialize(second)) == datetime(2024, 10, 27, 1, 30, tzinfo=UTC)


@given(st.decimals(allow_nan=False, allow_infinity=False), st.integers(0, 50))
def test_equal_decimals_have_equal_bytes(number: Decimal, zeros: int) -> None:
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    longer = Decimal((sign, digits + (0,) * zeros, exponent - zeros))
    assert longer == number
    assert MSGPACK.serialize(longer) == MSGPACK.serialize(number)
    assert MSGPACK.serialize({"x": [longer]}) == MSGPACK.serialize({"x": [number]})


@pytest.mark.parametrize(
    ("number", "shown"),
    [("1.00", "1"), ("-0", "0"), ("20.00", "20"), ("2E+3", "2000"), ("1E-7", "1E-7"), ("1" + "0" * 50, "1E+50")],
)
def test_a_decimal_comes_back_without_the_zeros_at_its_end(number: str, shown: str) -> None:
    assert str(MSGPACK.deserialize(MSGPACK.serialize(Decimal(number)))) == shown


@pytest.mark.parametrize("number", ["1" * 5000, "1E+999999999", "-1E-999999999", "1." + "0" * 4000 + "1"])
def test_a_decimal_of_any_size_is_exact(number: str) -> None:
    assert MSGPACK.deserialize(MSGPACK.serialize(Decimal(number))) == Decimal(number)


def test_a_decimal_that_is_not_a_number_comes_back_as_one() -> None:
    assert MSGPACK.deserialize(MSGPACK.serialize(Decimal("NaN"))).is_qnan()


class Moment(datetime):
    """A datetime with a type of its own."""


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (Moment(2024, 1, 1), r"test_serdes\.Moment is a subclass of datetime, and would come back as a plain datetime"),
        ({1, 2}, r"MessagePack has no form for builtins\.set"),
        (1j, r"MessagePack has no form for builtins\.complex"),
        (time(1, tzinfo=UTC), "a time of day with a time zone"),
        (datetime.min.replace(tzinfo=timezone(timedelta(hours=1))), "out of range"),
        (Decimal("sNaN"), "signaling NaN"),
    ],
)
def test_a_value_that_msgpack_has_no_form_for_is_refused_with_its_type_and_advice(value: Any, reason: str) -> None:
    for given_ in (value, [{"x": value}]):
        with pytest.raises(SerdeError, match=reason) as refused:
            MSGPACK.serialize(given_)
        assert refused.value.sentence.endswith("choose another serde or convert the value first")


@pytest.mark.parametrize("code", [0x77, 0x7F, -2, -128])
def test_an_unknown_extension_code_is_refused_by_number(code: int) -> None:
    data = b"\x91\xd4" + code.to_bytes(1, "big", signed=True) + b"\x00"
    with pytest.raises(SerdeError, match=f"extension code {code} is unknown to this release"):
        MSGPACK.deserialize(data)


@pytest.mark.parametrize(
    "data",
    [
        "d4 70 00",
        "d7 70 7fffffffffffffff",
        "d4 71 00",
        "d6 72 7fffffff",
        "d4 73 00",
        "c7 07 73 18 00 00 00000000",
        "d4 74 00",
        "c7 0c 74 7fffffff 00000000 00000000",
        "d4 75 78",
        "d4 75 ff",
        "d4 76 00",
    ],
)
def test_a_damaged_extension_type_is_an_error(data: str) -> None:
    with pytest.raises(SerdeError, match="the msgpack serde cannot read"):
        MSGPACK.deserialize(bytes.fromhex(data))


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
