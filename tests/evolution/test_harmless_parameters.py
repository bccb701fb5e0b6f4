"""Parameters that may change at a restart, and what comes out then.

From the restart on a job does what one would that had always had the new value: only what the old one has left out,
forgotten or closed stays so. So nothing comes out twice, or never, or of a part of its records.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import permutations
from pathlib import Path
from random import Random
from typing import Any, Final, Literal

import pyarrow as pa
import pytest

from millpond.errors import StateConflictError
from millpond.processors import (
    CumulativeWindows,
    JoinWindows,
    Materialized,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    Topology,
    TopologyDriver,
)
from millpond.processors.verbs import KeyContext, KeyedProcessor
from millpond.processors.verbs.apply import apply_topology
from millpond.stores.typed.versions.late_puts import LatePuts
from tests.evolution.parameters import (
    KEY,
    VALUE,
    grouped,
    of_deduplicate,
    of_over,
    stream_with_table,
    streams_joined,
    suppressed,
)
from tests.processors.verbs.running import an_input

HARMLESS: Final = {"Millpond.apply.lateness"}
"""Those that a test here is about, or one of the verb's own."""

Record = tuple[str, Any, int]
Inputs = Sequence[tuple[str, Record]]
"""Topics and records, one by one."""

Test = Callable[..., None]


def harmless(*parameters: str) -> Callable[[Test], Test]:
    """Note which parameters a test is about."""
    HARMLESS.update(parameters)
    return lambda test: test


def run(directory: Path, topology: Topology, inputs: Inputs, *, complete: bool = False) -> list[Any]:
    """Return the output of a run that goes on with what is in the directory."""
    with TopologyDriver(topology, backend="lmdb", local_dir=directory) as driver:
        for topic, record in inputs:
            driver.pipe(topic, *record)
        if complete:
            driver.complete()
        return driver.read("out")


def of(topic: str, *times: int, key: str = "a") -> Inputs:
    return [(topic, (key, 1, time)) for time in times]


def counts(records: Sequence[Any]) -> list[tuple[int, int, int]]:
    return [(record.key.start, record.key.end, record.value) for record in records]


def test_a_window_that_has_come_out_stays_closed_under_a_longer_grace(tmp_path: Path) -> None:
    first = run(tmp_path, grouped(TimeWindows(10, grace=10), "final"), of("in", 1, 12, 35))
    assert counts(first) == [(0, 10, 1), (10, 20, 1)]
    # 13 is late: its window has come out. 24 and 31 are not, and 24 would be without the longer grace from 40 on.
    longer = grouped(TimeWindows(10, grace=40), "final")
    assert counts(run(tmp_path, longer, of("in", 2, 13, 24, 45, 25))) == []
    assert counts(run(tmp_path, longer, of("in", 100))) == [(20, 30, 2), (30, 40, 1), (40, 50, 1)]


def test_a_window_that_the_store_has_forgotten_does_not_begin_anew_under_a_longer_grace(tmp_path: Path) -> None:
    first = run(tmp_path, grouped(TimeWindows(10)), of("in", 1, 2, 5_000))
    assert counts(first) == [(0, 10, 1), (0, 10, 2), (5_000, 5_010, 1)]
    longer = grouped(TimeWindows(10, grace=100_000))
    assert counts(run(tmp_path, longer, of("in", 3, 5_001))) == [(5000, 5010, 2)]


def test_a_shorter_grace_of_final_results_is_refused_and_the_old_one_goes_on(tmp_path: Path) -> None:
    def of_grace(grace: int) -> Topology:
        return grouped(TimeWindows(10, grace=grace), "final")

    run(tmp_path, of_grace(20_000), of("in", 1, 12, 5_000))
    told = "by a windowed aggregation with grace='20 seconds' and not '5 seconds', .*; write grace='20 seconds' again"
    with pytest.raises(StateConflictError, match=told):
        run(tmp_path, of_grace(5_000), of("in", 5_001))
    assert counts(run(tmp_path, of_grace(20_000), of("in", 30_000))) == [(0, 10, 1), (10, 20, 1), (5_000, 5_010, 1)]


