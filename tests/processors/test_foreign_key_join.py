"""Foreign-key joins (KIP-213): what comes out, and that the final result is right in any order and batches."""

import random
from pathlib import Path
from typing import Any

import pytest

from millpond.errors import TopologyError
from millpond.processors import (
    Consumed,
    KStream,
    KTable,
    Materialized,
    Produced,
    StreamsBuilder,
    Topology,
    TopologyDriver,
)
from tests.drawing import tries
from tests.processors.driving import Input, drive, last_values

TEXT = Materialized.with_serdes(None, "string")


def _customer(order: str) -> str | None:
    """Return the foreign key: the part before the colon."""
    before, colon, _ = order.partition(":")
    return before if colon else None


def _joiner(order: str | None, customer: str | None) -> str:
    return f"{order}/{customer}"


def _orders_with_customers(kind: str = "inner", **options: Any) -> Topology:
    builder = StreamsBuilder(value_serde="string")
    orders, customers = builder.table("orders"), builder.table("customers")
    join = {"inner": orders.join, "left": orders.left_join}[kind]
    join(customers, _joiner, TEXT, foreign_key=_customer, **options).to("out", Produced(value_serde="string"))
    return builder.build()


def _pipe(driver: TopologyDriver, topic: str, key: str, value: str | None, time: int) -> list[tuple[str, Any, int]]:
    driver.pipe(topic, key, value, time)
    return [tuple(record) for record in driver.read("out")]


class TestInnerJoin:
    def test_a_row_has_a_result_as_soon_as_both_sides_are_there(self) -> None:
        with TopologyDriver(_orders_with_customers()) as driver:
            assert _pipe(driver, "orders", "o1", "ada:tea", 1) == []
            assert _pipe(driver, "customers", "ada", "Ada L.", 2) == [("o1", "ada:tea/Ada L.", 2)]
            assert _pipe(driver, "orders", "o2", "ada:milk", 3) == [("o2", "ada:milk/Ada L.", 3)]

    def test_a_foreign_value_that_changes_changes_all_results(self) -> None:
        with TopologyDriver(_orders_with_customers()) as driver:
            for key in ("o1", "o2"):
                _pipe(driver, "orders", key, "ada:tea", 1)
            results = [("o1", "ada:tea/Ada", 2), ("o2", "ada:tea/Ada", 2)]
            assert _pipe(driver, "customers", "ada", "Ada", 2) == results
            assert _pipe(driver, "customers", "ada", None, 3) == [("o1", None, 3), ("o2", None, 3)]

    def test_a_row_that_names_another_foreign_row_gets_that_ones_value_or_none(self) -> None:
        with TopologyDriver(_orders_with_customers()) as driver:
            _pipe(driver, "customers", "ada", "Ada", 1)
            _pipe(driver, "customers", "eva", "Eva", 1)
            _pipe(driver, "orders", "o1", "ada:tea", 2)
            assert _pipe(driver, "orders", "o1", "eva:tea", 3) == [("o1", "eva:tea/Eva", 3)]
            assert _pipe(driver, "orders", "o1", "leo:tea", 4) == [("o1", None, 4)]
            assert _pipe(driver, "customers", "ada", "Ada again", 5) == []
            assert _pipe(driver, "customers", "leo", "Leo", 6) == [("o1", "leo:tea/Leo", 6)]

    def test_a_row_that_keeps_a_foreign_key_without_a_row_is_told_so_again(self) -> None:
        """So that it loses its result even if its change overtakes the answer to the foreign row's deletion."""
        with TopologyDriver(_orders_with_customers()) as driver:
            _pipe(driver, "customers", "ada", "Ada", 1)
            _pipe(driver, "orders", "o1", "ada:tea", 2)
            assert _pipe(driver, "customers", "ada", None, 3) == [("o1", None, 3)]
            assert _pipe(driver, "orders", "o1", "ada:milk", 4) == [("o1", None, 4)]

    def test_a_row_that_loses_its_foreign_key_loses_its_result_and_may_get_it_back(self) -> None:
        with TopologyDriver(_orders_with_customers()) as driver:
            _pipe(driver, "customers", "ada", "Ada", 1)
            _pipe(driver, "orders", "o1", "ada:tea", 2)
            assert _pipe(driver, "orders", "o1", "tea", 3) == [("o1", None, 3)]
            assert _pipe(driver, "customers", "ada", "Ada again", 4) == []
            assert _pipe(driver, "orders", "o1", "ada:tea", 5) == [("o1", "ada:tea/Ada again", 5)]

    def test_a_result_never_has_an_earlier_time_than_the_rows_it_is_made_of(self) -> None:
        with TopologyDriver(_orders_with_customers()) as driver:
            _pipe(driver, "orders", "o1", "ada:tea", 100)
            assert _pipe(driver, "customers", "ada", "Ada", 5) == [("o1", "ada:tea/Ada", 100)]

    def test_an_empty_foreign_value_is_a_value(self) -> None:
        with TopologyDriver(_orders_with_customers()) as driver:
            _pipe(driver, "customers", "ada", "", 1)
            assert _pipe(driver, "orders", "o1", "ada:tea", 2) == [("o1", "ada:tea/", 2)]


