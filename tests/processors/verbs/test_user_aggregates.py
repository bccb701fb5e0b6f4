"""Functions of a user's own: what they are given, what becomes of what they return, and what is said when they fail."""

import math
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from millpond import Pond
from millpond.errors import ConfigurationError, RecordError, SerdeError, UserFunctionError
from millpond.processors import SessionWindows, TimeWindows
from millpond.processors.verbs.aggregates import UserAggregate
from millpond.processors.verbs.row_aggregate import RowAggregate
from tests.processors.verbs.aggregating import EXTENT, KEY, PAIRS, TALLY, aggregate_state, physical, result_of

START = datetime(2026, 6, 1, tzinfo=UTC)
ROWS = pa.table(
    {
        "k": ["a", "a", "b", "b", "c"],
        "at": [START + timedelta(minutes=number) for number in range(5)],
        "x": [1.0, 2.5, None, 7.0, None],
        "n": [1, 2, 3, 4, 5],
    }
)


def summed(**changed: Any) -> UserAggregate:
    """Return a sum of floats, or something else."""
    given: dict[str, Any] = {
        "name": "summed",
        "zero": lambda: 0.0,
        "update": lambda state, value: state + value,
        "merge": lambda state, other: state + other,
        "type": pa.float64(),
    }
    return UserAggregate(**{**given, **changed})


@pytest.mark.parametrize(
    ("type_", "value", "seen"),
    [
        (pa.timestamp("us", "UTC"), START, START),
        (pa.timestamp("us"), START.replace(tzinfo=None), START.replace(tzinfo=None)),
        (pa.date32(), date(2026, 6, 1), date(2026, 6, 1)),
        (pa.duration("us"), timedelta(minutes=1), timedelta(minutes=1)),
        (pa.decimal128(30, 2), Decimal("1.50"), Decimal("1.50")),
        (pa.binary(), b"\xff", b"\xff"),
        (pa.list_(pa.int32()), [1, None], [1, None]),
        (pa.struct([("a", pa.string())]), {"a": "b"}, {"a": "b"}),
        (pa.map_(pa.string(), pa.int64()), [("a", 1)], {"a": 1}),
    ],
    ids=str,
)
def test_functions_see_values_as_python_has_them(type_: pa.DataType, value: Any, seen: Any) -> None:
    shown = summed(zero=str, update=lambda state, given: state + repr(given), type=pa.string())
    rows = pa.table({"k": ["a"] * 3, "at": [START] * 3, "x": pa.array([value, None, value], type_)})
    (row,) = Pond().aggregate(rows, {"shown": shown("x")}, by="k", time="at").to_pylist()
    assert row["shown"] == repr(seen) * 2


def test_rows_with_a_null_do_not_count_and_where_none_counts_the_result_is_null() -> None:
    dot = summed(name="dot", update=lambda state, x, n: state + x * n)
    calls = {"sum": summed()("x"), "dot": dot("x", "n")}
    found = Pond().aggregate(ROWS, calls, by="k", time="at").select(["k", *calls]).to_pylist()
    assert found == [
        {"k": "a", "sum": 3.5, "dot": 6.0},
        {"k": "b", "sum": 7.0, "dot": 28.0},
        {"k": "c", "sum": None, "dot": None},
    ]