WINDOWS: Final[dict[str, Callable[[int], Any]]] = {
    "TimeWindows.grace": lambda grace: TimeWindows(10, grace=grace),
    "hopping": lambda grace: TimeWindows(10, advance=4, grace=grace),
    "CumulativeWindows.grace": lambda grace: CumulativeWindows(12, 4, grace=grace),
    "SlidingWindows.grace": lambda grace: SlidingWindows(10, grace=grace),
    "SessionWindows.grace": lambda grace: SessionWindows(10, grace=grace),
}


SHORT, LONG = 5, 40


@harmless("TimeWindows.grace", "CumulativeWindows.grace", "SlidingWindows.grace", "SessionWindows.grace")
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("emit", ["updates", "final"])
@pytest.mark.parametrize("windows", WINDOWS.values(), ids=WINDOWS)
def test_a_longer_grace_gives_what_it_had_always_given_without_what_was_late_for_the_shorter(
    windows: Callable[[int], Any], emit: str, seed: int, tmp_path: Path
) -> None:
    random = Random(seed)
    first, reached = drawn(random, 0, windows(SHORT), -1)
    second, _ = drawn(random, 100, windows(LONG), reached + LONG - SHORT)
    late = of("in", *(reached - SHORT - 10 - back for back in range(0, 30, 4)))
    if not isinstance(windows(SHORT), TimeWindows):
        late = []  # It might belong to a window that is still open.
    found = run(tmp_path / "changed", grouped(windows(SHORT), emit), first)
    found += run(tmp_path / "changed", grouped(windows(LONG), emit), [*late, *second], complete=emit == "final")
    expected = run(tmp_path / "always", grouped(windows(10_000), emit), [*first, *second], complete=emit == "final")
    assert last(found) == last(expected)
    if emit == "final":
        assert Counter(found) == Counter(expected)


@harmless("TimeWindows.grace", "CumulativeWindows.grace", "SlidingWindows.grace", "SessionWindows.grace")
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("batches", [0, 20, 100])
@pytest.mark.parametrize("windows", WINDOWS.values(), ids=WINDOWS)
def test_a_grace_that_was_longer_for_a_while_is_what_it_was(
    windows: Callable[[int], Any], batches: int, seed: int, tmp_path: Path
) -> None:
    """Rows that are not late count, in whichever of the runs they come."""
    random, reached, runs = Random(seed), -1, list[Inputs]()
    for number in range(3):
        rows, reached = drawn(random, 100 * number, windows(SHORT), reached)
        runs.append(rows)
    runs[1] = runs[1][:batches]
    found = []
    for rows, grace in zip(runs, (SHORT, 10_000, SHORT), strict=True):
        found += run(tmp_path / "changed", grouped(windows(grace), "updates"), rows)
    expected = run(tmp_path / "always", grouped(windows(SHORT), "updates"), [one for rows in runs for one in rows])
    assert last(found) == last(expected)
    # What has not closed under the longer one has by now.
    late = of("in", reached - SHORT - 20, key="new")
    assert run(tmp_path / "changed", grouped(windows(SHORT), "updates"), late) == []


def drawn(random: Random, begin: int, windows: Any, reached: int) -> tuple[Inputs, int]:
    """Return records as late as the windows allow, and how far they reach in time."""
    kept = []
    for at in range(begin, begin + 100, 3):
        time = max(at - random.randint(0, windows.grace), 0)
        if time + windows.grace >= reached:
            reached = max(reached, time)
            kept.append(("in", (random.choice("ab"), 1, time)))
    return kept, reached


def last(records: Sequence[Any]) -> dict[Any, Any]:
    """Return the last value of each key."""
    return {record.key: record.value for record in records}


@harmless("Materialized.retention", "StoreSpec.retention", "Materialized.caching")
@pytest.mark.parametrize(("one", "other"), [(20, 500), (500, 20)])
def test_a_windows_retention_and_caching_may_change(one: int, other: int, tmp_path: Path) -> None:
    windows, times = TimeWindows(10, grace=5), (1, 12, 3, 18, 27, 21, 9, 40, 44)
    for cut in range(len(times)):
        place = tmp_path / str(cut)
        found = run(place, grouped(windows, retention=one, caching=True), of("in", *times[:cut]))
        found += run(place, grouped(windows, retention=other), of("in", *times[cut:]))
        assert found == run(tmp_path / f"{cut} always", grouped(windows, retention=other), of("in", *times))


