"""Rows that are combined before they travel have the aggregates that they have one by one."""

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.processors import Batch, Task
from millpond.processors.distribution.execution import Decoder
from millpond.processors.runtime.batches.columns import Columns
from millpond.processors.runtime.batches.partials import Combiner
from millpond.processors.verbs import aggregates as f
from millpond.processors.verbs.aggregate import AggregatedRows, aggregate
from millpond.processors.verbs.aggregates import AggregateCall
from millpond.processors.verbs.row_aggregate import RowAggregate
from millpond.stores.backend.memory import MemoryBackend
from millpond.stores.backend.transaction import Transaction
from tests.drawing import tries
from tests.processors.verbs.aggregating import VALUES
from tests.processors.verbs.running import an_aggregated_input

KEYS: dict[str, pa.DataType] = {"name": pa.string(), "number": pa.int32()}
CALLS: dict[str, tuple[AggregateCall, pa.DataType | None]] = {
    "n": (f.count(), None),
    "sum_int": (f.sum("x"), pa.int64()),
    "avg_int": (f.avg("x"), pa.int32()),
    "count": (f.count("x"), pa.date32()),
    "n_some": (f.count(where="w"), pa.int32()),
    "min_time": (f.min("x"), pa.timestamp("us", "UTC")),
    "max_int": (f.max("x"), pa.int32()),
    "sum_lengths": (f.sum("x"), pa.duration("us")),
    "max_lengths": (f.max("x"), pa.duration("us")),
    "distinct_ints": (f.count_distinct("x"), pa.int32()),
    "distinct_floats": (f.count_distinct("x"), pa.float64()),
    "distinct_texts": (f.count_distinct("x"), pa.string()),
    "distinct_dates": (f.count_distinct("x"), pa.date32()),
}


def row_aggregate(calls: Mapping[str, tuple[AggregateCall, pa.DataType | None]]) -> RowAggregate:
    types = {name: type_ for name, (_, type_) in calls.items() if type_ is not None}
    return RowAggregate({name: call for name, (call, _) in calls.items()}, types)


def test_aggregates_of_combined_rows_are_those_of_the_rows() -> None:
    calls = row_aggregate(CALLS)
    types = {name: type_ for name, (_, type_) in CALLS.items() if type_ is not None}
    rows = an_aggregated_input("input", KEYS, types)
    row = st.fixed_dictionaries(
        {
            "key": st.fixed_dictionaries(
                {"name": st.sampled_from(["a", "ä", None]), "number": st.sampled_from([1, None])}
            ),
            "value": st.fixed_dictionaries({name: st.none() | VALUES[type_] for name, type_ in types.items()}),
            "timestamp": st.integers(0, 20),
        }
    )

    @settings(deadline=None, max_examples=tries(25))
    @given(st.lists(st.tuples(st.lists(row, min_size=1, max_size=8), st.booleans()), min_size=1, max_size=5))
    def check(chunks: list[tuple[list[dict[str, Any]], bool]]) -> None:
        tables = [(pa.Table.from_pylist(chunk, _schema(types)), combined) for chunk, combined in chunks]
        assert results(rows, calls, tables) == results(rows, calls, [(table, False) for table, _ in tables])

    check()


def _schema(types: Mapping[str, pa.DataType]) -> pa.Schema:
    return pa.schema(
        [
            ("key", pa.struct(list(KEYS.items()))),
            ("value", pa.struct(list(types.items()))),
            ("timestamp", pa.int64()),
        ]
    )


def results(rows: AggregatedRows, calls: RowAggregate, tables: list[tuple[pa.Table, bool]]) -> list[Any]:
    """What comes out and is stored, by key, of tables that are combined or not."""
    (part,) = aggregate("out", rows, calls, None, final=False).topology.subtopologies
    engine = MemoryBackend()
    transaction = Transaction(engine)
    stores = {name: spec.open(transaction) for name, spec in part.stores.items()}
    task = Task(part, stores)
    for table, combined in tables:
        partials = _combiner(calls).combine(table) if combined else None
        sent = table if partials is None else partials
        keys: Any = pa.array(rows.keys_of(sent), pa.binary())
        values = rows.values_of(table) if partials is None else partials["value"].combine_chunks()
        records = Columns(keys, values, sent["timestamp"].to_numpy())
        if partials is None:
            task.process("input", Decoder("input", None, calls.input_serde).decode(records))
        else:
            task.process_partials("input", Decoder("input", None, task.partials_serde("input")).decode(records))
    task.flush()
    for store in stores.values():
        store.flush()
    transaction.commit()
    found = sorted(record for run in task.take()["out"] for record in _records(run.to_batch()))
    return [found, list(engine.scan()), calls.results([state for _, state, _ in found]).to_pylist()]


