"""Old rows are read with the schema of now if every value keeps its meaning; all other changes are refused."""

import ast
import re
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.errors import ConfigurationError, SerdeError, StateConflictError
from millpond.stores.encoding.rows.packing import RowCodec
from millpond.stores.encoding.rows.schemas import Schemas
from tests.stores.rows.columns import NAMES, column, structs, types, values

WHERE = "stream_join 'orders', left input"


def schema(**fields: Any) -> pa.Schema:
    """Return columns by name: a type, or a field without its name."""
    made: Any = [
        pa.field(name, of.type, of.nullable, of.metadata) if isinstance(of, pa.Field) else pa.field(name, of)
        for name, of in fields.items()
    ]
    return pa.schema(made)


def required(type_: Any) -> Any:
    return pa.field("", type_, nullable=False)


def struct(**fields: Any) -> Any:
    return pa.struct(list(schema(**fields)))


def elements(type_: Any) -> Any:
    return pa.list_(pa.field("element", type_))


def reread(rows: list[dict[str, Any]], old: pa.Schema, new: pa.Schema, **declared: Any) -> list[dict[str, Any]]:
    """Return rows that were packed with one schema, read with the next, among rows of that."""
    before = Schemas.first(old)
    after = before.evolved(new, where=WHERE, **declared)
    assert after.number == 2
    codec = RowCodec(Schemas.from_json(after.to_json()))
    packed = RowCodec(before).pack(pa.Table.from_pylist(rows, old))
    newest = codec.pack(codec.unpack(packed))
    mixed = codec.unpack([packed[0], None, *newest, *packed[1:]]).to_pylist()
    assert mixed[2 : 2 + len(rows)] == [mixed[0], *mixed[2 + len(rows) :]]
    assert set(mixed[1].values()) <= {None}
    assert codec.unpack(newest).schema == after.current
    return mixed[2 : 2 + len(rows)]


def refused(old: pa.Schema, new: pa.Schema, **declared: Any) -> str:
    with pytest.raises(StateConflictError) as error:
        Schemas.first(old).evolved(new, where=WHERE, **declared)
    return error.value.sentence


def test_the_same_schema_is_no_change() -> None:
    schemas = Schemas.first(schema(a=pa.int8(), b=pa.timestamp("s", "UTC")))
    assert schemas.evolved(schema(a=pa.int8(), b=pa.timestamp("ms", "Asia/Tokyo")), where=WHERE) is schemas


def test_an_added_column_is_null_in_old_rows() -> None:
    new = schema(x=struct(y=pa.int8()), a=pa.int8(), m=pa.map_(pa.string(), pa.int8()))
    assert reread([{"a": 1}], schema(a=pa.int8()), new) == [{"x": None, "a": 1, "m": None}]


def test_a_dropped_column_is_gone() -> None:
    assert reread([{"a": 1, "b": 2}], schema(a=pa.int8(), b=pa.int8()), schema(b=pa.int8())) == [{"b": 2}]


def test_a_renamed_column_keeps_its_values() -> None:
    new = schema(c=pa.int8(), b=pa.int8())
    assert reread([{"a": 1, "b": 2}], schema(a=pa.int8(), b=pa.int8()), new, renamed={"a": "c"}) == [{"c": 1, "b": 2}]


def test_columns_may_be_reordered_and_made_nullable() -> None:
    old = schema(a=required(pa.int8()), b=pa.int8())
    assert reread([{"a": 1, "b": 2}], old, schema(b=pa.int8(), a=pa.int8())) == [{"b": 2, "a": 1}]


WIDENED: list[tuple[Any, Any, Any, Any]] = [
    (pa.int8(), pa.int16(), -128, -128),
    (pa.int16(), pa.int64(), -(2**15), -(2**15)),
    (pa.int32(), pa.float64(), 2**31 - 1, 2.0**31 - 1),
    (pa.int8(), pa.float64(), -128, -128.0),
    (pa.float32(), pa.float64(), 1.5, 1.5),
    (pa.int8(), pa.decimal128(3, 0), -128, Decimal(-128)),
    (pa.int16(), pa.decimal128(7, 2), -(2**15), Decimal("-32768.00")),
    (pa.int32(), pa.decimal128(10, 0), -(2**31), Decimal(-(2**31))),
    (pa.int64(), pa.decimal128(19, 0), -(2**63), Decimal(-(2**63))),
    (pa.decimal128(10, 2), pa.decimal128(20, 4), Decimal("99999999.99"), Decimal("99999999.9900")),
    (pa.decimal128(18, 0), pa.decimal128(19, 1), Decimal(-(10**18) + 1), Decimal(-(10**18) + 1)),
    (pa.date32(), pa.timestamp("us"), date(1969, 12, 31), datetime(1969, 12, 31)),
]