@harmless("Materialized.late_puts", "StoreSpec.late_puts")
def test_which_late_versions_are_taken_may_change(tmp_path: Path) -> None:
    refusing, taking = stream_with_table(2_000), stream_with_table(2_000, late_puts=LatePuts.VALID)
    run(tmp_path, refusing, [("table", ("a", 1, 10_000)), ("table", ("b", 2, 20_000))])
    asked: Inputs = [("in", (key, 0, 20_000)) for key in ("a", "new", "newer")]
    found = run(tmp_path, taking, [("table", ("new", 7, 1_000)), *asked])
    assert [record.value for record in found] == ["(0, 1)", "(0, 7)"]
    found = run(tmp_path, refusing, [("table", ("newer", 8, 1_000)), *asked])
    assert [record.value for record in found] == ["(0, 1)", "(0, 7)"]


@harmless(
    "Materialized.history_retention",
    "Materialized.grace",
    "StoreSpec.history_retention",
    "StoreSpec.grace",
    "Millpond.latest.history",
    "Millpond.asof_join.history",
    "Millpond.table_join.history",
    "Millpond.multi_join.history",
)
@pytest.mark.parametrize("grace", [None, 5_000])
def test_a_longer_history_brings_back_no_version_and_no_deleted_row(grace: int | None, tmp_path: Path) -> None:
    kept: dict[str, Any] = {} if grace is None else {"grace": grace}
    changes: Inputs = [
        ("table", ("a", 1, 10_000)), ("table", ("a", None, 12_000)), ("table", ("b", 2, 10_000)),
        ("table", ("b", 3, 12_000)), ("table", ("b", 4, 14_000)), ("table", ("c", 1, 20_000)),
    ]  # fmt: skip
    run(tmp_path, stream_with_table(2_000), changes)
    # What was deleted, or replaced, is forgotten: a row from before comes too late, as under the old history.
    late: Inputs = [("table", ("a", 9, 11_000)), ("table", ("b", 9, 13_000))]
    asked: Inputs = [("in", ("a", 0, 11_500)), ("in", ("a", 0, 30_000)), ("in", ("b", 0, 19_000))]
    longer = stream_with_table(50_000, **kept)
    assert [record.value for record in run(tmp_path, longer, [*late, *asked])] == ["(0, 4)"]
    # From now on nothing is forgotten before its time.
    more: Inputs = [
        ("table", ("b", 5, 60_000)), ("table", ("b", None, 65_000)), ("in", ("b", 0, 64_000)),
        ("in", ("b", 0, 66_000)),
    ]  # fmt: skip
    assert [record.value for record in run(tmp_path, longer, more)] == ["(0, 5)"]
    # A shorter one forgets what is older, and the longer one does not bring it back.
    run(tmp_path, stream_with_table(2_000), [("table", ("c", 2, 90_000))])
    assert run(tmp_path, longer, [("table", ("b", 9, 64_500)), ("in", ("b", 0, 90_001))]) == []


@harmless("Materialized.history_retention", "Millpond.latest.history", "Millpond.asof_join.history")
@pytest.mark.parametrize("late", [LatePuts.REFUSED, LatePuts.VALID])
@pytest.mark.parametrize("batches", [0, 1, 2])
def test_a_history_that_was_longer_for_a_while_is_what_it_was(batches: int, late: LatePuts, tmp_path: Path) -> None:
    """Everything that has not been forgotten is there, and late rows count, as if it had never been longer."""
    short, longer = (stream_with_table(length, late_puts=late) for length in (2_000, 50_000))
    changes: Inputs = [("table", ("a", value, 10_000 + 100 * value)) for value in range(5)]
    run(tmp_path, short, changes)
    for number in range(batches):
        run(tmp_path, longer, [("table", ("b", number, 10_500 + number))])
    asked: Inputs = [("in", ("a", 0, 10_250)), ("table", ("a", 9, 10_350)), ("in", ("a", 0, 10_360))]
    assert [record.value for record in run(tmp_path, short, asked)] == ["(0, 2)", "(0, 9)"]