def _records(batch: Batch) -> Iterator[tuple[Any, Any, int]]:
    return zip(batch.keys, batch.values, batch.timestamps, strict=True)


def _combiner(calls: RowAggregate) -> Combiner:
    combiner = calls.aggregation.combiner
    assert combiner is not None
    return combiner


@pytest.mark.parametrize(("size", "tolerance"), [(20, 0.0), (20_000, 0.15)])
def test_sketches_of_combined_rows_are_as_near_as_those_of_rows(size: int, tolerance: float) -> None:
    pytest.importorskip("datasketches")
    types: dict[str, pa.DataType] = {"about": pa.string()}
    calls = RowAggregate({"about": f.approx_count_distinct("x")}, types)
    rows = an_aggregated_input("input", KEYS, types)
    texts = [f"text {number}" for number in range(size)]
    tables = [
        pa.Table.from_pylist(
            [{"key": {"name": "a", "number": 1}, "value": {"about": text}, "timestamp": 1} for text in some * 2],
            _schema(types),
        )
        for some in (texts[: size // 2], texts[size // 4 :], [None])
    ]
    for combined in (False, True):
        [[about]] = [row.values() for row in results(rows, calls, [(table, combined) for table in tables])[2]]
        assert abs(about - size) <= tolerance * size


@pytest.mark.parametrize(
    ("call", "type_"),
    [
        (f.sum("x"), pa.float64()),
        (f.avg("x"), pa.decimal128(5, 2)),
        (f.max("x"), pa.float64()),
        (f.min("x"), pa.string()),
        (f.var_pop("x"), pa.int64()),
        (f.mode("x"), pa.int64()),
        (f.bit_or("x"), pa.int64()),
        (f.bool_and("x"), pa.bool_()),
        (f.first("x"), pa.int64()),
        (f.last("x"), pa.int64()),
        (f.collect("x"), pa.int64()),
        (f.count_distinct("x"), pa.list_(pa.int64())),
        (f.approx_count_distinct("x"), pa.decimal128(20, 2)),
    ],
)
def test_rows_are_not_combined_where_a_function_must_see_each(call: AggregateCall, type_: pa.DataType) -> None:
    assert row_aggregate({"n": (f.count(), None), "x": (call, type_)}).aggregation.combiner is None


def test_values_whose_sum_might_leave_its_type_travel_as_they_are() -> None:
    combiner = _combiner(row_aggregate({"sum": (f.sum("x"), pa.int64())}))
    for value, combined in ((2**61, True), (2**62, False), (-(2**63), False)):
        table = pa.table({"key": [{"k": 1}] * 2, "value": [{"x": value}, {"x": 0}], "timestamp": [1, 2]})
        assert (combiner.combine(table) is not None) is combined


def test_keys_that_arrow_might_take_for_equal_are_not_combined() -> None:
    combiner = _combiner(row_aggregate({"n": (f.count(), None)}))
    for key, combined in ((1, True), ("a", True), (1.5, False), ([1], False)):
        table = pa.table({"key": [{"k": key}], "value": [{"present": True}], "timestamp": [1]})
        assert (combiner.keys(table) is not None) is combined


def test_rows_from_before_the_time_since_which_a_call_is_true_travel_as_they_are() -> None:
    calls = RowAggregate({"n": f.count(), "most": f.max("x")}, {"most": pa.int64()}, since={"most": 5})
    for first, combined in ((4, False), (5, True)):
        table = pa.table({"key": [{"k": 1}] * 2, "value": [{"x": 3}, {"x": 2}], "timestamp": [first, 6]})
        partials = _combiner(calls).combine(table)
        assert (partials is not None) is combined
        if partials is not None:
            packed: list[Any] = partials["value"].to_pylist()
            states = [calls.state_serde.deserialize(one) for one in packed]
            assert calls.results(states).to_pylist() == [{"n": 2, "most": 3}]
