"""A table that is filtered by a predicate of columns is the one that is filtered row by row."""

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as _compute
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.processors import Consumed, Joined, Materialized, Produced, StreamsBuilder, Topology
from millpond.processors.runtime.counters import CounterName
from millpond.processors.runtime.tasks.driver import TopologyDriver
from tests.drawing import tries
from tests.processors.test_foreign_key_columns import ORDER, Record, columns_of, inputs, run

pc: Any = _compute

KINDS: Final = ("without a store", "with a store", "of a versioned table", "looked up", "not kept")


def few(key: str, order: Any) -> bool | None:
    return None if order["customer"] == "" else key != "s" and order["item"] < 2


def few_of_many(keys: Any, orders: Any) -> Any:
    wanted = pc.and_(pc.not_equal(keys, "s"), pc.less(pc.struct_field(orders, "item"), 2))
    return pc.if_else(pc.equal(pc.struct_field(orders, "customer"), "").fill_null(False), None, wanted)


def topology(kind: str, *, vectorized: bool) -> Topology:
    builder = StreamsBuilder(key_serde="string", value_serde="string")
    versioned = kind == "of a versioned table"
    kept = Materialized.versioned("orders", history_retention=50) if versioned else Materialized("orders")
    orders = builder.table("orders", Consumed("string", ORDER), kept)
    store = Materialized("filtered", value_serde=ORDER) if kind == "with a store" else None
    filtered = orders.filter_not if kind == "not kept" else orders.filter
    predicate: Any = few_of_many if vectorized else few
    found = filtered(predicate, store, vectorized=vectorized)
    customers = builder.stream("customers")
    if kind == "looked up":
        customers.left_join(found, lambda name, order: f"{name} {order}", Joined()).to("out", Produced("string"))
    else:
        customers.to("names")
        found.to("out", Produced("string", ORDER))
    return builder.build()


@settings(deadline=None, max_examples=tries(20))
@given(st.sampled_from(KINDS), inputs())
def test_any_rows_are_filtered_as_one_by_one(kind: str, batches: list[dict[str, list[Record]]]) -> None:
    expected = run(topology(kind, vectorized=False), batches, "memory", columns=False)
    whole = topology(kind, vectorized=True)
    assert run(whole, batches, "memory", columns=True) == expected
    assert run(whole, batches, "memory", columns=False) == expected


def test_rows_stay_columns_where_the_table_has_no_store(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = columns_of([("s", {"customer": "ann", "item": 1}, 1), ("t", {"customer": "ben", "item": 1}, 2)], ORDER)
    with TopologyDriver(topology("without a store", vectorized=True)) as driver:
        with monkeypatch.context() as patch:
            patch.setattr(type(rows), "to_batch", None)
            driver.pipe_inputs({"orders": rows})
        assert [record.key for record in driver.read("out")] == ["t"]


def test_a_predicate_that_fails_is_told_with_the_row() -> None:
    def fails(keys: Any, values: Any) -> Any:
        return pa.array([1 // 0 if key == "t" else True for key in keys.to_pylist()])

    builder = StreamsBuilder(key_serde="string", value_serde="string")
    orders = builder.table("orders", Consumed("string", ORDER), Materialized("orders"))
    orders.filter(fails, vectorized=True).to("out", Produced("string", ORDER))
    rows = columns_of([(key, {"customer": "ann", "item": 1}, 1) for key in "stu"], ORDER)
    with TopologyDriver(builder.build(), on_error="skip") as driver:
        driver.pipe_inputs({"orders": rows})
        assert [record.key for record in driver.read("out")] == ["s", "u"]
        assert [name.partition(":")[2] for name in driver.counters] == [CounterName.DROPPED_USER_ERROR]