class TestLeftJoin:
    def test_every_row_has_a_result(self) -> None:
        with TopologyDriver(_orders_with_customers("left")) as driver:
            assert _pipe(driver, "orders", "o1", "ada:tea", 1) == [("o1", "ada:tea/None", 1)]
            assert _pipe(driver, "orders", "o2", "tea", 2) == [("o2", "tea/None", 2)]
            assert _pipe(driver, "customers", "ada", "Ada", 3) == [("o1", "ada:tea/Ada", 3)]
            assert _pipe(driver, "customers", "ada", None, 4) == [("o1", "ada:tea/None", 4)]

    def test_a_changed_foreign_key_makes_one_result_and_a_deleted_row_one_tombstone(self) -> None:
        with TopologyDriver(_orders_with_customers("left")) as driver:
            _pipe(driver, "customers", "eva", "Eva", 1)
            _pipe(driver, "orders", "o1", "ada:tea", 2)
            assert _pipe(driver, "orders", "o1", "eva:tea", 3) == [("o1", "eva:tea/Eva", 3)]
            assert _pipe(driver, "orders", "o1", "tea", 4) == [("o1", "tea/None", 4)]
            assert _pipe(driver, "orders", "o1", None, 5) == [("o1", None, 5)]
            _pipe(driver, "orders", "o2", "eva:tea", 6)
            assert _pipe(driver, "orders", "o2", None, 7) == [("o2", None, 7)]


def _random_records(seed: int) -> list[Input]:
    rng = random.Random(seed)
    records = []
    for time in range(rng.randrange(1, 60)):
        jitter = time - rng.choice((0, 0, 0, 5))
        if rng.random() < 0.6:
            order = rng.choice((None, "tea", *(f"{customer}:{rng.choice('xy')}" for customer in "abc")))
            records.append(Input("orders", f"o{rng.randrange(4)}", order, jitter))
        else:
            records.append(Input("customers", rng.choice("abc"), rng.choice((None, f"c{time}")), jitter))
    return records


def _last(records: list[Input], topic: str) -> dict[str, str]:
    rows = {record.key: record.value for record in records if record.topic == topic}
    return {key: value for key, value in rows.items() if value is not None}


def _expected(records: list[Input], kind: str) -> dict[str, str]:
    """Return the join of what both tables hold at the end."""
    orders, customers = _last(records, "orders"), _last(records, "customers")
    found = {key: (order, customers.get(_customer(order) or "")) for key, order in orders.items()}
    return {key: _joiner(*sides) for key, sides in found.items() if kind == "left" or sides[1] is not None}


