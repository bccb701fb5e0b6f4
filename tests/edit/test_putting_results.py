"""Each function's result is read from its state, and put where it tells all of the state, or else refused."""

from typing import Any

import pyarrow as pa
import pytest

from millpond.adapters.inspect.aggregated_column import AggregatedColumn
from millpond.errors import ConfigurationError
from millpond.processors.verbs import aggregates
from millpond.processors.verbs.aggregates import AggregateCall
from millpond.processors.verbs.kept_calls import first_calls
from millpond.processors.verbs.row_aggregate import RowAggregate
from millpond.stores.encoding.rows.schemas import Schemas

TOLD: list[tuple[AggregateCall, pa.DataType, list[Any]]] = [
    (aggregates.count("v", where="w"), pa.int64(), [1, 2]),
    (aggregates.sum("v", where="w"), pa.int64(), [1, 2]),
    (aggregates.bool_and("v"), pa.bool_(), [True, False]),
    (aggregates.bool_or("v", where="w"), pa.bool_(), [True, False]),
    (aggregates.bit_and("v"), pa.int64(), [6, 3]),
    (aggregates.bit_or("v"), pa.int64(), [6, 3]),
    (aggregates.bit_xor("v", where="w"), pa.int64(), [6, 3]),
]
MORE: list[tuple[AggregateCall, pa.DataType, list[Any]]] = [
    (aggregates.first("v", where="w"), pa.int64(), [[1], [2]]),
    (aggregates.last("v", where="w"), pa.string(), [["a"], [None]]),
    (aggregates.var_samp("v"), pa.float64(), [0.5, 2.5]),
    (aggregates.var_pop("v"), pa.int64(), [1, 2]),
    (aggregates.stddev_samp("v"), pa.decimal128(10, 2), [1, 2]),
    (aggregates.stddev_pop("v", where="w"), pa.int64(), [1, 2]),
    (aggregates.mode("v"), pa.list_(pa.float64()), [[0.5], [-0.0], [0.0]]),
    (aggregates.percentile("v", 0.9), pa.int64(), [1, 2]),
    (aggregates.median("v", where="w"), pa.duration("us"), [1, 2]),
]


def of_call(call: AggregateCall, type_: pa.DataType) -> tuple[RowAggregate, AggregatedColumn]:
    """Return the call, and the column that is known of it where only its state is."""
    aggregate = RowAggregate({"r": call}, {"r": pa.struct([("value", type_)]) if call.wraps else type_})
    where = {} if call.where is None else {"r": str(call.where)}
    history = Schemas.first(first_calls(aggregate.kept({"r": "v"}, where)))
    return aggregate, AggregatedColumn(aggregate.state_serde.name, history)


def read(aggregate: RowAggregate, column: AggregatedColumn, values: list[Any]) -> tuple[bytes, Any]:
    """Return the state of values, and what is read of it, which is what comes out."""
    state = aggregate.initializer()
    for time, value in enumerate(values):
        state = aggregate.aggregator(b"k", (time, value), state)
    data = aggregate.state_serde.serialize(state)
    (row,) = column.read([data]).to_pylist()
    assert aggregate.results([state]).to_pylist() == [row]
    return data, row


@pytest.mark.parametrize(("call", "type_", "values"), TOLD, ids=str)
def test_a_result_that_tells_all_of_its_state_is_put_as_if_its_rows_had_come(
    call: AggregateCall, type_: pa.DataType, values: list[Any]
) -> None:
    aggregate, column = of_call(call, type_)
    data, row = read(aggregate, column, values)
    assert column.pack(row) == data


@pytest.mark.parametrize(("call", "type_", "values"), MORE, ids=str)
def test_a_result_that_tells_less_is_refused(call: AggregateCall, type_: pa.DataType, values: list[Any]) -> None:
    aggregate, column = of_call(call, type_)
    _, row = read(aggregate, column, values)
    with pytest.raises(ConfigurationError, match=r"'r', .*: its state is more than its result, so it cannot be put; "):
        column.pack(row)


def test_an_average_goes_with_a_count_of_the_same_rows_alone() -> None:
    kinds = {"n": aggregates.count, "mean": aggregates.avg}
    for where, told in (({"n": "w", "mean": "w"}, True), ({"mean": "w"}, False), ({"n": "w", "mean": "x"}, False)):
        calls = {name: call("v", where=where.get(name)) for name, call in kinds.items()}
        aggregate = RowAggregate(calls, dict.fromkeys(calls, pa.int64()))
        history = Schemas.first(first_calls(aggregate.kept(dict.fromkeys(calls, "v"), where)))
        column = AggregatedColumn(aggregate.state_serde.name, history)
        if told:
            assert column.read([column.pack({"n": 2, "mean": 1.5})]).to_pylist() == [{"n": 2, "mean": 1.5}]
            continue
        with pytest.raises(ConfigurationError, match="its state is more than its result"):
            column.pack({"n": 2, "mean": 1.5})


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"rows": 0, "n": 0}, "'rows' counts nothing, and 's' is 7"),
        ({"n": 0}, "'n' counts nothing, and 's' is 7"),
        ({"rows": 1}, "'n' counts more than 'rows', which counts all rows"),
        ({"s": None}, "'n' counts values, and 's' is null"),
        ({"few": 5}, "'few', the least value, is greater than 'most', the greatest"),
    ],
    ids=str,
)
def test_results_that_no_rows_have_together_are_refused_and_those_of_some_rows_are_put(
    wrong: dict[str, Any], told: str
) -> None:
    calls = {
        "rows": aggregates.count(),
        "n": aggregates.count("v"),
        "s": aggregates.sum("v"),
        "few": aggregates.min("v"),
        "most": aggregates.max("v"),
    }
    arguments = dict.fromkeys(["n", "s", "few", "most"], "v")
    aggregate = RowAggregate(calls, dict.fromkeys(arguments, pa.int64()))
    column = AggregatedColumn(aggregate.state_serde.name, Schemas.first(first_calls(aggregate.kept(arguments))))
    right = {"rows": 3, "n": 2, "s": 7, "few": 3, "most": 4}
    with pytest.raises(ConfigurationError, match=f"no rows have .*: {told}; put results that some rows have \\["):
        column.pack({**right, **wrong})
    assert column.read([column.pack(right)]).to_pylist() == [right]


def test_results_of_other_rows_or_added_later_agree_with_any() -> None:
    calls = {"n": aggregates.count("v"), "s": aggregates.sum("v", where="w")}
    aggregate = RowAggregate(calls, dict.fromkeys(calls, pa.int64()))
    kept = aggregate.kept(dict.fromkeys(calls, "v"), {"s": "w"})
    column = AggregatedColumn(aggregate.state_serde.name, Schemas.first(first_calls(kept)))
    assert column.read([column.pack({"n": 5, "s": None})]).to_pylist() == [{"n": 5, "s": None}]
