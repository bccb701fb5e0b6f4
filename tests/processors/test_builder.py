"""The promises of a builder: a built topology is finished, and the builder's serdes are the default everywhere."""

from collections.abc import Callable
from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from millpond.processors import (
    Consumed,
    JoinWindows,
    KStream,
    KTable,
    Materialized,
    Produced,
    SessionWindows,
    StreamsBuilder,
    TimeWindows,
    Topology,
    TopologyDriver,
)
from millpond.stores.encoding.serdes import JSON, serde

JSON_TEXT = Consumed("string", "json")


def records(topology: Topology) -> list[tuple[Any, Any]]:
    """Return what the built topology makes of two updates of its table."""
    with TopologyDriver(topology) as driver:
        driver.pipe_all("table", [("a", "one", 1), ("a", "two", 2)])
        return [(record.key, record.value) for record in driver.read("out")]


LATER: dict[str, Callable[[StreamsBuilder, KTable], None]] = {
    "a join that needs a store": lambda builder, table: builder.stream("s").join(table, max).to("later"),
    "a join that needs old values": lambda builder, table: table.join(builder.table("other"), max).to("later"),
    "a group that needs old values": lambda builder, table: (
        table.group_by(lambda key, value: (value, value)).count().to("later")
    ),
    "a filter": lambda builder, table: table.filter(lambda key, value: True).to("later"),
    "a split": lambda builder, table: (
        table.to_stream().split(name="s-").branch(lambda key, value: True, name="1").default_branch()["s-1"].to("later")
    ),
}


@pytest.mark.parametrize("later", LATER)
def test_what_comes_after_build_does_not_touch_the_built_topology(later: str) -> None:
    builder = StreamsBuilder()
    table = builder.table("table")
    table.to("out")
    built = builder.build()
    described, fingerprint = built.describe(), built.fingerprint
    LATER[later](builder, table)
    assert (built.describe(), built.fingerprint) == (described, fingerprint)
    assert records(built) == [("a", "one"), ("a", "two")]
    assert "later" in builder.build().sinks


def test_a_table_that_is_joined_after_build_works_in_the_next_topology() -> None:
    builder = StreamsBuilder(value_serde="string")
    table = builder.table("table")
    table.to("out")
    builder.build()
    builder.stream("s").join(table, "{}-{}".format).to("later")
    with TopologyDriver(builder.build()) as driver:
        driver.pipe("table", "a", "one", 1)
        driver.pipe("s", "a", "asked", 2)
        assert driver.read("later") == [("a", "asked-one", 2)]


def test_the_nodes_of_a_built_topology_are_frozen() -> None:
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    for node in builder.build().nodes.values():
        with pytest.raises(FrozenInstanceError):
            node.name = "another"  # type: ignore[misc]


def test_fluent_objects_are_not_changed_by_what_is_made_of_them() -> None:
    stream = StreamsBuilder(value_serde="string").stream("in")
    before = stream.handle
    stream.map(lambda key, value: (value, key), key_serde="int64", value_serde="json")
    stream.select_key(lambda key, value: value)
    assert stream.handle is before
    assert (stream.key_serde, stream.value_serde, stream.repartition_required) == ("string", "string", False)
    with pytest.raises(AttributeError):
        stream.value_serde = "json"  # type: ignore[misc]


def joined(builder: StreamsBuilder) -> KStream:
    return builder.stream("in", JSON_TEXT).join(
        builder.stream("other", JSON_TEXT), lambda left, right: [left, right], windows=JoinWindows.of(10)
    )


WITHOUT_A_SERDE: dict[str, Callable[[StreamsBuilder], KStream | KTable]] = {
    "stream-stream join": joined,
    "stream-table join": lambda b: b.stream("in", JSON_TEXT).join(b.table("t", JSON_TEXT), lambda x, y: [x, y]),
    "global join": lambda b: b.stream("in", JSON_TEXT).join(b.global_table("t", JSON_TEXT), lambda x, y: [x, y]),
    "table-table join": lambda b: b.table("in", JSON_TEXT).join(b.table("t", JSON_TEXT), lambda x, y: [x, y]),
    "foreign-key join": lambda b: b.table("in", JSON_TEXT).join(
        b.table("t", JSON_TEXT), lambda x, y: [x, y], foreign_key=lambda value: value
    ),
    "aggregate": lambda b: b.stream("in", JSON_TEXT).group_by_key().aggregate(list, lambda k, v, all_: [*all_, v]),
    "windowed aggregate": lambda b: (
        b.stream("in", JSON_TEXT)
        .group_by_key()
        .windowed_by(TimeWindows(10))
        .aggregate(list, lambda k, v, all_: [*all_, v])
    ),
    "session aggregate": lambda b: (
        b.stream("in", JSON_TEXT)
        .group_by_key()
        .windowed_by(SessionWindows(10))
        .aggregate(list, lambda k, v, all_: [*all_, v], lambda k, x, y: x + y)
    ),
    "table aggregate": lambda b: (
        b.table("in", JSON_TEXT)
        .group_by(lambda k, v: (k, v))
        .aggregate(list, lambda k, v, all_: [*all_, v], lambda k, v, all_: all_[:-1])
    ),
    "cogroup": lambda b: (
        b.stream("in", JSON_TEXT).group_by_key().cogroup(lambda k, v, all_: [*all_, v]).aggregate(list)
    ),
    "merge": lambda b: b.stream("in", JSON_TEXT).merge(b.stream("other", Consumed("string", "int64"))),
}


@pytest.mark.parametrize("operator", WITHOUT_A_SERDE)
def test_the_builders_serde_is_the_default_wherever_no_other_is_known(operator: str) -> None:
    made = WITHOUT_A_SERDE[operator](StreamsBuilder(key_serde="string", value_serde="msgpack"))
    assert made.value_serde is not None
    assert serde(made.value_serde).name == "msgpack"


@pytest.mark.parametrize("operator", WITHOUT_A_SERDE)
def test_the_builders_serde_writes_the_sink_and_the_stores(operator: str) -> None:
    builder = StreamsBuilder(key_serde="string", value_serde="json")
    made = WITHOUT_A_SERDE[operator](builder)
    made.to("out", Produced(key_serde=made.key_serde))
    topology = builder.build()
    assert serde(topology.sinks["out"].produced.value_serde or "bytes") is JSON
    with TopologyDriver(topology) as driver:
        driver.pipe("in", "k", "v", 1)
    if operator.endswith("aggregate") or operator == "cogroup":
        assert JSON in {spec.value_serde for spec in topology.stores.values()}


def test_a_join_can_be_grouped_and_counted_without_naming_a_serde() -> None:
    builder = StreamsBuilder(value_serde="json")
    joined(builder).select_key(lambda key, pair: pair[0]).group_by_key().count().to("out")
    with TopologyDriver(builder.build()) as driver:
        driver.pipe("in", "k", "v", 1)
        driver.pipe("other", "k", "w", 2)
        assert driver.read("out") == [("v", 1, 2)]


def test_a_serde_that_is_named_wins_over_the_builders() -> None:
    builder = StreamsBuilder(value_serde="json")
    counted = (
        builder.stream("in").group_by_key().aggregate(int, lambda k, v, n: n + 1, Materialized(value_serde="int64"))
    )
    assert serde(counted.value_serde or "bytes").name == "int64"
