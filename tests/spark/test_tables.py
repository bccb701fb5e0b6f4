"""Tables that need more than one task: foreign-key joins and global tables, on DataFrames as in the driver."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from millpond.adapters.spark import SparkStreams
from millpond.processors import Materialized, Produced, StreamsBuilder, Topology

pytestmark = pytest.mark.spark

TEXT = Materialized.with_serdes(None, "string")
OUT = Produced(value_serde="string", schema="key string, value string")
DDL = "key string, value string, timestamp long"

CUSTOMERS = [(f"c{i}", f"Customer {i}", i) for i in range(8)]
ORDERS = [(f"o{i}", f"c{i * 7 % 10}:item {i}", i) for i in range(60)]


def _customer(order: str) -> str:
    return order.partition(":")[0]


def _joiner(order: str, customer: str | None) -> str:
    return f"{order} for {customer}"


def _joined_orders() -> Topology:
    builder = StreamsBuilder(value_serde="string")
    orders, customers = builder.table("orders"), builder.table("customers")
    orders.left_join(customers, _joiner, TEXT, foreign_key=_customer).to("out", OUT)
    return builder.build()


def _chain_of_command() -> Topology:
    builder = StreamsBuilder(value_serde="string")
    people = builder.table("people")
    people.join(people, _joiner, TEXT, foreign_key=_customer).to("out", OUT)
    return builder.build()


def _orders_with_all_names(before: bool) -> Topology:
    """Return a topology that also joins both tables by their keys, before or after; a row of a name may be missing."""
    builder = StreamsBuilder(value_serde="string")
    orders, customers = builder.table("orders"), builder.table("customers")
    names = customers.transform_values(lambda key, name: name or f"nobody of {key}")
    if before:
        orders.left_join(customers, _joiner)
    orders.join(names, _joiner, TEXT, foreign_key=_customer).to("out", OUT)
    if not before:
        orders.left_join(customers, _joiner)
    return builder.build()


def _chain_of_pairs() -> Topology:
    builder = StreamsBuilder(value_serde="string")
    people = builder.table("people")
    people.join(people.join(people, _joiner), _joiner, TEXT, foreign_key=_customer).to("out", OUT)
    return builder.build()


def _enriched_orders(moved: bool) -> Topology:
    builder = StreamsBuilder(value_serde="string")
    customers = builder.global_table("customers")
    orders = builder.stream("orders")
    if moved:
        # The table is used on both sides of the repartition.
        known = orders.left_join(customers, lambda order, customer: order, selector=lambda key, order: _customer(order))
        orders = known.repartition()
    orders.left_join(customers, _joiner, selector=lambda key, order: _customer(order)).to("out", OUT)
    return builder.build()


def _last_values(
    spark: SparkSession, topology: Topology, topics: dict[str, list[tuple[str, Any, int]]], state: Path
) -> dict[str, Any]:
    frames = {topic: spark.createDataFrame(rows, DDL).coalesce(1) for topic, rows in topics.items()}
    streams = SparkStreams(topology, application_id="tables", state_dir=str(state), partitions=3, backend="memory")
    # All rows of a key come from one task, in order.
    return {row.key: row.value for row in streams.transform(frames).collect()}


NAMES = {key: name for key, name, _ in CUSTOMERS}
EXPECTED = {key: _joiner(order, NAMES.get(_customer(order))) for key, order, _ in ORDERS}


@pytest.mark.first
def test_a_foreign_key_join_finds_its_rows_across_tasks(spark: SparkSession, tmp_path: Path) -> None:
    topics = {"orders": ORDERS, "customers": CUSTOMERS}
    assert _last_values(spark, _joined_orders(), topics, tmp_path / "state") == EXPECTED


def test_a_table_is_joined_with_itself_across_tasks(spark: SparkSession, tmp_path: Path) -> None:
    people = [
        ("boss", "nobody:boss", 0),
        *((f"p{i}", f"{'boss' if i < 3 else f'p{i % 3}'}:worker", i) for i in range(20)),
    ]
    by_key = {key: value for key, value, _ in people}
    managed = {key: value for key, value in by_key.items() if _customer(value) in by_key}
    expected = {key: _joiner(value, by_key[_customer(value)]) for key, value in managed.items()}
    assert _last_values(spark, _chain_of_command(), {"people": people}, tmp_path / "state") == expected


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_a_foreign_key_join_finds_its_rows_where_both_tables_share_their_tasks(
    spark: SparkSession, tmp_path: Path, before: bool
) -> None:
    expected = {
        key: _joiner(order, NAMES.get(name := _customer(order), f"nobody of {name}")) for key, order, _ in ORDERS
    }
    topics = {"orders": ORDERS, "customers": CUSTOMERS}
    assert _last_values(spark, _orders_with_all_names(before), topics, tmp_path / "state") == expected


def test_a_deleted_row_of_a_join_without_a_store_is_not_found_across_tasks(spark: SparkSession, tmp_path: Path) -> None:
    people = [("k0", "k7:a", 1), ("k1", "k0:b", 2), ("k2", "k1:c", 3), ("k0", None, 4), ("k9", "k0:d", 5)]
    found = {"k0": None, "k1": "k0:b for k7:a for k7:a", "k2": "k1:c for k0:b for k0:b"}
    assert _last_values(spark, _chain_of_pairs(), {"people": people}, tmp_path / "state") == found


@pytest.mark.first
@pytest.mark.parametrize("moved", [False, True], ids=["once", "on both sides of a repartition"])
def test_every_task_has_the_whole_of_a_global_table(spark: SparkSession, tmp_path: Path, moved: bool) -> None:
    late_orders = [(key, order, timestamp + 100) for key, order, timestamp in ORDERS]
    topics = {"orders": late_orders, "customers": CUSTOMERS}
    assert _last_values(spark, _enriched_orders(moved), topics, tmp_path / "state") == EXPECTED
