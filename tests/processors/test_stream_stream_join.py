"""Joins of two streams against a brute-force reading of the contract, and what the tables of KIP-77 do not say."""

import random
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

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
from tests.drawing import tries

Arrival = tuple[str, str | None, str | None, int]
"""Topic, key, value and timestamp."""

Result = tuple[str | None, str, int]

JOINS = {"inner": KStream.join, "left": KStream.left_join, "outer": KStream.outer_join}


def _topology(kind: str, windows: JoinWindows, joined: StreamJoined | None = None) -> Topology:
    builder = StreamsBuilder(value_serde="string")
    join = JOINS[kind](
        builder.stream("left"), builder.stream("right"), lambda a, b: f"{a}-{b}", joined, windows=windows
    )
    join.to("out", Produced(value_serde="string"))
    return builder.build()


def _run(topology: Topology, arrivals: list[Arrival]) -> list[Result]:
    with TopologyDriver(topology) as driver:
        for topic, *record in arrivals:
            driver.pipe_all(topic, [tuple(record)])  # type: ignore[list-item]
        return [tuple(record) for record in driver.read("out")]


def _contract(kind: str, windows: JoinWindows, arrivals: list[Arrival]) -> list[Result]:
    """Let each arrival meet all earlier ones of the other side that are not forgotten; lone ones come out once."""
    results: list[Result] = []
    kept: dict[str, list[tuple[str, str, int]]] = {"left": [], "right": []}
    newest = {"left": -(10**9), "right": -(10**9)}
    waiting: list[tuple[int, str, str, str, int]] = []
    stream_time = -(10**9)
    far_end = max(windows.before, windows.after) if min(windows.before, windows.after) < 0 else 0
    retention = max(windows.size + windows.grace, far_end + 1)
    for topic, key, value, timestamp in arrivals:
        stream_time = max(stream_time, timestamp)
        for entry in [w for w in waiting if w[0] < stream_time]:
            waiting.remove(entry)
            results.append((entry[2], _paired(entry[1], entry[3], None), entry[4]))
        alone = kind == "outer" or (kind, topic) == ("left", "left")
        if value is None or (key is None and not alone):
            continue
        if key is None:
            results.append((None, _paired(topic, value, None), timestamp))
            continue
        other = "right" if topic == "left" else "left"
        back, ahead = (windows.before, windows.after) if topic == "left" else (windows.after, windows.before)
        partners = [
            (v, t)
            for k, v, t in kept[other]
            if k == key and timestamp - back <= t <= timestamp + ahead and t > newest[other] - retention
        ]
        for partner, time in partners:
            results.append((key, _paired(topic, value, partner), max(timestamp, time)))
            waiting = [w for w in waiting if (w[1], w[2], w[4]) != (other, key, time)]
        if not partners and alone:
            close = timestamp + ahead + windows.grace
            if windows.eager or close < stream_time:
                results.append((key, _paired(topic, value, None), timestamp))
            else:
                waiting.append((close, topic, key, value, timestamp))
        newest[topic] = max(newest[topic], timestamp)
        if timestamp > newest[topic] - retention:
            kept[topic].append((key, value, timestamp))
    return results


def _paired(topic: str, value: str, other: str | None) -> str:
    return f"{value}-{other}" if topic == "left" else f"{other}-{value}"


@st.composite
def arrivals(draw: st.DrawFn) -> list[Arrival]:
    drawn = draw(
        st.lists(
            st.tuples(
                st.sampled_from(["left", "right"]),
                st.sampled_from(["k", "q", "k", "q", None]),
                st.sampled_from([True, True, True, True, False]),
                st.integers(0, 30),
            ),
            max_size=25,
        )
    )
    drift = draw(st.integers(0, 4))
    return [
        (topic, key, f"{topic[0]}{i}" if valued else None, 100 + jitter + drift * i)
        for i, (topic, key, valued, jitter) in enumerate(drawn)
    ]


windows_of_all_shapes = st.builds(
    JoinWindows,
    before=st.integers(0, 12),
    after=st.integers(0, 12),
    grace=st.sampled_from([0, 0, 5, 20]),
    eager=st.booleans(),
) | st.builds(JoinWindows, before=st.just(-3), after=st.integers(3, 12), grace=st.sampled_from([0, 10]))


