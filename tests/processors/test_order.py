"""The order of records: a micro-batch in the order of time is the same records sorted, however it was packed.

``test_batching`` compares micro-batches with their records one by one; here whole micro-batches are compared.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from millpond.errors import ConfigurationError
from millpond.processors import (
    Batch,
    EmitStrategy,
    JoinWindows,
    KStream,
    KTable,
    Materialized,
    Record,
    Repartitioned,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    TimeWindows,
    Topology,
    TopologyDriver,
)
from millpond.processors.options.order import Order
from tests.drawing import tries
from tests.processors.driving import text_topology
from tests.processors.random_topologies import (
    NO_REPARTITION,
    SOURCES,
    Step,
    histories,
    programs,
)
from tests.processors.test_batching import History, build, ordered

MicroBatch = Mapping[str, Sequence[tuple[Any, Any, int]]]
"""By topic, keys, values and timestamps in the order in which they came."""
Output = dict[str, list[Record]]

thorough = settings(max_examples=tries(100), deadline=None, suppress_health_check=list(HealthCheck))


def by_topic(history: History) -> MicroBatch:
    return {topic: [record for other, some in history if other == topic for record in some] for topic in SOURCES}


MICRO_BATCHES = st.lists(histories().map(by_topic), max_size=3)


def in_time(micro_batch: MicroBatch) -> MicroBatch:
    return {topic: sorted(records, key=lambda record: record[2]) for topic, records in micro_batch.items()}


def batches(topology: Topology, micro_batch: MicroBatch) -> dict[str, Batch]:
    """Return the records of the topics that the topology reads."""
    read = {topic: records for topic, records in micro_batch.items() if records and topic in topology.sources}
    return {topic: Batch(*map(list, zip(*records, strict=True))) for topic, records in read.items()}


def outputs(topology: Topology, micro_batches: Iterable[MicroBatch], *, complete: bool = False) -> list[Output]:
    """Return what each micro-batch brings out, and with ``complete`` what comes out in the end."""
    found: list[Output] = []
    with TopologyDriver(topology) as driver:
        for micro_batch in micro_batches:
            driver.pipe_inputs(batches(topology, micro_batch))
            found.append({topic: driver.read(topic) for topic in topology.sinks})
        if complete:
            driver.complete()
            found.append({topic: driver.read(topic) for topic in topology.sinks})
    return found


def derived(topology: Topology) -> frozenset[str]:
    """Return the repartition topics whose records were made with the help of state."""
    return frozenset().union(*(part.derived_topics for part in topology.subtopologies))


REKEYED = [("rekey", first, 0, 0) for first in range(2)]
BEHIND = ["aggregate", "window", "join_streams", "join_table", "to_table", "merge", "map_values", "split"]
THROUGH_REPARTITION_TOPICS = st.tuples(st.sampled_from(REKEYED), programs(BEHIND, most=4)).map(
    lambda drawn: [drawn[0], *drawn[1]]
)
"""Programs that begin with a source's records under other keys."""
UNVERSIONED = st.sampled_from([2, 4, 8, 10])
"""Variants without a history: a table with one refuses what is late, which the order of other keys decides."""
MADE_BY_STATE = st.tuples(st.integers(0, 2), UNVERSIONED).flatmap(
    lambda drawn: st.sampled_from(
        [
            [("join_tables", 0, *drawn), ("table_group_by", 3, 0, 2)],
            [("join_tables", 0, *drawn), ("table_to_stream", 3, 0, 2), ("rekey", 2, 0, 2), ("aggregate", 3, 0, 2)],
        ]
    )
)
"""Programs that send results of a join on under other keys, which have the later one of two times."""
BEHIND_STATE = ["table_group_by", "rekey", "aggregate", "join_tables", "to_table", "table_to_stream", "table_filter"]
TRAVELING_ONCE = st.tuples(
    MADE_BY_STATE,
    st.lists(st.tuples(st.sampled_from(BEHIND_STATE), *[st.integers(0, 11)] * 2, UNVERSIONED), max_size=2),
).map(lambda drawn: [*drawn[0], *drawn[1]])


