"""The Processor API: a topology node by node, with the checks of the DSL."""

from collections.abc import Callable
from typing import Any

import pytest

from millpond.errors import TopologyError
from millpond.processors import (
    Batch,
    Consumed,
    Materialized,
    Produced,
    PunctuationType,
    RecordProcessor,
    StreamsBuilder,
    TopologyBuilder,
    TopologyDriver,
)
from millpond.processors.distribution.plan import make_plan
from millpond.stores.encoding.serdes import INT64, STRING
from millpond.stores.specs.store_spec import StoreKind, StoreSpec

TOTALS = StoreSpec("totals", StoreKind.KEY_VALUE, STRING, INT64)
NAMES = StoreSpec("names", StoreKind.KEY_VALUE, STRING, STRING)


class Total(RecordProcessor):
    """Forwards the sum of each key's values so far."""

    def open(self) -> None:
        self.totals = self.context.store("totals")

    def process_record(self, key: Any, value: Any, timestamp: int) -> None:
        total = (self.totals.get(key) or 0) + value
        self.totals.put(key, total)
        self.forward(key, total, timestamp)


class ByParity(RecordProcessor):
    """Sends each value to the child that is called after it."""

    def process_record(self, key: Any, value: Any, timestamp: int) -> None:
        self.forward(key, value, timestamp, to="even" if value % 2 == 0 else "odd")


class Rekey(RecordProcessor):
    """Makes the value's last digit the key, and of 0 none."""

    def process_record(self, key: Any, value: Any, timestamp: int) -> None:
        self.forward(str(value % 10) if value % 10 else None, value, timestamp)


class Fill(RecordProcessor):
    """Fills the store of names."""

    def process_record(self, key: Any, value: Any, timestamp: int) -> None:
        self.context.store("names").put(key, value.title())


class LookUp(RecordProcessor):
    """Forwards the name of each value."""

    def open(self) -> None:
        self.names = self.context.store("names")

    def process_record(self, key: Any, value: Any, timestamp: int) -> None:
        self.forward(key, self.names.get(value), timestamp)


def totals(*, connected: Callable[[TopologyBuilder], object] | None = None) -> TopologyBuilder:
    """Sum two topics, written twice; by default the store is connected where the processor is added."""
    builder = TopologyBuilder(value_serde="int64")
    builder.add_source("source", "in", "more")
    builder.add_processor("total", Total, "source", stores=() if connected else [TOTALS])
    if connected:
        connected(builder)
    builder.add_sink("sink", "out", "total", "source")
    return builder


def connect_when_added(builder: TopologyBuilder) -> None:
    builder.add_state_store(TOTALS, "total")


def connect_afterwards(builder: TopologyBuilder) -> None:
    builder.add_state_store(TOTALS)
    builder.connect("total", "totals")


@pytest.mark.parametrize("connected", [None, connect_when_added, connect_afterwards])
def test_sources_processors_stores_and_sinks_make_a_topology(connected: Callable[[TopologyBuilder], object]) -> None:
    with TopologyDriver(totals(connected=connected).build()) as driver:
        driver.pipe("in", "a", 1, 1)
        driver.pipe("more", "a", 2, 2)
        assert sorted(driver.read("out")) == [("a", 1, 1), ("a", 1, 1), ("a", 2, 2), ("a", 3, 2)]
        assert driver.store("totals").get("a") == 3


def test_it_is_the_same_topology_as_the_dsl_s() -> None:
    builder = StreamsBuilder(value_serde="int64")
    source = builder.stream("in", Consumed(name="source"))
    source.process(Total, stores=[TOTALS], name="total").to("out", Produced(name="sink"))
    by_hand = TopologyBuilder(value_serde="int64")
    by_hand.add_source("source", "in")
    by_hand.add_processor("total", Total, "source", stores=[TOTALS])
    by_hand.add_sink("sink", "out", "total")
    assert by_hand.build().nodes == builder.build().nodes
    assert by_hand.build().describe() == builder.build().describe()


