"""Every aggregate function means what Spark SQL says, for every type, against oracles of Python."""

import math
import random
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from decimal import ROUND_HALF_UP, Decimal, localcontext
from fractions import Fraction
from functools import partial, reduce
from operator import and_, or_, xor
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.errors import ConfigurationError, RecordError
from millpond.processors.verbs import aggregates as f
from millpond.processors.verbs.aggregates import AggregateCall
from millpond.processors.verbs.row_aggregate import RowAggregate
from tests.drawing import tries
from tests.processors.verbs.aggregating import (
    ADDED,
    DECIMALS,
    EXTENT,
    MAPPED,
    NESTED,
    NUMBERS,
    PAIRED,
    TALLY,
    VALUES,
    aggregate_state,
    column,
    physical,
    result_of,
)

SOME = settings(max_examples=tries(80), deadline=None)
FEW = settings(max_examples=tries(20), deadline=None)
MANY = settings(max_examples=tries(200), deadline=None)
TYPES = list(VALUES)
INTEGERS: list[pa.DataType] = [type_ for type_ in VALUES if pa.types.is_integer(type_)]
EXACT: list[tuple[AggregateCall, list[pa.DataType]]] = [
    (f.count("x"), TYPES),
    (f.sum("x"), ADDED),
    (f.avg("x"), ADDED),
    (f.min("x"), TYPES),
    (f.max("x"), TYPES),
    (f.first("x"), TYPES),
    (f.first("x", ignore_nulls=True), TYPES),
    (f.last("x"), TYPES),
    (f.last("x", ignore_nulls=True), TYPES),
    (f.collect("x"), TYPES),
    (f.collect("x", limit=2), TYPES),
    (f.collect("x", distinct=True), TYPES),
    (f.collect("x", limit=3, distinct=True), TYPES),
    (f.map_agg("x", "y"), list(MAPPED)),
    (f.count_distinct("x"), TYPES),
    (f.var_samp("x"), [*NUMBERS, *DECIMALS]),
    (f.stddev_pop("x"), [*NUMBERS, *DECIMALS]),
    (f.covar_samp("x", "y"), list(PAIRED)),
    (f.corr("x", "y"), list(PAIRED)),
    (f.weighted_avg("x", "y"), list(PAIRED)),
    (f.bool_and("x"), [pa.bool_()]),
    (f.bool_or("x"), [pa.bool_()]),
    (f.bit_and("x"), INTEGERS),
    (f.bit_or("x"), INTEGERS),
    (f.bit_xor("x"), INTEGERS),
    (f.mode("x"), TYPES),
    (f.percentile("x", 0.3), ADDED),
    (f.median("x"), ADDED),
    (f.skewness("x"), [*NUMBERS, *DECIMALS]),
    (f.kurtosis("x"), [*NUMBERS, *DECIMALS]),
    (f.product("x"), [*NUMBERS, *DECIMALS]),
    (f.geometric_mean("x"), [*NUMBERS, *DECIMALS]),
    (f.histogram("x", [-5, 0.5, 1e9]), [*NUMBERS, *DECIMALS]),
    (TALLY("x"), TYPES),
    (EXTENT("x"), INTEGERS),
]
Pairs = Sequence[tuple[Fraction, ...]]
every_function = pytest.mark.parametrize(
    ("call", "types"), EXACT, ids=lambda given: str(given) if isinstance(given, AggregateCall) else ""
)


def present(values: Sequence[Any]) -> list[Any]:
    return [value for value in values if value is not None]


def exact_sum(values: Sequence[float]) -> float:
    """Return the sum of floats, exact and then rounded."""
    if all(map(math.isfinite, values)):
        return float(sum(map(Fraction, values)))
    return sum(value for value in values if not math.isfinite(value))


def rank(value: Any) -> Any:
    """Return a key that orders values as Spark does."""
    if isinstance(value, float):
        return (math.isnan(value), 0.0 if math.isnan(value) else value)
    if isinstance(value, dict):
        return [rank(field) for field in value.values()]
    if isinstance(value, list):
        return [(item is not None, 0 if item is None else rank(item)) for item in value]
    return value


@every_function
@SOME
@given(data=st.data())
def test_any_split_into_parts_gives_the_same(
    call: AggregateCall, types: list[pa.DataType], data: st.DataObject
) -> None:
    type_ = data.draw(st.sampled_from(types))
    values = data.draw(column(type_))
    times = data.draw(st.lists(st.integers(0, 9), min_size=len(values), max_size=len(values)))
    whole = result_of(call, type_, values, times)
    assert repr(result_of(call, type_, values, times, parts=data.draw(st.integers(2, 6)))) == repr(whole)


