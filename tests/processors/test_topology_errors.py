"""Topologies that make no sense are refused while they are built, and the message says where."""

import pytest

from millpond.errors import TopologyError
from millpond.processors import (
    Consumed,
    Joined,
    JoinWindows,
    KStream,
    Materialized,
    Produced,
    Repartitioned,
    StreamJoined,
    StreamsBuilder,
    TopologyDriver,
)
from millpond.processors.dsl.wiring.copartition import check_copartitioned
from millpond.processors.dsl.wiring.graph import TopologyGraph
from millpond.processors.runtime.nodes import ProcessorNode
from millpond.processors.streams.stateless import StreamPass
from millpond.stores.encoding.serdes import BYTES
from millpond.stores.specs.store_spec import StoreKind, StoreSpec


@pytest.fixture
def builder() -> StreamsBuilder:
    return StreamsBuilder()


def test_two_nodes_of_one_name(builder: StreamsBuilder) -> None:
    stream = builder.stream("in").filter(lambda k, v: True, name="clean")
    with pytest.raises(TopologyError, match="already has a node called 'clean'"):
        stream.map_values(str, name="clean")


def test_two_stores_of_one_name(builder: StreamsBuilder) -> None:
    grouped = builder.stream("in").group_by_key()
    grouped.count(Materialized("counts"))
    with pytest.raises(TopologyError, match=r"already has a store called 'counts', used by \['KSTREAM-AGGREGATE-"):
        grouped.count(Materialized("counts"))


def test_a_store_of_a_processor_and_one_of_a_table_with_one_name(builder: StreamsBuilder) -> None:
    builder.add_state_store(StoreSpec("prices", StoreKind.KEY_VALUE, BYTES, BYTES))
    with pytest.raises(TopologyError, match="already has a store called 'prices', used by nobody yet"):
        builder.table("prices", materialized=Materialized("prices"))


def test_two_repartition_topics_of_one_name(builder: StreamsBuilder) -> None:
    stream = builder.stream("in")
    stream.repartition(Repartitioned(name="by-user"))
    with pytest.raises(TopologyError, match="topic 'by-user-repartition' is already read by"):
        stream.repartition(Repartitioned(name="by-user"))


def test_a_sink_that_is_called_like_a_repartition_topic(builder: StreamsBuilder) -> None:
    stream = builder.stream("in")
    stream.repartition(Repartitioned(name="by-user")).to("out")
    stream.to("by-user-repartition", Produced(name="sink"))
    with pytest.raises(TopologyError, match=r"'by-user-repartition' is a repartition topic .* and 'sink' write it"):
        builder.build()


def test_a_topic_that_is_read_as_a_stream_and_as_a_table(builder: StreamsBuilder) -> None:
    builder.stream("in")
    with pytest.raises(TopologyError, match="topic 'in' is already read by 'KSTREAM-SOURCE-0000000000'"):
        builder.table("in")


def test_a_topic_that_is_read_as_a_stream_in_two_ways(builder: StreamsBuilder) -> None:
    builder.stream("in")
    with pytest.raises(TopologyError, match="topic 'in' is already read by"):
        builder.stream("in", Consumed(value_serde="json"))


def joined_without_a_serde() -> KStream:
    """Return a stream whose values have no serde: nobody names one, and the builder has no default."""
    builder = StreamsBuilder(value_serde=None)
    text = Consumed(value_serde="string")
    return builder.stream("in", text).join(builder.table("names", text), lambda left, right: left)


def test_a_sink_without_a_serde() -> None:
    stream = joined_without_a_serde()
    with pytest.raises(TopologyError, match=r"sink 'out' has no value serde: give Produced\(value_serde=\.\.\.\)"):
        stream.to("out")


def test_a_repartition_without_a_serde() -> None:
    joined = joined_without_a_serde()
    with pytest.raises(TopologyError, match=r"records of 'KSTREAM-KEY-SELECT-\d+' must travel .* value serde"):
        joined.select_key(lambda key, value: value).group_by_key().count()


def test_a_source_without_a_serde_where_a_store_needs_one() -> None:
    with pytest.raises(TopologyError, match="store 'names' has no value serde"):
        StreamsBuilder(value_serde=None).table("topic", materialized=Materialized("names"))


def test_streams_whose_keys_are_written_differently_are_not_co_partitioned(builder: StreamsBuilder) -> None:
    numbers = builder.stream("numbers", Consumed(key_serde="int64"))
    with pytest.raises(TopologyError, match=r"not co-partitioned: the keys of .* written as 'int64', .* as 'string'"):
        numbers.join(builder.stream("words"), max, windows=JoinWindows.of(10))


def test_keys_of_which_it_is_not_known_how_they_are_written_may_be_joined() -> None:
    builder = StreamsBuilder(key_serde=None, value_serde="string")
    unknown, known = builder.stream("unknown"), builder.stream("known", Consumed(key_serde="int64"))
    for left, right in ((unknown, known), (known, unknown)):
        check_copartitioned(left.handle, right.handle)


def test_a_stream_and_a_table_whose_keys_are_written_differently_are_not_co_partitioned(
    builder: StreamsBuilder,
) -> None:
    numbers = builder.stream("numbers", Consumed(key_serde="int64"))
    with pytest.raises(TopologyError, match="not co-partitioned"):
        numbers.left_join(builder.table("words"), max)