def test_a_processor_may_send_a_record_to_a_child_by_its_name() -> None:
    builder = TopologyBuilder(value_serde="int64")
    builder.add_source("source", "in")
    builder.add_processor("parity", ByParity, "source")
    builder.add_sink("even", "evens", "parity")
    builder.add_sink("odd", "odds", "parity")
    with TopologyDriver(builder.build()) as driver:
        driver.pipe_all("in", [("a", 1, 1), ("a", 2, 2), ("a", 4, 3)])
        assert [driver.read(topic) for topic in ("evens", "odds")] == [[("a", 2, 2), ("a", 4, 3)], [("a", 1, 1)]]


def test_a_repartition_brings_equal_keys_together_and_drops_records_without_a_key() -> None:
    builder = TopologyBuilder(value_serde="int64")
    builder.add_source("source", "in")
    builder.add_processor("rekey", Rekey, "source")
    builder.add_repartition("digits", "rekey", "source", value_serde="int64")
    builder.add_processor("total", Total, "digits", stores=[TOTALS])
    builder.add_sink("sink", "out", "total")
    topology = builder.build()
    assert topology.internal_topics == {"digits-repartition"}
    assert [part.sources.keys() for part in topology.subtopologies] == [{"in"}, {"digits-repartition"}]
    assert len(make_plan(topology, "out", 2).stages) == 1
    with TopologyDriver(topology) as driver:
        driver.pipe_all("in", [("a", 10, 1), ("a", 11, 2)])
        assert sorted(driver.read("out")) == [("1", 11, 2), ("a", 10, 1), ("a", 21, 2)]
        assert driver.counters == {"digits-filter:dropped-null-key": 1}


def test_serdes_are_the_builder_s_unless_a_source_or_a_sink_names_others() -> None:
    builder = TopologyBuilder(key_serde="int64", value_serde=None)
    builder.add_source("source", "in", consumed=Consumed(value_serde="json"))
    builder.add_sink("sink", "out", "source", produced=Produced("string", "json"))
    topology = builder.build()
    consumed, produced = topology.sources["in"].consumed, topology.sinks["out"].produced
    assert [consumed.key_serde, consumed.value_serde, produced.key_serde] == ["int64", "json", "string"]
    with pytest.raises(TopologyError, match=r"sink 'again' has no value serde: give Produced\(value_serde=\.\.\.\)"):
        builder.add_sink("other", "again", "source")
    with pytest.raises(TopologyError, match=r"repartition 'moved' does not know .* give value_serde=\.\.\. there"):
        builder.add_repartition("moved", "source")
    builder.add_repartition("moved", "source", value_serde="json")