@every_function
@SOME
@given(data=st.data())
def test_any_order_of_arrival_gives_the_same(
    call: AggregateCall, types: list[pa.DataType], data: st.DataObject
) -> None:
    type_ = data.draw(st.sampled_from(types))
    values = data.draw(column(type_))
    rows = list(enumerate(values))
    times, shuffled = zip(*data.draw(st.permutations(rows)), strict=True) if rows else ((), ())
    assert repr(result_of(call, type_, shuffled, times)) == repr(result_of(call, type_, values))


@every_function
@FEW
@given(data=st.data())
def test_rows_that_do_not_count_are_as_if_they_had_not_come(
    call: AggregateCall, types: list[pa.DataType], data: st.DataObject
) -> None:
    type_ = data.draw(st.sampled_from(types))
    values = physical(data.draw(column(type_)), type_)
    counts = data.draw(st.lists(st.booleans(), min_size=len(values), max_size=len(values)))
    where = replace(call, where="condition")
    brought = pa.struct([("value", type_)]) if where.wraps else type_
    some = [([value] if where.wraps else value) if one else None for value, one in zip(values, counts, strict=True)]
    found, expected = RowAggregate({"x": where}, {"x": brought}), RowAggregate({"x": call}, {"x": type_})
    rest = [time for time, one in enumerate(counts) if one]
    state = aggregate_state(expected, [values[time] for time in rest], rest)
    assert found.state_serde.name == expected.state_serde.name
    assert found.schema == expected.schema
    parts = data.draw(st.integers(1, 3))
    assert repr(found.results([aggregate_state(found, some, parts=parts)])["x"].to_pylist()) == repr(
        expected.results([state])["x"].to_pylist()
    )


@pytest.mark.parametrize("type_", TYPES, ids=str)
@FEW
@given(data=st.data())
def test_counts_least_greatest_and_lists_leave_out_nulls(type_: pa.DataType, data: st.DataObject) -> None:
    values = data.draw(column(type_))
    given = present(values)
    ranks = [rank(value) for value in given]

    def found(call: AggregateCall) -> Any:
        return result_of(call, type_, values)

    assert found(f.count("x")) == len(given)
    assert found(f.count_distinct("x")) == len({repr(rank(value)).replace("-0.0", "0.0") for value in given})
    assert repr(found(f.collect("x"))) == repr(given)
    least, greatest = found(f.min("x")), found(f.max("x"))
    assert (least is None) == (greatest is None) == (not given)
    if given:
        assert (rank(least), rank(greatest)) == (min(ranks), max(ranks))


@pytest.mark.parametrize("type_", TYPES, ids=str)
@FEW
@given(data=st.data())
def test_first_and_last_are_by_time_and_then_by_arrival(type_: pa.DataType, data: st.DataObject) -> None:
    values = data.draw(column(type_))
    times = data.draw(st.lists(st.integers(0, 4), min_size=len(values), max_size=len(values)))
    for ignore_nulls in (False, True):
        rows = [
            (time, value) for time, value in zip(times, values, strict=True) if not ignore_nulls or value is not None
        ]
        by_time = [value for _, value in sorted(rows, key=lambda row: row[0])] or [None]
        first, last = f.first("x", ignore_nulls=ignore_nulls), f.last("x", ignore_nulls=ignore_nulls)
        assert repr(result_of(first, type_, values, times)) == repr(by_time[0])
        assert repr(result_of(last, type_, values, times)) == repr(by_time[-1])


@pytest.mark.parametrize("type_", NUMBERS, ids=str)
@MANY
@given(data=st.data())
def test_sums_and_averages_of_numbers_are_exact_and_rounded_once(type_: pa.DataType, data: st.DataObject) -> None:
    values = data.draw(column(type_))
    given = present(values)
    total = exact_sum(given) if pa.types.is_floating(type_) else sum(given)
    assert repr(result_of(f.sum("x"), type_, values)) == repr(total + 0 if given else None)
    assert repr(result_of(f.avg("x"), type_, values)) == repr(total / len(given) if given else None)


@pytest.mark.parametrize("type_", DECIMALS, ids=str)
@MANY
@given(data=st.data())
def test_decimals_are_added_exactly_and_their_average_is_rounded_half_up(type_: Any, data: st.DataObject) -> None:
    values = data.draw(column(type_))
    given = present(values)
    with localcontext(prec=200):
        total = sum(given, Decimal(0).scaleb(-type_.scale))
        unit = Decimal(1).scaleb(-min(38, type_.scale + 4))
        mean = (total / len(given)).quantize(unit, ROUND_HALF_UP) if given else None
    assert result_of(f.sum("x"), type_, values) == (total if given else None)
    assert result_of(f.avg("x"), type_, values) == mean


