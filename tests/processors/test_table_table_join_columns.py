"""Joins of two tables with joiners of whole columns have the results, counts and stores that they have one by one."""

from collections.abc import Sequence
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.compute as _compute
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from millpond.errors import TopologyError, UserFunctionError
from millpond.processors import (
    Batch,
    Consumed,
    KTable,
    Materialized,
    Produced,
    StreamsBuilder,
    Task,
    Topology,
    TopologyDriver,
)
from millpond.processors.distribution import exchange
from millpond.processors.options.on_error import OnError
from millpond.processors.options.order import Order
from millpond.processors.runtime.batches.columns import Columns
from millpond.processors.runtime.failures import FailurePolicy
from millpond.stores.backend.column_changes import ColumnChanges
from millpond.stores.backend.memory import MemoryBackend
from millpond.stores.backend.transaction import Transaction
from tests.drawing import tries
from tests.processors.test_table_join_columns import MicroBatch, run

pc: Any = _compute

ROW = "struct<left:long,right:long>"
JOINS = {"inner": KTable.join, "left": KTable.left_join, "outer": KTable.outer_join}


def row_of(left: int | None, right: int | None) -> dict[str, int | None] | None:
    return None if (left or 0) + (right or 0) == 6 else {"left": left, "right": right}


def rows_of(left: Any, right: Any) -> Any:
    rows = pa.StructArray.from_arrays([left, right], ["left", "right"])
    sums = pc.add(pc.fill_null(left, 0), pc.fill_null(right, 0))
    return pc.if_else(pc.equal(sums, 6), pa.scalar(None, rows.type), rows)


def kept(name: str, history: int | None, value_serde: str) -> Materialized:
    if history is None:
        return Materialized(name, value_serde=value_serde)
    return Materialized.versioned(name, history_retention=history, value_serde=value_serde)


def joined(
    how: str,
    histories: tuple[int | None, int | None],
    result: str,
    order: Order = Order.TIME,
    *,
    vectorized: bool,
    key_serde: str = "string",
) -> Topology:
    """Return a join of the topics ``table`` and ``in``; ``result`` is what becomes of it."""
    builder = StreamsBuilder(key_serde=key_serde, order=order)
    consumed = Consumed(key_serde, "int64")
    left, right = (
        builder.table(topic, consumed, kept(topic, history, "int64"))
        for topic, history in zip(("table", "in"), histories, strict=True)
    )
    if result == "mapped":
        left = left.map_values(lambda value: value + 1)
    store = {"stored": kept("rows", None, ROW), "versioned": kept("rows", 6, ROW)}.get(result)
    rows = JOINS[how](left, right, rows_of if vectorized else row_of, store, vectorized=vectorized)
    if result == "changes":
        rows.to_stream(changes_only=True).to("out")
    elif result == "joined again":
        rows.left_join(right, lambda row, value: {**row, "right": value}, kept("again", None, ROW)).to("out")
    else:
        rows.to("out")
    return builder.build()


def micro_batches(keys: list[Any]) -> st.SearchStrategy[list[MicroBatch]]:
    record = st.tuples(st.sampled_from(keys), st.sampled_from([1, 2, 3, 5, None]), st.integers(0, 12))
    records = st.lists(record, max_size=8)
    return st.lists(st.tuples(records, records), min_size=1, max_size=3)


HISTORIES = st.sampled_from([(None, None), (1000, 1000), (1000, None), (None, 4), (4, 4)])
RESULTS = st.sampled_from(["plain", "stored", "versioned", "changes", "mapped", "joined again"])