class TestAMicroBatchIsItsRecordsSorted:
    """A micro-batch gives what its records give in the order of arrival, if they arrive sorted by time."""

    @thorough
    @given(st.one_of(programs(NO_REPARTITION), THROUGH_REPARTITION_TOPICS), MICRO_BATCHES, st.booleans())
    def test_whatever_the_topology(self, program: list[Step], micro_batches: list[MicroBatch], complete: bool) -> None:
        """But for what state has made: it may travel on with times of the past, and then the next task sorts it."""
        topology = build(program, Order.TIME)
        assume(topology.loops or not derived(topology))
        expected = outputs(build(program, Order.ARRIVAL), map(in_time, micro_batches), complete=complete)
        assert outputs(topology, micro_batches, complete=complete) == expected

    @thorough
    @given(TRAVELING_ONCE, MICRO_BATCHES)
    def test_each_key_of_what_state_has_made_if_it_travels_once(
        self, program: list[Step], micro_batches: list[MicroBatch]
    ) -> None:
        """Records of different keys are sorted by time, which a task behind the next one could tell."""
        topology = build(program, Order.TIME)
        travels = derived(topology)
        assume(travels and not topology.loops and ordered(topology))
        readers = [part for part in topology.subtopologies if travels & part.sources.keys()]
        assume(not any(topology.internal_topics & part.sinks.keys() for part in readers))
        expected = outputs(build(program, Order.ARRIVAL), map(in_time, micro_batches))
        found = outputs(topology, micro_batches)
        assert list(map(each_key, found)) == list(map(each_key, expected))

    @thorough
    @given(programs([name for name in NO_REPARTITION if name != "suppress"]), MICRO_BATCHES)
    def test_of_equal_times_those_of_the_source_named_first_come_first(
        self, program: list[Step], micro_batches: list[MicroBatch]
    ) -> None:
        topology = build(program, Order.TIME)
        assume(ordered(topology) and not topology.internal_topics)
        with TopologyDriver(topology) as driver:
            for micro_batch, found in zip(micro_batches, outputs(topology, micro_batches), strict=True):
                for part in topology.subtopologies:
                    records = [(topic, *record) for topic in part.sources for record in micro_batch[topic]]
                    for record in sorted(records, key=lambda record: record[3]):
                        driver.pipe(*record)
                assert found == {topic: driver.read(topic) for topic in topology.sinks}


def each_key(output: Output) -> dict[tuple[str, Any], list[Record]]:
    """Return the records of each sink and key, in their order."""
    found: dict[tuple[str, Any], list[Record]] = {}
    for topic, records in output.items():
        for record in records:
            found.setdefault((topic, record.key), []).append(record)
    return found


def concatenated(windows: Any, *, final: bool = False, caching: bool = False) -> Callable[[StreamsBuilder], KTable]:
    """Return the values of each window in the order in which they were added."""

    def make(builder: StreamsBuilder) -> KTable:
        emit = EmitStrategy.ON_WINDOW_CLOSE if final else EmitStrategy.ON_WINDOW_UPDATE
        stored = Materialized(value_serde="string")
        mergers = (lambda key, left, right: left + right,) if isinstance(windows, SessionWindows) else ()
        made: KTable = (
            builder.stream("in")
            .group_by_key()
            .windowed_by(windows)
            .emit_strategy(emit)
            .aggregate(
                str, lambda key, value, total: total + value, *mergers, stored.with_caching() if caching else stored
            )
        )
        return made

    return make


def pair(left: Any, right: Any) -> str:
    return f"{left}-{right}"


def joined(kind: str, windows: JoinWindows) -> Callable[[StreamsBuilder], KStream]:
    join = {"inner": KStream.join, "left": KStream.left_join, "outer": KStream.outer_join}[kind]
    return lambda builder: join(builder.stream("in"), builder.stream("other"), pair, windows=windows)


def history(builder: StreamsBuilder, retention: int) -> KTable:
    return builder.table("table", materialized=Materialized.versioned(history_retention=retention))