def test_tables_whose_keys_are_written_differently_are_not_co_partitioned(builder: StreamsBuilder) -> None:
    numbers = builder.table("numbers", Consumed(key_serde="int64"))
    with pytest.raises(TopologyError, match="not co-partitioned"):
        numbers.outer_join(builder.table("words"), max)


def test_a_changed_key_is_co_partitioned_again_by_its_new_serde(builder: StreamsBuilder) -> None:
    numbers = builder.stream("numbers", Consumed(key_serde="int64"))
    rekeyed = numbers.select_key(lambda key, value: str(key), key_serde="string")
    joined = rekeyed.join(builder.stream("words"), lambda left, right: left, windows=JoinWindows.of(10))
    joined.to("out", Produced(value_serde="msgpack"))
    assert len(builder.build().internal_topics) == 1


def test_a_join_of_two_streams_without_windows(builder: StreamsBuilder) -> None:
    with pytest.raises(TopologyError, match=r"between streams: it needs windows=JoinWindows"):
        builder.stream("left").join(builder.stream("right"), max)


def test_a_join_of_two_streams_with_the_options_of_a_table(builder: StreamsBuilder) -> None:
    with pytest.raises(TopologyError, match="StreamJoined"):
        builder.stream("left").join(builder.stream("right"), max, Joined(), windows=JoinWindows.of(10))


def test_a_join_with_a_table_with_windows(builder: StreamsBuilder) -> None:
    with pytest.raises(TopologyError, match="it has no windows"):
        builder.stream("left").join(builder.table("right"), max, windows=JoinWindows.of(10))


def test_an_outer_join_of_a_stream_with_a_table(builder: StreamsBuilder) -> None:
    with pytest.raises(TopologyError, match="inner or left, because only a record of the stream can make a result"):
        builder.stream("left").outer_join(builder.table("right"), max, windows=JoinWindows.of(10))  # type: ignore[arg-type]


def test_a_join_of_streams_that_does_not_know_how_to_keep_a_side() -> None:
    builder = StreamsBuilder(value_serde=None)
    left, right = builder.stream("left", Consumed(value_serde="json")), builder.stream("right")
    with pytest.raises(TopologyError, match=r"StreamJoined\(other_value_serde=\.\.\.\)"):
        left.join(right, max, windows=JoinWindows.of(10))
    assert left.join(right, max, StreamJoined(other_value_serde="json"), windows=JoinWindows.of(10))


def test_join_windows_that_end_before_they_begin() -> None:
    with pytest.raises(TopologyError, match="ends before it begins"):
        JoinWindows(before=5, after=-6)
    with pytest.raises(TopologyError, match="must not be negative, but is -1"):
        JoinWindows.of(-1)
    assert JoinWindows(before=5, after=-5).size == 0


def test_a_negative_grace_of_join_windows() -> None:
    with pytest.raises(TopologyError, match="grace must not be negative"):
        JoinWindows(before=5, after=5, grace=-1)


def test_a_cycle_is_shown_node_by_node(builder: StreamsBuilder) -> None:
    stream = builder.stream("in", Consumed(name="source")).filter(lambda k, v: True, name="clean")
    stream.to("in", Produced(name="sink"))
    with pytest.raises(TopologyError, match="a cycle: topic 'in' -> source -> clean -> sink -> the topic"):
        builder.build()


def test_a_cycle_through_a_repartition_topic_is_a_cycle(builder: StreamsBuilder) -> None:
    stream = builder.stream("in", Consumed(name="source")).select_key(lambda k, v: v, name="rekeyed")
    stream.repartition(Repartitioned(name="moved")).to("in", Produced(name="sink"))
    with pytest.raises(TopologyError, match=r"source -> rekeyed -> .* -> sink -> the topic"):
        builder.build()


def test_a_topic_that_is_written_and_read_without_a_cycle(builder: StreamsBuilder) -> None:
    builder.stream("in").to("between", Produced(name="writer"))
    builder.stream("between", Consumed(name="reader")).to("out")
    with pytest.raises(TopologyError, match=r"'between' is written by 'writer' and read by 'reader'.*repartition"):
        builder.build()


def test_an_unknown_parent() -> None:
    with pytest.raises(TopologyError, match="node 'child' names the parent 'parent', which does not exist"):
        TopologyGraph().add(ProcessorNode("child", ("parent",), supplier=StreamPass))


def test_an_unknown_store(builder: StreamsBuilder) -> None:
    with pytest.raises(TopologyError, match="node 'mine' uses store 'nothing', which was never added"):
        builder.stream("in").process(StreamPass, stores=["nothing"], name="mine")


def test_a_topic_that_the_driver_does_not_know(builder: StreamsBuilder) -> None:
    builder.stream("in").to("out")
    with TopologyDriver(builder.build()) as driver:
        with pytest.raises(TopologyError, match=r"reads \['in'\], not 'out'"):
            driver.pipe("out", "a", 1, 1)
        with pytest.raises(TopologyError, match=r"writes \['out'\], not 'in'"):
            driver.read("in")
        with pytest.raises(TopologyError, match=r"use the stores \[\], not 'counts'"):
            driver.store("counts")
