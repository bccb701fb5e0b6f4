"""Joins of two streams in batches: the answers are those of the records one by one, and the stores are read once a key.

Whatever the topology, batches against single records are compared in ``test_batching``; here both sides' records come
in one micro-batch, functions and serdes fail, and what the stores hold afterward is compared, too.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millpond.errors import UserFunctionError
from millpond.processors import (
    Batch,
    JoinWindows,
    KStream,
    Produced,
    StreamJoined,
    StreamsBuilder,
    Topology,
    TopologyDriver,
)
from millpond.processors.dsl.wiring.stream_join import join_streams
from millpond.processors.options.functions import keyed_joiner
from millpond.processors.options.joins import JoinType
from millpond.processors.options.order import Order
from millpond.processors.runtime.nodes import ProcessorNode
from millpond.processors.runtime.order.graph_order import gathering_nodes
from millpond.processors.runtime.order.time_order import merge
from millpond.processors.runtime.tasks.task import Task
from millpond.stores.backend.memory import MemoryBackend
from millpond.stores.backend.transaction import Transaction
from millpond.stores.encoding.serdes import Serde
from tests.drawing import tries
from tests.processors.random_topologies import LastSeen

Records = list[tuple[Any, Any, int]]
MicroBatch = dict[str, Batch]


def join_of_a_verb(kind: str) -> Callable[..., KStream]:
    """Return a join that the DSL has no word for."""

    def join(
        left: KStream,
        right: KStream,
        joiner: Callable[..., Any],
        joined: StreamJoined,
        *,
        windows: JoinWindows,
        vectorized: bool = False,
    ) -> KStream:
        with_key, sides = keyed_joiner(joiner), (left.handle, right.handle)
        return KStream(join_streams(*sides, with_key, windows, joined, JoinType(kind), vectorized=vectorized))

    return join


JOINS: Mapping[str, Callable[..., KStream]] = {
    "inner": KStream.join,
    "left": KStream.left_join,
    "outer": KStream.outer_join,
    **{kind: join_of_a_verb(kind) for kind in ("right", "semi", "anti")},
}


class Picky(Serde[str]):
    """Refuses to write what begins with ``w``, and if ``reads`` is false to read what begins with ``r``."""

    name = "picky"

    def __init__(self, reads: bool) -> None:
        self._reads = reads

    def serialize(self, value: str) -> bytes:
        if value.startswith("w"):
            raise ZeroDivisionError(value)
        return value.encode()

    def deserialize(self, data: bytes) -> str:
        if data.startswith(b"r") and not self._reads:
            raise ZeroDivisionError(data)
        return data.decode()


def pair(left: str | None, right: str | None) -> str:
    if "j" in (left or "") and "k" not in (right or ""):
        raise ValueError(left)
    return f"{left}-{right}"


def two_topics(windows: JoinWindows, kind: str, order: Order = Order.ARRIVAL) -> Topology:
    # What waits has to be readable, or else the task fails.
    serde = Picky(reads=kind != "inner")
    builder = StreamsBuilder(key_serde=serde, value_serde=serde, order=order)
    joined = StreamJoined(name="pairs", key_serde=serde, value_serde=serde, other_value_serde=serde)
    left, right = builder.stream("left"), builder.stream("right")
    JOINS[kind](left, right, pair, joined, windows=windows).to("out", Produced("string", "string"))
    return builder.build()


def with_itself(windows: JoinWindows, kind: str, order: Order = Order.ARRIVAL) -> Topology:
    """Return a stream with a part of itself; the paths to the two sides fork and meet more than once."""
    # What waits has to be readable, or else the task fails.
    serde = Picky(reads=kind != "inner")
    builder = StreamsBuilder(key_serde=serde, value_serde=serde, order=order)
    joined = StreamJoined(name="pairs", key_serde=serde, value_serde=serde, other_value_serde=serde)
    stream = builder.stream("left").merge(builder.stream("right"))
    parts = stream.split().branch(lambda key, value: "x" in (value or "")).default_branch()
    left = stream.merge(*(part.map_values(lambda value: value and value + "'") for part in parts.values()))
    right = stream.filter(lambda key, value: "k" in (value or "")).peek(lambda key, value: None)
    JOINS[kind](left, right, pair, joined, windows=windows).to("out", Produced("string", "string"))
    return builder.build()


def with_itself_once(windows: JoinWindows, kind: str, order: Order = Order.ARRIVAL) -> Topology:
    # What waits has to be readable, or else the task fails.
    serde = Picky(reads=kind != "inner")
    builder = StreamsBuilder(key_serde=serde, value_serde=serde, optimize=True, order=order)
    stream = builder.stream("left").merge(builder.stream("right"))
    joined = StreamJoined(name="pairs", key_serde=serde, value_serde=serde)
    stream.join(stream, pair, joined, windows=windows).to("out", Produced("string", "string"))
    return builder.build()


BUILDS: Mapping[str, Callable[[JoinWindows, str, Order], Topology]] = {
    "two topics": two_topics,
    "with itself": with_itself,
    "with itself, one store": with_itself_once,
}


def micro_batches() -> st.SearchStrategy[list[MicroBatch]]:
    record = st.tuples(
        st.sampled_from(["a", "b", "c", "a\0", "a", "b", "w", None]),
        st.sampled_from(["x", "k", "xk", "", "j", "w", "r", None, "x", "k"]),
        st.integers(0, 40),
    )
    several = st.lists(record, max_size=10)
    in_order = several.map(lambda records: sorted(records, key=lambda one: one[2]))
    inputs = st.fixed_dictionaries(dict.fromkeys(("left", "right"), in_order | several))
    drifting = st.tuples(st.lists(inputs, max_size=4), st.integers(0, 20))
    return drifting.map(
        lambda drawn: [
            {
                topic: Batch([k for k, _, _ in some], [v for _, v, _ in some], [t + drawn[1] * n for _, _, t in some])
                for topic, some in drawn_inputs.items()
                if some
            }
            for n, drawn_inputs in enumerate(drawn[0])
        ]
    )


def one_by_one(inputs: MicroBatch, order: Order = Order.ARRIVAL) -> Iterator[MicroBatch]:
    in_order: MicroBatch = {topic: inputs[topic] for topic in ("left", "right") if topic in inputs}
    for topic, run in merge(in_order, order):
        for row in run.to_batch().rows():
            yield {topic: row}


def outcome(topology: Topology, inputs: Iterable[MicroBatch], complete: bool = False) -> Any:
    """Return results, counters, dead letters and what the stores hold."""
    with TopologyDriver(topology, on_error="dead-letter") as driver:
        for micro_batch in inputs:
            driver.pipe_inputs(micro_batch)
        if complete:
            driver.complete()
        kept = {name: rows(driver.store(name)) for name in topology.stores}
        return driver.read("out"), dict(driver.counters), driver.dead_letters, kept


def rows(store: Any) -> list[tuple[bytes, bytes]]:
    """Return what a store shows; a window store may still have segments that have expired."""
    entries = list(store._scan_rows(b"\0", b"\3"))
    if hasattr(store, "retention"):
        horizon = store._segments.horizon()
        entries = [(row, data) for row, data in entries if row[:1] == b"\0" or _time(row) > horizon]
    return entries


def _time(row: bytes) -> int:
    return int.from_bytes(row[-16:-8]) - (1 << 63)


windows_of_all_shapes = st.builds(
    JoinWindows,
    before=st.integers(0, 12),
    after=st.integers(0, 12),
    grace=st.sampled_from([0, 0, 5, 20, 10_000]),
    eager=st.booleans(),
) | st.builds(JoinWindows, before=st.just(-3), after=st.integers(3, 12), grace=st.sampled_from([0, 10]))


@settings(max_examples=tries(200), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from(list(BUILDS)),
    st.sampled_from(list(JOINS)),
    windows_of_all_shapes,
    micro_batches(),
    st.booleans(),
    st.sampled_from(Order),
)
def test_a_micro_batch_gives_what_its_records_give_one_by_one(
    build: str, kind: str, windows: JoinWindows, inputs: list[MicroBatch], complete: bool, order: Order
) -> None:
    topology = BUILDS[build](windows, kind, order)
    singly = [row for micro_batch in inputs for row in one_by_one(micro_batch, order)]
    assert outcome(topology, inputs, complete) == outcome(topology, singly, complete)


@pytest.mark.parametrize("order", Order)
@pytest.mark.parametrize("backend", ["lmdb", "rocksdb"])
def test_so_it_does_across_restarts(backend: str, order: Order, tmp_path: Path) -> None:
    topology = two_topics(JoinWindows(before=900, after=300, grace=100), "outer", order)
    inputs: list[MicroBatch] = []
    for start in range(0, 3000, 1000):
        times = range(start, start + 1000, 9)
        keys = ["abcdefgh"[time * 31 % 8] for time in times]
        inputs.append({"left": Batch(keys, [f"x{time}" for time in times], [time - time % 5 * 90 for time in times])})
        inputs[-1]["right"] = Batch(keys[::-1], [f"k{time}" for time in times], list(times))
    came = []
    for micro_batch in inputs:
        with TopologyDriver(topology, backend=backend, local_dir=tmp_path) as driver:
            driver.pipe_inputs(micro_batch)
            came += driver.read("out")
    with TopologyDriver(topology) as driver:
        for micro_batch in inputs:
            for row in one_by_one(micro_batch, order):
                driver.pipe_inputs(row)
        expected = driver.read("out")
    assert came == expected
    assert {"None" in record.value for record in came} == {True, False}


def test_without_a_policy_the_first_record_that_fails_is_named() -> None:
    inputs = {"left": Batch(["a", "a"], ["x", "j"], [1, 5]), "right": Batch(["a", "b"], ["x", "w"], [2, 9])}
    with TopologyDriver(two_topics(JoinWindows.of(10), "inner")) as driver:
        with pytest.raises(UserFunctionError, match=r"pairs-this-join.*key 'a', timestamp 5, value 'j'"):
            driver.pipe_inputs(inputs)
        driver.pipe("right", "a", "k", 3)
        assert driver.read("out") == []


class Counting(MemoryBackend):
    """Counts its scans."""

    scans = 0

    def scan(self, *arguments: Any, **options: Any) -> Any:
        Counting.scans += 1
        return super().scan(*arguments, **options)


def scans_of(monkeypatch: pytest.MonkeyPatch, topology: Topology, before: MicroBatch, inputs: MicroBatch) -> int:
    monkeypatch.setattr("millpond.stores.backend.memory.MemoryBackend", Counting)
    with TopologyDriver(topology) as driver:
        driver.pipe_inputs(before)
        Counting.scans = 0
        driver.pipe_inputs(inputs)
        return Counting.scans


@pytest.mark.parametrize("build", [two_topics, with_itself])
def test_each_key_is_read_once_however_the_sides_alternate(
    build: Callable[[JoinWindows, str], Topology], monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 200
    keys = [f"{i % 4}" for i in range(count)]
    left = Batch(keys, ["x"] * count, list(range(0, 2 * count, 2)))
    right = Batch(keys, ["k"] * count, list(range(1, 2 * count, 2)))
    others = [f"{i / 100}" for i in range(500)]
    before = {topic: Batch(others, ["k"] * 500, [0] * 500) for topic in ("left", "right")}
    assert scans_of(monkeypatch, build(JoinWindows.of(50), "outer"), before, {"left": left, "right": right}) < 30


def test_a_walk_through_a_segment_ends_where_single_reads_are_cheaper(monkeypatch: pytest.MonkeyPatch) -> None:
    topology = two_topics(JoinWindows.of(50), "inner")
    before = {"right": Batch([f"{i:05d}" for i in range(2000)], ["k"] * 2000, [0] * 2000)}
    sparse, dense = ([f"{i:05d}" for i in range(0, 2000, step)] for step in (200, 2))
    inputs = [{"left": Batch(keys, ["x"] * len(keys), [1] * len(keys))} for keys in (sparse, dense)]
    assert scans_of(monkeypatch, topology, before, inputs[0]) >= len(sparse)
    assert scans_of(monkeypatch, topology, before, inputs[1]) < 10
    for micro_batch in inputs:
        singly = [before, *one_by_one(micro_batch)]
        assert outcome(topology, [before, micro_batch]) == outcome(topology, singly)


def test_inputs_that_meet_in_a_join_alone_are_one_run_each() -> None:
    (part,) = two_topics(JoinWindows.of(10), "outer").subtopologies
    task = Task(part, {name: spec.open(Transaction(MemoryBackend())) for name, spec in part.stores.items()})
    inputs = {topic: Batch(["a"] * 50, ["k"] * 50, list(range(at, 100, 2))) for at, topic in enumerate(part.sources)}
    assert [(topic, len(run)) for topic, run in merge(inputs, regroup=task.regroup)] == [("left", 50), ("right", 50)]


def gathers(build: Callable[[KStream, KStream, StreamsBuilder], None]) -> set[str]:
    builder = StreamsBuilder(key_serde="string", value_serde="string")
    left, right = builder.stream("left"), builder.stream("right")
    build(left, right, builder)
    (part,) = builder.build().subtopologies
    promises = {name: node.operator().promises for name, node in part.nodes.items() if isinstance(node, ProcessorNode)}
    return set(gathering_nodes(part, promises))


def joined(left: KStream, right: KStream, name: str = "pairs") -> KStream:
    return left.left_join(right, pair, StreamJoined(name=name), windows=JoinWindows.of(10))


WRITTEN = Produced("string", "string")
BOTH = {"pairs-this-join", "pairs-other-join"}


def a_topic(left: KStream, right: KStream, builder: StreamsBuilder) -> None:
    joined(left, right).to("out", WRITTEN)
    left.to("out", WRITTEN)


SHARED: Mapping[str, Callable[[KStream, KStream, StreamsBuilder], None]] = {
    "a topic": a_topic,
    "a merged stream": lambda left, right, builder: joined(left, right).merge(left).to("out", WRITTEN),
    "a table": lambda left, right, builder: joined(left, right).join(builder.table("table"), pair).to("out", WRITTEN),
    "an order that is lost": lambda left, right, builder: joined(left.flat_map_values(list), right).to("out", WRITTEN),
    "a processor of one's own": lambda left, right, builder: joined(
        left.process(lambda: LastSeen("pairs-this-join-store"), keeps_key=True), right
    ).to("out", WRITTEN),
}


def test_a_join_gathers_its_records_whatever_hangs_below_it_or_beside_it() -> None:
    def plain(left: KStream, right: KStream, builder: StreamsBuilder) -> None:
        joined(left.filter(lambda key, value: True), right.map_values(str)).group_by_key().count().to("out")
        left.group_by_key().count().to("counts")

    assert gathers(plain) == BOTH


@pytest.mark.parametrize("name", SHARED)
def test_it_takes_records_as_they_come_where_others_could_tell_the_difference(name: str) -> None:
    assert gathers(SHARED[name]) == set()


def test_of_two_joins_one_below_the_other_the_first_gathers() -> None:
    def chained(left: KStream, right: KStream, builder: StreamsBuilder) -> None:
        first = joined(left, right)
        joined(first, first.filter(lambda key, value: True), "again").to("out", WRITTEN)

    def crossed(left: KStream, right: KStream, builder: StreamsBuilder) -> None:
        joined(joined(left, right), left, "again").to("out", WRITTEN)

    assert gathers(chained) == BOTH
    assert gathers(crossed) == set()


@pytest.mark.parametrize("windows", [JoinWindows(0, 5), JoinWindows(5, 0), JoinWindows(-1, 5), JoinWindows(5, -1)])
def test_a_record_meets_itself_where_its_own_time_is_in_its_window(windows: JoinWindows) -> None:
    with TopologyDriver(with_itself_once(windows, "inner")) as driver:
        driver.pipe("left", "a", "x", 10)
        assert len(driver.read("out")) == (windows.before >= 0 and windows.after >= 0)