def _build(kind: str, stored: Materialized = TEXT) -> Any:
    def build(builder: StreamsBuilder) -> KTable | KStream:
        texts = Materialized.with_serdes("string", "string")
        orders, customers = builder.table("orders", materialized=texts), builder.table("customers", materialized=texts)
        join = {"inner": orders.join, "left": orders.left_join}[kind]
        joined: KTable = join(customers, _joiner, stored, foreign_key=_customer)
        return joined

    return build


@pytest.mark.parametrize("kind", ["inner", "left"])
def test_whatever_the_batches_the_end_is_the_join_of_both_tables(kind: str) -> None:
    for seed in range(tries(60)):
        records = _random_records(seed)
        output = drive(_build(kind), records, size=1 + seed % 9)
        assert last_values(output) == _expected(records, kind), seed


def _failing(kind: str) -> Topology:
    """Return a topology in which rows with ``!`` have no foreign key, and those with ``?`` no result."""

    def extract(order: str) -> str | None:
        return order[:1] if "!" not in order else str(1 // 0)

    def joiner(order: str, customer: str | None) -> str:
        return f"{order}/{customer}" if "?" not in order else str(1 // 0)

    builder = StreamsBuilder(value_serde="string")
    orders = builder.stream("orders").map_values(lambda text: text.replace("~", "\ud800")).to_table()
    join = {"inner": orders.join, "left": orders.left_join}[kind]
    join(builder.table("customers"), joiner, TEXT, foreign_key=extract).to("out", Produced(value_serde="string"))
    return builder.build()


@pytest.mark.parametrize("kind", ["inner", "left"])
def test_rows_that_fail_in_a_batch_are_left_out_as_they_are_alone(kind: str) -> None:
    for seed in range(12):
        rng = random.Random(seed)
        orders = [(rng.choice("rst"), rng.choice("abc") + rng.choice(["", "", "!", "?", "~"]), i) for i in range(25)]
        ends = []
        for size in (1, 9):
            with TopologyDriver(_failing(kind), on_error="skip") as driver:
                for start in range(0, len(orders), size):
                    driver.pipe_all("orders", orders[start : start + size])
                    driver.pipe("customers", "abc"[start % 2], f"name {start // 9}", start)
                driver.pipe_all("customers", [(key, "last", 30) for key in "ab"])
                ends.append(last_values(driver.read("out")))
        assert ends[0] == ends[1], seed


@pytest.mark.parametrize("kind", ["inner", "left"])
def test_a_restart_in_between_changes_nothing(kind: str, tmp_path: Path) -> None:
    records = [record for seed in range(5) for record in _random_records(seed)]
    output = drive(_build(kind), records, size=4, backend="lmdb", local_dir=tmp_path, restart_every=20)
    assert output == drive(_build(kind), records, size=4)


def test_a_table_may_be_joined_with_itself() -> None:
    builder = StreamsBuilder(value_serde="string")
    people = builder.table("people", materialized=Materialized("people"))
    joined = people.left_join(people, _joiner, TEXT, foreign_key=_customer, name="managers")
    joined.to("out", Produced(value_serde="string"))
    with TopologyDriver(builder.build()) as driver:
        _pipe(driver, "people", "ada", "boss", 1)
        assert _pipe(driver, "people", "eva", "ada:worker", 2) == [("eva", "ada:worker/boss", 2)]
        results = [("ada", "eva:consultant/ada:worker", 3), ("eva", "ada:worker/eva:consultant", 3)]
        assert sorted(_pipe(driver, "people", "ada", "eva:consultant", 3)) == results


def test_the_result_is_a_table_like_any_other() -> None:
    builder = StreamsBuilder(value_serde="string")
    joined = builder.table("orders").join(
        builder.table("customers"), _joiner, Materialized("joined", value_serde="string"), foreign_key=_customer
    )
    shipped = joined.left_join(builder.table("shipments"), lambda row, shipment: f"{row}/{shipment}")
    shipped.to("out", Produced(value_serde="string"))
    with TopologyDriver(builder.build()) as driver:
        _pipe(driver, "orders", "o1", "ada:tea", 1)
        assert _pipe(driver, "customers", "ada", "Ada", 2) == [("o1", "ada:tea/Ada/None", 2)]
        assert _pipe(driver, "shipments", "o1", "sent", 3) == [("o1", "ada:tea/Ada/sent", 3)]
        assert driver.store("joined").get_value("o1") == "ada:tea/Ada"


def test_the_foreign_key_may_be_taken_from_key_and_value() -> None:
    builder = StreamsBuilder(value_serde="string")
    places = builder.table("visits").join(
        builder.table("places"), _joiner, TEXT, foreign_key=lambda key, value: key.partition("@")[2]
    )
    places.to("out", Produced(value_serde="string"))
    with TopologyDriver(builder.build()) as driver:
        _pipe(driver, "places", "mill", "The Mill", 1)
        assert _pipe(driver, "visits", "ada@mill", "noon", 2) == [("ada@mill", "noon/The Mill", 2)]


def test_only_the_last_result_of_a_batch_comes_out_where_answers_are_stale() -> None:
    with TopologyDriver(_orders_with_customers()) as driver:
        driver.pipe_all("customers", [("ada", "Ada", 1), ("eva", "Eva", 1)])
        driver.pipe_all("orders", [("o1", "ada:tea", 2), ("o1", "eva:tea", 3), ("o1", "ada:milk", 4)])
        assert driver.read("out") == [("o1", "ada:milk/Ada", 4)]
        assert sum(n for what, n in driver.counters.items() if what.endswith("dropped-stale-response")) == 2


@pytest.mark.parametrize("last", [None, "milk", "eva:milk"], ids=["deleted", "without again", "with another again"])
def test_a_row_that_loses_its_foreign_key_and_changes_at_once_loses_its_result(last: str | None) -> None:
    with TopologyDriver(_orders_with_customers()) as driver:
        driver.pipe("customers", "ada", "Ada", 1)
        driver.pipe("orders", "o1", "ada:tea", 2)
        driver.pipe_all("orders", [("o1", "tea", 3), ("o1", last, 4)])
        found = [record.value for record in driver.read("out")]
        assert found == ["ada:tea/Ada", None]


def test_a_join_whose_rows_cannot_travel_is_refused() -> None:
    builder, text = StreamsBuilder(value_serde=None), Consumed(value_serde="string")
    unknown = builder.table("a", text).join(builder.table("b", text), _joiner)
    with pytest.raises(TopologyError, match="value serde"):
        unknown.join(builder.table("c", text), _joiner, TEXT, foreign_key=_customer)


def _joined_back(builder: StreamsBuilder, orders: KTable, other_orders: KTable) -> Topology:
    customers = builder.table("customers", materialized=Materialized("customers").with_caching())
    joined = orders.join(customers, _joiner, TEXT, foreign_key=_customer)
    joined.join(other_orders, lambda row, order: f"{row}/{order}").to("out", Produced(value_serde="string"))
    return builder.build()


@pytest.mark.parametrize("apart", [False, True], ids=["in its own tasks", "in tasks of its own"])
def test_a_result_may_be_joined_with_its_left_table_again(apart: bool) -> None:
    builder = StreamsBuilder(value_serde="string")
    orders = builder.table("orders")
    topology = _joined_back(builder, orders, orders.to_stream().repartition().to_table() if apart else orders)
    # Spark cannot run a topology whose records come back to the tasks that they left.
    assert bool(topology.loops) is not apart
    with TopologyDriver(topology) as driver:
        _pipe(driver, "orders", "o1", "ada:tea", 1)
        assert _pipe(driver, "customers", "ada", "Ada", 2) == [("o1", "ada:tea/Ada/ada:tea", 2)]
        assert _pipe(driver, "customers", "ada", "Eva", 3) == [("o1", "ada:tea/Eva/ada:tea", 3)]
