"""Sinks whose topic a function chooses for each record (KIP-303)."""

from typing import Any

import pytest

from millpond.errors import TopologyError, UserFunctionError
from millpond.processors import (
    Batch,
    Materialized,
    Produced,
    RecordMetadata,
    RecordProcessor,
    Repartitioned,
    StreamsBuilder,
    TopologyBuilder,
    TopologyDriver,
)
from millpond.processors.distribution.plan import make_plan

KINDS = ["tea", "milk"]


def by_value(key: str, value: str) -> str:
    return value


def test_each_record_goes_to_the_topic_that_is_chosen_in_the_order_in_which_it_came() -> None:
    builder = StreamsBuilder(value_serde="string")
    builder.stream("in").to(by_value, topics=KINDS)
    topology = builder.build()
    assert list(topology.sinks) == KINDS
    with TopologyDriver(topology) as driver:
        driver.pipe_all("in", [("a", "tea", 1), ("b", "milk", 2), ("c", "tea", 3)])
        assert driver.read("tea") == [("a", "tea", 1), ("c", "tea", 3)]
        assert driver.read("milk") == [("b", "milk", 2)]


def test_a_table_and_a_sink_of_the_processor_api_choose_in_the_same_way() -> None:
    builder = StreamsBuilder(value_serde="string")
    builder.table("in", materialized=Materialized("kept")).to(
        lambda key, value: key, Produced(name="out"), topics=["a"]
    )
    by_hand = TopologyBuilder(value_serde="string")
    by_hand.add_source("source", "in")
    by_hand.add_sink("out", lambda key, value: key, "source", topics=["a"])
    for topology in (builder.build(), by_hand.build()):
        assert {"out", "out-a"} <= topology.nodes.keys()
        with TopologyDriver(topology) as driver:
            driver.pipe_all("in", [("a", "x", 1), ("a", None, 2)])
            assert driver.read("a") == [("a", "x", 1), ("a", None, 2)]


def test_a_topic_that_was_not_declared_is_an_error_that_names_the_record_and_following_it_works() -> None:
    def choosing(topics: list[str], on_error: str = "fail") -> TopologyDriver:
        builder = StreamsBuilder(value_serde="string")
        builder.stream("in").to(by_value, Produced(name="choice"), topics=topics)
        return TopologyDriver(builder.build(), on_error=on_error)

    rows = [("a", "tea", 1), ("b", "rum", 2), ("c", "milk", 3)]
    with choosing(KINDS) as driver:
        with pytest.raises(UserFunctionError) as caught:
            driver.pipe_all("in", rows)
        message = str(caught.value)
        assert "operator 'choice'" in message
        assert "the function chose the topic 'rum', which is not among those that it may choose" in message
        assert "key 'b', timestamp 2, value 'rum'" in message
        assert "add it: to(extractor, topics=['tea', 'milk', 'rum'])" in message
        assert driver.read("tea") == []
    with choosing([*KINDS, "rum"]) as driver:
        driver.pipe_all("in", rows)
        assert driver.read("rum") == [("b", "rum", 2)]
    with choosing(KINDS, "dead-letter") as driver:
        driver.pipe_all("in", rows)
        assert [(letter.key, letter.value) for letter in driver.dead_letters] == [("b", "rum")]
        assert [len(driver.read(topic)) for topic in KINDS] == [1, 1]


def test_what_is_no_topic_is_an_error_of_the_record_too() -> None:
    builder = StreamsBuilder(value_serde="string")
    builder.stream("in").to(lambda key, value: None, topics=["a"])  # type: ignore[arg-type, return-value]
    with (
        TopologyDriver(builder.build()) as driver,
        pytest.raises(UserFunctionError, match="the function chose None as a topic; return the topic's name as text"),
    ):
        driver.pipe("in", "a", "x", 1)


class Later(RecordProcessor):
    """Forwards records ten milliseconds later, with another header."""

    def process_record(self, key: Any, value: Any, timestamp: int) -> None:
        self.forward(key, value, timestamp + 10, headers=[*self.headers, ("by", b"later")])