class TestWhatMakesNoSenseIsRefused:
    @pytest.fixture
    def builder(self) -> TopologyBuilder:
        builder = TopologyBuilder(value_serde="int64")
        builder.add_source("source", "in")
        builder.add_processor("total", Total, "source", stores=[TOTALS])
        builder.add_sink("sink", "out", "total")
        return builder

    def test_an_unknown_parent(self, builder: TopologyBuilder) -> None:
        with pytest.raises(TopologyError, match="node 'more' names the parent 'nobody', which does not exist"):
            builder.add_processor("more", Total, "nobody")
        with pytest.raises(TopologyError, match="node 'more' names the parent 'nobody', which does not exist"):
            builder.add_sink("more", "again", "source", "nobody")

    def test_no_parent_and_no_topic(self, builder: TopologyBuilder) -> None:
        with pytest.raises(TopologyError, match="node 'more' has no parent, so no record reaches it"):
            builder.add_processor("more", Total)
        with pytest.raises(TopologyError, match="source 'more' reads no topic"):
            builder.add_source("more")

    def test_a_parent_twice(self, builder: TopologyBuilder) -> None:
        with pytest.raises(TopologyError, match="node 'more' names the parent 'source' twice"):
            builder.add_processor("more", Total, "source", "source")
        with pytest.raises(TopologyError, match="node 'again' names the parent 'total' twice"):
            builder.add_sink("again", "again", "total", "source", "total")

    def test_a_sink_as_a_parent(self, builder: TopologyBuilder) -> None:
        with pytest.raises(TopologyError, match=r"'more' names the parent 'sink', which is a sink.*\('total'\)"):
            builder.add_processor("more", Total, "sink")
        builder.add_processor("more", Total, "total", stores=["totals"])

    def test_a_name_twice(self, builder: TopologyBuilder) -> None:
        with pytest.raises(TopologyError, match="already has a node called 'total'"):
            builder.add_processor("total", Total, "source")
        with pytest.raises(TopologyError, match="already has a node called 'source'"):
            builder.add_source("source", "other")
        with pytest.raises(TopologyError, match=r"already has a store called 'totals', used by \['total'\]"):
            builder.add_state_store(TOTALS)

    def test_a_topic_that_is_read_twice(self, builder: TopologyBuilder) -> None:
        with pytest.raises(TopologyError, match="topic 'in' is already read by 'source'"):
            builder.add_source("again", "in")

    def test_a_cycle_through_a_topic(self, builder: TopologyBuilder) -> None:
        builder.add_sink("back", "in", "total")
        with pytest.raises(TopologyError, match="a cycle: topic 'in' -> source -> total -> back -> the topic"):
            builder.build()

    def test_a_topic_between_a_sink_and_a_source_and_what_the_message_says_to_write(
        self, builder: TopologyBuilder
    ) -> None:
        builder.add_source("later", "out")
        with pytest.raises(TopologyError, match=r"'out' is written by 'sink' and read by 'later'.*add_repartition\(\)"):
            builder.build()
        again = totals()
        again.add_repartition("later", "total")
        assert again.build().internal_topics == {"later-repartition"}

    def test_a_store_that_is_not_connected(self) -> None:
        builder = totals(connected=lambda builder: builder.add_state_store(TOTALS))
        with pytest.raises(TopologyError, match=r"'total' asked for store 'totals', which is not connected to it"):
            TopologyDriver(builder.build())

    def test_a_store_that_nobody_uses_is_not_in_the_driver(self, builder: TopologyBuilder) -> None:
        builder.add_state_store(NAMES)
        with (
            TopologyDriver(builder.build()) as driver,
            pytest.raises(TopologyError, match=r"the processors .* use the stores \['totals'\], not 'names'"),
        ):
            driver.store("names")

    def test_a_store_for_what_is_no_processor(self, builder: TopologyBuilder) -> None:
        builder.add_state_store(NAMES)
        for name, reason in (("source", "no processor"), ("sink", "no processor"), ("nobody", "not in the topology")):
            with pytest.raises(TopologyError, match=f"'names' cannot be connected to '{name}', which is {reason}"):
                builder.connect(name, "names")
        with pytest.raises(TopologyError, match="node 'total' uses store 'nothing', which was never added"):
            builder.connect("total", "nothing")


def looked_up(builder: StreamsBuilder | TopologyBuilder) -> None:
    """Add a global store of names, and what looks them up."""
    builder.add_global_store(NAMES, "names in", Fill, Consumed(value_serde="string"), name="fill")
    if isinstance(builder, StreamsBuilder):
        builder.stream("in").process(LookUp, stores=["names"]).to("out")
    else:
        builder.add_source("source", "in")
        builder.add_processor("look up", LookUp, "source", stores=["names"])
        builder.add_sink("sink", "out", "look up")


