"""``waiting``: each operator that holds something back says how much, as of the end of each micro-batch.

What waits is what comes out when the input is complete. That is the answer that levels are compared with.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from millpond.errors import MillpondError
from millpond.processors import (
    Batch,
    CounterName,
    EmitStrategy,
    Joined,
    JoinWindows,
    Materialized,
    Produced,
    RecordProcessor,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    Topology,
    TopologyDriver,
)
from millpond.processors.verbs.apply import ApplySpec
from millpond.processors.verbs.keyed_processor import KeyContext, KeyedProcessor
from millpond.stores.encoding.rows.packing import RowCodec
from millpond.stores.encoding.rows.schemas import Schemas
from millpond.stores.encoding.rows.tuple_keys import KeyCodec
from tests.drawing import tries
from tests.processors.driving import random_records

Build = Callable[[StreamsBuilder], object]
Arrival = tuple[str, str, str, int]
"""Topic, key, value, timestamp."""

KEYS = KeyCodec(pa.schema([pa.field("key", pa.string())]))
ROWS = RowCodec(Schemas.first(pa.schema([pa.field("value", pa.string())])))


def reordered(builder: StreamsBuilder) -> None:
    history = Materialized.versioned("history", history_retention=1000)
    builder.table("in", materialized=history, reorder_within=20).to_stream().to("out")


def joined_with_a_table(builder: StreamsBuilder) -> None:
    table = builder.table("other", materialized=Materialized.versioned("history", history_retention=1000))
    builder.stream("in").left_join(table, "{}-{}".format, Joined(grace=20)).to("out", Produced(value_serde="string"))


def suppressed(builder: StreamsBuilder) -> None:
    table = builder.table("in", materialized=Materialized("latest"))
    table.suppress(Suppressed.until_time_limit(20)).to("out")


def suppressed_until_the_window_closes(builder: StreamsBuilder) -> None:
    counts = builder.stream("in").group_by_key().windowed_by(TimeWindows(10, grace=5)).count(Materialized("counts"))
    counts.suppress(Suppressed.until_window_closes()).to("out")


def final(windows: TimeWindows | SlidingWindows | SessionWindows) -> Build:
    def build(builder: StreamsBuilder) -> None:
        windowed: Any = builder.stream("in").group_by_key().windowed_by(windows)
        windowed.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count(Materialized("counts")).to("out")

    return build


def paired(how: str) -> Build:
    def build(builder: StreamsBuilder) -> None:
        left, right = builder.stream("in"), builder.stream("other")
        pairs = getattr(left, how)(right, "{}-{}".format, windows=JoinWindows.of(10, grace=5))
        pairs.to("out", Produced(value_serde="string"))

    return build


class Telling(KeyedProcessor):
    def process(self, key: Any, row: dict[str, Any], context: KeyContext) -> list[Mapping[str, Any]]:
        context.set_timer("1 hour")
        return [row]

    def on_timer(self, key: Any, timer: Any, context: KeyContext) -> None:
        pass


def applied(builder: StreamsBuilder) -> None:
    def packed(key: str, value: str) -> tuple[bytes, bytes]:
        return KEYS.pack(pa.table({"key": [key]}))[0], ROWS.pack(pa.table({"value": [value]}))[0]

    spec = ApplySpec("told", Telling(), KEYS, ROWS, lateness=20)
    rows = builder.stream("in").map(packed)
    rows.process(spec.operator, stores=spec.stores, name="told", keeps_key=True).to("out")


HOLDING: Mapping[str, Build] = {
    "reordered": reordered,
    "joined with a table": joined_with_a_table,
    "suppressed": suppressed,
    "suppressed until the window closes": suppressed_until_the_window_closes,
    "tumbling": final(TimeWindows(10, grace=5)),
    "hopping": final(TimeWindows(10, advance=4, grace=5)),
    "sliding": final(SlidingWindows(10, grace=5)),
    "sessions": final(SessionWindows(6, grace=5)),
    "left": paired("left_join"),
    "outer": paired("outer_join"),
    "applied": applied,
}


def topology_of(name: str, *others: Build) -> Topology:
    builder = StreamsBuilder(key_serde="string", value_serde="string")
    for build in (HOLDING[name], *others):
        build(builder)
    return builder.build()


def driver_of(name: str, **options: Any) -> TopologyDriver:
    return TopologyDriver(topology_of(name), **options)


def levels(driver: TopologyDriver) -> list[int]:
    return [amount for name, amount in driver.counters.items() if name.endswith(f":{CounterName.WAITING}")]


def inputs_of(name: str, arrivals: Sequence[Arrival]) -> dict[str, Batch]:
    """Return the records of the topics that the topology reads."""
    inputs = {}
    for topic in topology_of(name).sources:
        rows = [row[1:] for row in arrivals if row[0] == topic]
        if rows:
            inputs[topic] = Batch(*(list(column) for column in zip(*rows, strict=True)))
    return inputs


def pipe(name: str, driver: TopologyDriver, arrivals: Sequence[Arrival]) -> None:
    """Pipe one micro-batch; without any records, the input is complete."""
    if not arrivals:
        driver.complete()
    elif inputs := inputs_of(name, arrivals):
        driver.pipe_inputs(inputs)


arrivals = st.tuples(
    st.sampled_from(["in", "in", "other"]), st.sampled_from("ab"), st.sampled_from("xy"), st.integers(0, 70)
)
histories = st.lists(st.lists(arrivals, max_size=6), max_size=6)


@pytest.mark.parametrize("name", HOLDING)
@settings(max_examples=tries(40), deadline=None)
@given(history=histories)
@example(history=[[("in", "a", "x", 10)], [], [("in", "a", "x", 12), ("in", "a", "y", 10)]])
def test_what_waits_is_what_comes_out_when_the_input_is_complete(
    name: str, history: Sequence[Sequence[Arrival]]
) -> None:
    with driver_of(name) as driver:
        for micro_batch in history:
            pipe(name, driver, micro_batch)
        waiting = levels(driver)
        assert waiting
        driver.read("out")
        driver.complete()
        assert sum(waiting) == len(driver.read("out"))
        assert set(levels(driver)) == {0}


def micro_batches(seed: int) -> Iterator[Sequence[Arrival]]:
    records = random_records(seed, 40, topics=("in", "other"))
    for start in range(0, len(records), 5):
        yield [(topic, key, value, time) for topic, key, value, time in records[start : start + 5]]


@pytest.mark.parametrize("backend", ["lmdb", "rocksdb"])
@pytest.mark.parametrize("name", HOLDING)
def test_what_waits_is_known_after_restarts(name: str, backend: str, tmp_path: Path) -> None:
    seen = set()
    with driver_of(name) as undisturbed:
        for arrivals in micro_batches(1):
            pipe(name, undisturbed, arrivals)
            with driver_of(name, backend=backend, local_dir=tmp_path) as driver:
                pipe(name, driver, arrivals)
            with driver_of(name, backend=backend, local_dir=tmp_path) as driver:
                assert levels(driver) == levels(undisturbed)
            seen.update(levels(undisturbed))
    assert max(seen) > 1


class Failing(RecordProcessor):
    def process_record(self, key: Any, value: Any, timestamp: int) -> None:
        if value == "bad":
            raise MillpondError("bad")


@pytest.mark.parametrize("name", HOLDING)
def test_a_micro_batch_that_fails_leaves_what_waits_as_it_was(name: str) -> None:
    topology = topology_of(name, lambda builder: builder.stream("failing").process(Failing))
    first, second, *_ = micro_batches(2)
    with TopologyDriver(topology) as driver:
        pipe(name, driver, first)
        before = levels(driver)
        with pytest.raises(MillpondError, match="bad"):
            driver.pipe_inputs({**inputs_of(name, second), "failing": Batch(["k"], ["bad"], [10**6])})
        assert levels(driver) == before


class Keeping(RecordProcessor):
    def open(self) -> None:
        self.kept: list[Any] = []
        self.context.level("kept", lambda: len(self.kept))

    def process_record(self, key: Any, value: Any, timestamp: int) -> None:
        self.kept.append(value)

    def process_completion(self) -> None:
        self.kept.clear()


def test_a_processor_of_ones_own_shows_a_level_and_it_does_not_add_up() -> None:
    builder = StreamsBuilder(key_serde="string", value_serde="string")
    builder.stream("in").process(Keeping, name="keeping")
    with TopologyDriver(builder.build()) as driver:
        assert driver.counters == {"keeping:kept": 0}
        driver.pipe("in", "a", "x", 1)
        driver.pipe("in", "a", "y", 2)
        assert driver.counters == driver.counters == {"keeping:kept": 2}
        driver.complete()
        assert driver.counters == {"keeping:kept": 0}


def test_operators_that_hold_nothing_back_have_no_level() -> None:
    builder = StreamsBuilder(key_serde="string", value_serde="string")
    pairs = builder.stream("in").join(builder.stream("other"), "{}-{}".format, windows=JoinWindows.of(10))
    pairs.to("out", Produced(value_serde="string"))
    builder.stream("words").group_by_key().windowed_by(TimeWindows(10)).count().to("counts")
    with TopologyDriver(builder.build()) as driver:
        driver.pipe("in", "a", "x", 1)
        driver.pipe("words", "a", "x", 1)
        assert driver.counters == {}
