"""Custom processors: records, stores, named children, punctuations."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from millpond.errors import TopologyError
from millpond.processors import (
    Batch,
    Processor,
    ProcessorContext,
    Produced,
    PunctuationType,
    RecordProcessor,
    StreamsBuilder,
    Task,
    TopologyDriver,
)
from millpond.processors.runtime.operator import as_operator
from millpond.processors.runtime.promises import Promises
from millpond.stores.backend.memory import MemoryBackend
from millpond.stores.backend.transaction import Transaction
from millpond.stores.encoding.serdes import INT64, STRING
from millpond.stores.specs.store_spec import StoreKind, StoreSpec
from millpond.stores.typed.keyvalue import KeyValueStore

SUMS = StoreSpec("sums", StoreKind.KEY_VALUE, STRING, INT64)
OUT = Produced("string", "msgpack")


class RunningSum(RecordProcessor):
    """Forwards the sum of each key's values so far."""

    sums: KeyValueStore[str, int]

    def open(self) -> None:
        self.sums = self.context.store("sums")

    def process_record(self, key: Any, value: Any, timestamp: int) -> None:
        total = (self.sums.get(key) or 0) + value
        self.sums.put(key, total)
        self.forward(key, total, timestamp)


class Ticker(RecordProcessor):
    """Forwards the time of each punctuation."""

    def __init__(self, interval: int, kind: PunctuationType) -> None:
        self._interval = interval
        self._kind = kind

    def open(self) -> None:
        self.schedule(self._interval, self._kind, lambda now: self.forward("tick", now, now))

    def process_record(self, key: Any, value: Any, timestamp: int) -> None:
        self.forward(key, value, timestamp)


def _ticking(kind: PunctuationType, interval: int = 10, stores: list[StoreSpec] | None = None) -> StreamsBuilder:
    builder = StreamsBuilder()
    builder.stream("in").process(lambda: Ticker(interval, kind), stores=stores or []).to("out", OUT)
    return builder


def _values(driver: TopologyDriver) -> list[Any]:
    return [record.value for record in driver.read("out")]


def test_a_processor_reads_and_writes_its_store() -> None:
    builder = StreamsBuilder()
    builder.add_state_store(SUMS)
    builder.stream("in").process(RunningSum, stores=["sums"]).to("out", OUT)
    with TopologyDriver(builder.build()) as driver:
        driver.pipe_all("in", [("a", 1, 1), ("b", 10, 2), ("a", 2, 3)])
        assert _values(driver) == [1, 10, 3]
        assert driver.store("sums").get("a") == 3


def test_a_store_may_be_described_where_the_processor_is_added() -> None:
    builder = StreamsBuilder()
    builder.stream("in").process(RunningSum, stores=[SUMS]).to("out", OUT)
    with TopologyDriver(builder.build()) as driver:
        driver.pipe("in", "a", 1, 1)
        assert _values(driver) == [1]


def test_two_processors_may_share_a_store_and_see_each_other_s_writes_record_by_record() -> None:
    builder = StreamsBuilder()
    builder.add_state_store(SUMS)
    source = builder.stream("in")
    source.process(RunningSum, stores=["sums"]).to("first", OUT)
    source.process(RunningSum, stores=["sums"]).to("second", OUT)
    with TopologyDriver(builder.build()) as driver:
        driver.pipe_all("in", [("a", 1, 1), ("a", 1, 2)])
        assert [record.value for record in driver.read("first")] == [1, 3]
        assert [record.value for record in driver.read("second")] == [2, 4]


def test_what_is_forwarded_is_passed_on_when_the_record_is_done() -> None:
    class ForwardsFirst(RunningSum):
        def process_record(self, key: Any, value: Any, timestamp: int) -> None:
            self.forward(key, self.sums.get(key), timestamp)
            self.sums.put(key, value)

    class Reads(RunningSum):
        def process_record(self, key: Any, value: Any, timestamp: int) -> None:
            self.forward(key, [value, self.sums.get(key)], timestamp)

    builder = StreamsBuilder()
    builder.add_state_store(SUMS)
    first = builder.stream("in").process(ForwardsFirst, stores=["sums"], keeps_key=True)
    first.process(Reads, stores=["sums"]).to("out", OUT)
    with TopologyDriver(builder.build()) as driver:
        driver.pipe_all("in", [("k", 1, 1), ("k", 2, 2)])
        assert _values(driver) == [[None, 1], [1, 2]]


def test_a_store_that_is_not_connected_is_refused_by_name() -> None:
    builder = StreamsBuilder()
    builder.add_state_store(SUMS)
    builder.stream("in").process(RunningSum, name="summing").to("out", OUT)
    with pytest.raises(TopologyError, match=r"'summing' asked for store 'sums', which is not connected"):
        TopologyDriver(builder.build())