@harmless("Materialized.history_retention", "Millpond.asof_join.history")
@pytest.mark.parametrize("starts", [1, 2])
@pytest.mark.parametrize("pause", [False, True])
def test_records_that_wait_meet_what_was_valid_at_their_times_under_a_shorter_history(
    starts: int, pause: bool, tmp_path: Path
) -> None:
    """Records wait until their time comes, or until the table is about to forget the version that they wait for."""
    before, after = (stream_with_table(length, 500, {"within_history": True}) for length in (10_000, 1_000))
    changes: Inputs = [("table", ("a", value, 1_000 * value)) for value in range(10)]
    found = run(tmp_path, before, [*changes, *of("in", 5_500, 5_900)])
    for _ in range(starts):
        run(tmp_path, after, [])
    goes_on: Inputs = [("table", ("a", 10, 8_500)), ("table", ("a", 11, 9_001))]
    found += run(tmp_path, after, [*([] if pause else goes_on), *of("in", 9_700)], complete=True)
    assert [(record.timestamp, record.value) for record in found] == [
        (5_500, "(1, 5)"), (5_900, "(1, 5)"), (9_700, "(1, 9)" if pause else "(1, 11)"),
    ]  # fmt: skip


@harmless("Joined.grace", "Joined.within_history", "Millpond.asof_join.grace", "Millpond.asof_join.how")
@pytest.mark.parametrize(("one", "other"), [(5, 40), (40, 5)])
@pytest.mark.parametrize("cut", range(1, 10))
def test_records_that_wait_for_a_table_come_out_once_whatever_the_grace_is_now(
    one: int, other: int, cut: int, tmp_path: Path
) -> None:
    inputs: Inputs = [
        ("table", ("a", 1, 0)), *of("in", 10, 12), ("table", ("a", 2, 11)), *of("in", 30, 28), ("table", ("a", 3, 25)),
        *of("in", 60, 55, 70),
    ]  # fmt: skip
    found = run(tmp_path, stream_with_table(1_000, one), inputs[:cut])
    found += run(tmp_path, stream_with_table(1_000, other), inputs[cut:], complete=True)
    times = Counter(record.timestamp for record in found)
    assert times == Counter(time for topic, (_, _, time) in inputs if topic == "in")
    # A record that is still to come out when a version arrives finds it.
    assert {"(1, 3)"} == {record.value for record in found if record.timestamp >= 55}


@harmless("Joined.direction", "Millpond.asof_join.direction")
@pytest.mark.parametrize(("one", "other"), list(permutations(["backward", "forward", "nearest"], 2)))
def test_records_that_wait_for_a_table_come_out_once_whatever_the_direction_is_now(
    one: str, other: str, tmp_path: Path
) -> None:
    inputs: Inputs = [
        ("table", ("a", 1, 8)), *of("in", 10, 12), ("table", ("a", 2, 14)), *of("in", 30, 28), ("table", ("a", 3, 31)),
        *of("in", 60, 55), ("table", ("a", 4, 62)), *of("in", 70),
    ]  # fmt: skip
    meets = {
        "backward": {10: 1, 12: 1},
        "forward": {10: 2, 12: 2, 28: 3, 30: 3, 60: 4},
        "nearest": {10: 1, 12: 2, 28: 3, 30: 3, 60: 4},
    }
    before, after = (stream_with_table(1_000, 5, {"tolerance": 4, "direction": towards}) for towards in (one, other))
    for cut in range(1, len(inputs)):
        first = run(tmp_path / str(cut), before, inputs[:cut])
        rest = run(tmp_path / str(cut), after, inputs[cut:], complete=True)
        for records, towards in ((first, one), (rest, other)):
            assert all(record.value == f"(1, {meets[towards][record.timestamp]})" for record in records)
        times = Counter(record.timestamp for record in (*first, *rest))
        assert set(times.values()) == {1}
        assert times.keys() >= meets[one].keys() & meets[other].keys()


@harmless("Suppressed.max_records", "Suppressed.max_bytes", "Suppressed.emit_early")
@pytest.mark.parametrize(("one", "other"), [(5, 100), (100, 5)])
def test_updates_that_are_held_back_come_out_once_under_another_limit(one: int, other: int, tmp_path: Path) -> None:
    times = (1, 2, 12, 14, 23, 120, 250)
    for cut in range(len(times)):
        place = tmp_path / str(cut)
        before = suppressed(Suppressed.until_time_limit(one, max_records=9, name="s"))
        found = counts(run(place, before, of("in", *times[:cut])))
        bounded = Suppressed.until_time_limit(other, max_records=2, max_bytes=10_000, emit_early=True, name="s")
        found += counts(run(place, suppressed(bounded), of("in", *times[cut:]), complete=True))
        ends = {(start, end): value for start, end, value in found}
        assert ends == {(0, 10): 2, (10, 20): 2, (20, 30): 1, (120, 130): 1, (250, 260): 1}


