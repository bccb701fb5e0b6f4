"""Functions of rows that come and go have the results of the rows that are there, whatever came before."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import msgpack
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.errors import RecordError
from millpond.processors.aggregations.column_fold import Groups
from millpond.processors.verbs import aggregates as f
from millpond.processors.verbs.aggregates import AggregateCall
from millpond.processors.verbs.feeds.group_aggregate import GroupAggregate
from millpond.processors.verbs.feeds.group_fold import GroupFold
from millpond.processors.verbs.feeds.group_values import GroupValues, group_values_spec
from millpond.processors.verbs.row_aggregate import RowAggregate
from millpond.stores.backend.memory import MemoryBackend
from millpond.stores.backend.transaction import Transaction
from millpond.stores.typed.keyvalue import KeyValueStore
from tests.processors.verbs.aggregating import (
    ADDED,
    EXTENT,
    KEY,
    MAPPED,
    NUMBERS,
    PAIRED,
    TALLY,
    VALUES,
    column,
    fold,
    physical,
)

STRINGS = pa.string()
Row: TypeAlias = tuple[Any, ...]
CALLS: dict[str, tuple[AggregateCall, list[pa.DataType]]] = {
    "count": (f.count("x"), list(VALUES)),
    "sum": (f.sum("x"), ADDED),
    "avg": (f.avg("x"), ADDED),
    "var_samp": (f.var_samp("x"), NUMBERS),
    "stddev_pop": (f.stddev_pop("x"), NUMBERS),
    "skewness": (f.skewness("x"), NUMBERS),
    "kurtosis": (f.kurtosis("x"), NUMBERS),
    "covar_samp": (f.covar_samp("x", "y"), list(PAIRED)),
    "corr": (f.corr("x", "y"), list(PAIRED)),
    "weighted_avg": (f.weighted_avg("x", "y"), list(PAIRED)),
    "product": (f.product("x"), NUMBERS),
    "min": (f.min("x"), [pa.int64(), pa.float64(), STRINGS, pa.decimal128(38, 10)]),
    "max": (f.max("x"), [pa.int64(), pa.float64(), STRINGS, pa.list_(pa.int32())]),
    "bool_and": (f.bool_and("x"), [pa.bool_()]),
    "bit_xor": (f.bit_xor("x"), [pa.int32(), pa.int64()]),
    "mode": (f.mode("x"), [pa.int64(), pa.float64(), STRINGS]),
    "percentile": (f.percentile("x", 0.3), [pa.int64(), pa.decimal128(18, 4), pa.duration("us")]),
    "histogram": (f.histogram("x", [-1, 0, 10]), [pa.int64(), pa.float64()]),
    "first": (f.first("x"), list(VALUES)),
    "last": (f.last("x", ignore_nulls=True), list(VALUES)),
    "collect": (f.collect("x"), list(VALUES)),
    "distinct": (f.collect("x", distinct=True), [pa.int64(), STRINGS]),
    "map_agg": (f.map_agg("x", "y"), list(MAPPED)),
    "count_distinct": (f.count_distinct("x"), [pa.int64(), pa.float64(), STRINGS]),
    "approx_count_distinct": (f.approx_count_distinct("x"), [pa.int64(), STRINGS]),
    "theta": (f.theta_sketch_agg("x"), [pa.int64(), STRINGS]),
    "user": (TALLY("x"), [pa.int64(), STRINGS]),
    "user of many": (EXTENT("x"), [pa.int32()]),
}
CASES = [(name, type_) for name, (_, types) in CALLS.items() for type_ in types]


class Group:
    """The aggregates of groups whose rows come and go, over a backend in memory.

    Args:
        calls, types: as for ``RowAggregate``.
    """

    def __init__(self, calls: Mapping[str, AggregateCall], types: Mapping[str, pa.DataType]) -> None:
        self.calls = GroupAggregate(calls, types)
        self.names = list(calls)
        store: Any = group_values_spec("values").open(Transaction(MemoryBackend()))
        self.store: KeyValueStore[bytes, bytes] = store
        self.fold = GroupFold(self.calls, GroupValues(store))
        self.states: dict[bytes, bytes] = {}

    def change(self, *steps: tuple[int, Row], key: bytes = KEY) -> None:
        """Let rows come and go, all at once, each with its sign."""
        self.change_many([(key, sign, row) for sign, row in steps])

    def change_many(self, steps: Sequence[tuple[bytes, int, Row]]) -> None:
        """Change several groups in the same way."""
        groups = Groups(pa.array([key for key, _, _ in steps], pa.binary()))
        rows = pa.array([self.calls.input_serde.serialize(row) for _, _, row in steps], pa.binary())
        serde = self.calls.state_serde.columns
        before = serde.read(pa.array([self.states.get(key) for key in groups.keys.to_pylist()], pa.binary()))
        after = self.fold.after(groups, rows, np.array([sign for _, sign, _ in steps], np.int64), before)
        for key, state in zip(groups.keys.to_pylist(), serde.write(after).to_pylist(), strict=True):
            self.states.pop(key, None)
            if state is not None:
                self.states[key] = state

    def results(self, key: bytes = KEY) -> dict[str, Any]:
        """Return the results of a group; those of no rows where there are none."""
        state = self.states.get(key)
        states = self.calls.initializer() if state is None else self.calls.state_serde.deserialize(state)
        (row,) = self.calls.results([states]).select(self.names).to_pylist()
        return dict(row)


def shown(results: Mapping[str, Any]) -> str:
    """Return results, in which NaN equals NaN."""
    return repr(results)


def plain_results(calls: Mapping[str, AggregateCall], types: Mapping[str, pa.DataType], rows: Sequence[Row]) -> Any:
    """Return the results of rows that stay."""
    plain = RowAggregate(calls, types)
    return plain.results([fold(plain, rows)]).to_pylist()[0]


@pytest.mark.parametrize(("name", "type_"), CASES)
@given(data=st.data())
def test_what_has_gone_leaves_no_trace_in_whichever_micro_batches_it_came_and_went(
    name: str, type_: pa.DataType, data: st.DataObject
) -> None:
    calls, types = {"x": CALLS[name][0]}, {"x": type_}
    stays, goes = (physical(data.draw(column(type_, max_size=8)), type_) for _ in range(2))
    rows: list[Row] = list(enumerate([*stays, *goes]))
    keys = data.draw(st.lists(st.sampled_from([b"a", b"b\x00"]), min_size=len(rows), max_size=len(rows)))
    coming = data.draw(st.permutations(range(len(rows))))
    steps = [(keys[number], 1, rows[number]) for number in coming]
    for number in data.draw(st.permutations(range(len(stays), len(rows)))):
        place = data.draw(st.integers(steps.index((keys[number], 1, rows[number])) + 1, len(steps)))
        steps.insert(place, (keys[number], -1, rows[number]))
    cut, single = Group(calls, types), Group(calls, types)
    for step in steps:
        single.change_many([step])
    while steps:
        size = data.draw(st.integers(1, len(steps)))
        cut.change_many(steps[:size])
        steps = steps[size:]
    assert dict(cut.store.scan()) == dict(single.store.scan())
    for key in (b"a", b"b\x00"):
        expected = plain_results(calls, types, [row for row in rows[: len(stays)] if keys[row[0]] == key])
        assert shown(cut.results(key)) == shown(single.results(key)) == shown(expected)


@given(st.lists(st.sampled_from([math.nan, math.inf, -math.inf, 1e308, -1e308, 5e-324, 0.1]), max_size=12), st.data())
def test_sums_of_floats_forget_what_was_not_finite_or_too_much(values: list[float], data: st.DataObject) -> None:
    goes = data.draw(st.lists(st.sampled_from(range(len(values))), unique=True)) if values else []
    calls = {"s": f.sum("s"), "a": f.avg("a"), "v": f.var_pop("v")}
    types = dict.fromkeys(calls, pa.float64())
    given: list[Row] = [(number, value, value, value) for number, value in enumerate(values)]
    group = Group(calls, types)
    if given:
        group.change(*((1, row) for row in given), *((-1, given[number]) for number in goes))
    stays = [row for row in given if row[0] not in goes]
    finite = [row[1] for row in stays]
    if not any(map(math.isfinite, finite)) or abs(math.fsum(x / 4 for x in finite if math.isfinite(x))) < 4e307:
        assert shown(group.results()) == shown(plain_results(calls, types, stays))


def test_rows_of_a_condition_go_as_they_came() -> None:
    calls = {"n": f.count(where="b"), "s": f.sum("s", where="b"), "l": f.last("l", where="b")}
    types: dict[str, pa.DataType] = {"n": pa.bool_(), "s": pa.int64(), "l": pa.struct([("value", pa.string())])}
    group = Group(calls, types)
    group.change((1, (1, True, 5, ("a",))), (1, (2, None, None, None)), (1, (3, True, None, (None,))))
    assert group.results() == {"n": 2, "s": 5, "l": None}
    group.change((-1, (3, True, None, (None,))))
    assert group.results() == {"n": 1, "s": 5, "l": "a"}
    group.change((-1, (1, True, 5, ("a",))))
    assert group.results() == {"n": 0, "s": None, "l": None}
    group.change((-1, (2, None, None, None)))
    assert not group.states
    assert not list(group.store.scan())


def test_a_sum_that_fits_again_is_right() -> None:
    """A sum may be too great for a moment, as long as nobody asks for the result."""
    group, most = Group({"s": f.sum("s")}, {"s": pa.int64()}), 2**63 - 1
    group.change((1, (1, most)), (1, (2, 1)))
    with pytest.raises(RecordError, match="does not fit int64"):
        group.results()
    group.change((-1, (1, most)))
    assert group.results() == {"s": 1}


def test_nothing_is_taken_out_of_a_group_that_has_no_rows() -> None:
    """Its state may have been deleted by hand; its values go with it, and its rows count when they come anew."""
    group = Group({"m": f.max("x"), "d": f.count_distinct("y")}, {"m": pa.int64(), "d": pa.int64()})
    group.change((1, (1, 9, 9)), (1, (2, 5, 5)))
    del group.states[KEY]
    group.change((-1, (1, 9, 9)), (1, (3, 4, 4)), (-1, (3, 4, 4)), (-1, (2, 5, 5)), (1, (4, 1, 1)))
    assert group.results() == {"m": 1, "d": 1}
    group.change((-1, (4, 1, 1)))
    assert not group.states
    assert not list(group.store.scan())


@pytest.mark.parametrize("call", [f.max("x"), f.min("x"), f.first("x"), f.last("x"), f.count_distinct("x")])
def test_a_change_reads_and_writes_its_own_values_alone(call: AggregateCall) -> None:
    """However many values a group has, of which one goes that decides."""
    group = Group({"x": call}, {"x": pa.int64()})
    group.change(*((1, (number, number)) for number in range(3000)))
    transaction = group.store.transaction
    transaction.commit()
    read: list[bytes] = []
    scan = transaction.backend.scan

    def scanned(*args: Any, **options: Any) -> Any:
        for entry in scan(*args, **options):
            read.append(entry[0])
            yield entry

    transaction.backend.scan = scanned  # type: ignore[method-assign]
    group.change((-1, (2999, 2999)), (-1, (0, 0)), (1, (5000, 5000)))
    assert transaction.changed_keys == 3
    assert len(read) <= 3
    assert len(group.states[KEY]) < 30


@pytest.mark.parametrize("call", [f.first("x"), f.last("x"), f.collect("x")])
@given(rows=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), max_size=6), data=st.data())
def test_rows_of_one_time_go_by_what_they_are_and_not_by_how_they_came(
    call: AggregateCall, rows: list[tuple[int, int]], data: st.DataObject
) -> None:
    found = []
    for _ in range(2):
        group = Group({"x": call}, {"x": pa.int64()})
        for row in data.draw(st.permutations(rows)):
            group.change((1, row))
        found.append(group.results())
    assert found[0] == found[1]


def test_the_form_of_states_stays_what_it_is() -> None:
    calls = {
        "n": f.count(), "s": f.sum("s"), "a": f.avg("a"), "v": f.var_pop("v"), "m": f.max("m"), "l": f.last("l"),
    }  # fmt: skip
    types: dict[str, pa.DataType] = {
        "s": pa.int64(),
        "a": pa.float64(),
        "v": pa.float64(),
        "m": pa.string(),
        "l": pa.string(),
    }
    group = Group(calls, types)
    assert group.calls.state_serde.name == (
        "reversible-state-1: count(null); count(null); sum(int); avg(float); var_pop(float); max(string); "
        "last(string, ignore_nulls=False)"
    )
    group.change((1, (1, True, 2, 0.5, 0.25, "a", "x")), (1, (2, True, 3, math.inf, math.nan, "a", None)))
    assert msgpack.unpackb(group.states[KEY]) == [
        2,
        2,
        [2, 0, b"\x05", [0, 0, 0]],
        [2, 1, b"\x01", [0, 1, 0]],
        [[1, 2, b"\x01", b"\x01"], [[b"\x92\xc0\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00"], [1]]],
        "a",
        [2, None],
    ]
    counted = {key.hex(" "): value.hex(" ") for key, value in group.store.scan()}
    assert counted == {
        "74 68 65 2d 6b 65 79 00 00 00 05 21 61 00": "00 00 00 00 00 00 00 02 91 a1 61",
        "74 68 65 2d 6b 65 79 00 00 00 06 10 80 00 00 00 00 00 00 01 a1 78": "00 00 00 00 00 00 00 01 91 92 01 a1 78",
        "74 68 65 2d 6b 65 79 00 00 00 06 10 80 00 00 00 00 00 00 02 c0": "00 00 00 00 00 00 00 01 91 92 02 c0",
    }
