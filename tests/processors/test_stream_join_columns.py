"""Joins of two streams with a joiner of whole columns: results, counts and stores are those of objects."""

from collections.abc import Callable, Mapping
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millpond.processors import (
    JoinWindows,
    KStream,
    Produced,
    StreamJoined,
    StreamsBuilder,
    Topology,
)
from millpond.processors.streams import vectorized_window_join
from tests.processors.test_stream_join_batches import (
    JOINS,
    MicroBatch,
    micro_batches,
    one_by_one,
    outcome,
    windows_of_all_shapes,
)


def pair(key: str | None, left: str | None, right: str | None) -> str:
    if "j" in (left or "") and "k" not in (right or ""):
        raise ValueError(left)
    return f"{key}:{left}-{right}"


def pairs(keys: Any, lefts: Any, rights: Any) -> Any:
    columns = (column.to_pylist() for column in (keys, lefts, rights))
    return pa.array(list(map(pair, *columns)), pa.string())


def two_topics(windows: JoinWindows, kind: str, *, vectorized: bool) -> Topology:
    builder = StreamsBuilder(key_serde="string", value_serde="string")
    left, right = builder.stream("left"), builder.stream("right")
    return built(builder, left, right, windows, kind, vectorized=vectorized)


def with_itself(windows: JoinWindows, kind: str, *, vectorized: bool) -> Topology:
    """Records of one position come to both sides."""
    builder = StreamsBuilder(key_serde="string", value_serde="string")
    stream = builder.stream("left").merge(builder.stream("right"))
    right = stream.filter(lambda keys, values: pc.match_substring(values.cast("string"), "k"), vectorized=True)
    return built(builder, stream, right, windows, kind, vectorized=vectorized)


def below_a_processor(windows: JoinWindows, kind: str, *, vectorized: bool) -> Topology:
    """The graph does not let the join gather its records."""
    builder = StreamsBuilder(key_serde="string", value_serde="string")
    left = builder.stream("left").flat_map_values(lambda value: [value, value])
    return built(builder, left, builder.stream("right"), windows, kind, vectorized=vectorized)


def built(
    builder: StreamsBuilder, left: KStream, right: KStream, windows: JoinWindows, kind: str, *, vectorized: bool
) -> Topology:
    joiner: Callable[..., Any] = pairs if vectorized else pair
    joined = JOINS[kind](left, right, joiner, StreamJoined(name="pairs"), windows=windows, vectorized=vectorized)
    joined.to("out", Produced("string", "string"))
    return builder.build()


BUILDS: Mapping[str, Callable[..., Topology]] = {
    "two topics": two_topics,
    "with itself": with_itself,
    "below a processor": below_a_processor,
}


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from(list(BUILDS)), st.sampled_from(list(JOINS)), windows_of_all_shapes, micro_batches(), st.booleans()
)
def test_a_joiner_of_columns_gives_what_one_of_objects_gives_record_by_record(
    build: str, kind: str, windows: JoinWindows, inputs: list[MicroBatch], complete: bool
) -> None:
    singly = [row for micro_batch in inputs for row in one_by_one(micro_batch)]
    expected = outcome(BUILDS[build](windows, kind, vectorized=False), singly, complete)
    with mock.patch.object(vectorized_window_join, "COLUMNS_FROM", 1):
        assert outcome(BUILDS[build](windows, kind, vectorized=True), inputs, complete) == expected