@pytest.mark.parametrize("after", ["inner", "left", "outer"])
@pytest.mark.parametrize("before", ["inner", "left", "outer"])
def test_the_type_of_a_join_of_tables_that_no_store_is_behind_may_change(
    before: str, after: str, tmp_path: Path
) -> None:
    def joined(how: str) -> Topology:
        builder = StreamsBuilder(key_serde="string", value_serde="int64")
        left, right = (builder.table(name, materialized=Materialized(name)) for name in ("left", "right"))
        join = {"inner": left.join, "left": left.left_join, "outer": left.outer_join}[how]
        join(right, lambda one, other: f"{one}{other}", Materialized.with_serdes(None, "string")).to("out")
        return builder.build()

    random = Random(7)
    changes: Inputs = [
        (random.choice(["left", "right"]), (random.choice("abc"), random.choice([None, 1, 2]), time))
        for time in range(60)
    ]
    run(tmp_path / "changed", joined(before), changes[:30])
    run(tmp_path / "always", joined(after), changes[:30])
    changed, always = (run(tmp_path / place, joined(after), changes[30:]) for place in ("changed", "always"))
    assert changed == always


@pytest.mark.parametrize(("one", "other"), [(0, 30), (30, 0)])
def test_a_window_that_suppress_holds_back_comes_out_once_under_another_grace(
    one: int, other: int, tmp_path: Path
) -> None:
    until = Suppressed.until_window_closes(name="s")
    times = (1, 2, 12, 14, 3, 35, 13, 90)
    for cut in range(len(times)):
        place = tmp_path / str(cut)
        found = counts(run(place, suppressed(until, one), of("in", *times[:cut])))
        found += counts(run(place, suppressed(until, other), of("in", *times[cut:]), complete=True))
        assert [window for window, number in Counter(place[:2] for place in found).items() if number > 1] == []
        assert {place[:2] for place in found} == {(0, 10), (10, 20), (30, 40), (90, 100)}


@harmless("JoinWindows.grace", "JoinWindows.drop_late", "Millpond.stream_join.grace")
@pytest.mark.parametrize(("one", "other"), [(0, 60), (60, 0)])
@pytest.mark.parametrize("cut", range(1, 9))
def test_pairs_of_an_inner_join_come_out_once_under_another_grace(
    one: int, other: int, cut: int, tmp_path: Path
) -> None:
    times = (10, 14, 30, 12, 50, 47, 90, 88)
    inputs = [("left" if place % 2 else "right", ("a", place, time)) for place, time in enumerate(times)]
    found = run(tmp_path / "changed", streams_joined(JoinWindows(5, 5, one)), inputs[:cut])
    found += run(tmp_path / "changed", streams_joined(JoinWindows(5, 5, other, drop_late=True)), inputs[cut:])
    pairs = Counter(record.value for record in found)
    always = Counter(record.value for record in run(tmp_path / "all", streams_joined(JoinWindows(5, 5, 999)), inputs))
    assert pairs <= always
    assert max(pairs.values()) == 1
    in_order = Counter(["10", "54", "76"])
    assert in_order <= pairs


def counted(ttl: int | None, expired: Literal["silent", "delete"] = "silent") -> Topology:
    builder = StreamsBuilder(key_serde="string", value_serde="int64")
    builder.stream("in").group_by_key().count(Materialized("counts", ttl=ttl, expired=expired)).to("out")
    return builder.build()


