"""Stream operators that keep nothing."""

from typing import Any

import pytest

from millpond.errors import TopologyError
from millpond.processors import Consumed, KStream, Produced, StreamsBuilder, TopologyDriver
from millpond.stores.encoding.serdes import MSGPACK

INPUT = [("a", "one", 1), ("b", "two", 2), ("a", None, 3), (None, "four", 4)]


def _results(builder: StreamsBuilder, stream: KStream, records: list[tuple[Any, Any, int]]) -> list[tuple[Any, ...]]:
    stream.to("out", Produced("string", "msgpack"))
    with TopologyDriver(builder.build()) as driver:
        driver.pipe_all("in", records)
        return [tuple(record) for record in driver.read("out")]


@pytest.fixture
def builder() -> StreamsBuilder:
    return StreamsBuilder()


def test_filter_keeps_what_the_predicate_wants(builder: StreamsBuilder) -> None:
    stream = builder.stream("in").filter(lambda key, value: value is not None and len(value) == 3)
    assert _results(builder, stream, INPUT) == [("a", "one", 1), ("b", "two", 2)]


def test_filter_not_drops_what_the_predicate_wants(builder: StreamsBuilder) -> None:
    stream = builder.stream("in").filter_not(lambda key, value: value is not None and len(value) == 3)
    assert _results(builder, stream, INPUT) == [("a", None, 3), (None, "four", 4)]


def test_map_changes_key_and_value_but_not_the_time(builder: StreamsBuilder) -> None:
    stream = builder.stream("in").map(lambda key, value: (value, key))
    assert _results(builder, stream, INPUT) == [("one", "a", 1), ("two", "b", 2), (None, "a", 3), ("four", None, 4)]


def test_map_values_is_called_for_null_values_too(builder: StreamsBuilder) -> None:
    stream = builder.stream("in").map_values(str)
    assert [value for _, value, _ in _results(builder, stream, INPUT)] == ["one", "two", "None", "four"]


def test_map_values_with_two_parameters_sees_the_key(builder: StreamsBuilder) -> None:
    stream = builder.stream("in").map_values(lambda key, value: f"{key}/{value}")
    assert [value for _, value, _ in _results(builder, stream, INPUT)] == ["a/one", "b/two", "a/None", "None/four"]


def test_a_default_argument_does_not_make_a_mapper_see_the_key(builder: StreamsBuilder) -> None:
    stream = builder.stream("in").map_values(lambda value, suffix="!": f"{value}{suffix}")
    assert _results(builder, stream, INPUT[:1]) == [("a", "one!", 1)]


def test_flat_map_makes_any_number_of_records_at_the_record_s_time(builder: StreamsBuilder) -> None:
    stream = builder.stream("in").flat_map(lambda key, value: [(letter, key) for letter in (value or "")[:2]])
    expected = [("o", "a", 1), ("n", "a", 1), ("t", "b", 2), ("w", "b", 2), ("f", None, 4), ("o", None, 4)]
    assert _results(builder, stream, INPUT) == expected


def test_flat_map_values_keeps_the_key(builder: StreamsBuilder) -> None:
    stream = builder.stream("in").flat_map_values(lambda value: (value or "").split("o"))
    expected = [("a", "", 1), ("a", "ne", 1), ("b", "tw", 2), ("b", "", 2), ("a", "", 3), (None, "f", 4)]
    assert _results(builder, stream, INPUT)[:6] == expected


def test_flat_map_values_takes_an_iterator_and_may_see_the_key(builder: StreamsBuilder) -> None:
    stream = builder.stream("in").flat_map_values(lambda key, value: iter([key, value]))
    assert _results(builder, stream, INPUT[:2]) == [("a", "a", 1), ("a", "one", 1), ("b", "b", 2), ("b", "two", 2)]


def test_select_key_sees_the_value(builder: StreamsBuilder) -> None:
    stream = builder.stream("in").select_key(lambda key, value: value and value[0])
    assert [key for key, _, _ in _results(builder, stream, INPUT)] == ["o", "t", None, "f"]


def test_peek_sees_every_record_and_changes_none(builder: StreamsBuilder) -> None:
    seen: list[tuple[Any, Any]] = []
    stream = builder.stream("in").peek(lambda key, value: seen.append((key, value)))
    assert _results(builder, stream, INPUT) == INPUT
    assert seen == [(key, value) for key, value, _ in INPUT]


def test_merge_takes_all_records_of_all_streams(builder: StreamsBuilder) -> None:
    source = builder.stream("in")
    long, short = source.filter(lambda k, v: v == "four"), source.filter(lambda k, v: v == "one")
    stream = long.merge(short, source.filter(lambda k, v: v is None))
    assert _results(builder, stream, INPUT) == [("a", "one", 1), ("a", None, 3), (None, "four", 4)]


def test_merge_takes_each_stream_of_a_table_once(builder: StreamsBuilder) -> None:
    table = builder.table("in")
    stream = table.to_stream()
    merged = stream.merge(stream, table.to_stream(), table.to_stream())
    assert _results(builder, merged, INPUT[:2]) == [record for record in INPUT[:2] for _ in range(3)]


