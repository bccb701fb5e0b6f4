"""Batches of any topology: n records at once give the same as n batches of one record, topic by topic."""

from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, assume, given, reject, settings
from hypothesis import strategies as st

from millpond.errors import TopologyError
from millpond.processors import Batch, StreamsBuilder, Topology, TopologyDriver
from millpond.processors.options.order import Order
from millpond.processors.runtime.order.time_order import merge
from millpond.processors.streams import vectorized_window_join
from tests.drawing import tries
from tests.processors.random_topologies import (
    NO_REPARTITION,
    OPERATORS,
    SOURCES,
    RandomTopology,
    Step,
    histories,
    programs,
)

History = list[tuple[str, list[tuple[Any, Any, int]]]]

thorough = settings(max_examples=tries(150), deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(autouse=True, scope="module")
def every_batch_as_columns() -> Iterator[None]:
    """Joins of columns take more than one record as columns, and a single one as an object."""
    with mock.patch.object(vectorized_window_join, "COLUMNS_FROM", 2):
        yield


def build(program: list[Step], order: Order = Order.ARRIVAL) -> Topology:
    try:
        return RandomTopology(order).build(program)
    except TopologyError as error:
        if "suppress" not in str(error):
            raise
        reject()


def _outputs(topology: Topology, history: History, one_by_one: bool) -> dict[str, list[Any]]:
    with TopologyDriver(topology) as driver:
        for topic, records in history:
            for run in ([record] for record in records) if one_by_one else [records]:
                driver.pipe_all(topic, run)
        return {topic: driver.read(topic) for topic in topology.sinks}


def ordered(topology: Topology) -> bool:
    """Return whether the order of everything is fixed.

    It is not between what several sub-topologies write to one topic, nor between a repartition topic and another topic
    that the same sub-topology reads.
    """
    written = [topic for part in topology.subtopologies for topic in part.sinks]
    one_reader_each = all(
        len(part.sources) == 1 or not topology.internal_topics & part.sources.keys() for part in topology.subtopologies
    )
    return one_reader_each and len(set(written)) == len(written)


@thorough
@given(programs(NO_REPARTITION), histories())
def test_a_batch_gives_what_its_records_give_one_by_one(program: list[Step], history: History) -> None:
    topology = build(program)
    assume(ordered(topology))
    assert _outputs(topology, history, False) == _outputs(topology, history, True)


@thorough
@given(programs(sorted(OPERATORS), most=4), histories())
def test_so_it_does_where_records_travel_through_a_repartition_topic(program: list[Step], history: History) -> None:
    topology = build(program)
    assume(ordered(topology))
    assert _outputs(topology, history, False) == _outputs(topology, history, True)


@thorough
@given(programs(["merge", "split", "process", "join_table", "table_to_stream", "to_table", "filter"], 8), histories())
def test_so_it_does_where_paths_part_and_meet_and_share_stores(program: list[Step], history: History) -> None:
    topology = build(program)
    assume(ordered(topology))
    assert _outputs(topology, history, False) == _outputs(topology, history, True)


def _at_once(topology: Topology, micro_batches: list[History]) -> Any:
    with TopologyDriver(topology) as driver:
        for history in micro_batches:
            driver.pipe_inputs(_inputs(topology, history))
        return {topic: driver.read(topic) for topic in topology.sinks}, driver.counters


def _one_by_one(topology: Topology, micro_batches: list[History]) -> Any:
    with TopologyDriver(topology) as driver:
        for history in micro_batches:
            for topic, run in merge(_inputs(topology, history), topology.order):
                for row in run.to_batch().rows():
                    driver.pipe_batch(topic, row)
        return {topic: driver.read(topic) for topic in topology.sinks}, driver.counters


def _inputs(topology: Topology, history: History) -> dict[str, Batch]:
    records = {topic: [record for other, some in history if other == topic for record in some] for topic in SOURCES}
    in_order = [topic for part in topology.subtopologies for topic in part.sources]
    return {topic: Batch(*map(list, zip(*records[topic], strict=True))) for topic in in_order if records.get(topic)}


BY_KEY = ["join_tables", "join_histories", "join_table", "table_filter", "table_map_values", "table_to_stream"]
ALTERNATING = histories(("stream-0", "stream-1", "table-0", "table-1"), latest=18)


@thorough
@given(programs(BY_KEY * 4 + NO_REPARTITION), st.lists(ALTERNATING, max_size=3), st.sampled_from(Order))
def test_inputs_that_are_taken_in_longer_runs_give_what_their_records_give(
    program: list[Step], micro_batches: list[History], order: Order
) -> None:
    topology = build(program, order)
    assume(ordered(topology) and not any(operator == "suppress" for operator, *_ in program))
    # A task sorts what another sends it in a micro-batch.
    assume(order is Order.ARRIVAL or not topology.internal_topics)
    assert _at_once(topology, micro_batches) == _one_by_one(topology, micro_batches)


@settings(thorough, max_examples=tries(60))
@given(
    st.lists(
        st.tuples(st.sampled_from(BY_KEY), *[st.sampled_from([0, 1])] * 2, st.integers(0, 2)), min_size=1, max_size=3
    ),
    st.lists(ALTERNATING, min_size=1, max_size=2),
    st.sampled_from(Order),
)
def test_so_do_joins_of_the_inputs_themselves(program: list[Step], micro_batches: list[History], order: Order) -> None:
    topology = build(program, order)
    assume(ordered(topology))
    assert _at_once(topology, micro_batches) == _one_by_one(topology, micro_batches)


@given(st.integers(1, 5))
def test_a_diamond_is_not_separable_but_its_arms_are(length: int) -> None:
    builder = StreamsBuilder()
    source = builder.stream("in")
    arm = source
    for _ in range(length):
        arm = arm.map_values(lambda value: value)
    source.merge(arm).to("out")
    (part,) = builder.build().subtopologies
    assert not part.separable(source.node)
    assert part.separable(arm.node)