@harmless(
    "Materialized.ttl",
    "Materialized.expired",
    "StoreSpec.ttl",
    "StoreSpec.expired",
    "Millpond.aggregate.ttl",
    "Millpond.aggregate.expired",
    "Millpond.top_n.ttl",
    "Millpond.top_n.expired",
    "Millpond.latest.ttl",
    "Millpond.latest.expired",
)
@pytest.mark.parametrize(("one", "other"), [(10, 50), (50, 10), (None, 10), (10, None)])
def test_what_has_expired_stays_away_and_the_rest_goes_by_the_new_ttl(
    one: int | None, other: int | None, tmp_path: Path
) -> None:
    rows = [("a", 0), ("b", 3), ("a", 8), ("b", 20), ("c", 21), ("a", 27), ("b", 25), ("c", 45), ("b", 90), ("a", 93)]
    inputs = [("in", (key, 1, time)) for key, time in rows]
    for cut in range(len(rows) + 1):
        place = tmp_path / str(cut)
        found = run(place, counted(one), inputs[:cut]) + run(place, counted(other), inputs[cut:])
        known: dict[str, tuple[int, int]] = {}
        gone, reached, expected = -1, 0, []
        for number, (key, time) in enumerate(rows):
            ttl = one if number < cut else other
            reached = max(reached, time)
            gone = gone if ttl is None or (number < cut and one is None) else max(gone, reached - ttl)
            if time <= gone:
                continue
            count, last_time = known.get(key, (0, -1))
            known[key] = (count + 1 if last_time > gone else 1, max(last_time, time))
            expected.append((key, *known[key]))
        assert [(record.key, record.value, record.timestamp) for record in found] == expected


def paired(ttl: int | None, expired: Literal["silent", "delete"] = "silent") -> Topology:
    builder = StreamsBuilder(key_serde="string", value_serde="int64")
    left, right = (
        builder.table(side, materialized=Materialized(side, ttl=ttl, expired=expired)) for side in ("left", "right")
    )
    left.join(right, lambda one, other: 100 * one + other).to("out")
    return builder.build()


@harmless(
    "Millpond.table_join.ttl",
    "Millpond.table_join.expired",
    "Millpond.multi_join.ttl",
    "Millpond.multi_join.expired",
)
@pytest.mark.parametrize(("one", "other"), [(10, 50), (50, 10), (None, 10), (10, None)])
def test_a_join_of_tables_finds_no_row_that_has_expired_and_else_goes_by_the_new_ttl(
    one: int | None, other: int | None, tmp_path: Path
) -> None:
    rows = [("left", "a", 0), ("right", "a", 4), ("left", "b", 9), ("right", "a", 15), ("left", "a", 21)]
    rows += [("right", "b", 24), ("left", "c", 30), ("right", "c", 70), ("left", "b", 75), ("right", "b", 90)]
    inputs = [(side, (key, time, time)) for side, key, time in rows]
    for cut in range(len(rows) + 1):
        place = tmp_path / str(cut)
        found = run(place, paired(one), inputs[:cut]) + run(place, paired(other), inputs[cut:])
        times: dict[tuple[str, str], int] = {}
        gone, expected = -1, []
        for number, (side, key, time) in enumerate(rows):
            ttl = one if number < cut else other
            gone = gone if ttl is None else max(gone, time - ttl)
            times[side, key] = time
            left, right = (times.get((which, key), -1) for which in ("left", "right"))
            if min(left, right) > gone:
                expected.append((key, 100 * left + right, time))
        assert [(record.key, record.value, record.timestamp) for record in found] == expected


class Counting(KeyedProcessor):
    """Numbers the rows of each key."""

    def process(self, key: Any, row: dict[str, Any], context: KeyContext) -> list[dict[str, Any]]:
        number = context.state.get(0) + 1
        context.state.set(number)
        return [{"k": key, "number": number}]


@harmless("Millpond.apply.ttl")
@pytest.mark.parametrize(("one", "other"), [(10, 50), (50, 10), (None, 10), (10, None)])
def test_state_that_has_expired_stays_away_and_the_rest_goes_by_the_new_ttl(
    one: int | None, other: int | None, tmp_path: Path
) -> None:
    read = an_input("input", KEY, VALUE)
    rows = [("a", 0), ("b", 3), ("a", 8), ("b", 20), ("c", 21), ("a", 27), ("c", 45), ("b", 90), ("a", 93)]
    keys = read.keys.pack(pa.table({"k": [key for key, _ in rows]}))
    values = read.rows.pack(pa.table({"v": [1] * len(rows)}))
    inputs: list[tuple[str, Any]] = [
        ("input", (key, value, time)) for key, value, (_, time) in zip(keys, values, rows, strict=True)
    ]
    made = [apply_topology("out", Counting(), read.keys, read.rows, 0, ttl=ttl) for ttl in (one, other)]
    for cut in range(len(rows) + 1):
        place = tmp_path / str(cut)
        found = run(place, made[0], inputs[:cut]) + run(place, made[1], inputs[cut:])
        known: dict[str, tuple[int, int]] = {}
        gone, expected = -1, []
        for number, (key, time) in enumerate(rows):
            ttl = one if number < cut else other
            gone = gone if ttl is None else max(gone, time - ttl)
            count, last = known.get(key, (0, -1))
            known[key] = (count + 1 if last > gone else 1, time)
            expected.append({"k": key, "number": known[key][0]})
        assert [record.value for record in found] == expected


