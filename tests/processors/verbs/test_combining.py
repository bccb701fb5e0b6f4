"""Rows that are combined before they travel have the aggregates that they have one by one."""

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.errors import RecordError
from millpond.processors import Batch, CumulativeWindows, SessionWindows, SlidingWindows, Task, TimeWindows
from millpond.processors.distribution.execution import Decoder
from millpond.processors.runtime.batches.columns import Columns
from millpond.processors.runtime.batches.partials import Combiner
from millpond.processors.verbs import aggregates as f
from millpond.processors.verbs import combining
from millpond.processors.verbs.aggregate import AggregatedRows, aggregate, windows_in_micros
from millpond.processors.verbs.aggregates import AggregateCall
from millpond.processors.verbs.row_aggregate import RowAggregate
from millpond.stores.backend.memory import MemoryBackend
from millpond.stores.backend.transaction import Transaction
from millpond.stores.encoding.rows.row_columns import PhysicalRowType
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


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also few rows are combined."""
    monkeypatch.setattr(combining, "MOST_LEFT", 1)


@pytest.mark.first
@pytest.mark.parametrize(
    "windows", [None, TimeWindows(5, grace=30), SessionWindows(3, grace=30)], ids=["all time", "windows", "sessions"]
)
def test_aggregates_of_combined_rows_are_those_of_the_rows(windows: TimeWindows | SessionWindows | None) -> None:
    some = CALLS if windows is None else {name: CALLS[name] for name in ("n", "avg_int", "max_int")}
    calls = row_aggregate(some)
    types = {name: type_ for name, (_, type_) in some.items() if type_ is not None}
    rows = an_aggregated_input("input", KEYS, types)
    row = st.fixed_dictionaries(
        {
            "key": st.fixed_dictionaries(
                {"name": st.sampled_from(["a", "ä", None]), "number": st.sampled_from([1, None])}
            ),
            "value": st.fixed_dictionaries({name: st.none() | VALUES[type_] for name, type_ in types.items()}),
            "timestamp": st.integers(0, 20).map(lambda millis: millis * 1_000),
        }
    )

    @settings(deadline=None, max_examples=tries(25))
    @given(st.lists(st.tuples(st.lists(row, min_size=1, max_size=8), st.booleans()), min_size=1, max_size=5))
    def check(chunks: list[tuple[list[dict[str, Any]], bool]]) -> None:
        tables = [(pa.Table.from_pylist(chunk, _schema(types)), combined) for chunk, combined in chunks]
        assert results(rows, calls, tables, windows) == results(
            rows, calls, [(one, False) for one, _ in tables], windows
        )

    check()


def _schema(types: Mapping[str, pa.DataType]) -> pa.Schema:
    return pa.schema(
        [
            ("key", pa.struct(list(KEYS.items()))),
            ("value", pa.struct(list(types.items()))),
            ("timestamp", pa.int64()),
        ]
    )


def results(
    rows: AggregatedRows,
    calls: RowAggregate,
    tables: list[tuple[pa.Table, bool]],
    windows: TimeWindows | SessionWindows | None = None,
) -> list[Any]:
    """Return what comes out and is stored, by key, of tables that are combined or not."""
    cut = None if windows is None else windows_in_micros(windows)
    (part,) = aggregate("out", rows, calls, cut, final=False).topology.subtopologies
    engine = MemoryBackend()
    transaction = Transaction(engine)
    stores = {name: spec.open(transaction) for name, spec in part.stores.items()}
    task = Task(part, stores)
    for table, combined in tables:
        partials = _combiner(calls, rows, cut).combine(table) if combined else None
        sent = table if partials is None else partials
        keys: Any = pa.array(rows.keys_of(sent), pa.binary())
        values = rows.values_of(table) if partials is None else partials["value"].combine_chunks()
        records = Columns(keys, values, sent["timestamp"].to_numpy())
        if partials is None:
            task.process("input", Decoder("input", None, calls.input_serde).decode(records))
        else:
            decoder = Decoder("input", None, task.partials_serde("input"))
            assert task.process_partials("input", decoder.decode(records))
    task.flush()
    for store in stores.values():
        store.flush()
    transaction.commit()
    found = sorted(record for run in task.take()["out"] for record in _records(run.to_batch()))
    return [found, list(engine.scan()), calls.results([state for _, state, _ in found]).to_pylist()]


def _records(batch: Batch) -> Iterator[tuple[Any, Any, int]]:
    return zip(batch.keys, batch.values, batch.timestamps, strict=True)


def _combiner(calls: RowAggregate, rows: AggregatedRows | None = None, windows: Any = None) -> Combiner:
    combiner = calls.combiner(rows or _rows_of(calls), windows)
    assert combiner is not None
    return combiner


def _rows_of(calls: RowAggregate) -> AggregatedRows:
    types = dict(zip(calls.arguments.names, calls.arguments.types, strict=True))
    return an_aggregated_input("input", {"k": pa.int64()}, types)


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
        (f.first("x"), pa.int64()),
        (f.last("x"), pa.int64()),
        (f.collect("x"), pa.int64()),
        (f.product("x"), pa.int64()),
        (f.approx_percentile("x", 0.5), pa.int64()),
    ],
)
def test_rows_are_not_combined_where_a_function_must_see_each(call: AggregateCall, type_: pa.DataType) -> None:
    calls = row_aggregate({"n": (f.count(), None), "x": (call, type_)})
    assert calls.combiner(_rows_of(calls), None) is None


@pytest.mark.parametrize(
    ("windows", "combined"),
    [
        (None, True),
        (TimeWindows("5 seconds"), True),
        (TimeWindows("5 seconds", advance="1 second"), False),
        (TimeWindows("1 month", zone="Europe/Berlin"), True),
        (CumulativeWindows("10 seconds", "5 seconds"), False),
        (SlidingWindows("5 seconds"), False),
        (SessionWindows("5 seconds"), True),
        (SessionWindows("5 seconds", max_length="1 hour"), False),
    ],
)
def test_rows_are_combined_where_each_is_in_one_window_or_a_session_of_one_gap(windows: Any, combined: bool) -> None:
    calls = row_aggregate({"n": (f.count(), None)})
    cut = None if windows is None else windows_in_micros(windows)
    assert (calls.combiner(_rows_of(calls), cut) is not None) is combined


@pytest.mark.parametrize("of", [f.sum, f.avg])
def test_values_whose_sum_might_leave_its_type_travel_as_they_are(of: Any) -> None:
    for type_, values in (
        (pa.int64(), ((2**60, True), (2**61, of is f.avg), (-(2**63), of is f.avg))),
        (pa.float64(), ((1e280, True), (1e300, False), (float("inf"), False), (float("nan"), False))),
    ):
        combiner = _combiner(row_aggregate({"x": (of("x"), type_)}))
        for value, combined in values:
            rows = [{"key": {"k": 1}, "value": {"x": one}, "timestamp": 1} for one in (value, value, 0, 0)]
            made = combiner.combine(pa.Table.from_pylist(rows, _table("k", pa.int64(), {"x": type_})))
            assert (made is not None) is combined


def _table(key: str, key_type: pa.DataType, types: Mapping[str, pa.DataType]) -> pa.Schema:
    value = pa.struct(list(types.items()) or [("present", pa.bool_())])
    return pa.schema([("key", pa.struct([(key, key_type)])), ("value", value), ("timestamp", pa.int64())])


def test_a_sum_that_leaves_its_type_only_with_what_was_there_is_told_with_its_key() -> None:
    calls = row_aggregate({"sum": (f.sum("x"), pa.int64())})
    rows = _rows_of(calls)
    schema = _table("k", pa.int64(), {"sum": pa.int64()})
    tables = [
        (pa.Table.from_pylist([{"key": {"k": 7}, "value": {"sum": value}, "timestamp": 1}] * 4, schema), True)
        for value in (2**60, 2**60)
    ]
    with pytest.raises(RecordError, match="for k=7"):
        results(rows, calls, tables)


def test_keys_are_the_bytes_that_travel() -> None:
    for type_, keys, distinct in ((pa.float64(), [0.0, -0.0, 1.5, 1.5], 2), (pa.list_(pa.int64()), [[1], [1]], 1)):
        calls = row_aggregate({"n": (f.count(), None)})
        rows = an_aggregated_input("input", {"k": type_}, {})
        table = pa.Table.from_pylist(
            [{"key": {"k": key}, "value": {"present": True}, "timestamp": 1} for key in keys * 4],
            _table("k", type_, {}),
        )
        partials = _combiner(calls, rows).combine(table)
        assert partials is not None
        assert partials.num_rows == distinct


def test_a_call_counts_the_rows_since_its_time_that_are_combined() -> None:
    calls = RowAggregate({"n": f.count(), "most": f.max("x")}, {"most": pa.int64()}, since={"most": 5})
    schema = _table("k", pa.int64(), {"most": pa.int64()})
    rows = [{"key": {"k": 1}, "value": {"most": 9 - at}, "timestamp": at} for at in range(3, 9)]
    partials = _combiner(calls).combine(pa.Table.from_pylist(rows, schema))
    assert partials is not None
    packed: Any = partials["value"].combine_chunks()
    states = PhysicalRowType.of(packed.storage)
    assert [column.to_pylist() for column in calls.results_of_columns(states)] == [[6], [4]]