@pytest.mark.parametrize(("old", "new", "value", "read"), WIDENED, ids=str)
def test_a_widened_column_keeps_its_values(old: Any, new: Any, value: Any, read: Any) -> None:
    rows = reread([{"a": value}, {"a": None}], schema(a=old), schema(a=new))
    assert rows == [{"a": read}, {"a": None}]
    assert type(rows[0]["a"]) is type(read)


NOT_WIDENED: list[tuple[Any, Any]] = [
    (pa.int16(), pa.int8()),
    (pa.int64(), pa.float64()),
    (pa.int8(), pa.float32()),
    (pa.float64(), pa.float32()),
    (pa.int64(), pa.decimal128(18, 0)),
    (pa.int8(), pa.decimal128(4, 2)),
    (pa.float32(), pa.decimal128(38, 10)),
    (pa.decimal128(10, 2), pa.decimal128(10, 3)),
    (pa.decimal128(10, 2), pa.decimal128(11, 1)),
    (pa.decimal128(10, 2), pa.float64()),
    (pa.date32(), pa.timestamp("us", "UTC")),
    (pa.timestamp("us"), pa.timestamp("us", "UTC")),
    (pa.int8(), pa.string()),
    (pa.string(), pa.binary()),
    (pa.bool_(), pa.int8()),
    (pa.null(), pa.int8()),
    (elements(pa.int8()), pa.int8()),
    (struct(), pa.int8()),
    (struct(a=pa.int8()), elements(pa.int8())),
]


@pytest.mark.parametrize(("old", "new"), NOT_WIDENED, ids=str)
def test_a_type_that_does_not_hold_all_values_is_refused(old: Any, new: Any) -> None:
    assert "'a' cannot become" in refused(schema(a=old), schema(a=new))


def test_all_changes_are_possible_within_lists_maps_and_structs() -> None:
    old = schema(
        address=struct(street=pa.string(), zip=pa.int32(), floor=pa.int8()),
        items=elements(struct(price=pa.int32(), sku=pa.string())),
        stock=pa.map_(pa.int8(), struct(n=pa.int8())),
    )
    new = schema(
        stock=pa.map_(pa.int16(), struct(n=pa.int64(), at=pa.timestamp("us", "UTC"))),
        items=elements(struct(sku=pa.string(), amount=pa.decimal128(12, 2))),
        home=struct(zip=pa.int64(), road=pa.string(), country=pa.string()),
    )
    renamed = {"address": "home", "address.street": "home.road", "items.element.price": "items.element.amount"}
    rows: list[dict[str, Any]] = [
        {
            "address": {"street": "Elm", "zip": 1, "floor": 2},
            "items": [{"price": 3, "sku": "s"}, None],
            "stock": [(1, {"n": 5}), (2, None)],
        },
        {"address": None, "items": None, "stock": None},
        {"address": {"street": None, "zip": None, "floor": 3}, "items": [], "stock": []},
    ]
    assert reread(rows, old, new, renamed=renamed, dropped=["address.floor"]) == [
        {
            "stock": [(1, {"n": 5, "at": None}), (2, None)],
            "items": [{"sku": "s", "amount": Decimal("3.00")}, None],
            "home": {"zip": 1, "road": "Elm", "country": None},
        },
        {"stock": None, "items": None, "home": None},
        {"stock": [], "items": [], "home": {"zip": None, "road": None, "country": None}},
    ]


def test_rows_of_all_schemas_of_a_long_history_are_read() -> None:
    first = Schemas.first(schema(a=pa.int8(), b=pa.string()))
    second = first.evolved(schema(a=pa.int16(), b=pa.string()), where=WHERE)
    third = second.evolved(schema(c=pa.int32(), d=pa.bool_()), renamed={"a": "c"}, dropped=["b"], where=WHERE)
    fourth = third.evolved(schema(b=pa.string(), c=pa.decimal128(12, 1)), where=WHERE)
    packed = [
        *RowCodec(first).pack(pa.table({"a": pa.array([1], pa.int8()), "b": ["one"]})),
        *RowCodec(second).pack(pa.table({"a": pa.array([2], pa.int16()), "b": ["two"]})),
        *RowCodec(third).pack(pa.table({"c": pa.array([3], pa.int32()), "d": [True]})),
    ]
    rows = RowCodec(fourth).unpack([packed[2], packed[0], None, packed[1], packed[2]]).to_pydict()
    assert rows == {"b": [None] * 5, "c": [Decimal(3), Decimal(1), None, Decimal(2), Decimal(3)]}
    assert [row[1] for row in packed] == [1, 2, 3]


