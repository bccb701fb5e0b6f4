"""Session windows of topologies whose records have gaps of their own."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from millpond.errors import UserFunctionError
from millpond.processors import (
    Batch,
    EmitStrategy,
    KTable,
    Materialized,
    Produced,
    Record,
    SessionWindows,
    StreamsBuilder,
    Suppressed,
    TopologyDriver,
)
from millpond.processors.options.on_error import OnError
from millpond.processors.runtime.batches.columns import Columns
from millpond.stores.typed.windows.windowed import Windowed
from tests.processors.driving import Input, drive, last_values

LONGEST = 12


def gap_of(key: Any, value: Any) -> Any:
    """Return the number behind the letter of a value; none for one without, and a timedelta for the greatest."""
    number = value[1:]
    if number == str(LONGEST):
        return timedelta(milliseconds=LONGEST)
    return int(number) if number else None


def windows(**given: Any) -> SessionWindows:
    return SessionWindows(gap_of, at_most=LONGEST, **{"grace": 5, **given})


def listed(sessions: SessionWindows, *, final: bool = False, **options: Any) -> Callable[[StreamsBuilder], KTable]:
    """Return the values of each session, sorted."""
    emit = EmitStrategy.ON_WINDOW_CLOSE if final else EmitStrategy.ON_WINDOW_UPDATE

    def build(builder: StreamsBuilder) -> KTable:
        grouped = builder.stream("in").group_by_key().windowed_by(sessions).emit_strategy(emit)
        made: KTable = grouped.aggregate(
            list,
            lambda key, value, held: sorted([*held, value]),
            lambda key, left, right: sorted([*left, *right]),
            Materialized(value_serde="json", **options),
        )
        return made

    return build


def rows(*given: tuple[str, str, int]) -> list[Input]:
    return [Input("in", key, value, timestamp) for key, value, timestamp in given]


def drawn(seed: int, size: int, disorder: int) -> list[Input]:
    random = Random(seed)
    numbers = ["", "0", "-3", "1", "2", "5", "8", str(LONGEST)]
    return [
        Input("in", random.choice("kl"), f"{chr(97 + number % 26)}{random.choice(numbers)}", max(0, time))
        for number in range(size)
        for time in [3 * number - random.randint(0, disorder)]
    ]


def islands(records: Sequence[Input], piece: int | None = None) -> dict[Windowed[Any], list[str]]:
    """Return the sessions of all records, in whatever order they came: those that overlap or touch."""
    found: dict[Windowed[Any], list[str]] = {}
    for key in {record.key for record in records}:
        held: list[str] = []
        start = latest = 0
        for record in sorted((one for one in records if one.key == key), key=lambda one: one.timestamp):
            gap = int(record.value[1:] or 0)
            if gap <= 0:
                continue
            end = record.timestamp + gap
            if piece is not None:
                end = min(end, (record.timestamp // piece + 1) * piece)
            apart = piece is not None and start // piece != record.timestamp // piece
            if held and (record.timestamp > latest or apart):
                found[Windowed(key, start, latest)] = sorted(held)
                held, latest = [], 0
            start, latest = start if held else record.timestamp, max(latest, end)
            held.append(record.value)
        if held:
            found[Windowed(key, start, latest)] = sorted(held)
    return found


def dropped(driver: TopologyDriver) -> dict[str, int]:
    """Return how many records were dropped, and why."""
    return {name.partition(":")[2]: number for name, number in driver.counters.items() if "dropped" in name}


def test_a_session_ends_with_the_latest_of_the_gaps_and_takes_what_touches_it() -> None:
    output = drive(listed(windows()), rows(("k", "a10", 0), ("k", "b2", 3), ("k", "c1", 10), ("k", "d5", 12)))
    assert output == [
        Record(Windowed("k", 0, 10), ["a10"], 10),
        Record(Windowed("k", 0, 10), None, 10),
        Record(Windowed("k", 0, 10), ["a10", "b2"], 10),
        Record(Windowed("k", 0, 10), None, 10),
        Record(Windowed("k", 0, 11), ["a10", "b2", "c1"], 11),
        Record(Windowed("k", 12, 17), ["d5"], 17),
    ]


def test_a_record_merges_what_it_reaches_while_it_lasts_and_no_more() -> None:
    given = rows(("k", "a2", 0), ("k", "b1", 8), ("k", "c1", 12), ("k", "d6", 2))
    assert last_values(drive(listed(windows(grace=50)), given)) == {
        Windowed("k", 0, 9): ["a2", "b1", "d6"], Windowed("k", 12, 13): ["c1"],
    }  # fmt: skip


@pytest.mark.parametrize("piece", [None, 17])
@pytest.mark.parametrize("seed", range(12))
def test_with_grace_enough_the_sessions_are_those_of_all_records_in_any_batches(seed: int, piece: int | None) -> None:
    given, sessions = drawn(seed, 120, 90), windows(grace=10_000, max_length=piece)
    expected = islands(given, piece)
    for size in (1, 7, 120):
        assert last_values(drive(listed(sessions), given, size=size)) == expected
        assert last_values(drive(listed(sessions, caching=True), given, size=size)) == expected
        final = drive(listed(sessions, final=True), [*given, Input("in", "end", "z1", 10**9)], size=size)
        assert {record.key: record.value for record in final} == expected
        assert len(final) == len(expected)
        assert [record.timestamp for record in final] == sorted(record.key.end for record in final)


@pytest.mark.parametrize("final", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_a_micro_batch_makes_the_same_as_its_records_one_by_one_late_ones_among_them(seed: int, final: bool) -> None:
    given, build = drawn(seed, 150, 40), listed(windows(), final=final)
    assert drive(build, given, size=17) == drive(build, given, size=150) == drive(build, given)


@pytest.mark.parametrize("backend", ["memory", "lmdb", "rocksdb"])
@pytest.mark.parametrize("final", [False, True])
def test_after_a_restart_sessions_go_on_where_they_were(final: bool, backend: str, tmp_path: Path) -> None:
    given, build = drawn(5, 120, 40), listed(windows(max_length=30), final=final)
    restarts: dict[str, Any] = {} if backend == "memory" else {"local_dir": tmp_path, "restart_every": 15}
    assert drive(build, given, size=5, backend=backend, **restarts) == drive(build, given)


def test_records_without_a_gap_are_left_out_and_counted() -> None:
    builder = StreamsBuilder()
    listed(windows())(builder).to_stream().to("out")
    with TopologyDriver(builder.build()) as driver:
        driver.pipe_all("in", [("k", "a5", 0), ("k", "b0", 1), ("k", "c", 900), ("k", "d-3", 2), ("k", "e1", 5)])
        assert last_values(driver.read("out")) == {Windowed("k", 0, 6): ["a5", "e1"]}
        assert dropped(driver) == {"dropped-no-gap": 3}


def test_a_closed_session_takes_no_more_records_however_long_the_store_has_it() -> None:
    builder = StreamsBuilder(order="arrival")
    listed(windows(grace=0), final=True)(builder).to_stream().to("out")
    with TopologyDriver(builder.build()) as driver:
        driver.pipe_all("in", [("k", "a2", 0), ("l", "b1", 5), ("k", "c7", 1), ("k", "d1", 1), ("l", "e1", 99)])
        found = [(record.key, record.value) for record in driver.read("out")]
        assert not dropped(driver)
    assert found == [
        (Windowed("k", 0, 2), ["a2"]),
        (Windowed("l", 5, 6), ["b1"]),
        (Windowed("k", 1, 8), ["c7", "d1"]),
    ]


def test_a_gap_beyond_at_most_fails_or_is_left_out_alone() -> None:
    given = rows(("k", "a5", 0), ("k", "b13", 1), ("k", "c1", 5))
    with pytest.raises(UserFunctionError, match="the gap of a record is 13 milliseconds, more than at_most='12 mill"):
        drive(listed(windows()), given, size=3)
    builder = StreamsBuilder()
    listed(windows())(builder).to_stream().to("out")
    with TopologyDriver(builder.build(), on_error=OnError.SKIP) as driver:
        driver.pipe_all("in", [(one.key, one.value, one.timestamp) for one in given])
        assert last_values(driver.read("out")) == {Windowed("k", 0, 6): ["a5", "c1"]}
        assert dropped(driver) == {"dropped-user-error": 1}


def test_no_record_lasts_beyond_all_times() -> None:
    last = 2**63 - 1
    output = drive(listed(windows()), rows(("k", "a5", last - 2), ("k", "b5", last)))
    assert last_values(output) == {Windowed("k", last - 2, last): ["a5", "b5"]}


def test_suppress_holds_sessions_back_until_they_are_final() -> None:
    given = drawn(3, 150, 4)

    def build(builder: StreamsBuilder) -> KTable:
        return listed(windows())(builder).suppress(Suppressed.until_window_closes())

    output = drive(build, [*given, Input("in", "end", "z1", 10**9), Input("in", "end", "z1", 2 * 10**9)], size=10)
    assert {one.key: one.value for one in output if one.key.key != "end"} == islands(given)


def test_cogrouped_streams_have_sessions_by_the_gaps_of_all_of_them() -> None:
    def build(builder: StreamsBuilder) -> KTable:
        def add(key: Any, value: str, held: list[str]) -> list[str]:
            return sorted([*held, value])

        one, other = (builder.stream(name).group_by_key() for name in ("in", "other"))
        both = one.cogroup(add).cogroup(other, add).windowed_by(windows(grace=1_000))
        made: KTable = both.aggregate(list, lambda key, a, b: sorted([*a, *b]), Materialized(value_serde="json"))
        return made

    given = drawn(7, 100, 60)
    mixed = [Input("other", *one[1:]) if number % 2 else one for number, one in enumerate(given)]
    assert last_values(drive(build, mixed, size=9)) == islands(given)


def test_setting_stream_time_back_keeps_sessions_that_last_beyond_it(tmp_path: Path) -> None:
    def values(*given: tuple[str, str, int], **options: Any) -> dict[Any, Any]:
        builder = StreamsBuilder(key_serde="string", value_serde="string")
        listed(windows(), retention=1_000)(builder).to_stream().to("out")
        with TopologyDriver(builder.build(), backend="lmdb", local_dir=tmp_path, **options) as driver:
            driver.pipe_all("in", given)
            return last_values(driver.read("out"))

    values(("k", "a8", 95), ("l", "b2", 99), ("k", "c12", 300), ("m", "d1", 101))
    assert values(("k", "e1", 103), ("l", "f1", 102), ("k", "g1", 300), reset_stream_time=100) == {
        Windowed("k", 95, 104): ["a8", "e1"],
        Windowed("l", 102, 103): ["f1"],
        Windowed("k", 300, 301): ["g1"],
    }


def test_another_function_goes_on_with_the_sessions_that_there_are(tmp_path: Path) -> None:
    def values(gap: Any, *given: tuple[str, str, int]) -> dict[Any, Any]:
        builder = StreamsBuilder(key_serde="string", value_serde="string")
        listed(SessionWindows(gap, at_most=LONGEST, grace=5))(builder).to_stream().to("out")
        with TopologyDriver(builder.build(), backend="lmdb", local_dir=tmp_path) as driver:
            driver.pipe_all("in", given)
            return last_values(driver.read("out"))

    assert values(lambda key, value: 10, ("k", "a", 0)) == {Windowed("k", 0, 10): ["a"]}
    assert values(lambda key, value: 2, ("k", "b", 9)) == {Windowed("k", 0, 11): ["a", "b"]}


def test_sessions_of_columns_whose_gaps_a_function_returns_are_those_of_objects() -> None:
    records = [("a", "x3", 0), ("a", "y12", 3), ("b", "x1", 4), ("a", "z2", 15), ("b", "y2", 9), ("a", "x1", 18)]
    keys, values, times = map(list, zip(*records, strict=True))
    columns = Columns(pa.array(keys), pa.array(values), np.array(times))
    builder = StreamsBuilder(key_serde="string", value_serde="string")
    counted = builder.stream("in").group_by_key().windowed_by(windows()).count(Materialized(caching=True))
    counted.to_stream().map(lambda key, count: (key.key, [key.start, key.end, count])).to(
        "out", Produced("string", "json")
    )
    found = []
    for batch in (Batch(keys, values, times), columns):
        with TopologyDriver(builder.build()) as driver:
            driver.pipe_batch("in", batch)
            found.append([tuple(record) for record in driver.read("out")])
    assert found[0] == found[1]
    assert len(found[0]) > 2