@pytest.mark.parametrize("backend", ["memory", "lmdb", "rocksdb"])
def test_a_join_of_columns_is_the_join_of_their_updates(backend: str) -> None:
    @settings(deadline=None, max_examples=tries(60 if backend == "memory" else 10))
    @given(
        st.sampled_from(sorted(JOINS)),
        HISTORIES,
        RESULTS,
        st.sampled_from(Order),
        micro_batches(["", "a", "b\0", None]),
    )
    @example("inner", (None, None), "changes", Order.TIME, [([], [("", 1, 0)]), ([("", None, 0)], [])])
    def check(
        how: str, histories: tuple[int | None, int | None], result: str, order: Order, batches: list[MicroBatch]
    ) -> None:
        by_update = joined(how, histories, result, order, vectorized=False)
        expected = run(by_update, backend, batches, pa.string(), whole=False)
        topology = joined(how, histories, result, order, vectorized=True)
        with (
            mock.patch.object(exchange, "COLUMNS_FROM", 1),
            mock.patch("millpond.stores.typed.versions.versioned_columns._SHORTEST", 1),
        ):
            assert run(topology, backend, batches, pa.string(), whole=True) == expected

    check()


@settings(deadline=None, max_examples=tries(20))
@given(st.sampled_from(sorted(JOINS)), st.sampled_from(Order), micro_batches(["a", "b", None]))
def test_updates_that_are_objects_are_joined_as_those_of_columns(
    how: str, order: Order, batches: list[MicroBatch]
) -> None:
    """Keys of msgpack have no columns, so tables are read and written as objects; the joiner takes columns."""
    expected, found = (
        run(
            joined(how, (None, 8), "stored", order, vectorized=vectorized, key_serde="msgpack"),
            "memory",
            batches,
            pa.string(),
            whole=vectorized,
        )
        for vectorized in (False, True)
    )
    assert found == expected


def task_of(topology: Topology, policy: OnError = OnError.FAIL) -> tuple[Task, dict[str, Transaction]]:
    (part,) = topology.subtopologies
    transactions = {name: Transaction(MemoryBackend()) for name in part.stores}
    stores = {name: spec.open(transactions[name]) for name, spec in part.stores.items()}
    return Task(part, stores, policy=FailurePolicy(policy)), transactions


def columns_of(keys: list[str], values: Sequence[int]) -> Columns:
    return Columns(pa.array(keys), pa.array(values, pa.int64()), np.arange(len(keys)))


@pytest.mark.parametrize("histories", [(None, None), (1 << 40, 1 << 40)], ids=["timestamped", "versioned"])
def test_nothing_becomes_an_object_between_the_topics_and_the_stores(histories: tuple[int | None, int | None]) -> None:
    task, transactions = task_of(joined("outer", histories, "stored", vectorized=True))
    keys = [f"k{number % 200}" for number in range(300)]
    for topic in ("table", "in"):
        with mock.patch.object(Columns, "to_batch", side_effect=AssertionError("columns became objects")):
            task.process(topic, columns_of(keys, list(range(300))))
    assert {name: type(transaction.sorted_changes) for name, transaction in transactions.items()} == dict.fromkeys(
        ("table", "in", "rows"), ColumnChanges
    )
    assert sum(len(rows) for rows in task.take()["out"]) == 600
    for transaction in transactions.values():
        transaction.rollback()


def dividing(*, vectorized: bool) -> Topology:
    builder = StreamsBuilder(key_serde="string", value_serde="int64")
    left, right = builder.table("table"), builder.table("in")
    joiner = pc.divide if vectorized else lambda one, other: one // other
    left.join(right, joiner, vectorized=vectorized).to("out")
    return builder.build()


@pytest.mark.parametrize("whole", [False, True], ids=["objects", "columns"])
def test_an_update_for_which_a_joiner_of_columns_fails_is_left_out_alone(whole: bool) -> None:
    task, transactions = task_of(dividing(vectorized=True), OnError.SKIP)
    for topic, values in (("table", [12, 5, 18]), ("in", [6, 0, 9])):
        columns = columns_of(["a", "b", "c"], values)
        task.process(topic, columns if whole else columns.to_batch())
    assert [row for rows in task.take()["out"] for row in rows.to_batch().values] == [2, None, 2]
    assert list(task.counters.values()) == [1]
    for transaction in transactions.values():
        transaction.rollback()


