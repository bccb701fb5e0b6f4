"""The faults that random histories have found, with few rows."""

from collections.abc import Sequence
from typing import Any

import pytest

from millpond.processors import SessionWindows, TimeWindows
from millpond.processors.calls.aggregate import make_aggregate
from millpond.processors.calls.apply import make_apply
from millpond.processors.calls.joins.asof_join import make_asof_join
from millpond.processors.calls.joins.stream_join import make_stream_join
from millpond.processors.calls.made import Made
from millpond.processors.calls.tables import Rows
from millpond.processors.options.joins import JoinType
from millpond.processors.verbs import aggregates
from tests.metamorphic.applied import results_of
from tests.metamorphic.checking import bag, schema, table
from tests.metamorphic.histories import SECOND, Chain, Event, Way, current, run
from tests.metamorphic.rules import RESULTS, Totals

PLAIN = {source: schema(source) for source in "abc"}
A, B, C = (Rows.of(source, columns) for source, columns in PLAIN.items())
ONE = Way(1, 1, 1, (1,))
EIGHT = Way(1, 1, 1, (8,))


def row(source: str, second: int, key: str = "a") -> Event:
    at = second * SECOND
    return Event(source, at, {"k": key, f"{source}t": at, f"{source}v": 1})


def chain(*verbs: Made, sources: str) -> Chain:
    return Chain(verbs, {s: PLAIN[s] for s in sources}, {s: f"{s}t" for s in sources})


def windows(name: str, rows: Rows, time: str, window: Any, *, final: bool = True) -> Made:
    return make_aggregate(name, rows, {"n": aggregates.count()}, by="k", time=time, window=window, final=final)


def backlog_is_steady(made: Chain, batches: Sequence[Sequence[Event]]) -> None:
    whole = run(made, [[one for batch in batches for one in batch]], ONE)
    assert bag(run(made, batches, ONE).rows) == bag(whole.rows)


@pytest.mark.parametrize("way", [ONE, EIGHT])
def test_sessions_meet_at_the_very_end_of_gap_and_grace(way: Way) -> None:
    made = chain(windows("out", A, "at", SessionWindows(4_000), final=False), sources="a")
    rows = [row("a", 27), row("a", 31, "b"), row("a", 31)]
    found = current(run(made, [[one] for one in rows], way).rows, ["k", "window"])
    assert table(found) == table(current(run(made, [rows], way).rows, ["k", "window"]))


@pytest.mark.parametrize("way", [ONE, EIGHT])
def test_rows_that_wait_find_their_version_whoever_moves_the_clock_of_versions(way: Way) -> None:
    made = make_asof_join(
        "out", A, B, on="k", times=("at", "bt"), history=60 * SECOND, grace=5 * SECOND, how=JoinType.LEFT
    )
    batches = [[row("b", 0), row("b", 20), row("a", 10)], [row("b", 1_000, "c"), row("a", 1_000)]]
    found = run(chain(made, sources="ba"), batches, way)
    assert {one["at"]: one["bt"] for one in found.rows} == {10 * SECOND: 0, 1_000 * SECOND: 20 * SECOND}


def test_updates_of_windows_are_in_time_by_the_ends_of_windows() -> None:
    one = windows("one", A, "at", TimeWindows(10_000, advance=2_000, grace=5_000), final=False)
    ends = one.rows.select("k", "n", end=("window", "end"))
    two = make_aggregate(
        "two", ends, {"m": aggregates.max("n")}, by="k", time="end", window=TimeWindows(2_000), final=True
    )
    backlog_is_steady(chain(one, two, sources="a"), [[row("a", 12)], [row("a", 24)], [row("a", 19)]])


def asof(end: Made) -> Made:
    rows = end.rows.select("k", "n", end=("window", "end"))
    return make_asof_join("last", C, rows, on="k", times=("ct", "end"), history=10**12, how=JoinType.LEFT)


STEADY = [[row("a", second), row("b", second), row("c", second)] for second in range(40)]


def test_an_asof_join_waits_for_windows_of_windows() -> None:
    one = windows("one", A, "at", TimeWindows(2_000, grace=10_000))
    two = windows("two", one.rows.select("k", end=("window", "end")), "end", TimeWindows(2_000))
    steady = [[event for event in batch if event.source != "b"] for batch in STEADY]
    backlog_is_steady(chain(one, two, asof(two), sources="ac"), steady)


def test_an_asof_join_waits_for_windows_of_what_a_join_holds_back() -> None:
    one = make_stream_join(
        "one", A, B, on="k", times=("at", "bt"), before=0, after=10 * SECOND, grace=0, how=JoinType.LEFT
    )
    two = windows("two", one.rows.select("k", "at"), "at", TimeWindows(2_000))
    steady = [[event for event in batch if event.source != "b"] for batch in STEADY]
    backlog_is_steady(chain(one, two, asof(two), sources="abc"), steady)


def test_a_join_of_streams_waits_for_windows_of_what_a_rule_says() -> None:
    one = make_apply("one", A, Totals("av"), key="k", time="at", results=results_of(RESULTS), lateness=10 * SECOND)
    two = windows("two", one.rows, "seen", TimeWindows(2_000))
    rows = two.rows.select("k", "n", end=("window", "end"))
    three = make_stream_join(
        "three", C, rows, on="k", times=("ct", "end"), before=0, after=0, grace=0, how=JoinType.LEFT
    )
    steady = [[event for event in batch if event.source != "b"] for batch in STEADY]
    backlog_is_steady(chain(one, two, three, sources="ac"), steady)
