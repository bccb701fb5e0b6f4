"""Sums of columns of floats are those that are made one by one, and few have to be."""

import math
import random
from typing import NoReturn

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from millpond.processors.verbs.functions.columns import exact_sums, integers
from millpond.processors.verbs.functions.sums import FloatSum, bind_average
from tests.drawing import tries

LISTS = pa.list_(pa.float64())
EDGES = st.sampled_from([0.0, -0.0, 5e-324, 1e308, -1e308, 2.0**53, 1.0, 2.0**-53, math.inf, -math.inf, math.nan])
FLOATS = EDGES | st.floats() | st.integers(-10_000, 10_000).map(lambda cents: cents / 100)


@settings(max_examples=tries(300), deadline=None)
@given(st.lists(st.none() | st.lists(FLOATS, max_size=12), max_size=8))
@example([[1e308, 1e308, -1e308], [2.0**53, 1.0, 2.0**-60], [-0.0], [], None, [0.1] * 70])
def test_sums_of_a_column_of_states_are_those_of_each(states: list[list[float] | None]) -> None:
    made = FloatSum()
    one_by_one = [made.results(pa.array([state], LISTS))[0].as_py() for state in states]
    alone = [None if state is None else _sum(state) for state in states]
    assert repr(made.results(pa.array(states, LISTS)).to_pylist()) == repr(one_by_one) == repr(alone)


def test_sums_of_numbers_of_like_sizes_are_made_as_columns() -> None:
    drawn = random.Random(7)
    prices = [[drawn.randrange(1, 10**7) / 100 for _ in range(drawn.randrange(1, 64))] for _ in range(500)]
    anything = [[drawn.uniform(-1000, 1000) for _ in range(16)] for _ in range(500)]
    lists = [*prices, *anything]
    assert exact_sums(pa.array(lists, LISTS), _refuse).tolist() == list(map(math.fsum, lists))


@pytest.mark.parametrize(("count", "total"), [(0, [1.0]), (None, [1.0]), (1, None)])
def test_an_average_of_no_values_is_damage(count: int | None, total: list[float] | None) -> None:
    average = bind_average("x", pa.float64())
    with pytest.raises(ValueError, match="no values"):
        average.results(pa.array([{"count": 2, "sum": [1.0, 2.0]}, {"count": count, "sum": total}], average.state_type))


def _sum(values: list[float]) -> float:
    try:
        return math.fsum(values) + 0.0
    except OverflowError:
        return sum(values)
    except ValueError:
        return math.nan


def _refuse(values: list[float]) -> NoReturn:
    raise AssertionError(f"{values} are added up one by one")


def test_what_memory_holds_where_a_column_is_null_does_not_count() -> None:
    held: list[pa.Buffer | None] = [pa.py_buffer(b"\x05"), pa.py_buffer(np.array([5, 7, 9]).tobytes())]
    assert integers(pa.Array.from_buffers(pa.int64(), 3, held)).tolist() == [5, 0, 9]