@settings(max_examples=tries(300), deadline=None)
@given(st.sampled_from(list(JOINS)), windows_of_all_shapes, arrivals())
def test_a_join_gives_what_the_contract_says(kind: str, windows: JoinWindows, given_arrivals: list[Arrival]) -> None:
    came = _run(_topology(kind, windows), given_arrivals)
    assert Counter(came) == Counter(_contract(kind, windows, given_arrivals))


@settings(max_examples=tries(100), deadline=None)
@example(JoinWindows(before=0, after=2, grace=0), [("left", "k", "A", 123), ("left", "k", "B", 125)])
@given(windows_of_all_shapes, arrivals())
def test_a_self_join_gives_the_same_with_one_store_as_with_two(
    windows: JoinWindows, given_arrivals: list[Arrival]
) -> None:
    """Except for pairs at the very edge of the retention, where one store forgets a record before the other is read."""
    retention = windows.size + windows.grace
    times = {value: timestamp for _, _, value, timestamp in given_arrivals}

    def at_the_edge(pair: str) -> bool:
        one, other = pair.split("-")
        return abs(times[one] - times[other]) >= retention or (one == other and retention <= 1)

    results = []
    for optimize in (False, True):
        builder = StreamsBuilder(value_serde="string", optimize=optimize)
        stream = builder.stream("left")
        joined = stream.join(stream, lambda a, b: f"{a}-{b}", windows=windows)
        joined.to("out", Produced(value_serde="string"))
        topology = builder.build()
        assert len(topology.stores) == (1 if optimize else 2)
        in_order = sorted((("left", *arrival[1:]) for arrival in given_arrivals), key=lambda arrival: arrival[3])
        results.append([result for result in _run(topology, in_order) if not at_the_edge(result[1])])
    assert results[0] == results[1]


def test_a_late_record_within_grace_waits_like_any_other() -> None:
    arrivals: list[Arrival] = [("left", "k", "A", 100), ("left", "k", "B", 50), ("right", "k", "b", 55)]
    assert _run(_topology("left", JoinWindows.of(10, grace=100)), arrivals) == [("k", "B-b", 55)]


def test_a_record_beyond_grace_is_joined_with_what_is_still_there_or_comes_out_alone_at_once() -> None:
    arrivals: list[Arrival] = [("left", "k", "A", 100), ("right", "k", "a", 105), ("left", "z", "Z", 130)]
    late: list[Arrival] = [("left", "k", "late", 99), ("left", "k", "later", 90)]
    came = _run(_topology("left", JoinWindows.of(10)), [*arrivals, *late])
    assert came[1:] == [("k", "late-a", 105), ("k", "later-None", 90)]


def test_records_of_one_time_join_even_if_the_window_has_no_length() -> None:
    arrivals: list[Arrival] = [("left", "k", "A", 100), ("right", "k", "a", 100), ("right", "k", "b", 101)]
    assert _run(_topology("inner", JoinWindows()), arrivals) == [("k", "A-a", 100)]


def test_a_window_that_does_not_hold_a_record_s_own_time_reaches_its_far_end() -> None:
    arrivals: list[Arrival] = [("left", "k", "A", 100), ("left", "z", "Z", 103), ("right", "k", "a", 103)]
    assert _run(_topology("inner", JoinWindows(before=-3, after=3)), arrivals) == [("k", "A-a", 103)]


def test_a_window_that_lies_before_1970_holds_no_record_of_1970() -> None:
    arrivals: list[Arrival] = [("left", "k", "A", 0), ("right", "k", "a", 3), ("right", "k", "b", 5)]
    assert _run(_topology("inner", JoinWindows(before=-5, after=30)), arrivals) == [("k", "A-b", 5)]


def test_windows_may_be_given_as_timedeltas() -> None:
    assert JoinWindows(timedelta(seconds=1), timedelta(minutes=1)) == JoinWindows(1000, 60_000)


