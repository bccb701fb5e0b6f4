"""The serde of structs: the same bytes value by value and column by column, and nothing else than what it promises."""

import pickle
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.errors import ConfigurationError, SerdeError
from millpond.stores.encoding.column_serdes import column_serde
from millpond.stores.encoding.serdes import StructSerde, serde
from tests.drawing import tries

ENTRIES: dict[str, st.SearchStrategy[Any]] = {
    "long": st.integers(-(2**63), 2**63 - 1),
    "double": st.floats(allow_nan=False),
    "boolean": st.booleans(),
    "string": st.text(max_size=5),
    "binary": st.binary(max_size=5),
}
FLIGHT = serde("struct<carrier:string,flight:long,late:boolean>")


@st.composite
def columns(draw: st.DrawFn) -> tuple[Any, list[dict[str, Any] | None]]:
    """Return a serde of structs, and values of it, some of which are None."""
    types = draw(st.lists(st.sampled_from(sorted(ENTRIES)), min_size=1, max_size=10))
    fields = {f"f{place}": type_ for place, type_ in enumerate(types)}
    made = serde(f"struct<{','.join(f'{name}:{type_}' for name, type_ in fields.items())}>")
    value = st.fixed_dictionaries({name: st.none() | ENTRIES[type_] for name, type_ in fields.items()})
    return made, draw(st.lists(st.none() | value, max_size=8))


@settings(max_examples=tries(60), deadline=None)
@given(columns(), st.integers(0, 3))
def test_a_column_is_written_and_read_as_its_values_are(drawn: tuple[Any, list[Any]], start: int) -> None:
    made, values = drawn
    whole = column_serde(made)
    assert whole is not None
    structs = pa.array(values, whole.type)
    data = whole.write(structs.slice(start))
    assert data.to_pylist() == [None if value is None else made.serialize(value) for value in values[start:]]
    assert [None if row is None else made.deserialize(row) for row in data.to_pylist()] == values[start:]
    assert whole.read(whole.write(structs).slice(start)).to_pylist() == values[start:]


@settings(max_examples=tries(60), deadline=None)
@given(columns(), st.data())
def test_damaged_rows_are_refused_by_both_or_mean_the_same_to_both(
    drawn: tuple[Any, list[Any]], data: st.DataObject
) -> None:
    made, values = drawn
    row = bytearray(made.serialize(next((value for value in values if value is not None), dict.fromkeys(_names(made)))))
    row[data.draw(st.integers(0, len(row) - 1))] ^= data.draw(st.integers(1, 255))
    damaged = bytes(row[: data.draw(st.integers(0, len(row)))] if data.draw(st.booleans()) else row)
    try:
        one: Any = repr(made.deserialize(damaged))
    except SerdeError:
        one = None
    try:
        many: Any = repr(column_serde(made).read(pa.array([damaged])).to_pylist()[0])  # type: ignore[union-attr]
    except pa.ArrowInvalid:
        many = None
    assert one == many


def _names(made: StructSerde) -> list[str]:
    return [name for name, _ in made.layout.fields]


def test_the_bytes_never_change() -> None:
    value = {"carrier": "UA", "flight": 1545, "late": None}
    assert FLIGHT.serialize(value).hex() == "04" + "0000000000000002" + "0000000000000609" + "00" * 8 + b"UA".hex()


def test_its_name_is_one_however_it_is_written_and_travels() -> None:
    other = serde(" struct< carrier : STRING, `flight`: bigint, late: boolean >")
    assert other == FLIGHT == pickle.loads(pickle.dumps(FLIGHT))
    assert other.name == "struct<carrier:string,flight:long,late:boolean>"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"carrier": "UA", "flight": 1}, "it is not a dict of exactly carrier, flight, late"),
        ({"carrier": "UA", "flight": 1, "late": None, "gate": 1}, "it is not a dict of exactly"),
        ({"carrier": "UA", "flight": True, "late": None}, "'flight' is of type bool, not long"),
        ({"carrier": b"UA", "flight": 1, "late": None}, "'carrier' is of type bytes, not string"),
        ({"carrier": "UA", "flight": 2**63, "late": None}, "cannot serialize"),
        ("UA", "it is not a dict"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(value: Any, message: str) -> None:
    with pytest.raises(SerdeError, match=message):
        FLIGHT.serialize(value)


@pytest.mark.parametrize("name", ["struct<>", "struct<a:decimal>", "struct<a>", "struct<a:long,a:long>", "structs"])
def test_a_name_that_means_no_struct_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="struct"):
        serde(name)


def test_fields_of_narrower_types_and_in_another_order_are_taken() -> None:
    whole = column_serde(FLIGHT)
    assert whole is not None
    fields: list[tuple[str, pa.DataType]] = [
        ("late", pa.bool_()),
        ("flight", pa.int16()),
        ("carrier", pa.large_string()),
    ]
    narrow = pa.array([{"late": True, "flight": 7, "carrier": "AA"}, None], pa.struct(fields))
    assert whole.takes(narrow.type)
    assert whole.read(whole.write(narrow)).to_pylist() == [{"carrier": "AA", "flight": 7, "late": True}, None]
    assert not whole.takes(pa.struct(fields[:2]))
    assert not whole.takes(pa.struct([*fields[:2], ("carrier", pa.int64())]))