@pytest.mark.parametrize("type_", [*NUMBERS, *DECIMALS], ids=str)
@SOME
@given(data=st.data())
def test_variances_and_deviations_are_exact_and_rounded_once(type_: pa.DataType, data: st.DataObject) -> None:
    given = present(values := data.draw(column(type_)))
    for call, least, of in (
        (f.var_samp("x"), 2, statistics.variance),
        (f.var_pop("x"), 1, statistics.pvariance),
        (f.stddev_samp("x"), 2, statistics.stdev),
        (f.stddev_pop("x"), 1, statistics.pstdev),
    ):
        found = result_of(call, type_, values)
        if len(given) < least:
            assert found is None
        elif not all(map(math.isfinite, given)):
            assert math.isnan(found)
        else:
            exact = of(list(map(Fraction, given)))
            assert found == (float(exact) if exact < Fraction(sys.float_info.max) else math.inf)


@pytest.mark.parametrize("type_", [*NUMBERS, *DECIMALS], ids=str)
@SOME
@given(data=st.data())
def test_skewness_and_kurtosis_are_exact_and_rounded_once(type_: pa.DataType, data: st.DataObject) -> None:
    given = present(values := data.draw(column(type_)))
    skewness, kurtosis = (result_of(call, type_, values) for call in (f.skewness("x"), f.kurtosis("x")))
    if not all(map(math.isfinite, given)):
        assert math.isnan(skewness)
        assert math.isnan(kurtosis)
        return
    second, third, fourth = (_moment(list(map(Fraction, given)), power) for power in (2, 3, 4))
    if not second:
        assert skewness is None
        assert kurtosis is None
        return
    assert kurtosis == float(fourth / second**2 - 3)
    squared = third**2 / second**3
    with localcontext(prec=60) as context:
        context.Emin, context.Emax = -(10**6), 10**6
        size = (Decimal(squared.numerator) / Decimal(squared.denominator)).sqrt()
        assert repr(skewness) == repr(float(-size if third < 0 else size))


def _moment(values: Sequence[Fraction], power: int) -> Fraction:
    """Return about the average; 0 of no values."""
    mean = sum(values, Fraction()) / (len(values) or 1)
    return sum(((value - mean) ** power for value in values), Fraction()) / (len(values) or 1)


@pytest.mark.parametrize("type_", [*NUMBERS, *DECIMALS], ids=str)
@SOME
@given(data=st.data())
def test_products_are_rounded_once_and_their_roots_right_to_the_last_digits(
    type_: pa.DataType, data: st.DataObject
) -> None:
    given = present(values := data.draw(column(type_)))
    product, mean = (result_of(call, type_, values) for call in (f.product("x"), f.geometric_mean("x")))
    if not given:
        assert product is None
        assert mean is None
    elif not all(map(math.isfinite, given)):
        sizeless = [math.copysign(bool(one), one) if math.isfinite(one) else one for one in given]
        assert repr(product) == repr(math.prod(sizeless))
        assert math.isnan(mean) or mean == math.inf
    else:
        exact = math.prod(map(Fraction, given), start=Fraction(1))
        assert product == _rounded(exact)
        if any(value < 0 for value in given):
            assert math.isnan(mean)
        else:
            with localcontext(prec=40) as context:
                context.Emin, context.Emax = -(10**6), 10**6
                quotient = Decimal(exact.numerator) / Decimal(exact.denominator)
                assert math.isclose(mean, quotient ** (Decimal(1) / len(given)) if exact else 0, rel_tol=1e-14)


def test_products_are_those_of_a_pocket_calculator() -> None:
    assert result_of(f.product("x"), pa.decimal128(5, 2), [Decimal("0.20"), Decimal("5.00")] * 30, parts=7) == 1.0
    assert result_of(f.product("x"), pa.float64(), [1e300, 1e300, 1e-300, 1e-300], parts=2) == pytest.approx(1.0)
    assert result_of(f.product("x"), pa.float64(), [2.0] * 2000) == math.inf
    assert result_of(f.product("x"), pa.float64(), [-0.5] * 2001) == 0
    assert result_of(f.geometric_mean("x"), pa.float64(), [1.0, 3.0, 9.0]) == 3.0
    assert result_of(f.geometric_mean("x"), pa.float64(), [1.1] * 10_000) == pytest.approx(1.1, rel=1e-15)


def test_the_state_of_a_product_stays_small() -> None:
    chance = random.Random(1)
    row = RowAggregate({"x": f.product("x")}, {"x": pa.float64()})
    values = [chance.uniform(0.5, 2) for _ in range(5000)]
    assert len(row.state_serde.serialize(aggregate_state(row, values))) < 160


@pytest.mark.parametrize("type_", [*NUMBERS, *DECIMALS], ids=str)
@SOME
@given(data=st.data())
def test_a_histogram_counts_values_by_the_first_edge_that_is_not_less(type_: Any, data: st.DataObject) -> None:
    values = data.draw(column(type_))
    given = present(values)
    near = [float(one) for one in given if math.isfinite(one)]
    edges = sorted(
        data.draw(st.sets(st.sampled_from([*near, 0.5, -3.0]) | st.floats(-1e9, 1e9), min_size=1, max_size=5))
    )
    bounds = [*edges, math.inf]
    first = [next((edge for edge in bounds if Fraction(one) <= edge), math.inf) if math.isfinite(one)
             else bounds[0] if one == -math.inf else math.inf for one in given]  # fmt: skip
    expected = [(edge, first.count(edge)) for edge in bounds]
    assert result_of(f.histogram("x", edges), type_, values) == expected