def test_equal_records_are_kept_apart() -> None:
    arrivals: list[Arrival] = [("left", "k", "A", 100), ("left", "k", "A", 100), ("right", "k", "a", 100)]
    assert _run(_topology("inner", JoinWindows()), arrivals) == [("k", "A-a", 100)] * 2


def test_records_that_waited_come_out_in_the_order_of_their_times_right_before_left_then_by_key() -> None:
    arrivals: list[Arrival] = [
        ("left", "b", "B", 102),
        ("left", "a", "A", 102),
        ("right", "z", "z", 102),
        ("right", "y", "y", 101),
        ("left", "x", "X", 200),
    ]
    came = _run(_topology("outer", JoinWindows.of(10)), arrivals)
    assert [value for _, value, _ in came] == ["None-y", "None-z", "A-None", "B-None"]


def test_several_records_of_one_key_and_time_wait_together() -> None:
    arrivals: list[Arrival] = [("left", "k", "A", 100), ("left", "k", "B", 100), ("left", "x", "X", 200)]
    came = _run(_topology("left", JoinWindows.of(10)), arrivals)
    assert came == [("k", "A-None", 100), ("k", "B-None", 100)]


@pytest.mark.parametrize("backend", ["lmdb", "rocksdb"])
def test_everything_a_join_waits_for_survives_a_restart(backend: str, tmp_path: Path) -> None:
    topology = _topology("outer", JoinWindows.of(10), StreamJoined(name="pairs"))
    with TopologyDriver(topology, backend=backend, local_dir=tmp_path) as driver:
        driver.pipe("left", "k", "A", 100)
        driver.pipe("right", "q", "b", 101)
        driver.pipe("left", "z", "Z", 108)
    with TopologyDriver(topology, backend=backend, local_dir=tmp_path) as driver:
        driver.pipe("right", "k", "a", 97)
        driver.pipe("left", "q", "late", 90)
        driver.pipe("right", "z", "z", 112)
        came = [tuple(record) for record in driver.read("out")]
    assert came == [("k", "A-a", 100), ("q", "late-None", 90), ("q", "None-b", 101), ("z", "Z-z", 112)]


def test_a_left_join_after_a_change_of_key_still_gives_records_without_a_key() -> None:
    builder = StreamsBuilder(value_serde="string")
    left = builder.stream("left").select_key(lambda key, value: None if value == "lost" else value)
    joined = left.left_join(builder.stream("right"), lambda a, b: f"{a}-{b}", windows=JoinWindows.of(10))
    joined.to("out", Produced(value_serde="string"))
    with TopologyDriver(builder.build()) as driver:
        driver.pipe("left", "x", "lost", 1)
        driver.pipe("right", "found", "r", 2)
        driver.pipe("left", "x", "found", 3)
        assert [tuple(record) for record in driver.read("out")] == [(None, "lost-None", 1), ("found", "found-r", 3)]


def test_dropped_records_are_counted() -> None:
    with TopologyDriver(_topology("inner", JoinWindows.of(10), StreamJoined(name="pairs"))) as driver:
        driver.pipe_all("left", [(None, "A", 1), ("k", None, 2), ("k", "B", 3)])
        assert driver.counters == {"pairs-this-join:dropped-null": 2}


def test_stores_and_backend_can_be_chosen() -> None:
    joined = StreamJoined(name="pairs", store_name="kept", backend="lmdb")
    stores = _topology("outer", JoinWindows.of(10), joined).stores
    assert set(stores) == {"kept-this-join-store", "kept-other-join-store", "kept-waiting"}
    assert {spec.backend for spec in stores.values()} == {"lmdb"}


def test_a_micro_batch_of_both_sides_is_taken_in_the_order_of_time() -> None:
    inputs: dict[str, Batch] = {
        "left": Batch(["k", "k"], ["A", "B"], [1, 30]),
        "right": Batch(["k", "k"], ["a", "b"], [2, 29]),
    }
    with TopologyDriver(_topology("left", JoinWindows.of(10))) as driver:
        driver.pipe_inputs(inputs)
        values: list[Any] = [record.value for record in driver.read("out")]
    assert values == ["A-a", "B-b"]