def test_a_function_of_three_parameters_gets_the_record_s_own_timestamp_and_headers_and_where_it_came_from() -> None:
    seen = []

    def told(key: str, value: str, context: RecordMetadata) -> str:
        seen.append(context)
        return "out"

    builder = StreamsBuilder(value_serde="string")
    builder.stream("in").process(Later).to(told, topics=["out"])
    with TopologyDriver(builder.build()) as driver:
        driver.pipe("in", "a", "x", 7, headers=[("trace", b"1")])
        driver.pipe_all("in", [("b", "y", 8), ("c", "z", 9)])
        assert [record.key for record in driver.read("out")] == ["a", "b", "c"]
    assert seen == [
        RecordMetadata("in", 17, (("trace", b"1"), ("by", b"later"))),
        RecordMetadata("in", 18, (("by", b"later"),)),
        RecordMetadata("in", 19, (("by", b"later"),)),
    ]


def test_the_topic_is_that_of_each_record_also_where_a_task_reads_several_in_turn() -> None:
    builder = StreamsBuilder(value_serde="string")
    table = builder.table("names")
    one, two = (builder.stream(topic).left_join(table, lambda left, right: left) for topic in ("one", "two"))
    one.merge(two).to(lambda key, value, context: f"from {context.topic}", topics=["from one", "from two"])
    rows = [(str(at % 3), str(at), at) for at in range(200)]
    inputs = {"one": rows[::2], "two": rows[1::2], "names": [(key, value, at) for key, value, at in rows[::7]]}
    with TopologyDriver(builder.build()) as driver:
        driver.pipe_inputs({topic: Batch(*map(list, zip(*some, strict=True))) for topic, some in inputs.items()})
        assert driver.read("from one") == rows[::2]
        assert driver.read("from two") == rows[1::2]


def test_behind_a_repartition_the_topic_is_the_repartition_topic() -> None:
    builder = StreamsBuilder(value_serde="string")
    moved = builder.stream("in").select_key(lambda key, value: value).repartition(Repartitioned(name="moved"))
    moved.to(lambda key, value, context: context.topic, topics=["elsewhere"])
    with (
        TopologyDriver(builder.build()) as driver,
        pytest.raises(UserFunctionError, match="chose the topic 'moved-repartition', which is not among"),
    ):
        driver.pipe("in", "a", "x", 1)


def test_what_came_out_of_a_cache_has_no_topic_where_a_task_has_several() -> None:
    builder = StreamsBuilder(value_serde="string")
    counts = builder.stream("in").merge(builder.stream("more")).group_by_key().count(Materialized(caching=True))
    counts.to(lambda key, value, context: str(context.topic), topics=["None"])
    with TopologyDriver(builder.build()) as driver:
        driver.pipe("in", "a", "x", 1)
        assert [record.value for record in driver.read("None")] == [1]


def test_a_function_needs_topics_and_a_topic_has_none() -> None:
    stream = StreamsBuilder().stream("in")
    with pytest.raises(TopologyError, match=r"sink 'choice' takes its topic from a function.*topics=\['a', 'b'\]"):
        stream.to(by_value, Produced(name="choice"))
    with pytest.raises(TopologyError, match=r"sink 'out' is one topic, but topics=\['a'\]"):
        stream.to("out", topics=["a"])
    with pytest.raises(TopologyError, match="a sink is a topic or a function that chooses one, not 7"):
        stream.to(7)  # type: ignore[arg-type]
    with pytest.raises(TopologyError, match=r"sink 'a' has no value serde"):
        StreamsBuilder(value_serde=None).stream("in").to(by_value, topics=["a"])


def test_each_topic_can_be_planned_alone_or_with_others() -> None:
    builder = StreamsBuilder(value_serde="string")
    builder.stream("in").to(by_value, topics=KINDS)
    topology = builder.build()
    assert make_plan(topology, "tea", 2).sinks == ("tea",)
    assert make_plan(topology, "tea~milk", 2).sinks == ("milk", "tea")