@pytest.mark.parametrize("type_", TYPES, ids=str)
@FEW
@given(data=st.data())
def test_some_value_is_the_first(type_: pa.DataType, data: st.DataObject) -> None:
    values = data.draw(column(type_))
    for ignore_nulls in (False, True):
        first, some = (of("x", ignore_nulls=ignore_nulls) for of in (f.first, f.any_value))
        assert repr(result_of(some, type_, values)) == repr(result_of(first, type_, values))


@FEW
@given(st.lists(st.booleans() | st.none()))
def test_rows_are_counted_that_fulfill_a_condition(values: list[bool | None]) -> None:
    row = RowAggregate({"x": f.count_if("w")}, {"x": pa.int32()})
    state = aggregate_state(row, [1 if one else None for one in values])
    assert row.results([state])["x"].to_pylist() == [values.count(True)]
    assert row.state_serde.name == RowAggregate({"x": f.count(where="w")}, {"x": pa.int32()}).state_serde.name


@pytest.mark.parametrize("type_", TYPES, ids=str)
@FEW
@given(data=st.data())
def test_lists_have_the_earliest_values_and_of_equal_ones_the_first(type_: pa.DataType, data: st.DataObject) -> None:
    values = data.draw(column(type_))
    times = data.draw(st.lists(st.integers(0, 5), min_size=len(values), max_size=len(values)))
    limit = data.draw(st.integers(1, 4))
    listed: list[Any] = result_of(f.collect("x"), type_, values, times)
    assert repr(result_of(f.collect("x", limit=limit), type_, values, times)) == repr(listed[:limit])
    firsts = [one for place, one in enumerate(listed) if rank(one) not in map(rank, listed[:place])]
    assert repr(result_of(f.collect("x", distinct=True), type_, values, times)) == repr(firsts)
    both = f.collect("x", distinct=True, limit=limit)
    assert repr(result_of(both, type_, values, times, parts=2)) == repr(firsts[:limit])


@pytest.mark.parametrize("type_", MAPPED, ids=str)
@SOME
@given(data=st.data())
def test_a_map_has_the_latest_value_of_each_key_by_the_order_of_keys(type_: pa.DataType, data: st.DataObject) -> None:
    rows = data.draw(column(type_))
    times = data.draw(st.lists(st.integers(0, 5), min_size=len(rows), max_size=len(rows)))
    latest: list[tuple[Any, Any]] = []
    for _, row in sorted(zip(times, rows, strict=True), key=lambda pair: pair[0]):
        if row is not None and row["first"] is not None:
            latest = [entry for entry in latest if rank(entry[0]) != rank(row["first"])]
            latest.append((row["first"], row["second"]))
    latest.sort(key=lambda entry: rank(entry[0]))
    found: list[tuple[Any, Any]] = result_of(f.map_agg("x", "y"), type_, rows, times)
    assert [rank(key) for key, _ in found] == [rank(key) for key, _ in latest]
    assert repr([value for _, value in found]) == repr([value for _, value in latest])


@pytest.mark.parametrize("type_", PAIRED, ids=str)
@MANY
@given(data=st.data())
def test_functions_of_two_columns_are_exact_and_rounded_once(type_: pa.DataType, data: st.DataObject) -> None:
    values = data.draw(column(type_))
    given = [(row["first"], row["second"]) for row in present(values) if None not in row.values()]
    finite = all(math.isfinite(value) for pair in given for value in pair)
    pairs = [tuple(map(Fraction, pair)) for pair in given] if finite else []
    expected: list[tuple[str, int, Callable[[Pairs], Any]]] = [
        ("covar_samp", 2, lambda pairs: _rounded(_covariance(pairs, len(pairs) - 1))),
        ("covar_pop", 1, lambda pairs: _rounded(_covariance(pairs, len(pairs)))),
        ("weighted_avg", 1, lambda pairs: _rounded(_weighted(pairs))),
        ("corr", 2, _correlation),
    ]
    for name, least, of in expected:
        found = result_of(getattr(f, name)("x", "y"), type_, values)
        if len(given) < least:
            assert found is None
        elif not finite:
            assert math.isnan(found)
        elif name == "corr" and found is not None:
            assert math.isclose(found, of(pairs), rel_tol=1e-15)
            assert -1 <= found <= 1
        else:
            assert found == of(pairs)


def _covariance(pairs: Pairs, divisor: int) -> Fraction:
    means = [statistics.mean(column) for column in zip(*pairs, strict=True)]
    return sum(((x - means[0]) * (y - means[1]) for x, y in pairs), Fraction()) / divisor