def test_a_column_that_comes_again_after_it_was_dropped_is_another_one() -> None:
    first = Schemas.first(schema(a=pa.int8(), b=pa.int8()))
    third = first.evolved(schema(a=pa.int8()), where=WHERE).evolved(first.current, where=WHERE)
    packed = RowCodec(first).pack(pa.table({"a": pa.array([1], pa.int8()), "b": pa.array([2], pa.int8())}))
    assert RowCodec(third).unpack(packed).to_pylist() == [{"a": 1, "b": None}]


def test_a_value_beyond_the_wider_type_is_refused_with_its_column() -> None:
    before = Schemas.first(schema(a=pa.date32()))
    after = before.evolved(schema(a=pa.timestamp("us")), where=WHERE)
    packed = RowCodec(before).pack(pa.table({"a": pa.array([2**31 - 1], pa.date32())}))
    with pytest.raises(SerdeError, match=r"row 0 of 1.*column 'a'"):
        RowCodec(after).unpack(packed)


def test_what_may_be_a_rename_is_refused_with_both_schemas_side_by_side() -> None:
    old = schema(id=required(pa.int64()), street=pa.string(), items=elements(struct(n=pa.int8())))
    new = schema(id=pa.int64(), items=elements(struct(n=pa.int16())), road=pa.string(), n=pa.int8())
    assert refused(old, new).splitlines() == [
        "stream_join 'orders', left input: the rows in the state cannot be read with the schema of now",
        "  in the state           now",
        "  id: int64 not null     id: int64",
        "> street: string         -",
        "  items: list            items: list",
        "  items.element: struct  items.element: struct",
        "  items.element.n: int8  items.element.n: int16",
        "> -                      road: string",
        "  -                      n: int8",
        "'street' is gone, and may have been renamed; say which: renamed={'street': 'road'} or dropped=['street']",
    ]


def test_a_column_that_vanishes_may_be_declared_dropped_while_others_appear() -> None:
    old, new = schema(a=pa.int8()), schema(b=pa.int8())
    assert reread([{"a": 1}], old, new, dropped=["a"]) == [{"b": None}]


def test_a_column_that_vanishes_needs_no_word_if_no_other_could_be_it() -> None:
    assert reread([{"a": 1}], schema(a=pa.int8()), schema(b=pa.string())) == [{"b": None}]


def test_a_rename_within_a_struct_that_is_not_declared_is_refused() -> None:
    old, new = schema(s=struct(a=pa.int8())), schema(s=struct(b=pa.int64()))
    assert "renamed={'s.a': 's.b'} or dropped=['s.a']" in refused(old, new)
    assert reread([{"s": {"a": 1}}], old, new, renamed={"s.a": "s.b"}) == [{"s": {"b": 1}}]
    assert reread([{"s": {"a": 1}}], old, new, dropped=["s.a"]) == [{"s": {"b": None}}]


def test_an_added_column_must_be_nullable() -> None:
    assert "'b' is added as NOT NULL" in refused(schema(a=pa.int8()), schema(a=pa.int8(), b=required(pa.int8())))
    inner = schema(s=struct(a=pa.int8(), b=required(pa.int8())))
    assert "'s.b' is added as NOT NULL" in refused(schema(s=struct(a=pa.int8())), inner)


def test_a_column_that_was_nullable_stays_so() -> None:
    assert "'a' is NOT NULL now" in refused(schema(a=pa.int8()), schema(a=required(pa.int8())))


def test_metadata_says_what_a_column_is_and_stays() -> None:
    marked = pa.field("", pa.binary(), metadata={b"variant": b"true"})
    assert "the metadata of 'a' was" in refused(schema(a=marked), schema(a=pa.binary()))
    assert "the metadata of 's.a' was" in refused(schema(s=struct(a=pa.binary())), schema(s=struct(a=marked)))


def test_two_columns_that_would_be_one_are_refused_until_one_is_dropped_or_has_a_new_name_too() -> None:
    old, new = schema(a=pa.int8(), b=pa.int8()), schema(b=pa.int8())
    told = "two columns would be 'b'; add dropped=['b'], which loses the values of that column, or give it a new name,"
    assert told in refused(old, new, renamed={"a": "b"})
    declared: Any = {"renamed": {"a": "b"}, "dropped": ["b"]}
    assert reread([{"a": 1, "b": 2}], old, new, **declared) == [{"b": 1}]
    second = Schemas.first(old).evolved(new, where=WHERE, **declared)
    assert second.evolved(new, where=WHERE, **declared) is second
    wider = second.evolved(schema(b=pa.int16()), where=WHERE, **declared)
    assert wider.number == 3
    handed_on: Any = {"renamed": {"a": "b", "b": "c"}}
    both = schema(b=pa.int8(), c=pa.int8())
    assert reread([{"a": 1, "b": 2}], old, both, **handed_on) == [{"b": 1, "c": 2}]
    second = Schemas.first(old).evolved(both, where=WHERE, **handed_on)
    assert second.evolved(both, where=WHERE, **handed_on) is second


