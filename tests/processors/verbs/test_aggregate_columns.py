"""Aggregates of whole columns are those of single rows."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.errors import MillpondError
from millpond.processors.distribution.execution import Decoder
from millpond.processors.options.windows import SessionWindows, SlidingWindows, TimeWindows, own_gap
from millpond.processors.runtime.batches.batch import Batch
from millpond.processors.runtime.batches.columns import Columns
from millpond.processors.runtime.tasks.task import Task
from millpond.processors.verbs import aggregates as f
from millpond.processors.verbs.aggregate import AggregatedRows, Windows, aggregate
from millpond.processors.verbs.aggregates import AggregateCall
from millpond.processors.verbs.aggregates.call import shared_columns
from millpond.processors.verbs.encoding.null_keys import NullKeys
from millpond.processors.verbs.projections import SEQUENCE
from millpond.processors.verbs.row_aggregate import RowAggregate
from millpond.processors.verbs.verb import MICROS, Verb
from millpond.stores.backend.registry import supplier
from millpond.stores.backend.transaction import Transaction
from millpond.stores.encoding.rows.tuple_keys import KeyCodec
from tests.drawing import tries
from tests.processors.verbs.aggregating import ADDED, EXTENT, MAPPED, PAIRED, PAIRS, TALLY, VALUES, decimals

MAPS = pa.map_(pa.string(), pa.int32())
PICKS = [pick("x", ignore_nulls=ignored) for pick in (f.first, f.last) for ignored in (False, True)]
PICKS += [f.first("x", where="w"), f.last("x", where="w"), f.last("x", ignore_nulls=True, where="w")]
SKETCHES = [f.approx_count_distinct("x")] if find_spec("datasketches") else []
SKETCHED = [f.kll_sketch_agg("x"), f.theta_sketch_agg("x")] if find_spec("datasketches") else []
ITEMS = [f.approx_top_k("x"), f.approx_top_k_accumulate("x")] if find_spec("datasketches") else []
CALLS: dict[pa.DataType, list[AggregateCall]] = {
    type_: [f.count("x"), *PICKS, f.min("x"), f.max("x"), f.collect("x"), f.count_distinct("x"), f.mode("x"), *SKETCHES]
    for type_ in VALUES
}
for added in ADDED:
    CALLS[added] += [f.sum("x"), f.avg("x"), f.percentile("x", 0.9), TALLY("x", where="w")]
    if not pa.types.is_duration(added):
        CALLS[added] += [f.var_samp("x"), f.stddev_pop("x"), f.skewness("x"), f.kurtosis("x")]
        CALLS[added] += [f.product("x"), f.geometric_mean("x"), f.histogram("x", [-0.5, 3, 1e6])]
        CALLS[added] += [f.approx_percentile("x", 0.4)] if SKETCHES else []
    if pa.types.is_integer(added):
        CALLS[added] += [f.bit_and("x"), f.bit_or("x"), f.bit_xor("x"), EXTENT("x")]
    if pa.types.is_integer(added) or pa.types.is_floating(added):
        CALLS[added] += [*SKETCHED, *ITEMS]
CALLS[pa.string()] += [f.theta_sketch_agg("x"), *ITEMS] if SKETCHES else []
CALLS[pa.bool_()] += [f.bool_and("x"), f.bool_or("x")]
LISTS = [f.collect("x", limit=2), f.collect("x", distinct=True), f.collect("x", limit=3, distinct=True)]
for listed in VALUES:
    CALLS[listed] += LISTS
CALLS |= {type_: [f.map_agg("x", "y"), f.collect("x", limit=2)] for type_ in MAPPED}
CALLS |= {
    type_: [f.covar_samp("x", "y"), f.covar_pop("x", "y"), f.corr("x", "y"), f.weighted_avg("x", "y"), PAIRS("x", "y")]
    for type_ in PAIRED
}
CALLS[MAPS] = [f.count("x"), *PICKS, f.collect("x")]
SMALL = {
    **VALUES,
    **PAIRED,
    **MAPPED,
    pa.decimal128(18, 4): decimals(18, 4, spare=2),
    MAPS: st.lists(st.tuples(st.sampled_from("ab"), st.none() | st.integers(0, 300)), max_size=2),
}
"""Values that columns take: a few dozen of them have a sum of 64 bits even if all were as great as the greatest."""

ORDER = KeyCodec(pa.schema([("order", pa.int64())]))
KEYS = KeyCodec(pa.schema([("key", pa.int64())]))
Rows = list[tuple[int, Any, int]]


def a_verb(
    calls: Sequence[AggregateCall],
    type_: pa.DataType,
    windows: Windows | None = None,
    *,
    final: bool = False,
    ordered: bool = False,
) -> tuple[Verb, RowAggregate]:
    """Return the aggregate of rows and of one column."""
    named = {"rows": f.count(), **{f"c{number}": call for number, call in enumerate(calls)}}
    some = pa.struct([("value", type_)])
    types = {name: some if call.wraps else type_ for name, call in named.items() if name != "rows"}
    row = RowAggregate(named, types, ordered=ordered, gaps=own_gap(windows) is not None)
    return aggregate("out", an_input(ordered=ordered), row, windows, final=final), row


def an_input(columns: Sequence[str] = (), *, ordered: bool) -> AggregatedRows:
    return AggregatedRows("input", KEYS, NullKeys.EQUAL, columns, order=ORDER if ordered else None)


def as_columns(
    rows: Rows, calls: Sequence[AggregateCall], type_: pa.DataType, *, ordered: bool = False, gaps: bool = False
) -> Columns:
    """Return what travels to the task of the rows' keys; with an order, rows of one time count from last to first.

    Where there is a condition, every third row does not count. Gaps are up to 3 milliseconds.
    """
    keys, values, times = (list(column) for column in zip(*rows, strict=True))
    some = [value if place % 3 else None for place, value in enumerate(values)]
    wrapped = pa.array(
        [{"value": value} if place % 3 else None for place, value in enumerate(values)], pa.struct([("value", type_)])
    )
    columns = [wrapped if call.wraps else pa.array(values if call.where is None else some, type_) for call in calls]
    if gaps:
        lengths = [(7 * time // MICROS + place) % 6 * MICROS // 2 + 1 for place, time in enumerate(times)]
        columns.append(pa.array(lengths, pa.int64()))
    names = [str(number) for number in range(len(columns))]
    value = pa.StructArray.from_arrays(columns, names=names)
    orders = [{"order": -place} for place in range(len(rows))]
    given = pa.table(
        {"key": pa.array([{"key": key} for key in keys]), "value": value, "timestamp": pa.array(times), "order": orders}
    )
    one = an_input(names, ordered=ordered)
    return Columns(pa.array(one.keys_of(given), pa.binary()), one.values_of(given), np.array(times))


def outcome(verb: Verb, decoder: Decoder, runs: Sequence[Columns], *, whole: bool) -> Iterator[Any]:
    """Yield the form of what comes out, its rows, and what is stored, after each micro-batch; or the error."""
    (part,) = verb.topology.subtopologies
    engine = supplier("memory").open(Path("unused"))
    for run in runs:
        transaction = Transaction(engine)
        stores = {name: spec.open(transaction) for name, spec in part.stores.items()}
        task = Task(part, stores)
        try:
            task.process("input", decoder.decode(run if whole else run.to_batch()))
            task.flush()
            found = [records for records in task.take().get("out", []) if len(records)]
            made = [[column for one in verb.parts for column in one.of(records, 7)] for records in found]
        except MillpondError as error:
            transaction.rollback()
            yield str(error).partition(" (key")[0], None, None
            return
        for store in stores.values():
            store.flush()
        transaction.commit()
        rows = [row for columns in made for row in pa.Table.from_arrays(columns, schema=verb.schema).to_pylist()]
        yield {type(records) for records in found}, rows, list(engine.scan())


def both_ways(
    calls: Sequence[AggregateCall],
    type_: pa.DataType,
    batches: Sequence[Rows],
    windows: Windows | None = None,
    *,
    final: bool = False,
    ordered: bool = False,
) -> Iterator[Any]:
    """Yield the outcome row by row, beside that of columns."""
    verb, row = a_verb(calls, type_, windows, final=final, ordered=ordered)
    decoder = Decoder("input", None, row.input_serde)
    gaps = own_gap(windows) is not None
    runs = [as_columns(rows, calls, type_, ordered=ordered, gaps=gaps) for rows in batches]
    by_row, by_column = (outcome(verb, decoder, runs, whole=whole) for whole in (False, True))
    yield from zip(by_row, by_column, strict=True)


@settings(deadline=None, max_examples=tries(60))
@given(st.data())
def test_aggregates_of_columns_are_those_of_rows_to_the_byte_of_every_state(data: st.DataObject) -> None:
    type_ = data.draw(st.sampled_from(list(CALLS)))
    row = st.tuples(st.integers(0, 2), st.none() | SMALL[type_], st.integers(0, 9))
    batches = data.draw(st.lists(st.lists(row, min_size=2, max_size=30), min_size=1, max_size=3))
    ordered = data.draw(st.booleans())
    for (form, *of_rows), (other_form, *of_columns) in both_ways(CALLS[type_], type_, batches, ordered=ordered):
        assert (form, other_form) == ({Batch}, {Columns})
        assert repr(of_columns) == repr(of_rows)


@pytest.mark.parametrize(("type_", "values"), [(pa.int64(), [2, 1, 2]), (pa.string(), ["b", "a", "b"])], ids=str)
def test_values_that_come_again_count_for_each_key_on_its_own(type_: pa.DataType, values: list[Any]) -> None:
    rows = [(key, value, 3 * place + key) for place, value in enumerate(values) for key in range(3)]
    for (_, *of_rows), (_, *of_columns) in both_ways(CALLS[type_], type_, [rows, rows]):
        assert repr(of_columns) == repr(of_rows)


def test_a_histogram_of_integers_has_edges_that_no_integer_reaches() -> None:
    rows = [(0, value, 0) for value in (-(2**63), -1, 1, 2**63 - 1)]
    for (_, *of_rows), (_, *of_columns) in both_ways([f.histogram("x", [-1e30, 0, 1e30])], pa.int64(), [rows]):
        assert repr(of_columns) == repr(of_rows)
        assert of_columns[0][0]["c0"] == [(-1e30, 0), (0.0, 2), (1e30, 2), (math.inf, 0)]


WINDOWS: list[Windows] = [
    TimeWindows(3, grace=1),
    TimeWindows(4, advance=2, grace=6),
    SessionWindows(2, grace=3),
    SessionWindows(1),
    SessionWindows(object(), at_most=3, grace=3),
    SessionWindows(object(), at_most=3),
    SessionWindows(object(), at_most=3, grace=1, max_length=5),
    SlidingWindows(3, grace=1),
    SlidingWindows(2, grace=9),
    SlidingWindows(0),
]


@settings(deadline=None, max_examples=tries(150))
@given(st.data(), st.sampled_from(WINDOWS), st.booleans())
def test_aggregates_in_windows_of_columns_are_those_of_rows(data: st.DataObject, windows: Windows, final: bool) -> None:
    type_ = data.draw(st.sampled_from(list(CALLS)))
    row = st.tuples(st.integers(0, 2), st.none() | SMALL[type_], st.integers(0, 9))
    batches = data.draw(st.lists(st.lists(row, min_size=2, max_size=30), min_size=1, max_size=3))
    climbing = [
        [(key, value, (time + 5 * number) * MICROS) for key, value, time in batch]
        for number, batch in enumerate(batches)
    ]
    for (_, of_rows, _), (_, of_columns, _) in both_ways(CALLS[type_], type_, climbing, windows, final=final):
        assert sorted(map(_shown, of_columns)) == sorted(map(_shown, of_rows))


def test_rows_in_windows_never_become_objects() -> None:
    type_: pa.DataType = pa.list_(pa.int32())
    for windows in WINDOWS:
        for final in (False, True):
            rows = [(key, [time, None], time * MICROS) for time in range(20) for key in range(2)]
            batches = [rows, [(key, value, time + 50 * MICROS) for key, value, time in rows]]
            for _, (form, _, _) in both_ways(CALLS[type_], type_, batches, windows, final=final):
                assert form <= {Columns}


def _shown(row: dict[str, Any]) -> str:
    """Return a row without its place among the updates of a micro-batch."""
    return repr({name: value for name, value in row.items() if name != SEQUENCE})


BEYOND = 2**62
NEITHER: dict[str, tuple[AggregateCall, pa.DataType, list[Rows]]] = {
    "a sum that leaves its type": (f.sum("x"), pa.int64(), [[(1, BEYOND, 1), (1, 5, 2)], [(1, BEYOND, 3), (2, 1, 3)]]),
    "a sum that leaves its type for a while": (f.sum("x"), pa.int64(), [[(1, BEYOND, 1), (1, BEYOND, 2), (1, -9, 3)]]),
    "a wide sum that leaves its type": (
        f.sum("x"),
        pa.decimal128(38, 0),
        [[(1, Decimal(6 * 10**37), 1), (1, Decimal(-(10**37)), 2)], [(1, Decimal(6 * 10**37), 3), (2, Decimal(1), 3)]],
    ),
}


@pytest.mark.parametrize("case", NEITHER)
def test_what_columns_cannot_hold_is_aggregated_row_by_row(case: str) -> None:
    call, type_, batches = NEITHER[case]
    for by_row, by_column in both_ways([call], type_, batches):
        assert repr(by_column) == repr(by_row)


def test_sums_go_from_64_bits_to_more_and_back() -> None:
    batches = [[(1, BEYOND, 1)] * 3, [(1, 2, 2), (2, 1, 2)], [(1, -BEYOND, 3)] * 5, [(1, BEYOND, 4)] * 2]
    for by_row, by_column in both_ways([f.avg("x")], pa.int64(), batches):
        assert by_column[0] == {Columns}
        assert repr(by_column[1:]) == repr(by_row[1:])


def test_results_of_one_column_share_its_value_and_late_rows_show_it_for_each() -> None:
    calls = {"all": f.sum("v"), "n": f.count(), "most": f.max("v"), "other": f.max("w"), "some": f.max("v", where="w")}
    shared = shared_columns(calls)
    assert shared == {"most": "all"}
    row = RowAggregate(calls, dict.fromkeys(("all", "most", "other", "some"), pa.int64()), shared=shared)
    assert row.places == [1, 0, 1, 2, 3]
    value = {"all": 5, "most": 5, "other": 6, "some": None}
    one = pa.table({"key": [{"key": "a"}], "value": [value], "timestamp": [1]})
    rows = replace(an_input(list(value), ordered=False), shared=shared, types=row.arguments)
    (packed,) = rows.packed(one).to_pylist()
    assert row.input_serde.deserialize(packed) == (1, 5, 6, None)
    assert rows.columns_of([(1, 5, 6, None)]).to_pylist() == [value]
    state = row.aggregator(b"", (1, 5, 6, None), row.initializer())
    assert row.results([state]).to_pylist() == [{**value, "n": 1}]