def test_sessions_that_become_one_merge_their_states() -> None:
    rows = [{"k": 1, "at": START + timedelta(seconds=second), "x": float(second)} for second in (0, 20, 10, 90)]
    columns: list[tuple[str, pa.DataType]] = [("k", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("x", pa.float64())]
    batches = Pond().in_batches.aggregate(
        pa.schema(columns),
        {"sum": summed()("x")},
        by="k",
        time="at",
        window=SessionWindows("15 seconds", grace="1 hour"),
    )
    with batches:
        found = [row for one in rows for row in batches.feed([one]).to_pylist()]
    assert [row["sum"] for row in found if row["op"] == "upsert"] == [0.0, 20.0, 30.0, 90.0]


@pytest.mark.parametrize("given", [TALLY, PAIRS, EXTENT], ids=lambda given: given.name)
def test_functions_travel_with_their_lambdas(given: UserAggregate) -> None:
    cloudpickle = pytest.importorskip("pyspark.cloudpickle")
    pairs = given is PAIRS
    type_ = pa.struct([("first", pa.int64()), ("second", pa.int64())]) if pairs else pa.int64()
    row = RowAggregate({"x": given("x", "y") if pairs else given("x")}, {"x": type_})
    copy = cloudpickle.loads(cloudpickle.dumps(row))
    values = [[number % 3, 7] for number in range(9)] if pairs else [number % 3 for number in range(9)]
    assert copy.state_serde.name == row.state_serde.name
    assert copy.results([aggregate_state(copy, values)]) == row.results([aggregate_state(row, values)])


def test_a_state_is_known_by_name_and_version() -> None:
    names = [
        RowAggregate({"x": given("x")}, {"x": type_}).state_serde.name
        for given, type_ in (
            (summed(), pa.float64()),
            (summed(finish=str, type=pa.string()), pa.float32()),
            (summed(version=2), pa.float64()),
            (summed(name="other"), pa.float64()),
        )
    ]
    assert names[0] == names[1] == "aggregate-state-1: user_defined(float, name='summed', version=1)"
    assert len(set(names)) == 3


FAILING: Mapping[str, tuple[dict[str, Any], str]] = {
    "update": (
        {"update": lambda state, value: 1 / (value - 7)},
        r"update of 'summed' raised ZeroDivisionError: .* for 7.0 \(.*test_user_aggregates.py:\d+\), for k='b'",
    ),
    "zero": ({"zero": lambda: [][1]}, r"zero of 'summed' raised IndexError: .*, for k='a'"),
    "finish": (
        {"finish": lambda state: 1 / (state - 7)},
        r"finish of 'summed' raised ZeroDivisionError: .*, for k='b', window from 2026-06-01T00:00:00\+00:00 to ",
    ),
    "a result of another type": (
        {"finish": lambda state: "seven" if state == 7 else state},
        r"finish of 'summed' gave 'seven', which is no double \(.*\), for k='b'",
    ),
    "a state that is no double": (
        {"zero": lambda: "", "update": lambda state, value: "seven"},
        r"the state of 'summed' gave 'seven', which is no double",
    ),
}


@pytest.mark.parametrize("emit", ["updates", "final"])
@pytest.mark.parametrize("case", FAILING)
def test_a_function_that_fails_is_named_with_verb_result_and_key(case: str, emit: Any) -> None:
    changed, message = FAILING[case]
    window = TimeWindows("1 hour")
    with pytest.raises(UserFunctionError, match=rf"aggregate 'sums': 'total', summed\(x\): {message}") as caught:
        Pond().aggregate(
            ROWS, {"total": summed(**changed)("x")}, by="k", time="at", window=window, emit=emit, name="sums"
        )
    assert isinstance(caught.value.__cause__, RecordError)


def test_rows_for_which_a_function_fails_are_left_out_if_the_user_says_so() -> None:
    picky = summed(update=lambda state, value: state + 1 / (value - 2.5))
    pond = Pond(on_error="skip")
    found = pond.aggregate(ROWS, {"x": picky("x")}, by="k", time="at").to_pylist()
    assert {row["k"]: row["x"] for row in found} == {"a": 1 / -1.5, "b": 1 / 4.5, "c": None}
    burying = Pond(on_error="dead-letter")
    burying.aggregate(ROWS, {"x": picky("x")}, by="k", time="at")
    (letter,) = burying.dead_letters
    assert "update of 'summed' raised ZeroDivisionError" in letter.error


def test_a_state_has_decimals_and_times_as_they_are() -> None:
    longest = summed(zero=lambda: None, update=lambda state, at: max(state or at, at), merge=max, finish=repr)
    latest = UserAggregate(**{**vars(longest), "type": pa.string()})
    found = Pond().aggregate(ROWS, {"x": latest("at")}, by=[], time="at").to_pylist()
    assert found[0]["x"] == repr(START + timedelta(minutes=4))


@pytest.mark.parametrize("made", [lambda: {1, 2}, object, lambda: [2**70]], ids=["set", "object", "great"])
def test_a_state_that_cannot_be_kept_is_refused_with_what_can(made: Callable[[], Any]) -> None:
    with pytest.raises(
        UserFunctionError, match=r"'summed' has made a state that cannot be kept, .*: states are of None"
    ):
        Pond().aggregate(ROWS, {"x": summed(update=lambda state, value: made())("x")}, by="k", time="at")
    row = RowAggregate({"x": summed(update=lambda state, value: made())("x")}, {"x": pa.float64()})
    with pytest.raises(SerdeError, match="states are of None, bools, numbers, text, bytes, datetime, Decimal"):
        row.state_serde.serialize(row.aggregator(KEY, (1, 2.0), row.initializer()))


def test_many_values_at_once_are_given_as_arrow_arrays_without_nulls() -> None:
    seen: list[Any] = []

    def many(state: float, values: Any) -> float:
        seen.append(values)
        return state + math.fsum(values.to_pylist())

    found = Pond().aggregate(ROWS, {"x": summed(update_many=many)("x")}, by="k", time="at").to_pylist()
    assert [row["x"] for row in found] == [3.5, 7.0, None]
    assert sorted(values.to_pylist() for values in seen) == [[1.0, 2.5], [7.0]]
    assert all(isinstance(values, pa.Array) for values in seen)


def test_columns_that_python_cannot_have_are_refused() -> None:
    nested = pa.map_(pa.struct([("a", pa.int64())]), pa.int64())
    with pytest.raises(ConfigurationError, match="the argument of 'x': the keys of column 'x' of type map"):
        RowAggregate({"x": TALLY("x")}, {"x": nested})
    far = physical([2**62], pa.timestamp("us"))
    with pytest.raises(RecordError, match="column 'x' has a value that Python cannot hold"):
        aggregate_state(RowAggregate({"x": TALLY("x")}, {"x": pa.timestamp("us")}), far)


def test_a_state_may_be_changed_in_place() -> None:
    grown = summed(
        zero=list,
        update=lambda state, value: state.append(value) or state,
        merge=lambda state, other: state.extend(other) or state,
        finish=sum,
    )
    for parts in (1, 2, 5):
        assert result_of(grown("x"), pa.float64(), [1.0, 2.0, None, 4.0, 8.0], parts=parts) == 15.0
