"""Functions of rows that come and go have the results of the rows that are there, whatever came before."""

import math
from typing import Any

import msgpack
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.errors import RecordError
from millpond.processors.verbs import aggregates as f
from millpond.processors.verbs.aggregates import AggregateCall
from millpond.processors.verbs.row_aggregate import RowAggregate
from tests.processors.verbs.aggregating import (
    ADDED,
    EXTENT,
    KEY,
    MAPPED,
    NUMBERS,
    PAIRED,
    TALLY,
    VALUES,
    column,
    fold,
    physical,
)

STRINGS = pa.string()
CALLS: dict[str, tuple[AggregateCall, list[pa.DataType]]] = {
    "count": (f.count("x"), list(VALUES)),
    "sum": (f.sum("x"), ADDED),
    "avg": (f.avg("x"), ADDED),
    "var_samp": (f.var_samp("x"), NUMBERS),
    "stddev_pop": (f.stddev_pop("x"), NUMBERS),
    "skewness": (f.skewness("x"), NUMBERS),
    "kurtosis": (f.kurtosis("x"), NUMBERS),
    "covar_samp": (f.covar_samp("x", "y"), list(PAIRED)),
    "corr": (f.corr("x", "y"), list(PAIRED)),
    "weighted_avg": (f.weighted_avg("x", "y"), list(PAIRED)),
    "product": (f.product("x"), NUMBERS),
    "min": (f.min("x"), [pa.int64(), pa.float64(), STRINGS, pa.decimal128(38, 10)]),
    "max": (f.max("x"), [pa.int64(), pa.float64(), STRINGS, pa.list_(pa.int32())]),
    "bool_and": (f.bool_and("x"), [pa.bool_()]),
    "bit_xor": (f.bit_xor("x"), [pa.int32(), pa.int64()]),
    "mode": (f.mode("x"), [pa.int64(), pa.float64(), STRINGS]),
    "percentile": (f.percentile("x", 0.3), [pa.int64(), pa.decimal128(18, 4), pa.duration("us")]),
    "histogram": (f.histogram("x", [-1, 0, 10]), [pa.int64(), pa.float64()]),
    "first": (f.first("x"), list(VALUES)),
    "last": (f.last("x", ignore_nulls=True), list(VALUES)),
    "collect": (f.collect("x"), list(VALUES)),
    "distinct": (f.collect("x", distinct=True), [pa.int64(), STRINGS]),
    "map_agg": (f.map_agg("x", "y"), list(MAPPED)),
    "count_distinct": (f.count_distinct("x"), [pa.int64(), pa.float64(), STRINGS]),
    "approx_count_distinct": (f.approx_count_distinct("x"), [pa.int64(), STRINGS]),
    "theta": (f.theta_sketch_agg("x"), [pa.int64(), STRINGS]),
    "user": (TALLY("x"), [pa.int64(), STRINGS]),
    "user of many": (EXTENT("x"), [pa.int32()]),
}
CASES = [(name, type_) for name, (_, types) in CALLS.items() for type_ in types]


def shown(results: pa.Table) -> str:
    """A result, in which NaN equals NaN."""
    return repr(results["x"].to_pylist()[0])


@pytest.mark.parametrize(("name", "type_"), CASES)
@given(data=st.data())
def test_what_has_gone_leaves_no_trace(name: str, type_: pa.DataType, data: st.DataObject) -> None:
    call = CALLS[name][0]
    stays, goes = (physical(data.draw(column(type_, max_size=8)), type_) for _ in range(2))
    rows = [(number, value) for number, value in enumerate([*stays, *goes])]
    order = data.draw(st.permutations(rows))
    row, plain = RowAggregate({"x": call}, {"x": type_}, reversible=True), RowAggregate({"x": call}, {"x": type_})
    state = fold(row, order)
    for number, value in data.draw(st.permutations(rows[len(stays) :])):
        state = row.subtractor(KEY, row.input_serde.deserialize(row.input_serde.serialize((number, value))), state)
        state = row.state_serde.deserialize(row.state_serde.serialize(state))
    expected = fold(plain, rows[: len(stays)])
    assert shown(row.results([state])) == shown(plain.results([expected]))