class TestGlobalStores:
    @pytest.mark.parametrize("builder", [StreamsBuilder, TopologyBuilder])
    def test_a_processor_fills_it_from_a_topic_and_others_read_it(
        self, builder: Callable[..., StreamsBuilder | TopologyBuilder]
    ) -> None:
        made = builder(value_serde="string")
        looked_up(made)
        topology = made.build()
        assert "reads topic names in, all of it in every task" in topology.describe()
        with TopologyDriver(topology) as driver:
            driver.pipe("names in", "BTH", "bath", 1)
            driver.pipe_inputs({"in": Batch(["a", "b"], ["BTH", "YRK"], [2, 3])})
            assert driver.read("out") == [("a", "Bath", 2), ("b", None, 3)]
            assert driver.store("names").get("BTH") == "Bath"

    def test_processors_on_both_sides_of_a_repartition_read_it(self) -> None:
        builder = StreamsBuilder(value_serde="string")
        names = builder.add_global_store(NAMES, "names in", Fill)
        before = builder.stream("in").process(LookUp, stores=[names], name="first")
        before.map_values(lambda value: "YRK").repartition().process(LookUp, stores=[names], name="second").to("out")
        topology = builder.build()
        assert len(topology.subtopologies) == 2
        with TopologyDriver(topology) as driver:
            driver.pipe("names in", "YRK", "york", 1)
            driver.pipe("in", "a", "BTH", 2)
            assert driver.read("out") == [("a", "York", 2)]

    @pytest.mark.parametrize("kind", [StoreKind.KEY_VALUE, StoreKind.TIMESTAMPED_KEY_VALUE])
    def test_who_does_not_fill_it_cannot_write_to_it(self, kind: StoreKind) -> None:
        class Meddle(RecordProcessor):
            def process_record(self, key: Any, value: Any, timestamp: int) -> None:
                self.context.store("names").delete(key)

        for on_error in ("fail", "skip"):
            builder = StreamsBuilder(value_serde="string")
            builder.add_global_store(StoreSpec("names", kind, STRING, STRING), "names in", Fill)
            builder.stream("in").process(Meddle, stores=["names"]).to("out")
            with (
                TopologyDriver(builder.build(), on_error=on_error) as driver,
                pytest.raises(TopologyError, match=r"'names' is global: .* only the processor that fills it may call"),
            ):
                driver.pipe("in", "a", "BTH", 2)

    def test_the_store_of_a_global_table_can_be_read_and_not_written_by_a_processor(self) -> None:
        class Meddle(RecordProcessor):
            def process_record(self, key: Any, value: Any, timestamp: int) -> None:
                names = self.context.store("names")
                assert names.get_value(value) == "Bath"
                names.put(key, value, timestamp)

        builder = StreamsBuilder(value_serde="string")
        builder.global_table("names in", materialized=Materialized("names"))
        builder.stream("in").process(Meddle, stores=["names"]).to("out")
        with TopologyDriver(builder.build()) as driver:
            driver.pipe("names in", "BTH", "Bath", 1)
            with pytest.raises(TopologyError, match=r"is global: .* may call put"):
                driver.pipe("in", "a", "BTH", 2)

    def test_who_reads_it_may_schedule_all_the_same(self) -> None:
        class Telling(RecordProcessor):
            def open(self) -> None:
                self.schedule(10, PunctuationType.WALL_CLOCK_TIME, self.tell)

            def tell(self, now: int) -> None:
                self.forward("BTH", self.context.store("names").get("BTH"), now)

            def process_record(self, key: Any, value: Any, timestamp: int) -> None:
                raise AssertionError

        builder = StreamsBuilder(value_serde="string")
        builder.add_global_store(NAMES, "names in", Fill)
        builder.stream("in").process(Telling, stores=["names"]).to("out")
        with TopologyDriver(builder.build()) as driver:
            driver.pipe("names in", "BTH", "bath", 1)
            driver.advance_wall_clock(10)
            assert driver.read("out") == [("BTH", "Bath", 10)]

    def test_what_fills_it_has_no_children_and_no_other_store(self) -> None:
        builder = TopologyBuilder(value_serde="string")
        builder.add_global_store(NAMES, "names in", Fill, name="fill")
        for parent in ("fill", "KSTREAM-SOURCE-0000000000"):
            with pytest.raises(
                TopologyError, match=f"'more' names the parent '{parent}', which is there for a global s"
            ):
                builder.add_sink("more", "out", parent)
        builder.add_state_store(TOTALS)
        with pytest.raises(TopologyError, match="node 'fill' fills the global store 'names' in every task"):
            builder.connect("fill", "totals")

    def test_a_topic_and_names_that_are_taken(self) -> None:
        builder = TopologyBuilder(value_serde="string")
        builder.add_source("source", "in")
        with pytest.raises(TopologyError, match="topic 'in' is already read by 'source'"):
            builder.add_global_store(NAMES, "in", Fill)