def _weighted(pairs: Pairs) -> Fraction | None:
    weights = sum(weight for _, weight in pairs)
    return sum(value * weight for value, weight in pairs) / weights if weights else None


def _correlation(pairs: Pairs) -> float | None:
    """Return the quotient of what is exact, by square roots of many digits."""
    columns = list(zip(*pairs, strict=True))
    variances = [statistics.pvariance(column) for column in columns]
    if not all(variances):
        return None
    with localcontext(prec=60) as context:
        context.Emin, context.Emax = -(10**6), 10**6
        shared, product = (
            Decimal(number.numerator) / Decimal(number.denominator)
            for number in (_covariance(pairs, len(pairs)), variances[0] * variances[1])
        )
        return float(shared / product.sqrt())


def _rounded(exact: Fraction | None) -> float | None:
    if exact is None or abs(exact) < Fraction(sys.float_info.max):
        return exact if exact is None else float(exact)
    return math.inf if exact > 0 else -math.inf


def test_the_correlation_of_what_lies_on_a_line_is_one_however_far_away() -> None:
    line = [{"first": 1e15 + number, "second": -1e300 * number} for number in range(4)]
    type_ = pa.struct([("first", pa.float64()), ("second", pa.float64())])
    assert result_of(f.corr("x", "y"), type_, line) == -1
    apart = [{"first": x, "second": y} for x in (1.0, 2.0) for y in (3.0, 4.0)]
    assert repr(result_of(f.corr("x", "y"), type_, apart)) == "0.0"
    tiny = [{"first": 7e8, "second": 0.0}, {"first": 1.5e-268, "second": 1e16}]
    assert result_of(f.corr("x", "y"), type_, tiny) == -1
    assert result_of(f.corr("x", "y"), type_, [{**row, "second": 0.1} for row in line]) is None
    assert result_of(f.weighted_avg("x", "w"), type_, [{"first": 3.0, "second": 0.0}]) is None
    assert result_of(f.weighted_avg("x", "w"), type_, [{"first": 3.0, "second": -2.0}]) == 3


@FEW
@given(column(pa.bool_()), st.sampled_from(INTEGERS), st.data())
def test_booleans_and_bits_are_combined_one_by_one(
    booleans: list[bool | None], type_: pa.DataType, data: st.DataObject
) -> None:
    some = present(booleans)
    assert result_of(f.bool_and("x"), pa.bool_(), booleans) == (all(some) if some else None)
    assert result_of(f.bool_or("x"), pa.bool_(), booleans) == (any(some) if some else None)
    given = present(values := data.draw(column(type_)))
    for call, combine in ((f.bit_and("x"), and_), (f.bit_or("x"), or_), (f.bit_xor("x"), xor)):
        assert result_of(call, type_, values) == (reduce(combine, given) if given else None)


@pytest.mark.parametrize("type_", TYPES, ids=str)
@FEW
@given(data=st.data())
def test_the_mode_is_the_least_of_the_most_frequent_values(type_: pa.DataType, data: st.DataObject) -> None:
    given = present(values := data.draw(column(type_)))
    found = result_of(f.mode("x"), type_, values)
    ranks = [rank(value) for value in given]
    counts = {repr(one).replace("-0.0", "0.0"): 0 for one in ranks}
    for one in ranks:
        counts[repr(one).replace("-0.0", "0.0")] += 1
    most = [one for one in ranks if counts[repr(one).replace("-0.0", "0.0")] == max(counts.values())]
    assert (rank(found) if given else found) == (min(most) if given else None)


@pytest.mark.parametrize("type_", [*NUMBERS, *DECIMALS], ids=str)
@FEW
@given(data=st.data())
def test_a_percentile_is_between_its_neighbors(type_: pa.DataType, data: st.DataObject) -> None:
    given = sorted(present(values := data.draw(column(type_))), key=rank)
    for percentage in (0, 0.1, 0.5, 0.75, 1):
        found = result_of(f.percentile("x", percentage), type_, values)
        if not given:
            assert found is None
            continue
        position = (len(given) - 1) * percentage
        near, far = (float(given[place(position)]) for place in (math.floor, math.ceil))
        if near == far or position == int(position):
            assert repr(found) == repr(near + 0.0)
        else:
            exact = (math.ceil(position) - position) * near + (position - math.floor(position)) * far
            assert repr(found) == repr(exact)


def test_percentiles_of_durations_are_durations_and_medians_are_percentiles() -> None:
    row = RowAggregate({"x": f.percentile("x", 0.25)}, {"x": pa.duration("us")})
    states = [aggregate_state(row, [10, 1, None, 4])]
    assert row.results(states)["x"].to_pylist() == [timedelta(microseconds=2)]
    assert f.median("x").options == f.percentile("x", 0.5).options == {"percentage": 0.5}
    with pytest.raises(ConfigurationError, match="percentage=90 of percentile is not from 0 to 1; write "):
        f.percentile("x", 90)


