"""Runs aggregate functions over columns: row by row, in parts that are merged, through the bytes of their states."""

import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from millpond.processors.verbs.aggregates import AggregateCall, UserAggregate
from millpond.processors.verbs.row_aggregate import RowAggregate
from millpond.stores.encoding.rows.physical import normalized, to_physical

KEY = b"the-key"
NESTED = pa.struct([pa.field("name", pa.string()), pa.field("scores", pa.list_(pa.float64()))])


TALLY = UserAggregate(
    name="tally",
    zero=dict,
    update=lambda state, value: {**state, repr(value): state.get(repr(value), 0) + 1},
    merge=lambda state, other: {text: state.get(text, 0) + other.get(text, 0) for text in {**state, **other}},
    finish=lambda state: sorted(state.items()),
    type=pa.map_(pa.string(), pa.int64()),
)
"""Counts values of any type by what Python shows of them, as a user may."""

PAIRS = UserAggregate(
    name="pairs",
    zero=dict,
    update=lambda state, one, other: TALLY.update(state, (one, other)),
    merge=TALLY.merge,
    finish=TALLY.finish,
    type=TALLY.type,
)
"""Counts pairs."""

EXTENT = UserAggregate(
    name="extent",
    zero=lambda: [],
    update=lambda state, value: _widened(state, [value]),
    merge=lambda state, other: _widened(state, other),
    finish=lambda state: state[1] - state[0],
    update_many=lambda state, values: _widened(state, values.to_pylist()),
    type=pa.float64(),
    version=3,
)
"""How far integers lie apart, with a function for many values at once."""


def _widened(state: list[int], values: list[int]) -> list[int]:
    return [min([*state, *values]), max([*state, *values])]


def decimals(precision: int, scale: int, *, spare: int = 0) -> st.SearchStrategy[Decimal]:
    """Return decimals of that type, with ``spare`` digits less than it takes."""
    highest = 10 ** (precision - spare) - 1
    return st.integers(-highest, highest).map(lambda unscaled: Decimal(f"{unscaled}E-{scale}"))


VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**50), 2**50),
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(-1e300, 1e300)
    | st.floats(-10, 10)
    | st.sampled_from([math.nan, math.inf, -math.inf, -0.0]),
    pa.decimal128(5, 2): decimals(5, 2),
    pa.decimal128(18, 4): decimals(18, 4),
    pa.decimal128(38, 10): decimals(38, 10, spare=5),
    pa.duration("us"): st.integers(-(2**50), 2**50),
    pa.bool_(): st.booleans(),
    pa.string(): st.text(st.characters(codec="utf-8"), max_size=3),
    pa.binary(): st.binary(max_size=3),
    pa.date32(): st.integers(-(10**5), 10**5),
    pa.timestamp("us", "UTC"): st.integers(-(10**15), 10**15),
    pa.list_(pa.int32()): st.lists(st.none() | st.integers(-3, 3), max_size=3),
    NESTED: st.builds(
        lambda name, scores: {"name": name, "scores": scores},
        st.sampled_from("abc"),
        st.lists(st.sampled_from([math.nan, -0.0, 0.0, 1.0]), max_size=2),
    ),
}
"""Values of many types, such that a few dozen of them can be added."""

PAIRED: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.struct([("first", first), ("second", second)]): st.fixed_dictionaries(
        {"first": st.none() | VALUES[first], "second": st.none() | VALUES[second]}
    )
    for first, second in (
        (pa.int64(), pa.float64()),
        (pa.float32(), pa.decimal128(18, 4)),
        (pa.decimal128(38, 10), pa.int32()),
        (pa.float64(), pa.float64()),
    )
}
"""What rows bring for functions of two columns of numbers."""

MAPPED: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.struct([("first", key), ("second", value)]): st.fixed_dictionaries(
        {"first": st.none() | VALUES[key], "second": st.none() | VALUES[value]}
    )
    for key, value in (
        (pa.string(), pa.int64()),
        (pa.float64(), NESTED),
        (NESTED, pa.decimal128(38, 10)),
        (pa.decimal128(38, 10), pa.bool_()),
    )
}
"""What rows bring for maps."""

NUMBERS: list[pa.DataType] = [type_ for type_ in VALUES if pa.types.is_integer(type_) or pa.types.is_floating(type_)]
DECIMALS: list[pa.DataType] = [type_ for type_ in VALUES if pa.types.is_decimal(type_)]
ADDED: list[pa.DataType] = [*NUMBERS, *DECIMALS, pa.duration("us")]


def column(type_: pa.DataType, *, max_size: int = 25) -> st.SearchStrategy[list[Any]]:
    """Return values of that type, some of them null, some of them often."""
    values = {**VALUES, **PAIRED, **MAPPED}[type_]
    few = st.lists(values, min_size=1, max_size=3).flatmap(lambda some: st.lists(st.none() | st.sampled_from(some)))
    return few.map(lambda some: some[:max_size]) | st.lists(st.none() | values, max_size=max_size)


def physical(values: Sequence[Any], type_: pa.DataType) -> list[Any]:
    """Return the physical values of a column; times are given as numbers of microseconds or days already."""
    if pa.types.is_temporal(type_):
        return list(values)
    return to_physical(pa.array(values, normalized(type_)))


def fold(row: RowAggregate, rows: Sequence[Sequence[Any]]) -> list[Any]:
    """Return the state of rows, each a time and values, which goes through its bytes now and then."""
    state = row.initializer()
    for number, given in enumerate(rows):
        value = row.input_serde.deserialize(row.input_serde.serialize(tuple(given)))
        state = row.aggregator(KEY, value, state)
        if number % 3 == 1:
            state = row.state_serde.deserialize(row.state_serde.serialize(state))
    return state


def aggregate_state(
    row: RowAggregate, values: Sequence[Any], times: Sequence[int] | None = None, parts: int = 1
) -> list[Any]:
    """Return the state of physical values, folded in so many parts, which are merged from left to right."""
    rows = list(zip(range(len(values)) if times is None else times, values, strict=True))
    size = -(-len(rows) // parts) or 1
    state = fold(row, rows[:size])
    for start in range(size, len(rows), size):
        state = row.merger(KEY, state, fold(row, rows[start : start + size]))
    return state


def result_of(
    call: AggregateCall,
    type_: pa.DataType,
    values: Sequence[Any],
    times: Sequence[int] | None = None,
    parts: int = 1,
) -> Any:
    """Return the result of one call as a Python value; times are numbers of microseconds or days."""
    row = RowAggregate({"x": call}, {"x": type_})
    state = aggregate_state(row, physical(values, type_), times, parts)
    found: Any = row.results([state])["x"]
    return to_physical(found)[0] if pa.types.is_temporal(type_) else found[0].as_py()