class Incomparable:
    """A value like a numpy array: whether it equals another has no answer."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        raise ValueError("ambiguous")


def test_values_are_joined_without_comparing_them() -> None:
    builder = StreamsBuilder(value_serde="pickle")
    left, right = builder.stream("left"), builder.stream("right")
    left.join(right, lambda a, b: a.name + b.name, windows=JoinWindows.of(10)).to("out", Produced("string", "string"))
    with TopologyDriver(builder.build()) as driver:
        driver.pipe("left", "k", Incomparable("a"), 1)
        driver.pipe("right", "k", Incomparable("b"), 2)
        assert [record.value for record in driver.read("out")] == ["ab"]


def _dropping(kind: str, windows: JoinWindows, *, optimize: bool = False) -> Topology:
    builder = StreamsBuilder(value_serde="string", optimize=optimize)
    left, right = builder.stream("left"), builder.stream("left" if optimize else "right")
    join = {"inner": left.join, "left": left.left_join, "outer": left.outer_join}[kind]
    join(right, "{}-{}".format, windows=windows).to("out", Produced(value_serde="string"))
    return builder.build()


@pytest.mark.parametrize(
    ("kind", "windows", "records"),
    [
        ("left", (10, 10, 5), [("left", "k", 100), ("left", "x", 116), ("right", "k", 110)]),
        ("outer", (10, 10, 0), [("left", "k", 100), ("right", "x", 111), ("right", "k", 110)]),
        ("outer", (10, 10, 0), [("right", "k", 100), ("left", "x", 111), ("left", "k", 110)]),
        ("left", (9, -4, 0), [("left", "k", 100), ("right", "k", 95)]),
    ],
)
def test_a_record_that_has_come_out_alone_is_joined_with_none_that_comes_too_late(
    kind: str, windows: tuple[int, int, int], records: list[tuple[str, str, int]]
) -> None:
    made = _dropping(kind, JoinWindows(*windows, drop_late=True))
    with TopologyDriver(made) as driver:
        for topic, key, time in records:
            driver.pipe(topic, key, f"{topic[0]}{time}", time)
        driver.complete()
        found = [record.value for record in driver.read("out") if record.key == "k"]
        assert len(found) == 1
        assert "None" in found[0]
        assert sum(n for what, n in driver.counters.items() if what.endswith("dropped-late")) == 1


@pytest.mark.parametrize("kind", ["left", "outer"])
def test_no_record_comes_out_alone_and_joined_where_late_ones_are_dropped(kind: str) -> None:
    for seed in range(tries(60)):
        chance = random.Random(seed)
        before, after = chance.choice([(5, 5), (0, 8), (8, 0), (9, -4), (-3, 9)])
        made = _dropping(kind, JoinWindows(before, after, chance.choice([0, 3]), drop_late=True))
        with TopologyDriver(made) as driver:
            for number in range(40):
                topic, time = chance.choice(["left", "right"]), max(number - chance.choice([0, 0, 3, 8, 15]), 0)
                driver.pipe(topic, chance.choice("ab"), f"{topic[0]}{number}", time)
            driver.complete()
            pairs = [record.value.split("-") for record in driver.read("out")]
        alone = {value for pair in pairs if "None" in pair for value in pair}
        joined = {value for pair in pairs if "None" not in pair for value in pair}
        assert not alone & joined, seed


def test_a_self_join_drops_late_records_also_where_it_is_optimized() -> None:
    with TopologyDriver(_dropping("inner", JoinWindows(10, 10, 5, drop_late=True), optimize=True)) as driver:
        for key, value, time in (("k", "a", 100), ("x", "b", 121), ("k", "c", 105)):
            driver.pipe("left", key, value, time)
        assert [record.value for record in driver.read("out")] == ["a-a", "b-b"]


def test_times_near_the_end_of_64_bits_are_not_late() -> None:
    with TopologyDriver(_dropping("inner", JoinWindows(10, 10, 5, drop_late=True))) as driver:
        time = (1 << 63) - 100
        driver.pipe("left", "k", "a", time)
        driver.pipe("right", "k", "b", time)
        assert [record.value for record in driver.read("out")] == ["a-b"]
