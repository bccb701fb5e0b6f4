"""Completion of the input: everything that waits comes out, as a far later record would bring it out, and once."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from millpond.errors import UserFunctionError
from millpond.processors import (
    EmitStrategy,
    Grouped,
    Joined,
    JoinWindows,
    KStream,
    KTable,
    Materialized,
    PunctuationType,
    Record,
    RecordProcessor,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    TopologyDriver,
)
from millpond.stores.encoding.serdes import INT64, STRING
from millpond.stores.specs.store_spec import StoreKind, StoreSpec
from millpond.stores.typed.windows.windowed import Windowed
from tests.drawing import tries
from tests.processors.driving import Build, text_topology
from tests.processors.random_topologies import NO_REPARTITION, OPERATORS, Step, histories, programs
from tests.processors.test_batching import History, build, ordered

FAR = 10_000
ON_CLOSE = EmitStrategy.ON_WINDOW_CLOSE
HISTORY = Materialized.versioned(history_retention=100)


def joined(*parts: Any) -> str:
    return "-".join(map(str, parts))


def driver_of(make: Build, **options: Any) -> TopologyDriver:
    return TopologyDriver(text_topology(make), **options)


def tumbling(builder: StreamsBuilder) -> KTable:
    return builder.stream("in").group_by_key().windowed_by(TimeWindows(5, grace=3)).emit_strategy(ON_CLOSE).count()


def hopping(builder: StreamsBuilder) -> KTable:
    windows = TimeWindows(6, advance=2, grace=1)
    return builder.stream("in").group_by_key().windowed_by(windows).emit_strategy(ON_CLOSE).count()


def sliding(builder: StreamsBuilder) -> KTable:
    return builder.stream("in").group_by_key().windowed_by(SlidingWindows(5, grace=3)).emit_strategy(ON_CLOSE).count()


def sessions(builder: StreamsBuilder) -> KTable:
    return builder.stream("in").group_by_key().windowed_by(SessionWindows(4, grace=3)).emit_strategy(ON_CLOSE).count()


def until_windows_close(builder: StreamsBuilder) -> KTable:
    counts = builder.stream("in").group_by_key().windowed_by(TimeWindows(5, grace=3)).count()
    return counts.suppress(Suppressed.until_window_closes())


def until_a_time_limit(builder: StreamsBuilder) -> KTable:
    return builder.table("in").suppress(Suppressed.until_time_limit(6))


def reordered(builder: StreamsBuilder) -> KTable:
    return builder.table("in", materialized=HISTORY, reorder_within=6)


def joined_with_grace(builder: StreamsBuilder) -> KStream:
    table = builder.table("table", materialized=HISTORY)
    return builder.stream("in").left_join(table, joined, Joined(grace=6))


def left_joined(builder: StreamsBuilder) -> KStream:
    return builder.stream("in").left_join(builder.stream("other"), joined, windows=JoinWindows(3, 3, grace=2))


def outer_joined(builder: StreamsBuilder) -> KStream:
    return builder.stream("in").outer_join(builder.stream("other"), joined, windows=JoinWindows(3, 3, grace=2))


def left_joined_with_itself(builder: StreamsBuilder) -> KStream:
    stream = builder.stream("in")
    return stream.left_join(stream, joined, windows=JoinWindows(before=-1, after=3, grace=2))


HOLDING = [
    tumbling,
    hopping,
    sliding,
    sessions,
    until_windows_close,
    until_a_time_limit,
    reordered,
    joined_with_grace,
    left_joined,
    outer_joined,
    left_joined_with_itself,
]
OTHER_INPUT: dict[Build, str] = {joined_with_grace: "table", left_joined: "other", outer_joined: "other"}
WINDOWED = [tumbling, hopping, sliding, sessions, until_windows_close]

RECORDS = st.lists(
    st.tuples(
        st.sampled_from(["in", "in", "in", "other", "table"]),
        st.sampled_from("abc"),
        st.sampled_from(["x", "y"]),
        st.integers(0, 25),
    ),
    max_size=20,
)
Piped = list[tuple[str, str, str, int]]


def read_by(make: Build, records: Piped) -> Piped:
    """Return the records of the topics that the operator reads."""
    return [record for record in records if record[0] in ("in", OTHER_INPUT.get(make))]


def pipe(driver: TopologyDriver, records: Piped) -> list[Record]:
    """Return what comes out of a micro-batch for each record."""
    for topic, key, value, timestamp in records:
        driver.pipe(topic, key, value, timestamp)
    return driver.read("out")


def complete(driver: TopologyDriver) -> list[Record]:
    driver.complete()
    return driver.read("out")


def far_record(driver: TopologyDriver) -> list[Record]:
    """Return what a far later record of another key brings out, besides what it makes itself."""
    driver.pipe("in", "far", "x", FAR)
    return [record for record in driver.read("out") if record.key != "far"]


checked = settings(max_examples=tries(30), deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("make", HOLDING)
@checked
@given(records=RECORDS)
def test_what_waits_comes_out_as_a_far_later_record_brings_it_out(make: Build, records: Piped) -> None:
    records = read_by(make, records)
    with driver_of(make) as completed, driver_of(make) as continued:
        assert pipe(completed, records) == pipe(continued, records)
        assert complete(completed) == far_record(continued)
        assert complete(completed) == []
        assert far_record(completed) == []


@pytest.mark.parametrize("make", HOLDING)
def test_every_operator_that_holds_something_back_lets_it_go(make: Build) -> None:
    with driver_of(make) as driver:
        assert pipe(driver, [("in", "a", "x", 3)]) == []
        assert len(complete(driver)) == (2 if make is hopping else 1)


@pytest.mark.parametrize("make", WINDOWED)
@checked
@given(before=RECORDS, after=RECORDS)
def test_windows_that_change_afterwards_come_out_again_and_no_result_twice(
    make: Build, before: Piped, after: Piped
) -> None:
    before, after = read_by(make, before), read_by(make, after)
    with driver_of(make) as completed, driver_of(make) as continued:
        output = pipe(completed, before) + complete(completed) + pipe(completed, after) + far_record(completed)
        expected = pipe(continued, before) + pipe(continued, after) + far_record(continued)
    assert max(Counter(output).values(), default=1) == 1
    last = {record.key: record for record in output}
    # A session that has come out and then grows is another session.
    grown = make is sessions
    assert [last[record.key] for record in expected] == expected
    assert grown or len(last) == len(expected)


@checked
@given(before=RECORDS, after=RECORDS)
def test_records_that_come_afterwards_wait_as_before(before: Piped, after: Piped) -> None:
    before, after = read_by(reordered, before), read_by(reordered, after)
    with driver_of(reordered) as completed, driver_of(reordered) as continued:
        output = pipe(completed, before) + complete(completed) + pipe(completed, after) + far_record(completed)
        assert Counter(output) == Counter(pipe(continued, before + after) + far_record(continued))


@pytest.mark.parametrize("make", WINDOWED)
def test_a_restart_forgets_neither_what_has_come_out_nor_what_has_changed_since(make: Build, tmp_path: Path) -> None:
    runs: list[Callable[[TopologyDriver], list[Record]]] = [
        lambda driver: pipe(driver, [("in", "a", "x", 20), ("in", "b", "x", 20)]) + complete(driver),
        lambda driver: pipe(driver, [("in", "a", "y", 20)]),
        lambda driver: far_record(driver),
    ]
    found = []
    for run in runs:
        with driver_of(make, backend="lmdb", local_dir=tmp_path) as driver:
            found.append([(record.key.key, record.value) for record in run(driver)])
    windows = len(found[0]) // 2
    assert sorted(found[0]) == [("a", 1)] * windows + [("b", 1)] * windows
    assert found[1:] == [[], [("a", 2)] * windows]


@pytest.mark.parametrize("counted", [tumbling, hopping, sliding, sessions])
def test_a_result_that_comes_again_takes_the_place_of_the_one_before_it(
    counted: Callable[[StreamsBuilder], KTable],
) -> None:
    def make(builder: StreamsBuilder) -> KTable:
        counts = counted(builder)
        by_start = counts.group_by(lambda key, count: (key.start, count), Grouped("int64", "int64"))
        add, subtract = (lambda key, value, total: total + value), (lambda key, value, total: total - value)
        return by_start.aggregate(lambda: 0, add, subtract, Materialized.with_serdes("int64", "int64"))

    records = [("in", "a", "x", 20), ("in", "b", "x", 20)]
    with driver_of(make) as driver:
        pipe(driver, records)
        assert complete(driver)[-1].value == 2
        pipe(driver, records[:1])
        assert complete(driver)[-1].value == 3


def test_a_partner_that_comes_afterwards_still_makes_its_pair() -> None:
    with driver_of(left_joined) as driver:
        pipe(driver, [("in", "a", "x", 3)])
        assert complete(driver) == [Record("a", "x-None", 3)]
        assert pipe(driver, [("other", "a", "y", 4)]) == [Record("a", "x-y", 4)]
        assert far_record(driver) == []


def test_stream_time_stays_so_records_in_time_are_not_late_afterwards() -> None:
    with driver_of(tumbling) as driver:
        pipe(driver, [("in", "a", "x", 12)])
        complete(driver)
        pipe(driver, [("in", "b", "x", 8)])
        assert far_record(driver) == [Record(Windowed("b", 5, 10), 1, 8)]
        assert not [name for name in driver.counters if "dropped" in name]


class TestChains:
    def test_final_results_pass_through_a_suppress_below_them(self) -> None:
        def make(builder: StreamsBuilder) -> KTable:
            return tumbling(builder).suppress(Suppressed.until_time_limit(50))

        with driver_of(make) as driver:
            pipe(driver, [("in", "a", "x", 3), ("in", "b", "x", 17)])
            assert complete(driver) == [
                Record(Windowed("a", 0, 5), 1, 3),
                Record(Windowed("b", 15, 20), 1, 17),
            ]

    def test_records_that_waited_for_a_table_are_aggregated_before_their_windows_come_out(self) -> None:
        def make(builder: StreamsBuilder) -> KTable:
            windows = joined_with_grace(builder).group_by_key().windowed_by(TimeWindows(5))
            return windows.emit_strategy(ON_CLOSE).count()

        with driver_of(make) as driver:
            assert pipe(driver, [("in", "a", "x", 3), ("in", "a", "x", 4), ("in", "a", "x", 6)]) == []
            assert complete(driver) == [Record(Windowed("a", 0, 5), 2, 4), Record(Windowed("a", 5, 10), 1, 6)]

    def test_the_table_has_all_its_records_before_those_that_wait_for_it_are_joined(self) -> None:
        def make(builder: StreamsBuilder) -> KStream:
            table = builder.table("table", materialized=HISTORY, reorder_within=20)
            return builder.stream("in").join(table, joined, Joined(grace=20))

        with driver_of(make) as driver:
            assert pipe(driver, [("in", "a", "x", 3), ("table", "a", "y", 2)]) == []
            assert complete(driver) == [Record("a", "x-y", 3)]

    def test_both_sides_of_a_join_have_all_their_records_before_those_without_a_partner_come_out(self) -> None:
        def make(builder: StreamsBuilder) -> KStream:
            sides = []
            for topic in ("in", "other"):
                stream = builder.stream(topic).to_table(HISTORY, reorder_within=50).to_stream()
                sides.append(stream)
            return sides[0].outer_join(sides[1], joined, windows=JoinWindows(3, 3, grace=2))

        with driver_of(make) as driver:
            pipe(driver, [("in", "a", "x", 3), ("other", "a", "y", 4), ("other", "b", "y", 4)])
            assert complete(driver) == [Record("a", "x-y", 4), Record("b", "None-y", 4)]

    def test_updates_in_a_cache_reach_the_suppress_below_before_it_lets_go(self) -> None:
        def make(builder: StreamsBuilder) -> KTable:
            windows = builder.stream("in").to_table(HISTORY, reorder_within=50).to_stream().group_by_key()
            counts = windows.windowed_by(TimeWindows(10)).count(Materialized(caching=True))
            return counts.suppress(Suppressed.until_window_closes())

        with driver_of(make) as driver:
            pipe(driver, [("in", "a", "x", 3), ("in", "a", "y", 4)])
            assert complete(driver) == [Record(Windowed("a", 0, 10), 2, 4)]

    def test_everything_passes_through_repartition_topics_in_one_micro_batch(self) -> None:
        def make(builder: StreamsBuilder) -> KTable:
            flat = (
                tumbling(builder)
                .to_stream()
                .map(lambda key, count: ("all", str(count)), key_serde="string", value_serde="string")
            )
            windows = flat.group_by_key().windowed_by(TimeWindows(100, grace=100))
            return windows.emit_strategy(ON_CLOSE).count()

        with driver_of(make) as driver:
            pipe(driver, [("in", "a", "x", 3), ("in", "b", "x", 17), ("in", "b", "x", 24)])
            assert complete(driver) == [Record(Windowed("all", 0, 100), 3, 24)]


class Latch(RecordProcessor):
    """Holds the last value of each key back until the input is complete."""

    def open(self) -> None:
        self._held = self.context.store("held")

    def process_record(self, key: Any, value: Any, timestamp: int) -> None:
        self._held.put(key, timestamp)

    def process_completion(self) -> None:
        for key, timestamp in list(self._held.scan()):
            self.forward(key, "last", timestamp)
            self._held.delete(key)


def test_a_processor_of_one_s_own_can_let_go_what_it_holds() -> None:
    def make(builder: StreamsBuilder) -> KStream:
        held = StoreSpec("held", StoreKind.KEY_VALUE, STRING, INT64)
        latched = builder.stream("in").process(Latch, stores=[held], keeps_key=True, value_serde="string")
        table = builder.table("table", materialized=HISTORY)
        return latched.left_join(table, joined, Joined(grace=5))

    with driver_of(make) as driver:
        assert pipe(driver, [("in", "b", "x", 3), ("in", "a", "x", 4)]) == []
        assert complete(driver) == [Record("b", "last-None", 3), Record("a", "last-None", 4)]
        assert complete(driver) == []


def test_punctuations_do_not_fire() -> None:
    class Ticker(RecordProcessor):
        def open(self) -> None:
            self.schedule(10, PunctuationType.STREAM_TIME, lambda now: self.forward("tick", "x", now))

        def process_record(self, key: Any, value: Any, timestamp: int) -> None:
            pass

    def make(builder: StreamsBuilder) -> KStream:
        return builder.stream("in").process(Ticker, value_serde="string", key_serde="string")

    with driver_of(make) as driver:
        assert len(pipe(driver, [("in", "a", "x", 25)])) == 1
        assert complete(driver) == []


def test_a_completion_that_fails_leaves_everything_waiting() -> None:
    broken = [True]

    def fail_once(value: Any) -> Any:
        if broken:
            raise ZeroDivisionError
        return value

    with driver_of(lambda builder: reordered(builder).to_stream().map_values(fail_once)) as driver:
        pipe(driver, [("in", "a", "x", 3)])
        with pytest.raises(UserFunctionError):
            driver.complete()
        broken.clear()
        assert complete(driver) == [Record("a", "x", 3)]


def outputs(program: list[Step], parts: list[History], *, one_by_one: bool) -> dict[str, list[Any]]:
    """Return what comes out if the input is complete after each part, and then again, which changes nothing."""
    topology = build(program)
    found: dict[str, list[Any]] = {topic: [] for topic in topology.sinks}
    with TopologyDriver(topology) as driver:
        for part in parts:
            for topic, records in part:
                for run in ([record] for record in records) if one_by_one else [records]:
                    driver.pipe_all(topic, run)
            driver.complete()
            for topic, read in found.items():
                read.extend(driver.read(topic))
            driver.complete()
            assert not any(driver.read(topic) for topic in topology.sinks)
    return found


@settings(max_examples=tries(100), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.one_of(programs(NO_REPARTITION), programs(sorted(OPERATORS), most=4)),
    st.lists(histories(), min_size=1, max_size=2),
)
def test_whole_batches_and_single_records_leave_the_same_waiting(program: list[Step], parts: list[History]) -> None:
    assume(ordered(build(program)))
    assert outputs(program, parts, one_by_one=False) == outputs(program, parts, one_by_one=True)