WINDOWS: dict[str, Any] = {
    "tumbling": TimeWindows(6, grace=4),
    "hopping": TimeWindows(9, advance=4, grace=4),
    "sliding": SlidingWindows(6, grace=4),
    "sessions": SessionWindows(3, grace=4),
}
JOIN_WINDOWS = {
    "windows": JoinWindows(4, 6),
    "windows with grace": JoinWindows(3, 3, grace=5),
    "windows of the past": JoinWindows(before=6, after=-2, grace=2),
    "eager windows": JoinWindows(4, 4, grace=2, eager=True),
    "windows that drop": JoinWindows(4, 4, drop_late=True),
}
MAKES: dict[str, Callable[[StreamsBuilder], KTable | KStream]] = {
    **{f"{name}, updates": concatenated(windows) for name, windows in WINDOWS.items()},
    **{f"{name}, cached": concatenated(windows, caching=True) for name, windows in WINDOWS.items()},
    **{f"{name}, final": concatenated(windows, final=True) for name, windows in WINDOWS.items()},
    **{
        f"{kind} join, {name}": joined(kind, windows)
        for kind in ("inner", "left", "outer")
        for name, windows in JOIN_WINDOWS.items()
    },
    "inner join with a table": lambda builder: builder.stream("in").join(history(builder, 100), pair),
    "left join with a table": lambda builder: builder.stream("in").left_join(history(builder, 100), pair),
    "left join with a short history": lambda builder: builder.stream("in").left_join(history(builder, 6), pair),
    "a versioned table": lambda builder: history(builder, 100).to_stream(),
    "changes of a versioned table": lambda builder: history(builder, 6).to_stream(changes_only=True),
    "a table without a history": lambda builder: builder.table("table").to_stream(),
}


def rows_of(topics: Iterable[str]) -> st.SearchStrategy[MicroBatch]:
    """Return records of which no two of a topic have both the key and the time in common."""
    row = st.tuples(st.sampled_from("abc"), st.sampled_from(["x", "y", "z", None]), st.integers(0, 40))
    rows = st.lists(row, max_size=12, unique_by=lambda one: (one[0], one[2]))
    return st.fixed_dictionaries(dict.fromkeys(topics, rows))


def shuffled(micro_batch: MicroBatch, chance: random.Random) -> MicroBatch:
    """Return the same records in another order, and the topics, too."""
    topics = chance.sample(list(micro_batch), len(micro_batch))
    return {topic: chance.sample(list(micro_batch[topic]), len(micro_batch[topic])) for topic in topics}


@pytest.mark.parametrize("name", MAKES)
def test_the_order_within_a_micro_batch_is_not_information(name: str) -> None:
    topology = text_topology(MAKES[name])

    @settings(max_examples=tries(40), deadline=None)
    @given(st.lists(rows_of(topology.sources), min_size=1, max_size=3), st.randoms(use_true_random=False))
    def check(micro_batches: list[MicroBatch], chance: random.Random) -> None:
        again = [shuffled(micro_batch, chance) for micro_batch in micro_batches]
        expected, found = (outputs(topology, given_as, complete=True) for given_as in (micro_batches, again))
        for one, other in zip(found, expected, strict=True):
            assert Counter(one["out"]) == Counter(other["out"])

    check()


def counted(order: str) -> TopologyDriver:
    builder = StreamsBuilder(key_serde="string", value_serde="string", order=order)
    builder.stream("in").group_by_key().windowed_by(TimeWindows(10)).count().to("out")
    return TopologyDriver(builder.build())


def late(driver: TopologyDriver) -> int:
    return sum(number for name, number in driver.counters.items() if name.endswith(":dropped-late"))


def test_a_record_is_late_only_by_what_earlier_micro_batches_have_shown() -> None:
    with counted("time") as driver:
        driver.pipe_all("in", [("k", "x", 100), ("k", "x", 5)])
        assert (len(driver.read("out")), late(driver)) == (2, 0)
        driver.pipe_all("in", [("k", "x", 110), ("k", "x", 6)])
        assert (len(driver.read("out")), late(driver)) == (1, 1)


def test_in_the_order_of_arrival_and_record_by_record_it_is_late_by_what_came_before_it() -> None:
    with counted("arrival") as driver:
        driver.pipe_all("in", [("k", "x", 100), ("k", "x", 5)])
        assert late(driver) == 1
    for order in ("time", "arrival"):
        with counted(order) as driver:
            driver.pipe("in", "k", "x", 100)
            driver.pipe("in", "k", "x", 5)
            assert late(driver) == 1


def test_of_two_records_of_a_key_that_state_has_made_the_later_one_stays_so_whatever_their_times() -> None:
    def make(builder: StreamsBuilder) -> KStream:
        pairs = builder.table("left").join(builder.table("right"), pair)
        moved = pairs.to_stream().select_key(lambda key, value: "all")
        return moved.repartition(Repartitioned("string", "string")).to_table().to_stream()

    micro_batches: list[MicroBatch] = [
        {"right": [("k", "1", 30)]},
        {"left": [("k", "a", 5)], "right": [("k", "2", 10)]},
    ]
    found = outputs(text_topology(make), micro_batches)
    assert found[1]["out"] == [("all", "a-1", 30), ("all", "a-2", 10)]