def test_within_a_struct_a_column_takes_the_name_of_one_that_is_dropped_also_if_the_struct_is_renamed() -> None:
    old = schema(s=struct(a=pa.int8(), b=pa.int8()))
    for place in ("s", "t"):
        new = schema(**{place: struct(b=pa.int8())})
        renamed = {"s.a": f"{place}.b"} | ({"s": "t"} if place == "t" else {})
        rows = reread([{"s": {"a": 1, "b": 2}}], old, new, renamed=renamed, dropped=["s.b"])
        assert rows == [{place: {"b": 1}}]


def test_columns_exchange_their_names_by_way_of_a_third_one() -> None:
    first, swapped = Schemas.first(schema(v=pa.int8(), w=pa.int8())), schema(w=pa.int8(), v=pa.int8())
    told = r"renamed=(\{'v': 'v_2'\}) in one release, and renamed=(\{'w': 'v', 'v_2': 'w'\}) in the next"
    with pytest.raises(ConfigurationError, match=told) as error:
        first.evolved(swapped, {"v": "w", "w": "v"}, where=WHERE)
    found = re.search(told, error.value.sentence)
    assert found is not None
    once, then = map(ast.literal_eval, found.groups())
    second = first.evolved(schema(v_2=pa.int8(), w=pa.int8()), once, where=WHERE)
    third = second.evolved(swapped, then, where=WHERE)
    assert third.evolved(swapped, then, where=WHERE) is third
    packed = RowCodec(first).pack(pa.table({"v": pa.array([1], pa.int8()), "w": pa.array([2], pa.int8())}))
    assert RowCodec(third).unpack(packed).to_pylist() == [{"w": 1, "v": 2}]


def test_all_problems_are_told_at_once() -> None:
    message = refused(schema(a=pa.string(), b=pa.int8()), schema(a=pa.int8(), b=required(pa.int8())))
    assert [line[0] for line in message.splitlines()[2:4]] == [">", ">"]
    assert len(message.splitlines()) == 6


DECLARED: list[tuple[dict[str, Any], str]] = [
    ({"renamed": {"a": "kolor"}}, "'a' is 'kolor' now, but there is no 'kolor'; did you mean 'color'"),
    ({"renamed": {"b": "color"}}, "but there is a column 'b'; take that out"),
    ({"renamed": {"c": "color"}}, "but there was no 'c'; did you mean"),
    ({"renamed": {"s.x": "color"}}, "but a column cannot move to another struct"),
    ({"dropped": ["b"]}, "dropped says that 'b' is gone, but it is there"),
    ({"dropped": ["b"], "renamed": {"x": "b"}}, "'b' is gone, but there was no 'x' to take its name; did you mean"),
    ({"renamed": {"x": "b", "b": "color"}}, "but there was no 'x' to be 'b'; did you mean"),
    ({"dropped": ["s.y"]}, r"but there never was such a column; did you mean 's\.x'"),
]


@pytest.mark.parametrize(("declared", "message"), DECLARED, ids=lambda part: str(part))
def test_a_declaration_that_fits_nothing_is_refused_with_the_nearest_name(
    declared: dict[str, Any], message: str
) -> None:
    old = schema(a=pa.int8(), b=pa.int8(), s=struct(x=pa.string()))
    new = schema(b=pa.int8(), color=pa.string())
    with pytest.raises(ConfigurationError, match=message) as error:
        Schemas.first(old).evolved(new, where=WHERE, **declared)
    assert str(error.value).startswith(WHERE)


def test_a_rename_never_moves_a_column_into_or_out_of_a_struct() -> None:
    old, new = schema(s=struct(x=pa.int8())), schema(s=struct(y=pa.int8()), y=pa.int8())
    advice = (
        r"write dropped=\['s\.x'\] in place of that, which loses its values, or keep the column 's\.x', without that \["
    )
    with pytest.raises(ConfigurationError, match=rf"a column cannot move to another struct; {advice}"):
        Schemas.first(old).evolved(new, renamed={"s.x": "y"}, where=WHERE)
    assert reread([{"s": {"x": 1}}], old, new, dropped=["s.x"]) == [{"s": {"y": None}, "y": None}]
    kept = schema(s=struct(x=pa.int8()), y=pa.int8())
    assert reread([{"s": {"x": 1}}], old, kept) == [{"s": {"x": 1}, "y": None}]
    assert reread([{"s": {"x": 1}}], old, new, renamed={"s.x": "s.y"}) == [{"s": {"y": 1}, "y": None}]