def test_a_variance_beyond_the_greatest_float_is_infinite_and_its_root_may_not_be() -> None:
    values = [1e300, -1e300]
    assert result_of(f.var_pop("x"), pa.float64(), values) == math.inf
    assert result_of(f.stddev_pop("x"), pa.float64(), values) == 1e300
    assert result_of(f.stddev_pop("x"), pa.float64(), [5e-324, -5e-324]) == 5e-324


@pytest.mark.parametrize(("exponents", "size"), [((0, 3), 50), ((-320, 308), 900)])
def test_the_state_of_a_variance_stays_small(exponents: tuple[int, int], size: int) -> None:
    chance = random.Random(1)
    row = RowAggregate({"x": f.var_pop("x")}, {"x": pa.float64()})
    values = [chance.uniform(-1, 1) * 10.0 ** chance.randrange(*exponents) for _ in range(1000)]
    assert len(row.state_serde.serialize(aggregate_state(row, values))) < size


@MANY
@given(column(pa.duration("us")))
def test_the_average_of_durations_is_rounded_half_away_from_zero(values: list[int | None]) -> None:
    given = present(values)
    mean = None
    if given:
        mean = int((Decimal(sum(given)) / len(given)).quantize(Decimal(1), ROUND_HALF_UP))
    assert result_of(f.avg("x"), pa.duration("us"), values) == mean


def test_an_average_is_rounded_twice_where_spark_rounds_twice() -> None:
    """decimal(38, 36): 1/3 of a unit below half a unit of the last digit but one is still below half."""
    values = [Decimal("1E-36"), Decimal("1E-36"), Decimal("0E-36")]
    assert result_of(f.avg("x"), pa.decimal128(38, 36), values) == Decimal("0.67E-36")
    assert result_of(f.avg("x"), pa.decimal128(38, 38), [Decimal("0.6"), Decimal("0.4")]) == Decimal("0.5")


@pytest.mark.parametrize(
    ("call", "given", "expected"),
    [
        (f.count("x"), pa.string(), pa.int64()),
        (f.count_distinct("x"), pa.string(), pa.int64()),
        (f.approx_count_distinct("x"), pa.string(), pa.int64()),
        (f.sum("x"), pa.int8(), pa.int64()),
        (f.sum("x"), pa.float32(), pa.float64()),
        (f.sum("x"), pa.decimal128(5, 2), pa.decimal128(15, 2)),
        (f.sum("x"), pa.decimal128(30, 2), pa.decimal128(38, 2)),
        (f.sum("x"), pa.duration("s"), pa.duration("us")),
        (f.avg("x"), pa.int64(), pa.float64()),
        (f.avg("x"), pa.float32(), pa.float64()),
        (f.avg("x"), pa.decimal128(5, 2), pa.decimal128(9, 6)),
        (f.avg("x"), pa.decimal128(38, 36), pa.decimal128(38, 38)),
        (f.avg("x"), pa.duration("us"), pa.duration("us")),
        (f.var_samp("x"), pa.decimal128(5, 2), pa.float64()),
        (f.stddev_pop("x"), pa.float32(), pa.float64()),
        (f.skewness("x"), pa.int8(), pa.float64()),
        (f.product("x"), pa.decimal128(5, 2), pa.float64()),
        (f.histogram("x", [1]), pa.int8(), pa.map_(pa.float64(), pa.int64())),
        (f.hll_sketch_agg("x"), pa.string(), pa.binary()),
        (f.approx_percentile("x", 0.5), pa.int8(), pa.float64()),
        (EXTENT("x"), pa.int8(), pa.float64()),
        (f.bool_or("x"), pa.bool_(), pa.bool_()),
        (f.bit_xor("x"), pa.int8(), pa.int8()),
        (f.mode("x"), pa.date32(), pa.date32()),
        (f.percentile("x", 0.9), pa.int8(), pa.float64()),
        (f.median("x"), pa.duration("s"), pa.duration("us")),
        (f.min("x"), pa.float32(), pa.float32()),
        (f.max("x"), pa.large_string(), pa.string()),
        (
            f.first("x"),
            NESTED,
            pa.struct([("name", pa.string()), ("scores", pa.list_(pa.field("element", pa.float64())))]),
        ),
        (f.last("x"), pa.map_(pa.string(), pa.int64()), pa.map_(pa.string(), pa.int64())),
        (f.collect("x"), pa.date32(), pa.list_(pa.field("element", pa.date32(), nullable=False))),
        (f.collect("x"), pa.null(), pa.list_(pa.field("element", pa.null()))),
    ],
    ids=str,
)
def test_the_type_of_the_result_is_sparks(call: AggregateCall, given: pa.DataType, expected: pa.DataType) -> None:
    field = RowAggregate({"x": call}, {"x": given}).schema.field("x")
    assert field.type == expected
    never_null = ("count", "count_distinct", "approx_count_distinct", "collect", "histogram", "hll_sketch_agg")
    assert field.nullable == (call.function not in never_null)