def test_the_error_of_a_joiner_of_columns_tells_the_update() -> None:
    with TopologyDriver(dividing(vectorized=True)) as driver:
        driver.pipe_batch("table", Batch(["a", "b"], [12, 5], [1, 2]))
        with pytest.raises(UserFunctionError, match=r"JOINOTHER.*divide by zero \(key 'b', timestamp 4, value 0\)"):
            driver.pipe_batch("in", Batch(["a", "b"], [6, 0], [3, 4]))


def test_columns_of_several_topics_are_taken_in_the_order_of_time() -> None:
    inputs = {
        "table": Columns(pa.array(["a", "b", "a"]), pa.array([1, 2, 3]), np.array([1, 4, 9])),
        "in": Columns(pa.array(["b", "a"]), pa.array([5, 2]), np.array([2, 5])),
    }
    rows = [("b", 2, 5, 4), ("a", 1, 2, 5), ("a", 3, 2, 9)]
    for given_as in (inputs, {topic: columns.to_batch() for topic, columns in inputs.items()}):
        with TopologyDriver(joined("inner", (None, None), "plain", vectorized=True)) as driver:
            driver.pipe_inputs(given_as)
            found = driver.read("out")
        assert found == [(key, {"left": left, "right": right}, time) for key, left, right, time in rows]


def test_a_joined_table_without_a_store_is_looked_up_as_columns() -> None:
    builder = StreamsBuilder(key_serde="string", value_serde="int64")
    left, right, stream = builder.table("table"), builder.table("in"), builder.stream("stream")
    total = left.outer_join(right, lambda one, other: pc.add(one.fill_null(0), other.fill_null(0)), vectorized=True)
    stream.left_join(total, lambda value, found: pc.multiply(value, found), vectorized=True).to("out")
    task, transactions = task_of(builder.build())
    task.process("table", columns_of(["a", "b"], [1, 2]))
    task.process("in", columns_of(["b", "c"], [10, 20]))
    with mock.patch.object(Columns, "to_batch", side_effect=AssertionError("columns became objects")):
        task.process("stream", columns_of(["a", "b", "c", "d", "b"], [1, 1, 1, 1, 2]))
    assert [row for rows in task.take()["out"] for row in rows.to_batch().values] == [1, 12, 20, None, 24]
    for transaction in transactions.values():
        transaction.rollback()


def test_a_joined_table_without_a_store_is_looked_up_as_objects_with_one_call() -> None:
    calls: list[int] = []

    def ratio(one: Any, other: Any) -> Any:
        calls.append(len(one))
        return pc.divide(one, other)

    builder = StreamsBuilder(key_serde="string", value_serde="int64")
    table, given, third = (builder.table(topic) for topic in ("table", "in", "third"))
    ratios = table.join(given, ratio, vectorized=True)
    third.left_join(ratios, lambda value, found: (value, found)).to("out", Produced(value_serde="msgpack"))
    task, transactions = task_of(builder.build(), OnError.SKIP)
    task.process("table", Batch(["a", "b", "c", "d"], [8, 9, 7, 5], [1, 2, 3, 4]))
    task.process("in", Batch(["b", "a", "d"], [3, 2, 0], [9, 5, 1]))
    for values, lookups in (([1, 1, 1], [2]), ([2, 2, 2, 2], [3, 1, 1, 1])):
        calls.clear()
        keys = ["a", "b", "c", "d"][: len(values)]
        task.process("third", Batch(keys, values, [0] * len(values)))
        assert calls == lookups
    out = [rows.to_batch() for rows in task.take()["out"]]
    assert (out[-1].keys, out[-1].timestamps) == (["a", "b", "c", "d"], [5, 9, 0, 0])
    assert out[-1].values == [(2, 4), (2, 3), (2, None), (2, None)]
    for transaction in transactions.values():
        transaction.rollback()


def test_what_cannot_be_vectorized_says_so() -> None:
    builder = StreamsBuilder(key_serde="string", value_serde="int64")
    left, right = (builder.table(topic, materialized=kept(topic, 9, "int64")) for topic in "lr")
    with pytest.raises(TopologyError, match="has a complete history, which is made result by result"):
        left.join(right, rows_of, history="complete", vectorized=True)