def test_merge_keeps_the_serdes_that_all_streams_have_and_takes_the_builders_for_others() -> None:
    source = StreamsBuilder(key_serde="string", value_serde="json").stream("in", Consumed(value_serde="string"))
    merged = source.merge(source.map_values(len, value_serde="int64"))
    assert merged.key_serde == "string"
    assert merged.value_serde == "json"


def test_a_serde_and_its_name_are_the_same_to_merge(builder: StreamsBuilder) -> None:
    source = builder.stream("in")
    assert source.merge(source.map_values(str, value_serde=MSGPACK)).value_serde == "msgpack"


def test_a_merged_stream_has_to_be_repartitioned_if_one_of_its_parts_has(builder: StreamsBuilder) -> None:
    source = builder.stream("in")
    assert source.merge(source.select_key(lambda k, v: v)).repartition_required
    assert not source.merge(source.filter(lambda k, v: True)).repartition_required


def test_each_record_goes_to_the_first_branch_that_wants_it(builder: StreamsBuilder) -> None:
    parts = (
        builder.stream("in")
        .split(name="by-")
        .branch(lambda key, value: value is None, name="null")
        .branch(lambda key, value: key == "a")
        .branch(lambda key, value: key in ("a", "b"), name="known")
        .default_branch(name="rest")
    )
    assert list(parts) == ["by-null", "by-2", "by-known", "by-rest"]
    for name, part in parts.items():
        part.to(name, Produced("string", "msgpack"))
    with TopologyDriver(builder.build()) as driver:
        driver.pipe_all("in", INPUT)
        came = {name: [record.timestamp for record in driver.read(name)] for name in parts}
    assert came == {"by-null": [3], "by-2": [1], "by-known": [2], "by-rest": [4]}


def test_without_a_default_branch_unwanted_records_are_dropped(builder: StreamsBuilder) -> None:
    parts = builder.stream("in").split().branch(lambda key, value: key == "b", name="b").no_default_branch()
    (stream,) = parts.values()
    assert _results(builder, stream, INPUT) == [("b", "two", 2)]


def test_branches_that_come_together_again_keep_the_order_of_the_records(builder: StreamsBuilder) -> None:
    parts = builder.stream("in").split().branch(lambda key, value: key == "a", name="a").default_branch()
    first, second = parts.values()
    assert _results(builder, second.merge(first), INPUT) == INPUT


def test_a_split_ends_once(builder: StreamsBuilder) -> None:
    branched = builder.stream("in").split(name="once-").branch(lambda key, value: True)
    branched.default_branch()
    with pytest.raises(TopologyError, match="already has a node called 'once-split'"):
        branched.branch(lambda key, value: False).no_default_branch()


def test_a_split_whose_branches_went_nowhere_is_refused(builder: StreamsBuilder) -> None:
    branched = builder.stream("in").split(name="lost-")
    branched.branch(lambda key, value: True)  # a new object, which nobody kept
    with pytest.raises(TopologyError, match=r"no branches.*chain the calls"):
        branched.no_default_branch()


@pytest.mark.parametrize("rekeyed", ["map", "flat_map", "select_key"])
def test_operators_that_may_change_the_key_send_records_through_a_topic_before_a_count(
    builder: StreamsBuilder, rekeyed: str
) -> None:
    functions: dict[str, Any] = {
        "map": lambda key, value: (value, value),
        "flat_map": lambda key, value: [(value, value)],
        "select_key": lambda key, value: value,
    }
    getattr(builder.stream("in"), rekeyed)(functions[rekeyed]).group_by_key().count().to("out")
    topology = builder.build()
    assert len(topology.internal_topics) == 1
    with TopologyDriver(topology) as driver:
        driver.pipe_all("in", INPUT)
        assert [(record.key, record.value) for record in driver.read("out")] == [("one", 1), ("two", 1), ("four", 1)]


@pytest.mark.parametrize("same_key", ["filter", "filter_not", "map_values", "flat_map_values", "peek"])
def test_operators_that_keep_the_key_need_no_topic_before_a_count(builder: StreamsBuilder, same_key: str) -> None:
    functions: dict[str, Any] = {"map_values": lambda value: value, "flat_map_values": lambda value: [value]}
    function = functions.get(same_key, lambda key, value: True)
    getattr(builder.stream("in"), same_key)(function).group_by_key().count().to("out")
    assert not builder.build().internal_topics


def test_repartition_sends_records_through_their_serdes_whether_the_key_changed_or_not(builder: StreamsBuilder) -> None:
    stream = builder.stream("in").map_values(lambda value: (value, 1)).repartition()
    assert len(builder.build().internal_topics) == 1
    assert _results(builder, stream, INPUT[:1]) == [("a", ["one", 1], 1)]


def test_repartition_drops_records_without_a_key_and_changes_no_numbers_of_names(builder: StreamsBuilder) -> None:
    moved = builder.stream("in").repartition()
    moved.group_by_key().count()
    assert [*builder.build().stores] == ["KSTREAM-AGGREGATE-STATE-STORE-0000000004"]
    assert _results(builder, moved, INPUT) == [record for record in INPUT if record[0] is not None]


def test_the_same_topic_may_be_read_as_a_stream_twice(builder: StreamsBuilder) -> None:
    first, second = builder.stream("in"), builder.stream("in")
    assert first.node == second.node
    assert _results(builder, first.merge(second.map_values(len)), INPUT[:1]) == [("a", 3, 1), ("a", "one", 1)]
