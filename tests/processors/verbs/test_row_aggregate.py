"""RowAggregate: what travels, what its states are called and written as, and what it refuses."""

import pickle
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millpond.errors import ConfigurationError, RecordError, SerdeError
from millpond.processors import Consumed, Materialized, StreamsBuilder
from millpond.processors.calls.aggregate import make_aggregate
from millpond.processors.calls.tables import Rows
from millpond.processors.verbs import aggregates as f
from millpond.processors.verbs.aggregates import AggregateCall
from millpond.processors.verbs.row_aggregate import STATE_VERSION, RowAggregate
from millpond.stores.encoding.serdes import BYTES
from tests.processors.verbs.aggregating import EXTENT, KEY, aggregate_state, fold, physical, result_of

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "formats.md").read_text()


class Overloaded:
    """A column as an adapter has it: its comparisons are expressions, and it stays in its process."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> Any:
        raise AssertionError("columns must not be compared")

    def __bool__(self) -> bool:
        raise AssertionError("columns have no truth value")

    def __reduce__(self) -> Any:
        raise AssertionError("columns must not travel")

    def __str__(self) -> str:
        return "Column<'a + b'>"


EVERY = {
    "n": (f.count(), None),
    "count": (f.count("x"), pa.string()),
    "sum_int": (f.sum("x"), pa.int64()),
    "sum_float": (f.sum("x"), pa.float64()),
    "sum_wide": (f.sum("x"), pa.decimal128(30, 2)),
    "avg_int": (f.avg("x"), pa.int32()),
    "avg_decimal": (f.avg("x"), pa.decimal128(10, 2)),
    "min": (f.min("x"), pa.struct([("a", pa.float64())])),
    "max": (f.max("x"), pa.float64()),
    "first": (f.first("x"), pa.string()),
    "last": (f.last("x", ignore_nulls=True), pa.timestamp("us")),
    "collect": (f.collect("x"), pa.list_(pa.int32())),
    "distinct": (f.count_distinct("x"), pa.list_(pa.float64())),
    "about": (f.approx_count_distinct("x"), pa.string()),
    "first_some": (f.first("x", where="w"), pa.struct([("value", pa.string())])),
    "variance": (f.var_samp("x"), pa.float64()),
    "bits": (f.bit_xor("x"), pa.int32()),
    "mode": (f.mode("x"), pa.list_(pa.float64())),
    "median": (f.median("x"), pa.decimal128(30, 2)),
    "together": (f.corr("x", "y"), pa.struct([("first", pa.float64()), ("second", pa.int32())])),
    "lean": (f.skewness("x"), pa.float64()),
    "product": (f.product("x"), pa.float64()),
    "bins": (f.histogram("x", [0.15]), pa.float64()),
    "hll": (f.hll_sketch_agg("x"), pa.string()),
    "theta": (f.theta_sketch_agg("x"), pa.float64()),
    "kll": (f.kll_sketch_agg("x"), pa.int32()),
    "near": (f.approx_percentile("x", 0.9), pa.decimal128(30, 2)),
    "top": (f.approx_top_k("x"), pa.float64()),
}
EVERY_TYPE: dict[str, pa.DataType] = {name: type_ for name, (_, type_) in EVERY.items() if type_ is not None}
EVERY_ROW = RowAggregate({name: call for name, (call, _) in EVERY.items()}, EVERY_TYPE)
ROWS = [
    (
        7,
        "a",
        1,
        0.1,
        bytes(16),
        1,
        1,
        [0.5],
        0.5,
        "a",
        1,
        [1, None],
        [0.0],
        "a",
        ["a"],
        0.1,
        6,
        [-0.0],
        bytes(16),
        [0.1, 2],
        0.1,
        0.1,
        0.1,
        "a",
        0.1,
        1,
        bytes(16),
        0.1,
    ),
    (
        5,
        None,
        2,
        0.2,
        b"\xff" * 16,
        2,
        2,
        [None],
        0.7,
        None,
        2,
        [],
        [None],
        "",
        [None],
        0.2,
        3,
        [0.0],
        b"\xff" * 16,
        [0.5, 1],
        0.2,
        0.2,
        0.2,
        None,
        0.2,
        2,
        b"\xff" * 16,
        0.2,
    ),
    (
        6,
        "",
        None,
        None,
        None,
        None,
        None,
        None,
        None,
        "c",
        None,
        None,
        None,
        None,
        None,
        None,
        None,
        None,
        None,
        [1.0, None],
        None,
        None,
        None,
        "",
        None,
        None,
        None,
        0.3,
    ),
]


def test_calls_take_columns_that_cannot_be_compared_and_do_not_travel_with_them() -> None:
    row = RowAggregate({"total": f.sum(Overloaded())}, {"total": pa.int64()})
    state = fold(pickle.loads(pickle.dumps(row)), [(1, 2), (2, 3)])
    assert row.results([state])["total"].to_pylist() == [5]


def test_a_pickled_aggregation_goes_on_with_the_states_of_the_original() -> None:
    copy = pickle.loads(pickle.dumps(EVERY_ROW))
    assert copy.schema == EVERY_ROW.schema
    assert copy.state_serde.name == EVERY_ROW.state_serde.name
    state = fold(EVERY_ROW, ROWS[:2])
    data = EVERY_ROW.state_serde.serialize(state)
    went_on = copy.aggregator(KEY, ROWS[2], copy.state_serde.deserialize(data))
    assert copy.results([went_on]).to_pylist() == EVERY_ROW.results([fold(EVERY_ROW, ROWS)]).to_pylist()


def test_a_state_of_every_function_is_the_same_after_its_bytes() -> None:
    state = fold(EVERY_ROW, ROWS)
    serde = EVERY_ROW.state_serde
    data = serde.serialize(state)
    assert serde.serialize(serde.deserialize(data)) == data
    before, after = EVERY_ROW.results([state]), EVERY_ROW.results([serde.deserialize(data)])
    assert before.to_pylist() == after.to_pylist()
    assert serde.serialize(state) == data, "results leave a state as it is"


def test_a_state_of_none_gives_a_row_of_nulls() -> None:
    table = EVERY_ROW.results([None, fold(EVERY_ROW, ROWS), None])
    assert [row == dict.fromkeys(EVERY) for row in table.to_pylist()] == [True, False, True]
    assert all(field.nullable for field in table.schema)
    assert [field.type for field in table.schema] == [field.type for field in EVERY_ROW.schema]
    assert EVERY_ROW.results([]).num_rows == 0


def test_values_are_in_the_order_of_the_calls_that_have_a_column() -> None:
    calls = {"a": f.last("p"), "n": f.count(), "b": f.last("q")}
    row = RowAggregate(calls, {"b": pa.int64(), "a": pa.string()})
    state = fold(row, [(1, "x", 10), (2, "y", None)])
    assert row.results([state]).to_pylist() == [{"a": "y", "n": 2, "b": None}]


INTS = pa.struct([("first", pa.int32()), ("second", pa.int32())])
INT_AND_FLOAT = pa.struct([("first", pa.int32()), ("second", pa.float64())])
GOLDEN: list[tuple[AggregateCall, pa.DataType, list[Any], str, str]] = [
    (f.count("x"), pa.string(), ["a", None, "b"], "count(string)", "91 02"),
    (f.sum("x"), pa.int64(), [40, 2], "sum(int)", "91 2a"),
    (f.sum("x"), pa.decimal128(38, 0), [Decimal(10**20)], "sum(decimal(38, 0))", f"91 c410 {10**20:032x}"),
    (f.sum("x"), pa.float64(), [0.5, 0.25], "sum(float)", "91 92 cb3fe0000000000000 cb3fd0000000000000"),
    (f.avg("x"), pa.int64(), [1, 2], "avg(int)", "91 92 02 03"),
    (f.avg("x"), pa.float32(), [0.5], "avg(float)", "91 92 01 91 cb3fe0000000000000"),
    (f.min("x"), pa.string(), ["b", "a"], "min(string)", "91 a161"),
    (f.first("x"), pa.string(), ["a", "b"], "first(string, ignore_nulls=False)", "91 92 00 a161"),
    (f.last("x"), pa.string(), ["a", "b"], "last(string, ignore_nulls=False)", "91 92 01 a162"),
    (f.collect("x"), pa.string(), ["a", "b"], "collect(string)", "91 92 92 00 01 92 a161 a162"),
    (f.collect("x", limit=1), pa.string(), ["a", "b"], "collect(string, limit=1)", "91 92 91 00 91 a161"),
    (
        f.collect("x", distinct=True),
        pa.float64(),
        [0.0, -0.0],
        "collect(float, distinct=True)",
        "91 92 91 00 91 cb0000000000000000",
    ),
    (
        f.map_agg("x", "y"),
        pa.struct([("first", pa.string()), ("second", pa.int32())]),
        [("b", 1), ("a", 2), ("b", 3)],
        "map_agg(struct<string, int>)",
        "91 93 92 01 02 92 a161 a162 92 02 03",
    ),
    (f.count_distinct("x"), pa.string(), ["b", "a", "b"], "count_distinct(string)", "91 92 a161 a162"),
    (f.count_distinct("x"), pa.float64(), [-0.0], "count_distinct(float)", "91 91 c409 cb0000000000000000"),
    (
        f.approx_count_distinct("x"),
        pa.string(),
        ["a"],
        "approx_count_distinct(string, relative_error=0.05)",
        "91 c40c 020107090308010867cef70e",
    ),
    (f.var_samp("x"), pa.int64(), [3, -1], "var_samp(int)", "91 94 02 00 c401 02 c401 0a"),
    (f.var_pop("x"), pa.float64(), [1.5, 2.0], "var_pop(float)", "91 94 02 01 c401 07 c401 19"),
    (f.stddev_pop("x"), pa.float64(), [float("inf")], "stddev_pop(float)", "91 94 01 c0 c0 c0"),
    (
        f.covar_pop("x", "y"),
        INT_AND_FLOAT,
        [(3, 1.5), (-1, 2.0)],
        "covar_pop(struct<int, float>)",
        "91 96 02 00 01 c401 02 c401 07 c401 05",
    ),
    (
        f.corr("x", "y"),
        INTS,
        [(1, 1)],
        "corr(struct<int, int>)",
        "91 98 01 00 00 c401 01 c401 01 c401 01 c401 01 c401 01",
    ),
    (
        f.weighted_avg("x", "w"),
        INTS,
        [(3, 1), (5, 2)],
        "weighted_avg(struct<int, int>)",
        "91 95 02 00 00 c401 03 c401 0d",
    ),
    (f.bool_and("x"), pa.bool_(), [True, False], "bool_and(bool)", "91 c2"),
    (f.bit_xor("x"), pa.int16(), [6, 3], "bit_xor(int)", "91 05"),
    (f.mode("x"), pa.string(), ["b", "a", "b"], "mode(string)", "91 92 92 a161 a162 92 01 02"),
    (f.median("x"), pa.int32(), [3, 3], "percentile(int, percentage=0.5)", "91 92 91 03 91 02"),
    (f.sum("x"), pa.int64(), [None], "sum(int)", "91 c0"),
    (f.skewness("x"), pa.int64(), [3, -1], "skewness(int)", "91 95 02 00 c401 02 c401 0a c401 1a"),
    (f.kurtosis("x"), pa.int64(), [3, -1], "kurtosis(int)", "91 96 02 00 c401 02 c401 0a c401 1a c401 52"),
    (f.product("x"), pa.int64(), [6, -4], "product(int)", "91 94 02 03 c401 fd c0"),
    (
        f.geometric_mean("x"),
        pa.float64(),
        [0.5, float("inf")],
        "geometric_mean(float)",
        "91 94 02 ff c401 01 cb7ff0000000000000",
    ),
    (f.histogram("x", [1, 2.5]), pa.int64(), [1, 2, 3, 4], "histogram(int, edges=[1.0, 2.5])", "91 93 01 01 02"),
    (
        f.hll_sketch_agg("x"),
        pa.string(),
        ["a"],
        "hll_sketch_agg(string, lg_config_k=12)",
        "91 c410 35fbe51a 0201070c030801082f823b04",
    ),
    (
        f.theta_sketch_agg("x"),
        pa.int32(),
        [7],
        "theta_sketch_agg(int, lg_nom_entries=12)",
        "91 c414 6da02b5e 01030300001acc93e0f48bea9983c37c",
    ),
    (
        f.kll_sketch_agg("x"),
        pa.int32(),
        [7],
        "kll_sketch_agg(int, k=200)",
        "91 c414 7a56538f 02020f06c80008000700000000000000",
    ),
    (
        f.approx_percentile("x", 0.5),
        pa.float64(),
        [1.5],
        "approx_percentile(float, k=200, percentage=0.5)",
        "91 c414 1a901c1e 02020f06c8000800000000000000f83f",
    ),
    (
        EXTENT("x"),
        pa.int64(),
        [7, 9],
        "user_defined(int, name='extent', version=3)",
        "91 c403 920709",
    ),
]
"""Call, type and values; the name of the state, and its bytes in the array that holds it alone."""

LONG: list[tuple[AggregateCall, pa.DataType, list[Any], str, str]] = [
    (
        f.approx_top_k("x", 1, 6),
        pa.string(),
        ["a"],
        "approx_top_k(string, k=1, max_items_tracked=6)",
        "91 c431 368e07c9 04010a030300000001000000000000000100000000000000000000000000000001000000000000000100000061",
    ),
    (
        f.approx_top_k_accumulate("x", 6),
        pa.int8(),
        [7],
        "approx_top_k_accumulate(int, max_items_tracked=6)",
        "91 c434 618bd5ea 04010a0303000000010000000000000001000000000000000000000000000000"
        "01000000000000000700000000000000",
    ),
]
"""The same, of states that are too long for the page."""


@pytest.mark.parametrize(("call", "type_", "values", "name", "data"), [*GOLDEN, *LONG], ids=lambda given: str(given))
def test_the_bytes_of_a_state_and_its_name_never_change(
    call: AggregateCall, type_: pa.DataType, values: list[Any], name: str, data: str
) -> None:
    row = RowAggregate({"x": call}, {"x": type_})
    assert row.state_serde.name == f"aggregate-state-1: {name}"
    assert row.state_serde.serialize(aggregate_state(row, physical(values, type_))) == bytes.fromhex(data)


def test_the_examples_of_the_page_of_formats_are_some_of_these() -> None:
    section = PAGE.partition("## States of aggregates\n")[2].partition("\n## ")[0]
    shown = re.findall(r"^(\S+\(.*\))  +(91(?: [0-9a-f]+)*)  ", section.split("```")[1], re.MULTILINE)
    assert set(shown) <= {(name, data) for *_, name, data in GOLDEN}
    assert len(shown) >= 5
    numbers = rf"name of the store's value serde \| {STATE_VERSION} \|"
    assert re.search(rf"`aggregate-state-{STATE_VERSION}`[^|]* \| {numbers}", PAGE)


def named(calls: dict[str, AggregateCall], **types: pa.DataType) -> str:
    return RowAggregate(calls, types).state_serde.name


def test_states_have_the_same_name_only_if_one_can_go_on_with_the_other() -> None:
    total = {"a": f.sum("x")}
    assert named(total, a=pa.int64()) == named({"b": f.sum("y")}, b=pa.int32())
    assert named(total, a=pa.int64()) != named(total, a=pa.float64())
    assert named(total, a=pa.decimal128(10, 2)) != named(total, a=pa.decimal128(10, 3))
    assert named(total, a=pa.int64()) != named({"a": f.avg("x")}, a=pa.int64())
    both = {"a": f.sum("x"), "n": f.count()}
    assert named(both, a=pa.int64()) != named(dict(reversed(both.items())), a=pa.int64())
    coarse, fine = (f.approx_count_distinct("x", error) for error in (0.05, 0.01))
    assert named({"a": coarse}, a=pa.string()) != named({"a": fine}, a=pa.string())


def test_other_functions_make_another_topology() -> None:
    def fingerprint(call: AggregateCall) -> str:
        row = RowAggregate({"x": call}, {"x": pa.int64()})
        builder = StreamsBuilder(key_serde=BYTES)
        grouped = builder.stream("in", Consumed(BYTES, row.input_serde)).group_by_key()
        grouped.aggregate(row.initializer, row.aggregator, Materialized("s", value_serde=row.state_serde)).to("out")
        return builder.build().fingerprint

    assert fingerprint(f.sum("x")) == fingerprint(f.sum("y")) != fingerprint(f.min("x"))


@pytest.mark.parametrize("data", [b"", b"\x91", b"\x92\x01\x02", b"\x2a", b"\xc1", b"\x91\xd6\x05"])
def test_bytes_that_are_no_state_are_refused(data: bytes) -> None:
    row = RowAggregate({"x": f.sum("x")}, {"x": pa.int64()})
    with pytest.raises(SerdeError, match=r"is no state of aggregate-state-1: sum\(int\)"):
        row.state_serde.deserialize(data)


def test_what_is_no_state_or_input_cannot_be_written() -> None:
    with pytest.raises(SerdeError, match="is no state of"):
        EVERY_ROW.state_serde.serialize([object()])
    with pytest.raises(SerdeError, match="is no array of physical values"):
        EVERY_ROW.input_serde.serialize((1, object()))


@pytest.mark.parametrize("data", [b"", b"\x91", b"\x2a", b"\xc1"])
def test_bytes_that_are_no_input_are_refused(data: bytes) -> None:
    with pytest.raises(SerdeError, match="is no input of an aggregate"):
        EVERY_ROW.input_serde.deserialize(data)


def test_without_calls_there_is_nothing_to_aggregate() -> None:
    with pytest.raises(ConfigurationError, match="there is nothing to aggregate"):
        RowAggregate({}, {})


@pytest.mark.parametrize(("function", "result"), [("max", 4), ("avg", 3.5), ("count", 2), ("collect", [3, 4])])
def test_an_unknown_function_is_refused_with_those_that_there_are(function: str, result: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"no aggregate function 'skew'; use one of .*aggregates: ") as refused:
        RowAggregate({"a": AggregateCall("skew", "x")}, {"a": pa.int64()})
    named = refused.value.sentence.partition("aggregates: ")[2].split(", ")
    assert function in named
    assert all(callable(getattr(f, name)) for name in named)
    row = RowAggregate({"a": getattr(f, function)("x")}, {"a": pa.int64()})
    assert row.results([aggregate_state(row, [3, 4])])["a"].to_pylist() == [result]


def test_a_sum_that_overflows_gets_a_wider_type_or_fewer_rows() -> None:
    most = 2**63 - 1
    with pytest.raises(RecordError, match="; cast the column to a wider type, or filter first"):
        result_of(f.sum("x"), pa.int64(), [most, 1])
    assert result_of(f.sum("x"), pa.decimal128(20, 0), [most, 1]) == most + 1
    assert result_of(f.sum("x"), pa.int64(), [most]) == most


def test_results_may_be_null_whatever_columns_they_are_made_of() -> None:
    types = {"k": pa.string(), "at": pa.timestamp("us", "UTC"), "v": pa.int64()}
    rows = Rows.of("a", pa.schema([pa.field(name, type_, nullable=False) for name, type_ in types.items()]))
    made = make_aggregate("out", rows, {"n": f.count(), "v": f.sum("v")}, by="k", time="at")
    assert {field.name for field in made.rows.schema if field.nullable} >= {"k", "n", "v"}
