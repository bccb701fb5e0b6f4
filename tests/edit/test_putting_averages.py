"""An average is put beside the count of its values, as if its rows had come, or refused with what it needs."""

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from millpond.adapters.inspect.aggregated_column import AggregatedColumn
from millpond.errors import ConfigurationError
from millpond.processors.verbs import aggregates
from millpond.processors.verbs.aggregates import AggregateCall
from millpond.processors.verbs.kept_calls import CallChanges, evolved_calls, first_calls
from millpond.processors.verbs.row_aggregate import RowAggregate
from millpond.stores.encoding.rows.physical import to_physical
from millpond.stores.encoding.rows.schemas import Schemas

VALUES: dict[pa.DataType, list[Any]] = {
    pa.int64(): [3, 4, 4],
    pa.float64(): [0.1, 0.2, 0.7],
    pa.decimal128(10, 2): [Decimal("3.10"), Decimal("0.05"), Decimal("7.00")],
    pa.decimal128(30, 2): [Decimal("3.10"), Decimal("0.05"), Decimal("7.00")],
    pa.duration("us"): [timedelta(seconds=1), timedelta(microseconds=1), timedelta(0)],
}
N, S, MEAN = aggregates.count("v"), aggregates.sum("v"), aggregates.avg("v")


def made(calls: dict[str, AggregateCall], type_: pa.DataType) -> RowAggregate:
    return RowAggregate(calls, dict.fromkeys([name for name in calls if calls[name].column], type_))


def history(calls: dict[str, AggregateCall], type_: pa.DataType) -> tuple[str, Schemas]:
    aggregate = made(calls, type_)
    arguments = {name: str(call.column) for name, call in calls.items() if call.column}
    return aggregate.state_serde.name, Schemas.first(first_calls(aggregate.kept(arguments)))


def folded(aggregate: RowAggregate, state: list[Any], values: list[Any], type_: pa.DataType) -> list[Any]:
    for value in to_physical(pa.array(values, type_)):
        state = aggregate.aggregator(b"k", (0, *[value] * len(aggregate.arguments)), state)
    return state


@pytest.mark.parametrize("type_", VALUES, ids=str)
def test_an_average_beside_a_count_and_a_sum_goes_on_as_if_its_rows_had_come(type_: pa.DataType) -> None:
    calls = {"n": N, "s": S, "mean": MEAN}
    aggregate = made(calls, type_)
    come = folded(aggregate, aggregate.initializer(), VALUES[type_], type_)
    (row,) = aggregate.results([come]).to_pylist()
    column = AggregatedColumn(*history(calls, type_))
    put = aggregate.state_serde.deserialize(column.pack(row))
    both = [folded(aggregate, state, VALUES[type_][:2], type_) for state in (put, come)]
    assert aggregate.results(both[:1]) == aggregate.results(both[1:])
    together = "; put results that some rows have together"
    with pytest.raises(ConfigurationError, match=rf"'mean', avg.*not the average that the count and the .*{together}"):
        column.pack({**row, "n": 9})
    with pytest.raises(ConfigurationError, match=rf"'n', count\(.*: a count is never negative{together}"):
        column.pack({**row, "n": -1})
    none = {"n": 0, "s": None, "mean": None}
    assert aggregate.state_serde.deserialize(column.pack(none)) == aggregate.initializer()
    with pytest.raises(ConfigurationError, match=f"there are values, but their average is null{together}"):
        column.pack({**row, "mean": None})


def test_a_count_alone_tells_the_rest_of_an_average_where_one_sum_has_it() -> None:
    calls = {"mean": MEAN, "n": N}
    column = AggregatedColumn(*history(calls, pa.int64()))
    assert made(calls, pa.int64()).state_serde.deserialize(column.pack({"mean": 11 / 3, "n": 3})) == [[3, 11], 3]
    with pytest.raises(ConfigurationError, match="not the average that the count"):
        column.pack({"mean": 3.6, "n": 3})
    times = AggregatedColumn(*history(calls, pa.duration("us")))
    with pytest.raises(ConfigurationError, match="several sums have this average, and no sum of the same column"):
        times.pack({"mean": timedelta(microseconds=7), "n": 3})
    floats = AggregatedColumn(*history(calls, pa.float64()))
    (found,) = made(calls, pa.float64()).results([[[3, [0.1 * 3]], 3]]).to_pylist()
    assert floats.read([floats.pack(found)]).to_pylist() == [found]


def test_a_count_of_other_rows_or_of_another_column_tells_nothing_of_an_average() -> None:
    refused = r"'mean', avg\(.*: its state is more than its result.* or has had a count and a sum of the same"
    row = {"n": 3, "mean": 2.0}
    with pytest.raises(ConfigurationError, match=refused):
        AggregatedColumn(*history({"n": aggregates.count("w"), "mean": MEAN}, pa.int64())).pack(row)
    with pytest.raises(ConfigurationError, match=refused):
        AggregatedColumn(*history({"n": aggregates.count(), "mean": MEAN}, pa.int64())).pack(row)
    name, before = history({"n": N}, pa.int64())
    alone, both = (made(calls, pa.int64()) for calls in ({"n": N}, {"n": N, "mean": MEAN}))
    added = evolved_calls(before, both.kept({"n": "v", "mean": "v"}), CallChanges(["mean"]), "out")
    with pytest.raises(ConfigurationError, match=refused):
        AggregatedColumn(name, added).pack(row)
    dropped = AggregatedColumn(name, evolved_calls(added, alone.kept({"n": "v"}), CallChanges(dropped=["mean"]), "out"))
    assert dropped.read([dropped.pack({"n": 3})]).to_pylist() == [{"n": 3}]
