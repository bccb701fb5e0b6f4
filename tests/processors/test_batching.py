"""Whatever the topology, n records at once give the same as n batches of one record, topic by topic."""

from typing import Any

from hypothesis import HealthCheck, assume, given, reject, settings
from hypothesis import strategies as st

from millpond.errors import TopologyError
from millpond.processors import StreamsBuilder, Topology, TopologyDriver
from tests.processors.random_topologies import NO_REPARTITION, OPERATORS, RandomTopology, Step, histories, programs

History = list[tuple[str, list[tuple[Any, Any, int]]]]

thorough = settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck))


def build(program: list[Step]) -> Topology:
    try:
        return RandomTopology().build(program)
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
    """Whether the order of everything is fixed.

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
