"""The sketched count of different values: its error, its merges, and that it sees every value."""

import math
import sys
import tomllib
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.errors import ConfigurationError
from millpond.processors.verbs.aggregates import FINEST_ERROR, approx_count_distinct, count_distinct
from millpond.processors.verbs.row_aggregate import RowAggregate
from tests.drawing import tries
from tests.processors.verbs.aggregating import NESTED, VALUES, aggregate_state, column, result_of


@pytest.mark.parametrize("relative_error", [0.09, 0.05, 0.01])
@pytest.mark.parametrize("truth", [100, 5_000, 60_000])
@pytest.mark.parametrize("parts", [1, 7])
def test_the_error_is_as_stated(relative_error: float, truth: int, parts: int) -> None:
    values = [f"user-{number % truth}" for number in range(truth + truth // 2)]
    found = result_of(approx_count_distinct("x", relative_error), pa.string(), values, parts=parts)
    assert abs(found / truth - 1) < 3 * relative_error


def test_the_deviation_of_many_sketches_is_as_stated() -> None:
    errors = []
    for number in range(100):
        values = list(range(number * 2000, (number + 1) * 2000))
        errors.append(result_of(approx_count_distinct("x"), pa.int64(), values, parts=3) / 2000 - 1)
    assert abs(sum(errors) / len(errors)) < 0.02
    assert 0.01 < math.sqrt(sum(error**2 for error in errors) / len(errors)) < 0.05


@pytest.mark.parametrize("type_", list(VALUES), ids=str)
@settings(max_examples=tries(20), deadline=None)
@given(data=st.data())
def test_few_values_of_any_type_are_counted_exactly_in_any_parts(type_: pa.DataType, data: st.DataObject) -> None:
    values = data.draw(column(type_))
    truth = len({repr(value).replace("-0.0", "0.0") for value in values if value is not None})
    assert result_of(approx_count_distinct("x"), type_, values, parts=data.draw(st.integers(1, 4))) == truth


def test_empty_strings_and_nan_count_and_zeros_are_equal() -> None:
    assert result_of(approx_count_distinct("x"), pa.string(), ["", None, "a", ""]) == 2
    assert result_of(approx_count_distinct("x"), pa.float64(), [math.nan, 0.0, -0.0, math.nan]) == 2
    nested = [{"name": "a", "scores": [0.0]}, {"name": "a", "scores": [-0.0]}, {"name": None, "scores": [0.0]}]
    assert result_of(approx_count_distinct("x"), NESTED, nested) == 2


def test_the_state_takes_the_room_that_is_stated() -> None:
    row = RowAggregate({"x": approx_count_distinct("x", 0.01)}, {"x": pa.int64()})
    assert len(row.state_serde.serialize(aggregate_state(row, list(range(50_000))))) < 1.1 * 2**14


def test_the_finest_error_is_possible() -> None:
    row = RowAggregate({"x": approx_count_distinct("x", FINEST_ERROR)}, {"x": pa.int64()})
    assert row.results([aggregate_state(row, [1, 2])])["x"].to_pylist() == [2]


@pytest.mark.parametrize("relative_error", [0, 0.0001, 1, math.nan])
def test_an_error_that_no_sketch_has_is_refused(relative_error: float) -> None:
    with pytest.raises(ConfigurationError, match=r"is not from 0\.0008 to below 1"):
        approx_count_distinct("x", relative_error)


def test_without_the_package_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasketches", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'millpond\[sketches\]', or use count_distinct"):
        result_of(approx_count_distinct("x"), pa.int64(), [7, 8, 7, None])
    assert result_of(count_distinct("x"), pa.int64(), [7, 8, 7, None]) == 2
    monkeypatch.undo()
    assert result_of(approx_count_distinct("x"), pa.int64(), [7, 8, 7, None]) == 2
    project = tomllib.loads(Path(__file__).parents[3].joinpath("pyproject.toml").read_text())["project"]
    (extra,) = project["optional-dependencies"]["sketches"]
    assert extra.startswith("datasketches>=")