def test_a_processor_of_whole_batches_may_be_used_as_well() -> None:
    class Sizes(Processor):
        def process(self, batch: Batch) -> None:
            self.context.forward(Batch(["size"], [len(batch)], [max(batch.timestamps)]))

    builder = StreamsBuilder()
    builder.stream("in").process(Sizes).to("out", OUT)
    with TopologyDriver(builder.build()) as driver:
        driver.pipe_all("in", [("a", 1, 1), ("b", 2, 2)])
        assert _values(driver) == [2]


def test_a_processor_of_one_s_own_has_six_members_and_no_promises() -> None:
    members = {name for name in {*vars(Processor), *Processor.__annotations__} if not name.startswith("_")}
    assert members == {"context", "init", "process", "process_columns", "complete", "close"}

    class Sizes(Processor):
        by_key = commutes = unordered = at_flush = gathers = True

        def process(self, batch: Batch) -> None:
            self.context.forward(batch.with_values([len(batch)] * len(batch)))

    sizes = Sizes()
    operator = as_operator(sizes)
    assert operator.promises == Promises()
    assert (operator.process, operator.process_columns) == (sizes.process, sizes.process_columns), "no call in between"
    assert as_operator(operator) is operator


@pytest.mark.parametrize("name", ["repeatable", "record_by_record", "flush"])
def test_what_a_class_of_an_earlier_release_relies_on_is_refused(name: str) -> None:
    once = type("Once", (RecordProcessor,), {name: True, "process_record": lambda *_: None})
    with pytest.raises(TopologyError, match=f"the processor Once has '{name}', of which earlier releases"):
        as_operator(once())


def test_a_processor_declares_one_thing_beside_another() -> None:
    class Halves(Processor):
        def init(self, context: ProcessorContext) -> None:
            super().init(context)
            context.declare(repeatable=True)
            context.declare(record_by_record=True)

        def process(self, batch: Batch) -> None:
            assert self.context.record_metadata is not None
            self.context.forward(batch.with_values([len(batch) / value for value in batch.values]))

    builder = StreamsBuilder()
    builder.stream("in").process(Halves).to("out", OUT)
    with TopologyDriver(builder.build(), on_error="skip") as driver:
        driver.pipe_all("in", [("a", 2, 1), ("b", 0, 2), ("c", 4, 3)])
        assert _values(driver) == [0.5, 0.25]


def test_a_processor_may_choose_the_child() -> None:
    class Route(RecordProcessor):
        def process_record(self, key: Any, value: Any, timestamp: int) -> None:
            self.forward(key, value, timestamp, to=key)

    builder = StreamsBuilder()
    routed = builder.stream("in").process(Route)
    routed.peek(lambda key, value: None, name="left").to("out-left", OUT)
    routed.peek(lambda key, value: None, name="right").to("out-right", OUT)
    with TopologyDriver(builder.build()) as driver:
        driver.pipe_all("in", [("left", 1, 1), ("right", 2, 2), ("left", 3, 3)])
        assert [record.value for record in driver.read("out-left")] == [1, 3]
        assert [record.value for record in driver.read("out-right")] == [2]
        with pytest.raises(TopologyError, match=r"forwards to 'middle', but its children are \['left', 'right'\]"):
            driver.pipe("in", "middle", 4, 4)


def test_records_are_repartitioned_behind_a_processor_unless_it_keeps_the_key() -> None:
    class Same(RecordProcessor):
        def process_record(self, key: Any, value: Any, timestamp: int) -> None:
            self.forward(key, value, timestamp)

    for keeps_key in (True, False):
        builder = StreamsBuilder()
        builder.stream("in").process(Same, keeps_key=keeps_key).group_by_key().count().to("out")
        assert bool(builder.build().internal_topics) is not keeps_key


def test_stream_time_fires_with_the_first_record_and_then_on_the_grid_once_however_far_it_jumps() -> None:
    with TopologyDriver(_ticking(PunctuationType.STREAM_TIME).build()) as driver:
        for timestamp, expected in ((3, [0, 3]), (9, [0]), (10, [0, 10]), (5, [0]), (44, [0, 44]), (50, [0, 50])):
            driver.pipe("in", "a", 0, timestamp)
            assert _values(driver) == expected


def test_stream_time_fires_between_the_records_of_a_batch() -> None:
    with TopologyDriver(_ticking(PunctuationType.STREAM_TIME).build()) as driver:
        driver.pipe_all("in", [("a", -1, 3), ("a", -2, 12), ("a", -3, 13)])
        assert _values(driver) == [-1, 3, -2, 12, -3]


def test_what_is_due_at_the_same_time_fires_in_the_order_of_the_processors() -> None:
    class Named(Ticker):
        def __init__(self, name: str) -> None:
            super().__init__(10, PunctuationType.STREAM_TIME)
            self._name = name

        def open(self) -> None:
            self.schedule(10, PunctuationType.STREAM_TIME, lambda now: self.forward(self._name, now, now))

    builder = StreamsBuilder()
    stream = builder.stream("in").filter(lambda key, value: False)
    for name in "abcd":
        stream = stream.process(partial(Named, name))
    stream.to("out", OUT)
    with TopologyDriver(builder.build()) as driver:
        for timestamp in (0, 25, 30, 99):
            driver.pipe("in", "x", 0, timestamp)
            assert [record.key for record in driver.read("out")] == [*"abcd"]