def test_an_empty_group_has_counts_of_zero_an_empty_list_and_nulls() -> None:
    calls = {"n": f.count(), "s": f.sum("x"), "l": f.last("x"), "c": f.collect("x"), "d": f.count_distinct("x")}
    calls |= {"a": f.approx_count_distinct("x"), "m": f.avg("x"), "min": f.min("x")}
    row = RowAggregate(calls, {name: pa.int64() for name in calls if name != "n"})
    (found,) = row.results([row.initializer()]).to_pylist()
    assert found == {"n": 0, "s": None, "l": None, "c": [], "d": 0, "a": 0, "m": None, "min": None}


def test_nan_is_the_greatest_float_and_zeros_are_equal() -> None:
    values = [1.0, math.nan, -0.0, 0.0, math.inf]
    assert math.isnan(result_of(f.max("x"), pa.float64(), values))
    assert result_of(f.min("x"), pa.float64(), [math.nan, 5.0]) == 5.0
    for zeros, least, greatest in (
        ([-0.0], "-0.0", "-0.0"),
        ([0.0, -0.0], "-0.0", "0.0"),
        ([-0.0, 0.0], "-0.0", "0.0"),
    ):
        assert repr(result_of(f.min("x"), pa.float64(), zeros)) == least
        assert repr(result_of(f.max("x"), pa.float64(), zeros)) == greatest
    assert result_of(f.count_distinct("x"), pa.float64(), [*values, math.nan]) == 4


@pytest.mark.parametrize("order", [1, -1])
def test_zeros_within_values_are_told_apart_once_all_else_is_equal(order: int) -> None:
    values = [{"name": "a", "scores": scores} for scores in ([-0.0, 2.0], [0.0, 1.0], [-0.0, 1.0])][::order]
    assert repr(result_of(f.min("x"), NESTED, values)["scores"]) == "[-0.0, 1.0]"
    assert repr(result_of(f.max("x"), NESTED, [*values, *values])["scores"]) == "[-0.0, 2.0]"
    assert result_of(f.count_distinct("x"), NESTED, values) == 2


def test_a_sum_of_floats_does_not_lose_small_values_to_large_ones() -> None:
    assert result_of(f.sum("x"), pa.float64(), [1e300, 1.0, -1e300, 0.5] * 20) == 30.0
    assert result_of(f.sum("x"), pa.float64(), [0.1] * 10) == 1.0


def test_the_state_of_a_sum_of_floats_stays_small() -> None:
    chance = random.Random(1)
    row = RowAggregate({"x": f.sum("x")}, {"x": pa.float64()})
    values = [chance.uniform(-1, 1) * 10.0 ** chance.randrange(-30, 30) for _ in range(5000)]
    (state,) = aggregate_state(row, values)
    assert len(state) < 16


def test_a_sum_of_floats_beyond_the_greatest_is_infinite() -> None:
    assert result_of(f.sum("x"), pa.float64(), [1.7e308] * 40) == math.inf
    assert result_of(f.sum("x"), pa.float64(), [-1.7e308] * 2) == -math.inf


def test_a_list_keeps_equal_times_in_the_order_of_arrival() -> None:
    assert result_of(f.collect("x"), pa.string(), list("abcde"), [2, 1, 2, 1, 0]) == list("ebdac")


def test_a_whole_average_of_huge_integers_is_exact() -> None:
    values = [2**63 - 1] * 3 + [-(2**63)]
    assert result_of(f.avg("x"), pa.int64(), values) == (3 * (2**63 - 1) - 2**63) / 4


@pytest.mark.parametrize(
    ("call", "type_", "values"),
    [
        (f.sum("x"), pa.int64(), [2**63 - 1, 1]),
        (f.sum("x"), pa.int64(), [-(2**63), -1]),
        (f.sum("x"), pa.decimal128(38, 0), [Decimal(10**38 - 1), Decimal(1)]),
        (f.sum("x"), pa.duration("us"), [2**63 - 1, 1]),
        (f.avg("x"), pa.decimal128(38, 0), [Decimal(10**38 - 1), Decimal(10**38 - 1)]),
    ],
)
def test_a_sum_that_leaves_its_type_names_column_and_key(call: AggregateCall, type_: Any, values: list[Any]) -> None:
    row = RowAggregate({"n": f.count(), "total": call}, {"total": type_})
    with pytest.raises(RecordError, match=rf"'total', {call.function}\(x\): .* does not fit .* for the key b'the-key'"):
        aggregate_state(row, physical(values, type_))
    states = [aggregate_state(row, [value]) for value in physical(values, type_)]
    with pytest.raises(RecordError, match=r"'total', .* for the key b'the-key'"):
        row.merger(b"the-key", *states)


