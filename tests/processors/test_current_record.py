"""The current record and stream time, as a processor is told of them."""

from pathlib import Path
from typing import Any

import pytest

from millpond.errors import TopologyError, UserFunctionError
from millpond.processors import (
    Batch,
    Processor,
    ProcessorContext,
    PunctuationType,
    RecordMetadata,
    RecordProcessor,
    StreamsBuilder,
    Suppressed,
    Topology,
    TopologyBuilder,
    TopologyDriver,
)
from millpond.processors.runtime.counters import CounterName
from millpond.processors.verbs.rekeying.carriages import CARRIAGES
from millpond.stores.encoding.keys import pack_time
from millpond.stores.encoding.serdes import INT64, STRING
from millpond.stores.evolution.carriage import NO_LAYOUT
from millpond.stores.specs.store_spec import StoreKind, StoreSpec

TIMES = StoreSpec("times", StoreKind.KEY_VALUE, STRING, INT64)


class Told(RecordProcessor):
    """Forwards what it is told."""

    def open(self) -> None:
        self.context.declare(record_by_record=True)

    def process_record(self, key: Any, value: Any, timestamp: int) -> None:
        found = self.context.record_metadata
        assert found is not None
        self.forward(key, [found.topic, found.timestamp, len(found.headers)], timestamp)


class Clock(RecordProcessor):
    """Forwards stream time."""

    def open(self) -> None:
        self.context.declare(record_by_record=True)

    def process_record(self, key: Any, value: Any, timestamp: int) -> None:
        self.forward(key, self.context.stream_time, timestamp)


class Shift(RecordProcessor):
    """Passes on values other than 0, a thousand milliseconds later."""

    def process_record(self, key: Any, value: Any, timestamp: int) -> None:
        if value:
            self.forward(key, value, timestamp + 1000)


def values(driver: TopologyDriver) -> list[Any]:
    return [record.value for record in driver.read("out")]


def clock(*, supplier: type[RecordProcessor] = Clock) -> Topology:
    builder = StreamsBuilder(order="arrival")
    builder.stream("in").process(Shift).process(supplier, stores=[TIMES], name="clock").to("out")
    return builder.build()


def test_stream_time_is_the_greatest_timestamp_that_the_task_has_taken_whatever_became_of_the_record() -> None:
    with TopologyDriver(clock()) as driver:
        driver.pipe_all("in", [("a", 1, 5), ("a", 0, 9), ("a", 1, 7), ("a", 1, 12)])
        assert values(driver) == [5, 9, 12]
        driver.pipe("in", "a", 1, 3)
        assert values(driver) == [12]


def test_stream_time_can_be_before_1970() -> None:
    with TopologyDriver(clock()) as driver:
        driver.pipe_all("in", [("a", 1, -50), ("a", 1, -70)])
        assert values(driver) == [-50, -50]


@pytest.mark.parametrize("backend", ["lmdb", "rocksdb"])
def test_stream_time_goes_on_after_a_restart(backend: str, tmp_path: Path) -> None:
    for value, at, expected in ((1, 50, 50), (1, 20, 50), (1, 60, 60), (1, 10, 60)):
        with TopologyDriver(clock(), backend=backend, local_dir=tmp_path) as driver:
            driver.pipe("in", "a", value, at)
            assert values(driver) == [expected]


def test_a_micro_batch_that_fails_does_not_move_stream_time() -> None:
    class Failing(Clock):
        def process_record(self, key: Any, value: Any, timestamp: int) -> None:
            super().process_record(key, value, timestamp)
            if value == 13:
                raise ValueError("unlucky")

    with TopologyDriver(clock(supplier=Failing)) as driver:
        driver.pipe("in", "a", 1, 5)
        with pytest.raises(UserFunctionError, match="unlucky"):
            driver.pipe("in", "a", 13, 99)
        driver.pipe("in", "a", 1, 6)
        assert values(driver) == [5, 6]


def test_stream_time_is_set_back_with_everything_else(tmp_path: Path) -> None:
    with TopologyDriver(clock(), backend="lmdb", local_dir=tmp_path) as driver:
        driver.pipe("in", "a", 1, 4_102_444_800_000)
    with TopologyDriver(clock(), backend="lmdb", local_dir=tmp_path, reset_stream_time=100) as driver:
        driver.pipe("in", "a", 1, 7)
        assert values(driver) == [100]
        assert driver.counters[f"clock:{CounterName.SET_BACK}"] == 1


def test_stream_time_is_kept_as_a_time_of_the_processor_and_the_greatest_counts_where_partitions_become_one() -> None:
    with TopologyDriver(clock()) as driver:
        driver.pipe("in", "a", 1, 7)
        store = driver.store("times")
        assert {name: store.get_metadata(name) for name in store.metadata_names("")} == {"task-time-clock": kept(7)}
    assert CARRIAGES[NO_LAYOUT].rules["task-time-*"]([kept(7), kept(9), kept(3)]) == kept(9)


def kept(time: int) -> bytes:
    return b"\x01" + pack_time(time)