def test_wall_clock_time_fires_when_the_clock_is_moved_and_not_by_records() -> None:
    with TopologyDriver(_ticking(PunctuationType.WALL_CLOCK_TIME).build()) as driver:
        driver.pipe("in", "a", 0, 1000)
        driver.advance_wall_clock(9)
        assert _values(driver) == [0]
        driver.advance_wall_clock(1)
        assert _values(driver) == [10]
        driver.advance_wall_clock(35)
        assert _values(driver) == [45]
        driver.advance_wall_clock(5)
        assert _values(driver) == [50]


def test_a_cancelled_punctuation_does_not_fire_again() -> None:
    class Once(RecordProcessor):
        def open(self) -> None:
            self.timer = self.schedule(10, PunctuationType.WALL_CLOCK_TIME, self.fire)

        def fire(self, now: int) -> None:
            self.forward("tick", now, now)
            self.timer.cancel()

        def process_record(self, key: Any, value: Any, timestamp: int) -> None:
            raise AssertionError

    builder = StreamsBuilder()
    builder.stream("in").process(Once).to("out", OUT)
    with TopologyDriver(builder.build()) as driver:
        for _ in range(3):
            driver.advance_wall_clock(10)
        assert _values(driver) == [10]


def test_with_a_store_the_grid_goes_on_after_a_restart(tmp_path: Path) -> None:
    def topology() -> TopologyDriver:
        builder = _ticking(PunctuationType.STREAM_TIME, 100, [SUMS])
        return TopologyDriver(builder.build(), backend="lmdb", local_dir=tmp_path)

    with topology() as driver:
        driver.pipe("in", "a", -1, 120)
        assert _values(driver) == [-1, 120]
    with topology() as driver:
        driver.pipe("in", "a", -2, 130)
        assert _values(driver) == [-2]
        driver.pipe("in", "a", -3, 200)
        assert _values(driver) == [-3, 200]


def test_with_a_store_wall_clock_time_goes_on_from_task_to_task() -> None:
    (part,) = _ticking(PunctuationType.WALL_CLOCK_TIME, 10, [SUMS]).build().subtopologies
    transaction = Transaction(MemoryBackend())
    fired = []
    for begins, ends in ((1000, 1005), (1006, 1009), (1012, 1013), (1014, 1025), (3, 5), (6, 13)):
        task = Task(part, {"sums": SUMS.open(transaction)}, wall_clock=begins)
        task.punctuate(ends)
        fired.append([value for batch in task.take().get("out", ()) for value in batch.values])
        task.close()
    assert fired == [[], [], [1013], [1025], [], [13]]


def test_a_processor_is_told_the_wall_clock_time_and_reads_none() -> None:
    class Clock(RecordProcessor):
        def process_record(self, key: Any, value: Any, timestamp: int) -> None:
            self.forward(key, self.context.wall_clock, timestamp)

    builder = StreamsBuilder()
    builder.stream("in").process(Clock).to("out", OUT)
    with TopologyDriver(builder.build()) as driver:
        driver.pipe("in", "a", 1, 1)
        driver.advance_wall_clock(20)
        driver.pipe("in", "a", 1, 1)
        assert _values(driver) == [0, 20]


def test_a_stream_time_schedule_after_the_beginning_is_refused() -> None:
    class Late(RecordProcessor):
        def process_record(self, key: Any, value: Any, timestamp: int) -> None:
            self.schedule(10, PunctuationType.STREAM_TIME, print)

    builder = StreamsBuilder()
    builder.stream("in").process(Late, name="late").to("out", OUT)
    with TopologyDriver(builder.build()) as driver, pytest.raises(TopologyError, match=r"'late' .* do it in init"):
        driver.pipe("in", "a", 1, 1)


def test_an_interval_that_is_not_positive_is_refused() -> None:
    with pytest.raises(TopologyError, match="must be positive, not 0 ms"):
        TopologyDriver(_ticking(PunctuationType.WALL_CLOCK_TIME, 0).build())


def test_a_processor_counts_what_it_drops_and_is_closed_at_the_end() -> None:
    closed: list[str] = []

    class Dropping(RecordProcessor):
        def init(self, context: ProcessorContext) -> None:
            super().init(context)
            assert context.task_id == "0_0"

        def process_record(self, key: Any, value: Any, timestamp: int) -> None:
            self.context.count("dropped")

        def close(self) -> None:
            closed.append(self.context.node)

    builder = StreamsBuilder()
    builder.stream("in").process(Dropping, name="dropping").to("out", OUT)
    with TopologyDriver(builder.build()) as driver:
        driver.pipe_all("in", [("a", 1, 1), ("a", 1, 2)])
        assert driver.counters == {"dropping:dropped": 2}
        assert not closed
    assert closed == ["dropping"]
