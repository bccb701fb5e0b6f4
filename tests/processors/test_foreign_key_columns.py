"""Foreign-key joins of whole columns have the messages, results, counts and stores that they have row by row."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.compute as _compute
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.processors import Batch, Columns, Consumed, Materialized, Produced, StreamsBuilder, Topology
from millpond.processors.options.order import Order
from millpond.processors.runtime.tasks.driver import TopologyDriver
from millpond.processors.runtime.tasks.local_tasks import Repartition
from millpond.processors.tables.foreign_key import subscribing
from millpond.processors.tables.foreign_key.message_columns import (
    combined_key_column,
    hash_column,
    left_row_column,
    read_left_row_column,
    read_response_column,
    read_subscription_column,
    response_column,
    subscription_column,
)
from millpond.processors.tables.foreign_key.messages import (
    Content,
    Instruction,
    LeftRow,
    Response,
    Subscription,
    combined_key,
)
from millpond.processors.tables.foreign_key.murmur3 import murmur3_128
from millpond.stores.encoding.column_serdes import column_serde
from millpond.stores.encoding.serdes import serde
from tests.drawing import tries

pc: Any = _compute
Record = tuple[Any, Any, int]
ORDER = "struct<customer:string,item:long>"
ORDERS = st.none() | st.fixed_dictionaries(
    {"customer": st.sampled_from(["ann", "ben", "", None]), "item": st.integers(0, 2)}
)
MESSAGE = st.tuples(st.none() | st.binary(min_size=16, max_size=16), st.binary(max_size=5))


def customer_of(order: Any) -> Any:
    return order["customer"]


def customers_of(orders: Any) -> Any:
    return pc.struct_field(orders, "customer")


def described(key: str, order: Any, customer: Any) -> str | None:
    return None if order["item"] == 2 else f"{key} {order['item']} {customer}"


def descriptions(keys: Any, orders: Any, customers: Any) -> Any:
    items = pc.struct_field(orders, "item")
    named = pc.cast(customers, "string") if pa.types.is_null(customers.type) else customers
    texts = pc.binary_join_element_wise(keys, pc.cast(items, "string"), pc.fill_null(named, "None"), " ")
    return pc.if_else(pc.equal(items, 2), None, texts)


def topology(
    how: str, serde_of_orders: str, order: Order = Order.TIME, *, vectorized: bool, versioned: bool = False
) -> Topology:
    builder = StreamsBuilder(key_serde="string", value_serde="string", order=order)
    stored, named = (
        Materialized.versioned(name, history_retention=50) if versioned else Materialized(name)
        for name in ("orders", "customers")
    )
    orders = builder.table("orders", Consumed("string", serde_of_orders), stored)
    join = orders.left_join if how == "left" else orders.join
    joined = join(
        builder.table("customers", materialized=named),
        descriptions if vectorized else described,
        Materialized("joined", value_serde="string"),
        foreign_key=customers_of if vectorized else customer_of,
        vectorized=vectorized,
    )
    joined.to("out", Produced("string", "string"))
    return builder.build()


def columns_of(records: list[Record], value_serde: str) -> Columns:
    keys, values, times = zip(*records, strict=True)
    read = column_serde(serde(value_serde))
    assert read is not None
    return Columns(pa.array(keys, pa.string()), pa.array(values, read.type), np.array(times, np.int64))


@contextmanager
def sent_messages(into: list[Any]) -> Iterator[None]:
    """Collect what passes repartition topics, record by record."""
    transfer = Repartition.transfer

    def watched(self: Repartition, records: Any) -> Any:
        moved = transfer(self, records)
        batch = moved.to_batch()
        into.extend(zip(batch.keys, batch.values, batch.timestamps, strict=True))
        return moved

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Repartition, "transfer", watched)
        yield


def run(built: Topology, batches: list[dict[str, list[Record]]], backend: str, *, columns: bool) -> list[Any]:
    """Return what comes out, is sent in between, is counted and is stored, micro-batch by micro-batch."""
    seen: list[Any] = []
    messages: list[Any] = []
    with sent_messages(messages), TopologyDriver(built, backend=backend) as driver:
        for batch in batches:
            inputs: dict[str, Batch | Columns] = {}
            for topic, records in batch.items():
                whole = columns_of(records, ORDER if topic == "orders" else "string")
                inputs[topic] = whole if columns else whole.to_batch()
            driver.pipe_inputs(inputs)
            seen += [driver.read("out"), list(messages), Counter(dict(driver.counters))]
            messages.clear()
            stores = [store for (_, _), store in sorted(driver._stores.items(), key=lambda one: one[0])]
            seen.append([list(store._transaction.backend.scan()) for store in stores])
    return seen


def inputs() -> st.SearchStrategy[list[dict[str, list[Record]]]]:
    time = st.integers(0, 40)
    orders = st.lists(st.tuples(st.sampled_from("stuv"), ORDERS, time), min_size=1, max_size=8)
    names = st.tuples(st.sampled_from(["ann", "ben", ""]), st.sampled_from(["Ann", "", None]), time)
    customers = st.lists(names, min_size=1, max_size=4)
    batch: Any = st.fixed_dictionaries({}, optional={"orders": orders, "customers": customers}).filter(bool)
    return st.lists(batch, min_size=1, max_size=5)


@settings(deadline=None, max_examples=tries(20))
@given(st.sampled_from(["inner", "left"]), st.sampled_from(Order), st.booleans(), inputs())
def test_a_join_of_columns_is_the_join_of_their_rows(
    how: str, order: Order, versioned: bool, batches: list[dict[str, list[Record]]]
) -> None:
    by_row = topology(how, ORDER, order, vectorized=False, versioned=versioned)
    expected = run(by_row, batches, "memory", columns=False)
    whole = topology(how, ORDER, order, vectorized=True, versioned=versioned)
    assert run(whole, batches, "memory", columns=True) == expected
    assert run(whole, batches, "memory", columns=False) == expected
    with mock.patch.object(subscribing, "COLUMNS_FROM", 1):
        assert run(by_row, batches, "memory", columns=True) == expected


MANY: list[dict[str, list[Record]]] = [
    {"customers": [("ann", "Ann", 1), ("ben", "Ben", 1)]},
    {"orders": [(f"o{i % 7}", {"customer": ["ann", "ben", None, "eva"][i % 4], "item": i % 3}, i) for i in range(40)]},
    {"customers": [("ann", None, 50), ("eva", "Eva", 51), ("eva", "Eve", 52)], "orders": [("o1", None, 51)]},
    {"orders": [("o1", {"customer": "ann", "item": 0}, 60), ("o1", {"customer": "eva", "item": 1}, 61)]},
]


@pytest.mark.parametrize("backend", ["memory", "lmdb", "rocksdb"])
@pytest.mark.parametrize("how", ["inner", "left"])
def test_stores_hold_the_same_on_every_backend(how: str, backend: str) -> None:
    expected = run(topology(how, ORDER, vectorized=False), MANY, backend, columns=False)
    assert run(topology(how, ORDER, vectorized=True), MANY, backend, columns=True) == expected


def test_rows_whose_serde_has_no_columns_are_joined_as_objects() -> None:
    expected = run(topology("left", "msgpack", vectorized=False), MANY, "memory", columns=False)
    with mock.patch.object(subscribing, "COLUMNS_FROM", 1):
        assert run(topology("left", "msgpack", vectorized=False), MANY, "memory", columns=False) == expected
    assert run(topology("left", "msgpack", vectorized=True), MANY, "memory", columns=True) == expected


def test_rows_stay_columns_from_the_source_to_the_sink(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Columns, "to_batch", lambda self: pytest.fail("columns became objects"))
    for how in ("inner", "left"):
        with TopologyDriver(topology(how, ORDER, vectorized=True)) as driver:
            driver.pipe_batch("customers", columns_of([("ann", "Ann", 1), ("ben", "Ben", 1)], "string"))
            driver.pipe_batch("orders", columns_of([("s", {"customer": "ann", "item": 1}, 2)], ORDER))
            driver.pipe_batch("orders", columns_of([("s", {"customer": "ben", "item": 1}, 3)], ORDER))
            driver.pipe_batch("customers", columns_of([("ben", "Benny", 4)], "string"))
            outputs: list[Any] = list(driver.read_runs("out"))
            values = [value for out in outputs for value in out.values.to_pylist()]
            assert values == ["s 1 Ann", "s 1 Ben", "s 1 Benny"]


def failing(step: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    def extract(orders: Any) -> Any:
        bad = pc.equal(pc.struct_field(orders, "item"), 1)
        if step == "extractor" and pc.any(bad).as_py():
            raise ValueError("one item")
        return customers_of(orders)

    def join(keys: Any, orders: Any, customers: Any) -> Any:
        if step == "joiner" and pc.any(pc.equal(pc.struct_field(orders, "item"), 1)).as_py():
            raise ValueError("one item")
        return descriptions(keys, orders, customers)

    return extract, join


@pytest.mark.parametrize("step", ["extractor", "joiner"])
@pytest.mark.parametrize("how", ["inner", "left"])
def test_a_row_for_which_a_function_of_columns_fails_is_left_out_alone(how: str, step: str) -> None:
    extract, joiner = failing(step)
    builder = StreamsBuilder(key_serde="string", value_serde="string")
    orders = builder.table("orders", Consumed("string", ORDER))
    join = orders.left_join if how == "left" else orders.join
    table = builder.table("customers")
    joined = join(table, joiner, Materialized(value_serde="string"), foreign_key=extract, vectorized=True)
    joined.to("out")
    rows = [(key, {"customer": "ann", "item": item}, 2) for key, item in (("s", 0), ("t", 1), ("u", 0))]
    with TopologyDriver(builder.build(), on_error="skip") as driver:
        driver.pipe_batch("customers", columns_of([("ann", "Ann", 1)], "string"))
        driver.pipe_batch("orders", columns_of(rows, ORDER))
        assert [tuple(record)[:2] for record in driver.read("out") if record.value] == [
            ("s", "s 0 Ann"),
            ("u", "u 0 Ann"),
        ]
        assert sum(n for name, n in driver.counters.items() if name.endswith("dropped-user-error")) == 1


@settings(deadline=None)
@given(st.lists(MESSAGE, max_size=8), st.data())
def test_columns_of_messages_are_the_messages_one_by_one(parts: list[tuple[bytes | None, bytes]], data: Any) -> None:
    hashes, rests = (pa.array([part[i] for part in parts], pa.binary()) for i in (0, 1))
    told = [data.draw(st.sampled_from(Instruction)) for _ in parts]
    subscriptions = [Subscription(part[0], one, part[1]) for part, one in zip(parts, told, strict=True)]
    written = subscription_column(hashes, np.array(told, np.uint8), rests)
    assert written.to_pylist() == [one.to_bytes() for one in subscriptions]
    assert read_as_lists(read_subscription_column(written)) == [tuple(one)[:3] for one in subscriptions]
    contents = [data.draw(st.sampled_from(Content)) for _ in parts]
    responses = [Response(part[0], one, part[1]) for part, one in zip(parts, contents, strict=True)]
    answers = response_column(hashes, np.array(contents, np.uint8), rests)
    assert answers.to_pylist() == [one.to_bytes() for one in responses]
    assert read_as_lists(read_response_column(answers)) == list(map(tuple, responses))
    keys = combined_key_column(rests, hashes.fill_null(b""))
    assert keys.to_pylist() == [combined_key(rest, hash_ or b"") for hash_, rest in parts]
    assert hash_column(hashes).to_pylist() == [None if hash_ is None else murmur3_128(hash_) for hash_, _ in parts]


def read_as_lists(messages: Any) -> list[Any]:
    return list(zip(messages.hashes.to_pylist(), messages.numbers.tolist(), messages.rests.to_pylist(), strict=True))


@settings(deadline=None)
@given(st.lists(st.none() | st.tuples(st.booleans(), st.binary(max_size=40)), max_size=8), st.integers(0, 3))
def test_columns_of_left_rows_are_the_rows_one_by_one(drawn: list[Any], start: int) -> None:
    rows = [None if one is None else LeftRow(one[0], murmur3_128(one[1]), one[1]) for one in drawn]
    named = np.array([row is not None and row.names_foreign for row in rows], np.bool_)
    values = pa.array([None if row is None else row.value for row in rows], pa.binary())
    written = left_row_column(named, hash_column(values), values)
    assert written.to_pylist() == [None if row is None else row.to_bytes() for row in rows]
    flags, hashes, data = read_left_row_column(written.slice(start))
    read = zip(flags.tolist(), hashes.to_pylist(), data.to_pylist(), strict=True)
    assert list(read) == [(False, None, None) if row is None else tuple(row) for row in rows[start:]]


@pytest.mark.parametrize(
    ("read", "data"),
    [
        (read_subscription_column, b"\x00"),
        (read_subscription_column, b"\x00\x04" + bytes(16)),
        (read_subscription_column, Subscription(bytes(16), Instruction(2), b"key", 5).to_bytes()),
        (read_response_column, b"\x01\x01" + bytes(15)),
        (read_response_column, b"\x82\x01"),
        (read_left_row_column, b"\x01" + bytes(15)),
        (read_left_row_column, b"\x02" + bytes(16)),
    ],
    ids=["short", "instruction", "partition", "short hash", "version", "short row", "flag"],
)
def test_what_is_not_in_the_usual_form_is_left_to_reading_one_by_one(read: Callable[[Any], Any], data: bytes) -> None:
    with pytest.raises(pa.ArrowInvalid):
        read(pa.array([data], pa.binary()))