def test_a_sum_may_reach_the_bounds_of_its_type() -> None:
    assert result_of(f.sum("x"), pa.int64(), [2**63 - 2, 1]) == 2**63 - 1
    assert result_of(f.sum("x"), pa.int64(), [-(2**63) + 1, -1]) == -(2**63)
    assert result_of(f.sum("x"), pa.decimal128(38, 0), [Decimal(10**38 - 2), Decimal(1)]) == Decimal(10**38 - 1)


def test_an_average_that_leaves_its_type_names_the_column() -> None:
    row = RowAggregate({"mean": f.avg("x")}, {"mean": pa.decimal128(38, 2)})
    state = aggregate_state(row, physical([Decimal(10**36 - 1)], pa.decimal128(38, 2)))
    with pytest.raises(RecordError, match=r"'mean', avg\(x\): the average, .* does not fit decimal128\(38, 6\)"):
        row.results([state])


MAP = pa.map_(pa.string(), pa.int64())
VARIANT = pa.struct([pa.field("value", pa.binary()), pa.field("metadata", pa.binary(), metadata={"variant": "true"})])


@pytest.mark.parametrize(
    ("call", "type_", "message"),
    [
        (f.sum, pa.string(), "x: only numbers and durations can be added, and this is string"),
        (f.avg, pa.timestamp("us"), "x: only numbers and durations can be added"),
        (f.sum, pa.bool_(), "x: only numbers and durations can be added"),
        (f.var_samp, pa.duration("us"), "x: only numbers have a variance, and this is duration"),
        (
            partial(f.covar_pop, other="y"),
            pa.struct([("first", pa.int32()), ("second", pa.string())]),
            "x, the second column: only numbers have that, and this is string",
        ),
        (f.bool_and, pa.int8(), "x: only booleans can be combined so, and this is int8"),
        (f.bit_or, pa.bool_(), "x: only integers have such bits, and this is bool"),
        (f.mode, MAP, "x: only values that are not maps can be compared"),
        (f.median, pa.string(), "x: only numbers and durations have percentiles, and this is string"),
        (f.min, MAP, "x: only values that are not maps can be compared"),
        (f.max, pa.struct([("a", pa.list_(MAP))]), "x.a.element: only values that are not maps can be compared"),
        (f.count_distinct, pa.list_(MAP), "x.element: only values that are not maps can be compared"),
        (f.approx_count_distinct, pa.struct([("a", MAP)]), "x.a: only values that are not maps can be compared"),
        (f.skewness, pa.string(), "x: only numbers have a skewness, and this is string"),
        (f.kurtosis, pa.bool_(), "x: only numbers have a kurtosis, and this is bool"),
        (f.product, pa.duration("us"), "x: only numbers have a product, and this is duration"),
        (f.geometric_mean, pa.date32(), "x: only numbers have a geometric mean, and this is date32"),
        (partial(f.histogram, edges=[1]), pa.string(), "x: only numbers have a histogram of edges"),
        (f.hll_sketch_agg, pa.float64(), "x: only integers and strings have an HLL sketch"),
        (f.theta_sketch_agg, pa.binary(), "x: only integers, floats and strings have a theta sketch"),
        (f.kll_sketch_agg, pa.decimal128(5, 2), "x: only integers and floats have a KLL sketch"),
        (partial(f.approx_percentile, percentage=0.5), pa.string(), "x: only numbers have percentiles"),
        (f.approx_top_k, pa.binary(), "x: only numbers that are no decimals, strings, booleans, dates and"),
        (f.approx_top_k_accumulate, pa.bool_(), "x: only numbers that are no decimals, strings, dates and"),
        (
            partial(f.map_agg, value="y"),
            pa.struct([("first", MAP), ("second", pa.string())]),
            "x, the key: only values that are not maps can be compared",
        ),
        (f.min, VARIANT, "x: variants cannot be compared"),
        (f.count_distinct, pa.struct([("v", VARIANT)]), "x.v: variants cannot be compared"),
        (f.last, pa.timestamp("ns"), "column 'x' is of type"),
    ],
    ids=lambda given: str(getattr(getattr(given, "func", given), "__name__", given)),
)
def test_types_that_a_function_does_not_take_are_refused(
    call: Callable[[str], AggregateCall], type_: pa.DataType, message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message.replace(".", r"\.")):
        RowAggregate({"x": call("column")}, {"x": type_})


def test_first_and_last_take_maps_and_variants() -> None:
    assert result_of(f.last("x"), MAP, [[("a", 1)], [("b", 2)]]) == [("b", 2)]
    assert result_of(f.first("x"), VARIANT, [{"value": b"1", "metadata": b"2"}]) == {"value": b"1", "metadata": b"2"}