def orders_and_customers(customers: list[str | None]) -> st.SearchStrategy[MicroBatch]:
    """Return orders of these customers."""
    time = st.integers(0, 30)
    orders = st.tuples(st.sampled_from("opq"), st.sampled_from(customers), time)
    names = st.tuples(st.sampled_from(["ada", "eva"]), st.sampled_from(["1", "2", None]), time)
    return st.fixed_dictionaries({"orders": st.lists(orders, max_size=10), "customers": st.lists(names, max_size=6)})


@pytest.mark.parametrize(("kind", "customers"), [("inner", ["ada", "eva", None]), ("left", ["ada", "eva", "-", None])])
def test_a_foreign_key_join_ends_as_the_join_of_both_tables_as_of_the_latest_times(
    kind: str, customers: list[str | None]
) -> None:
    def make(builder: StreamsBuilder) -> KTable:
        orders = builder.table("orders")
        join = {"inner": orders.join, "left": orders.left_join}[kind]
        made: KTable = join(
            builder.table("customers"),
            pair,
            Materialized.with_serdes(None, "string"),
            foreign_key=lambda order: None if order == "-" else order,
        )
        return made

    topology = text_topology(make)

    @settings(max_examples=tries(60), deadline=None)
    @given(st.lists(orders_and_customers(customers), max_size=4))
    def check(micro_batches: list[MicroBatch]) -> None:
        tables: dict[str, dict[str, str | None]] = {"orders": {}, "customers": {}}
        for micro_batch in map(in_time, micro_batches):
            for topic, rows in micro_batch.items():
                tables[topic] |= {key: value for key, value, _ in rows}
        sides = {key: (order, tables["customers"].get(order)) for key, order in tables["orders"].items() if order}
        expected = {key: pair(*both) for key, both in sides.items() if kind == "left" or both[1]}
        last = {record.key: record.value for output in outputs(topology, micro_batches) for record in output["out"]}
        assert {key: value for key, value in last.items() if value is not None} == expected

    check()


@pytest.mark.parametrize("order", Order)
@pytest.mark.parametrize(
    ("rekeyed", "expected"),
    [
        ({}, ["v0-v0", "v1-v0", "v1-v1", "v2-v2"]),
        ({"v0": "other"}, ["v0-None", "v1-v0", "v1-v1", "v2-v2"]),
        ({"v1": "other"}, ["v0-v0", "v1-None", "v2-v2"]),
    ],
)
def test_what_a_record_sends_through_a_loop_comes_before_the_next_record(
    rekeyed: Mapping[str, str], expected: list[str], order: Order
) -> None:
    """A stream joined with itself under other keys meets itself as the same records piped one by one do."""

    def make(builder: StreamsBuilder) -> KStream:
        stream = builder.stream("in")
        other = stream.select_key(lambda key, value: rekeyed.get(value, key))
        return other.left_join(stream, pair, windows=JoinWindows(10, 1))

    topology = text_topology(make, order=order)
    assert topology.loops
    records = [("k", "v0", 0), ("k", "v1", 5), ("k", "v2", 20)]
    with TopologyDriver(topology) as singly, TopologyDriver(topology) as at_once:
        for record in records:
            singly.pipe("in", *record)
        at_once.pipe_all("in", records)
        found = singly.read("out")
        assert [record.value for record in found] == expected
        assert at_once.read("out") == found
        singly.complete()
        at_once.complete()
        assert singly.read("out") == at_once.read("out") == []


def test_another_order_is_refused_by_name() -> None:
    with pytest.raises(ConfigurationError, match="order is 'sideways'; give one of 'time', 'arrival'"):
        StreamsBuilder(order="sideways")


@pytest.mark.parametrize(("order", "after_one"), [(Order.TIME, 1), (Order.ARRIVAL, 2)])
def test_a_plain_table_keeps_the_latest_record_of_a_micro_batch_or_a_later_one(order: Order, after_one: int) -> None:
    builder = StreamsBuilder(key_serde="string", value_serde="int64", order=order)
    builder.table("rates", materialized=Materialized("rates")).to_stream().to("out")
    with TopologyDriver(builder.build()) as driver:
        driver.pipe_inputs({"rates": Batch(["a", "a"], [1, 2], [10, 5])})
        assert driver.store("rates").get("a").value == after_one
        driver.pipe_inputs({"rates": Batch(["a"], [3], [7])})
        assert driver.store("rates").get("a").value == 3