@given(st.lists(st.sampled_from([math.nan, math.inf, -math.inf, 1e308, -1e308, 5e-324, 0.1]), max_size=12), st.data())
def test_sums_of_floats_forget_what_was_not_finite_or_too_much(values: list[float], data: st.DataObject) -> None:
    goes = data.draw(st.lists(st.sampled_from(range(len(values))), unique=True)) if values else []
    calls = {"s": f.sum("s"), "a": f.avg("a"), "v": f.var_pop("v")}
    types = dict.fromkeys(calls, pa.float64())
    row, plain = RowAggregate(calls, types, reversible=True), RowAggregate(calls, types)
    given = [(number, value, value, value) for number, value in enumerate(values)]
    state = fold(row, given)
    for number in goes:
        state = row.subtractor(KEY, given[number], state)
    expected = fold(plain, [one for one in given if one[0] not in goes])
    finite = [one[1] for one in given if one[0] not in goes]
    if not any(map(math.isfinite, finite)) or abs(math.fsum(x / 4 for x in finite if math.isfinite(x))) < 4e307:
        assert repr(row.results([state]).to_pylist()) == repr(plain.results([expected]).to_pylist())


def test_rows_of_a_condition_go_as_they_came() -> None:
    calls = {"n": f.count(where="b"), "s": f.sum("s", where="b"), "l": f.last("l", where="b")}
    types: dict[str, pa.DataType] = {"n": pa.bool_(), "s": pa.int64(), "l": pa.struct([("value", pa.string())])}
    row = RowAggregate(calls, types, reversible=True)
    state = fold(row, [(1, True, 5, ("a",)), (2, None, None, None), (3, True, None, (None,))])
    assert row.results([state]).to_pylist() == [{"n": 2, "s": 5, "l": None}]
    state = row.subtractor(KEY, (3, True, None, (None,)), state)
    assert row.results([state]).to_pylist() == [{"n": 1, "s": 5, "l": "a"}]
    state = row.subtractor(KEY, (2, None, None, None), row.subtractor(KEY, (1, True, 5, ("a",)), state))
    assert row.results([state]).to_pylist() == [{"n": 0, "s": None, "l": None}]


def test_a_sum_that_fits_again_is_right() -> None:
    """What is too much for a moment, as long as nobody asks for the result, is none of its business."""
    row = RowAggregate({"s": f.sum("s")}, {"s": pa.int64()}, reversible=True)
    most = 2**63 - 1
    state = fold(row, [(1, most), (2, 1)])
    with pytest.raises(RecordError, match="does not fit int64"):
        row.results([state])
    assert row.results([row.subtractor(KEY, (1, most), state)]).to_pylist() == [{"s": 1}]


@pytest.mark.parametrize("call", [f.first("x"), f.last("x"), f.collect("x")])
@given(rows=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), max_size=6), data=st.data())
def test_rows_of_one_time_go_by_what_they_are_and_not_by_how_they_came(
    call: AggregateCall, rows: list[tuple[int, int]], data: st.DataObject
) -> None:
    row = RowAggregate({"x": call}, {"x": pa.int64()}, reversible=True)
    found: list[Any] = [row.results([fold(row, data.draw(st.permutations(rows)))]).to_pylist() for _ in range(2)]
    assert found[0] == found[1]


def test_the_form_of_states_stays_what_it_is() -> None:
    calls = {
        "n": f.count(), "s": f.sum("s"), "a": f.avg("a"), "v": f.var_pop("v"), "m": f.max("m"), "l": f.last("l"),
    }  # fmt: skip
    types: dict[str, pa.DataType] = {
        "s": pa.int64(),
        "a": pa.float64(),
        "v": pa.float64(),
        "m": pa.string(),
        "l": pa.string(),
    }
    row = RowAggregate(calls, types, reversible=True)
    assert row.state_serde.name == (
        "reversible-state-1: count(null); sum(int); avg(float); var_pop(float); max(string); last(string, "
        "ignore_nulls=False)"
    )
    state = fold(row, [(1, 2, 0.5, 0.25, "a", "x"), (2, 3, math.inf, math.nan, "a", None)])
    assert msgpack.unpackb(row.state_serde.serialize(state)) == [
        2,
        [2, 0, b"\x05", [0, 0, 0]],
        [2, 1, b"\x01", [0, 1, 0]],
        [[1, 2, b"\x01", b"\x01"], [[b"\x92\xc0\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00"], [1]]],
        [[b"\x92\xc0\xa1a"], [2]],
        [[b"\x92\x01\xa1x", b"\x92\x02\xc0"], [1, 1]],
    ]
    assert row.state_serde.deserialize(row.state_serde.serialize(row.initializer())) == [
        0,
        None,
        None,
        None,
        None,
        None,
    ]
