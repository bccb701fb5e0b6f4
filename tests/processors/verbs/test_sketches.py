"""Sketches: how far they err, that parts and orders make no difference beyond that, and what is no sketch."""

import math
import random
import sys
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from millpond.errors import ConfigurationError, MillpondError
from millpond.processors.verbs import aggregates as f
from millpond.processors.verbs.aggregates import AggregateCall
from millpond.processors.verbs.row_aggregate import RowAggregate
from tests.processors.verbs.aggregating import aggregate_state, result_of

datasketches = pytest.importorskip("datasketches")

INT: pa.DataType = pa.int64()
FLOAT: pa.DataType = pa.float64()
TEXT: pa.DataType = pa.string()


def shuffled(values: list[Any]) -> list[Any]:
    random.Random(7).shuffle(values)
    return values


def estimate(data: bytes, *, theta: bool) -> float:
    kind = datasketches.compact_theta_sketch if theta else datasketches.hll_sketch
    found: float = kind.deserialize(data).get_estimate()
    return found


@pytest.mark.parametrize("parts", [1, 6])
@pytest.mark.parametrize("truth", [0, 3, 300, 12_000])
@pytest.mark.parametrize(("type_", "made"), [(INT, int), (TEXT, "ü{}".format), (FLOAT, float)], ids=["i", "s", "x"])
def test_sketches_of_different_values_tell_about_how_many_there_are(
    type_: pa.DataType, made: Any, truth: int, parts: int
) -> None:
    values = shuffled([made(number) for number in range(truth)] * 2 + [None])
    theta = result_of(f.theta_sketch_agg("x"), type_, values, parts=parts)
    assert abs(estimate(theta, theta=True) - truth) <= 0.06 * truth
    if type_ != FLOAT:
        hll = result_of(f.hll_sketch_agg("x", 11), type_, values, parts=parts)
        assert abs(estimate(hll, theta=False) - truth) <= 0.09 * truth


def test_empty_strings_do_not_count_and_equal_floats_count_once() -> None:
    for call, theta in ((f.hll_sketch_agg("x"), False), (f.theta_sketch_agg("x"), True)):
        assert round(estimate(result_of(call, TEXT, ["", "a", None, ""]), theta=theta)) == 1
    values = [math.nan, 0.0, -0.0, -math.nan, 1.0]
    assert round(estimate(result_of(f.theta_sketch_agg("x"), FLOAT, values), theta=True)) == 3


@pytest.mark.parametrize("parts", [1, 6])
@pytest.mark.parametrize("k", [100, 400])
def test_quantiles_are_as_near_as_is_stated(k: int, parts: int) -> None:
    values = shuffled([*range(10_000), None])
    error = 3 * datasketches.kll_doubles_sketch.get_normalized_rank_error(k, False) * 10_000
    for share in (0.0, 0.1, 0.5, 0.99, 1.0):
        found = result_of(f.approx_percentile("x", share, k), INT, values, parts=parts)
        assert abs(found - share * 10_000) <= error + 1
    data = result_of(f.kll_sketch_agg("x", k), INT, values, parts=parts)
    sketch = datasketches.kll_items_sketch.deserialize(data, datasketches.PyLongsSerDe())
    assert (sketch.n, sketch.get_min_value(), sketch.get_max_value()) == (10_000, 0, 9_999)
    assert abs(sketch.get_quantile(0.5) - 5_000) <= error


@pytest.mark.parametrize("call", [f.kll_sketch_agg("x"), f.approx_percentile("x", 0.37)], ids=str)
@pytest.mark.parametrize(("type_", "made"), [(INT, int), (FLOAT, float)], ids=["i", "x"])
def test_few_values_have_one_sketch_in_any_order_and_any_parts(
    call: AggregateCall, type_: pa.DataType, made: Any
) -> None:
    row = RowAggregate({"x": call}, {"x": type_})
    values = [made(number) for number in range(150)]
    first = row.state_serde.serialize(aggregate_state(row, values))
    for parts in (1, 4):
        assert row.state_serde.serialize(aggregate_state(row, shuffled(list(values)), parts=parts)) == first


def test_nan_has_no_rank() -> None:
    assert result_of(f.approx_percentile("x", 1.0), FLOAT, [math.nan, 1.0, 2.0, math.nan]) == 2.0
    assert result_of(f.approx_percentile("x", 0.5), FLOAT, [math.nan]) is None


@pytest.mark.parametrize("parts", [1, 6])
def test_frequent_items_are_found_among_many_and_counted_as_near_as_the_sketch_errs(parts: int) -> None:
    chance = random.Random(3)
    values = shuffled([int(chance.paretovariate(0.8)) % 5_000 for _ in range(30_000)])
    truth = Counter(values)
    error = 30_000 * datasketches.frequent_items_sketch.get_epsilon_for_lg_size(9)
    found = result_of(f.approx_top_k("x", 4, 300), INT, values, parts=parts)
    assert [entry["item"] for entry in found[:3]] == [item for item, _ in truth.most_common(3)]
    assert all(truth[entry["item"]] <= entry["count"] <= truth[entry["item"]] + error for entry in found)
    exact = result_of(f.approx_top_k("x", 4), INT, values, parts=parts)
    assert [entry["count"] for entry in exact] == [count for _, count in truth.most_common(4)]


NEED = {
    "hll_sketch_agg": f.hll_sketch_agg("x"),
    "theta_sketch_agg": f.theta_sketch_agg("x"),
    "kll_sketch_agg": f.kll_sketch_agg("x"),
    "approx_percentile": f.approx_percentile("x", 0.5),
    "approx_top_k": f.approx_top_k("x"),
}


@pytest.mark.parametrize("name", NEED)
def test_without_the_package_the_error_says_what_to_install(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasketches", None)
    with pytest.raises(ConfigurationError, match=rf"^{name} needs the package .*pip install 'millpond\[sketches\]'"):
        RowAggregate({"x": NEED[name]}, {"x": INT})


def test_sketches_are_not_put_as_nobody_can_tell_whether_they_are_some() -> None:
    for name, call in NEED.items():
        row = RowAggregate({"x": call}, {"x": INT})
        with pytest.raises(ConfigurationError, match=rf"'x', {name}\(x\): its state is more than its result"):
            row.state_of(row.results([row.initializer()]))


@pytest.mark.parametrize("name", NEED)
def test_bytes_that_are_no_sketch_are_refused(name: str) -> None:
    row = RowAggregate({"x": NEED[name]}, {"x": INT})
    whole = row.state_serde.deserialize(row.state_serde.serialize(aggregate_state(row, list(range(40)))))[0]
    for data in (b"", b"\xff" * 40, whole[:9], whole[:-1], whole[:20] + bytes([whole[20] ^ 32]) + whole[21:]):
        with pytest.raises(MillpondError, match="cannot be read"):
            row.results([row.aggregator(b"k", (1, 5), [data])])
