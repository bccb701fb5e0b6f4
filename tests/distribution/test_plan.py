"""The parts of a topology, and where they run."""

import pytest

from millpond.errors import TopologyError
from millpond.processors import Consumed, Joined, Produced, StreamsBuilder, Topology
from millpond.processors.distribution.plan import Plan, make_plan

TEXT = Consumed("string", "string")


def update_counts() -> Topology:
    """Return how often each letter's words were updated, for which the words are counted first."""
    builder = StreamsBuilder()
    words = builder.stream("words", TEXT).select_key(lambda _, word: word)
    updates = words.group_by_key().count().to_stream().select_key(lambda word, _: word[0])
    updates.group_by_key().count().to("updates")
    return builder.build()


def stages(plan: Plan) -> list[list[int]]:
    return [[part.index for part in stage] for stage in plan.stages]


def test_a_part_that_keeps_nothing_runs_where_its_input_is_packed() -> None:
    builder = StreamsBuilder()
    words = builder.stream("words", TEXT).select_key(lambda _, word: word)
    words.group_by_key().count().to("counts")
    plan = make_plan(builder.build(), None, 4)
    assert [part.index for part in plan.map_side] == [0]
    assert stages(plan) == [[1]]
    assert plan.entry_level(plan.map_side[0]) == 0


def test_parts_run_after_all_that_feed_them() -> None:
    plan = make_plan(update_counts(), "updates", 2)
    assert [len(stage) for stage in plan.stages] == [1, 1]
    assert [part.index for part in plan.map_side] == [0]
    levels = {topic: plan.entry_level(part) for part in plan.parts for topic in part.sources}
    assert levels["words"] == 0


def test_only_what_the_sink_depends_on_is_run() -> None:
    builder = StreamsBuilder()
    for name in ("left", "right"):
        builder.stream(name, TEXT).group_by_key().count().to(f"{name}-counts")
    plan = make_plan(builder.build(), "right-counts", 2)
    assert list(plan.topics) == ["right"]
    assert len(list(plan.parts)) == 1


def test_a_sink_of_several_parts_is_refused() -> None:
    builder = StreamsBuilder()
    for name in ("left", "right"):
        builder.stream(name, TEXT).group_by_key().count().to("counts", Produced(schema="key string, value long"))
    with pytest.raises(TopologyError, match="written by 2 sub-topologies"):
        make_plan(builder.build(), "counts", 2)


def test_a_topology_without_a_sink_is_refused() -> None:
    builder = StreamsBuilder()
    builder.stream("words", TEXT)
    topology: Topology = builder.build()
    with pytest.raises(TopologyError, match="no sink"):
        make_plan(topology, None, 2)


def test_what_is_packed_for_several_stages_comes_in_at_the_first_of_them() -> None:
    builder = StreamsBuilder()
    words = builder.stream("words", TEXT)
    letters = words.select_key(lambda _, word: word).group_by_key().count().to_stream()
    updates = letters.select_key(lambda word, _: word[0]).group_by_key().count()
    joined = Joined("string", "string")
    words.select_key(lambda _, word: word[0]).join(updates, lambda word, count: f"{word} {count}", joined).to("out")
    plan = make_plan(builder.build(), "out", 2)
    (packed,) = plan.map_side
    assert [plan.entry_level(plan.readers[topic]) for topic in packed.sinks] == [0, 1]
    assert plan.entry_level(packed) == 0
