"""Tables and aggregates of topologies whose entries expire by stream time."""

from typing import Any

import pytest

from millpond.errors import TopologyError
from millpond.processors import Materialized, Record, StreamsBuilder, Topology, TopologyDriver


def out(driver: TopologyDriver) -> list[tuple[Any, Any, int]]:
    return [(record.key, record.value, record.timestamp) for record in driver.read("out")]


def grouped(**kept: Any) -> Topology:
    builder = StreamsBuilder(key_serde="string", value_serde="string")
    table = builder.table("in", materialized=Materialized("kept", ttl=10, expired="delete"))
    table.group_by(lambda key, value: (value, key)).count(Materialized("counts", **kept)).to("out")
    return builder.build()


@pytest.mark.parametrize("name", ["kept", None])
def test_a_table_whose_rows_expire_has_a_store_that_forgets_them(name: str | None) -> None:
    builder = StreamsBuilder(key_serde="string", value_serde="string")
    builder.table("in", materialized=Materialized(name, ttl=10, expired="delete")).to("out")
    with TopologyDriver(builder.build()) as driver:
        driver.pipe_all("in", [("a", "x", 0), ("b", "y", 12)])
        assert sorted(out(driver), key=lambda told: told[2]) == [("a", "x", 0), ("a", None, 10), ("b", "y", 12)]


def test_a_row_that_has_expired_leaves_its_group() -> None:
    with TopologyDriver(grouped()) as driver:
        driver.pipe("in", "a", "red", timestamp=0)
        driver.pipe("in", "b", "red", timestamp=5)
        driver.pipe("in", "c", "blue", timestamp=12)
        assert out(driver) == [("red", 1, 0), ("red", 2, 5), ("blue", 1, 12), ("red", 1, 10)]
        # It comes again when it has expired: it leaves the old group at its end, and enters the new one.
        driver.pipe("in", "b", "blue", timestamp=15)
        assert out(driver) == [("red", 0, 15), ("blue", 2, 15)]
        assert driver.store("kept").get("b").value == "blue"


def test_an_aggregate_of_groups_has_no_ttl_of_its_own() -> None:
    with pytest.raises(TopologyError, match="give the ttl to the table that is grouped"):
        grouped(ttl=10)


@pytest.mark.parametrize(("kind", "caching"), [("key", False), ("key", True), ("version", False)])
def test_deletes_come_out_before_what_begins_anew(kind: str, caching: bool) -> None:
    builder = StreamsBuilder(key_serde="string", value_serde="string")
    options: dict[str, Any] = {"ttl": 10, "expired": "delete", "caching": caching}
    kept = Materialized("kept", **options)
    if kind == "version":
        kept = Materialized.versioned("kept", history_retention=3, **options)
    builder.table("in", materialized=kept).to("out")
    with TopologyDriver(builder.build()) as driver:
        driver.pipe_all("in", [("a", "x", 0), ("b", "y", 4), ("a", "z", 10), ("b", "y", 13)])
        again = [("a", "x", 0), ("b", "y", 4), ("a", None, 10), ("a", "z", 10), ("b", "y", 13)]
        assert out(driver) == ([("a", "z", 10), ("b", "y", 13)] if caching else again)
        driver.pipe_all("in", [("c", "x", 22)])
        assert sorted(out(driver)) == [("a", None, 20), ("c", "x", 22)]


def test_a_stream_does_not_meet_what_has_expired() -> None:
    builder = StreamsBuilder(key_serde="string", value_serde="string")
    table = builder.table("table", materialized=Materialized("kept", ttl=10))
    builder.stream("in").left_join(table, lambda one, other: f"{one}{other}").to("out")
    with TopologyDriver(builder.build()) as driver:
        driver.pipe("table", "a", "x", timestamp=0)
        driver.pipe("table", "b", "y", timestamp=9)
        driver.pipe("in", "a", "1", timestamp=5)
        driver.pipe("table", "b", "y", timestamp=10)
        driver.pipe("in", "a", "2", timestamp=11)
        assert driver.read("out") == [Record("a", "1x", 5), Record("a", "2None", 11)]


def test_a_record_that_is_older_than_the_ttl_is_counted() -> None:
    builder = StreamsBuilder(key_serde="string", value_serde="string")
    builder.stream("in").group_by_key().count(Materialized("counts", ttl=10)).to("out")
    with TopologyDriver(builder.build()) as driver:
        driver.pipe_all("in", [("a", "x", 0), ("b", "x", 20)])
        driver.pipe_all("in", [("a", "x", 10), ("a", "x", 11)])
        assert out(driver) == [("a", 1, 0), ("b", 1, 20), ("a", 1, 11)]
        assert [count for name, count in driver.counters.items() if name.endswith("dropped-expired")] == [1]