def test_a_column_of_a_renamed_struct_is_renamed_with_it() -> None:
    old, new = schema(s=struct(x=pa.int8())), schema(t=struct(y=pa.int8()))
    advice = re.escape("write renamed={'s': 't', 's.x': 't.y'}, if the struct is renamed, or dropped=['s.x'] in place")
    with pytest.raises(ConfigurationError, match=advice):
        Schemas.first(old).evolved(new, renamed={"s.x": "t.y"}, where=WHERE)
    assert reread([{"s": {"x": 1}}], old, new, renamed={"s": "t", "s.x": "t.y"}) == [{"t": {"y": 1}}]


def test_what_is_said_of_columns_that_are_there_is_taken_out_or_the_columns_are() -> None:
    first, there = Schemas.first(schema(a=pa.int8())), schema(a=pa.int8(), b=pa.int8())
    declared: Any = {"renamed": {"a": "b"}, "where": WHERE}
    advice = "'a'; take that out, or, if an earlier run has applied what is said, take 'a' out of renamed; a new 'a' "
    with pytest.raises(ConfigurationError, match=advice):
        first.evolved(there, **declared)
    assert reread([{"a": 1}], first.current, schema(b=pa.int8()), renamed={"a": "b"}) == [{"b": 1}]
    second = first.evolved(schema(b=pa.int8()), **declared)
    with pytest.raises(ConfigurationError, match=advice):
        second.evolved(there, **declared)
    third = second.evolved(there, where=WHERE)
    packed = RowCodec(second).pack(pa.table({"b": pa.array([1], pa.int8())}))
    assert RowCodec(third).unpack(packed).to_pylist() == [{"a": None, "b": 1}]
    with pytest.raises(ConfigurationError, match="'a' is gone, but it is there; take it out of the columns, or out of"):
        first.evolved(there, dropped=["a"], where=WHERE)
    assert reread([{"a": 1}], first.current, schema(b=pa.int8()), dropped=["a"]) == [{"b": None}]
    assert reread([{"a": 1}], first.current, there) == [{"a": 1, "b": None}]


def test_names_may_have_dots() -> None:
    old, new = schema(**{"a.b": pa.int8(), "c": pa.int8()}), schema(**{"c": pa.int8(), "x.y": pa.int8()})
    assert reread([{"a.b": 1, "c": 2}], old, new, renamed={"a.b": "x.y"}) == [{"c": 2, "x.y": 1}]


def test_what_was_declared_and_applied_may_stay_declared() -> None:
    declared: Any = {"renamed": {"a": "c", "s.x": "s.y"}, "dropped": ["b"], "where": WHERE}
    old = schema(a=pa.int8(), b=pa.int8(), s=struct(x=pa.int8()))
    new = schema(c=pa.int8(), s=struct(y=pa.int8()))
    second = Schemas.first(old).evolved(new, **declared)
    assert second.evolved(new, **declared) is second
    third = second.evolved(schema(c=pa.int16(), s=struct(y=pa.int8())), **declared)
    assert third.number == 3
    assert Schemas.first(new).evolved(new, **declared).number == 1


@settings(deadline=None)
@given(structs(types(), least=1), st.data())
def test_dropping_adding_and_reordering_keeps_what_stays(type_: Any, data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.tuples(*(values(field.type) for field in type_)).map(list), max_size=4))
    kept = data.draw(st.permutations(list(type_)))[: data.draw(st.integers(0, type_.num_fields))]
    before = Schemas.first(pa.schema(list(type_)))
    dropped = [name for name in NAMES[: type_.num_fields] if name not in {field.name for field in kept}]
    added: Any = [*kept, pa.field("new", pa.list_(pa.int8()))]
    after = before.evolved(pa.schema(added), dropped=dropped, where=WHERE)
    array = column(rows, type_)
    unpacked = RowCodec(after).unpack(RowCodec(before).pack(array))
    expected = RowCodec(before).unpack(RowCodec(before).pack(array)).select([field.name for field in kept])
    again = RowCodec(Schemas.first(expected.schema))
    assert again.pack(unpacked.drop_columns(["new"])) == again.pack(expected) or not kept
    assert unpacked["new"].null_count == unpacked.num_rows == len(rows)