def test_a_record_of_a_global_store_moves_no_stream_time() -> None:
    class Ignore(RecordProcessor):
        def process_record(self, key: Any, value: Any, timestamp: int) -> None: ...

    builder = StreamsBuilder(order="arrival")
    builder.add_global_store(StoreSpec("names", StoreKind.KEY_VALUE, STRING, STRING), "names in", Ignore)
    builder.stream("in").process(Clock, stores=[TIMES, "names"]).to("out")
    with TopologyDriver(builder.build()) as driver:
        driver.pipe("in", "a", 1, 5)
        driver.pipe("names in", "a", 1, 99)
        driver.pipe("in", "a", 1, 6)
        assert values(driver) == [5, 6]


def test_who_asks_for_stream_time_has_to_say_so_and_to_have_a_store_and_following_the_messages_works() -> None:
    class Asking(RecordProcessor):
        def process_record(self, key: Any, value: Any, timestamp: int) -> None:
            self.forward(key, self.context.stream_time, timestamp)

    def asking(supplier: type[RecordProcessor], *stores: StoreSpec) -> TopologyDriver:
        builder = TopologyBuilder()
        builder.add_source("source", "in")
        builder.add_processor("asking", supplier, "source", stores=stores)
        builder.add_sink("sink", "out", "asking")
        return TopologyDriver(builder.build())

    with (
        asking(Asking, TIMES) as driver,
        pytest.raises(TopologyError, match=r"'asking' asks for stream_time, .* call context.declare"),
    ):
        driver.pipe("in", "a", 1, 5)

    class Declaring(Asking):
        def open(self) -> None:
            self.context.declare(record_by_record=True)

    with (
        asking(Declaring) as driver,
        pytest.raises(TopologyError, match=r"has no store .*stores=\[StoreSpec\('task-time-of-asking', StoreK"),
    ):
        driver.pipe("in", "a", 1, 5)
    with asking(Declaring, StoreSpec("task-time-of-asking", StoreKind.KEY_VALUE, STRING, INT64)) as driver:
        driver.pipe("in", "a", 1, 5)
        assert values(driver) == [5]


def test_the_metadata_are_those_of_the_record_that_was_taken_and_the_timestamp_that_of_the_record_itself() -> None:
    builder = StreamsBuilder()
    streams = [builder.stream(topic) for topic in ("one", "two")]
    streams[0].merge(streams[1]).process(Shift).process(Told).to("out")
    with TopologyDriver(builder.build()) as driver:
        driver.pipe_inputs({"one": Batch(["a", "a"], [1, 2], [1, 3]), "two": Batch(["a"], [3], [2])})
        driver.pipe("two", "a", 4, 4, headers=[("trace", b"1")])
        assert [(record.value, record.timestamp) for record in driver.read("out")] == [
            (["one", 1, 0], 1001),
            (["two", 2, 0], 1002),
            (["one", 3, 0], 1003),
            (["two", 4, 1], 1004),
        ]


def test_what_another_record_lets_go_has_that_one_s_metadata() -> None:
    builder = StreamsBuilder()
    builder.table("in").suppress(Suppressed.until_time_limit(10)).to_stream().process(Told).to("out")
    with TopologyDriver(builder.build()) as driver:
        driver.pipe_all("in", [("a", 1, 5), ("b", 2, 15)])
        assert driver.read("out") == [("a", ["in", 15, 0], 5)]


def test_a_punctuation_and_the_completion_have_no_metadata() -> None:
    class Asking(Told):
        def open(self) -> None:
            super().open()
            self.schedule(10, PunctuationType.STREAM_TIME, self.ask)

        def ask(self, now: int) -> None:
            self.forward("asked", str(self.context.record_metadata), now)

        def process_completion(self) -> None:
            self.ask(0)

    builder = StreamsBuilder()
    builder.stream("in").process(Asking).to("out")
    with TopologyDriver(builder.build()) as driver:
        driver.pipe("in", "a", 1, 5)
        driver.complete()
        assert values(driver) == [["in", 5, 0], "None", "None"]


def test_a_processor_of_whole_batches_can_ask_too_and_gets_them_one_by_one() -> None:
    class Batches(Processor):
        def init(self, context: ProcessorContext) -> None:
            super().init(context)
            context.declare(record_by_record=True)

        def process(self, batch: Batch) -> None:
            assert self.context.record_metadata == RecordMetadata("in", batch.timestamps[0])
            self.context.forward(batch.with_values([len(batch)]))

    builder = StreamsBuilder()
    builder.stream("in").process(Batches).to("out")
    with TopologyDriver(builder.build()) as driver:
        driver.pipe_all("in", [("a", 1, 5), ("b", 2, 15)])
        assert values(driver) == [1, 1]


def test_who_asks_for_metadata_has_to_say_so() -> None:
    class Asking(RecordProcessor):
        def process_record(self, key: Any, value: Any, timestamp: int) -> None:
            self.forward(key, self.context.record_metadata, timestamp)

    builder = StreamsBuilder()
    builder.stream("in").process(Asking, name="asking").to("out")
    with (
        TopologyDriver(builder.build()) as driver,
        pytest.raises(TopologyError, match=r"'asking' asks for record_metadata, .* call context.declare"),
    ):
        driver.pipe("in", "a", 1, 5)