def test_a_job_that_asks_for_what_expires_is_told_only_of_that_from_then_on(tmp_path: Path) -> None:
    run(tmp_path, counted(10), [*of("in", 0), *of("in", 5, key="b"), *of("in", 12, key="c")])
    told = run(tmp_path, counted(10, "delete"), of("in", 40))
    assert {(record.key, record.value, record.timestamp) for record in told} == {
        ("b", None, 15),
        ("c", None, 22),
        ("a", 1, 40),
    }


@harmless("Millpond.deduplicate.grace", "Millpond.deduplicate.within")
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    ("one", "other"), [((10, 5), (40, 5)), ((40, 5), (10, 5)), ((10, 0), (10, 30)), ((10, 30), (10, 0))]
)
def test_first_rows_come_out_once_under_another_grace_and_go_by_the_new_length(
    one: tuple[int, int], other: tuple[int, int], seed: int, tmp_path: Path
) -> None:
    """Rows that the old grace has let out stay, and no row that is not later comes out any more."""
    random = Random(seed)
    times = [time - random.randint(0, min(one[1], other[1])) for time in range(0, 200, 3)]
    rows: Any = [("input", (random.choice([b"a", b"b"]), b"%d" % place, time)) for place, time in enumerate(times)]
    cut = random.randrange(len(rows))
    first = run(tmp_path, of_deduplicate(*one, name="out"), rows[:cut])
    rest = run(tmp_path, of_deduplicate(*other, name="out"), rows[cut:], complete=True)
    kept: dict[Any, int] = {}
    passed = max(times[:cut], default=-1_000) - one[1]
    expected: list[Any] = []
    changed = False
    for _, (key, value, time) in sorted(rows, key=lambda row: (row[1][2], row[1][0], row[1][1])):
        if time >= passed and not changed:
            changed, kept = True, {key: last for key, last in kept.items() if last >= passed - one[0]}
        within = other[0] if changed else one[0]
        if key not in kept or time > kept[key] + within:
            kept[key] = time
            expected.append((key, value, time))
    assert [(record.key, record.value, record.timestamp) for record in (*first, *rest)] == expected


@harmless("Millpond.over.grace", "Millpond.over.ttl")
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    ("one", "other"),
    [((0, None), (30, None)), ((30, None), (0, None)), ((5, 40), (5, 8)), ((5, 8), (5, 40)), ((5, None), (5, 20))],
)
def test_rows_are_numbered_on_under_another_grace_and_time_to_live(
    one: tuple[int, int | None], other: tuple[int, int | None], seed: int, tmp_path: Path
) -> None:
    """A key that the old time to live has forgotten stays so; from then on the new one counts."""
    random = Random(seed)
    times = [time - random.randint(0, min(one[0], other[0])) for time in range(0, 300, 7)]
    packed = an_input("input", KEY, VALUE).rows.pack(pa.table({"v": range(len(times))}))
    rows: Any = [("input", (random.choice([b"a", b"b", b"c"]), *one)) for one in zip(packed, times, strict=True)]
    cut = random.randrange(1, len(rows))
    first = run(tmp_path, of_over(late=one[0], ttl=one[1], name="out"), rows[:cut])
    rest = run(tmp_path, of_over(late=other[0], ttl=other[1], name="out"), rows[cut:], complete=True)
    passed = max(times[:cut]) - one[0]
    seen: dict[Any, tuple[int, int]] = {}
    expected: list[Any] = []
    for _, (key, value, time) in sorted(rows, key=lambda row: (row[1][2], row[1][0], row[1][1])):
        number, last = seen.get(key, (0, time))
        ttl = one[1] if time < passed else other[1]
        forgotten = time >= passed and one[1] is not None and last < passed - one[1]
        seen[key] = (1 if forgotten or (ttl is not None and time - last > ttl) else number + 1), time
        expected.append((key, value, seen[key][0], time))
    found = [(one.key, one.value["row"], one.value["results"]["n"], one.timestamp) for one in (*first, *rest)]
    assert found == expected
