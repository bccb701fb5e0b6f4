"""Verbs behind verbs answer what they would for whole tables: each waits for what those before it hold back."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from millpond.processors import SessionWindows, TimeWindows
from millpond.processors.calls.aggregate import make_aggregate
from millpond.processors.calls.apply import make_apply
from millpond.processors.calls.joins.asof_join import make_asof_join
from millpond.processors.calls.joins.stream_join import make_stream_join
from millpond.processors.calls.joins.table_join import make_table_join
from millpond.processors.calls.latest import make_latest
from millpond.processors.calls.made import Made
from millpond.processors.calls.tables import Rows
from millpond.processors.options.joins import TABLE_JOINS, AsofDirection, JoinType
from millpond.processors.verbs import aggregates
from tests.metamorphic import oracle
from tests.metamorphic.applied import results_of
from tests.metamorphic.calendars import STEP, spanned, stretched
from tests.metamorphic.checking import EXAMPLES, KEYS, answers, bag, event, histories, rows_of, schema, table
from tests.metamorphic.histories import (
    SECOND,
    SHARING,
    WAYS,
    Chain,
    Event,
    Way,
    current,
    rows_from,
    ticking,
)
from tests.metamorphic.oracle import Row
from tests.metamorphic.rules import IDLE, RESULTS, SOON, Totals

FEW = EXAMPLES // 2
TWO = st.tuples(WAYS, SHARING).map(list)
"""In operators of their own, over backends alone, and in operators that verbs share where they may."""
LONG = 10_000_000 * SECOND
GRACES = st.sampled_from([0, 2, 5, 15])
DIRECTIONS = st.sampled_from(AsofDirection)
ONE = rows_of("a", KEYS, 12)
BOTH = st.tuples(rows_of("a", KEYS, 8), rows_of("b", KEYS, 8)).map(lambda both: [*both[0], *both[1]])
ALL = st.tuples(rows_of("a", KEYS, 6), rows_of("b", KEYS, 6), rows_of("c", KEYS, 6)).map(
    lambda all_: [*all_[0], *all_[1], *all_[2]]
)
PLAIN = {source: schema(source) for source in "abc"}
A, B, C = (Rows.of(source, columns) for source, columns in PLAIN.items())


def chain_of(*verbs: Made, schemas: Mapping[str, pa.Schema] = PLAIN) -> Chain:
    read = {source for made in verbs for source in made.sources.values()}
    return Chain(verbs, {source: schemas[source] for source in schemas if source in read}, _times(schemas))


def _times(schemas: Mapping[str, pa.Schema]) -> dict[str, str]:
    return {source: f"{source}t" for source in schemas}


def counts(name: str, rows: Rows, time: str, window: Any, **calls: Any) -> Made:
    return make_aggregate(name, rows, {"n": aggregates.count(), **calls}, by="k", time=time, window=window, final=True)


def counted(rows: Iterable[Row], time: str, size: int, step: int | None = None) -> Iterator[tuple[Any, Any, list[Row]]]:
    """Key, window and rows, of windows of so many seconds."""
    cut = oracle.tumbling(size * SECOND, None if step is None else step * SECOND)
    for (key, bounds), some in oracle.by_window(rows, "k", time, cut, oracle.holds).items():
        yield key, bounds, some


def check(
    chain: Chain, events: Sequence[Event], delays: Mapping[str, int], ways: Sequence[Way], expected: Iterable[Row]
) -> None:
    for answer in answers(chain, events, {source: delays.get(source, 0) for source in chain.schemas}, ways):
        assert bag(answer.rows) == bag(expected)


@histories(FEW)
@given(ONE, TWO, GRACES)
def test_windows_of_the_latest_rows(events: list[Event], ways: list[Way], grace: int) -> None:
    """All that comes in order is latest."""
    one = make_latest("one", A, key="k", time="at", history=0)
    two = counts("two", one.rows, "at", TimeWindows(5_000, grace=grace * 1_000))
    chain = chain_of(one, two)
    found = counted(rows_from(chain, events, "a"), "at", 5)
    check(chain, events, {}, ways, [{"k": k, "window": bounds, "n": len(rows)} for k, bounds, rows in found])


@histories(FEW)
@given(
    BOTH,
    TWO,
    GRACES,
    st.sampled_from([(0, 8), (4, 4), (9, -3)]),
    st.sampled_from([JoinType.LEFT, JoinType.RIGHT, JoinType.SEMI, JoinType.ANTI]),
)
def test_windows_of_rows_that_a_join_of_streams_has_held_back(
    events: list[Event], ways: list[Way], grace: int, reach: tuple[int, int], how: JoinType
) -> None:
    time, value = {JoinType.LEFT: ("at", "bv"), JoinType.RIGHT: ("bt", "av")}.get(how, ("at", "av"))
    if how is JoinType.ANTI:
        # The last rows of both sides, which close all windows, meet each other.
        ways = [replace(way, complete=True) for way in ways]
    before, after = reach[0] * SECOND, reach[1] * SECOND
    one = make_stream_join(
        "one", A, B, on="k", times=("at", "bt"), before=before, after=after, grace=grace * SECOND, how=how
    )
    two = counts("two", one.rows, time, TimeWindows(4_000), s=aggregates.sum(value))
    chain = chain_of(one, two)
    a, b = (rows_from(chain, events, source) for source in "ab")
    found = counted(oracle.near(a, b, how.value, ("at", "bt"), (before, after)), time, 4)
    expected = [{"k": k, "window": bounds, "n": len(rows), "s": total(rows, value)} for k, bounds, rows in found]
    check(chain, events, dict.fromkeys("ab", min(grace, 3)) if grace else {}, ways, expected)


def total(rows: Iterable[Row], name: str) -> int | None:
    values = [row[name] for row in rows if row.get(name) is not None]
    return sum(values) if values else None


@histories(FEW)
@given(BOTH, TWO, GRACES, GRACES, DIRECTIONS)
def test_windows_of_what_a_rule_says_of_rows_that_have_waited_for_their_versions(
    events: list[Event], ways: list[Way], grace: int, lateness: int, direction: AsofDirection
) -> None:
    one = make_asof_join(
        "one", A, B, on="k", times=("at", "bt"), history=LONG, grace=grace * SECOND, how=JoinType.LEFT,
        tolerance=4 * SECOND, direction=direction,
    )  # fmt: skip
    two = make_apply(
        "two", one.rows, Totals("bv"), key="k", time="at", results=results_of(RESULTS), lateness=lateness * SECOND
    )
    three = counts("three", two.rows, "seen", TimeWindows(6_000, grace=3_000), s=aggregates.sum("total"))
    chain = chain_of(one, two, three)
    a, b = (rows_from(chain, events, source) for source in "ab")
    by_key = defaultdict[Any, list[Row]](list)
    for row in oracle.asof(a, b, "left", ("at", "bt"), tolerance=4 * SECOND, direction=direction.value):
        by_key[row["k"]].append(row)
    told = [
        {"k": key, **one_told}
        for key, rows in by_key.items()
        for one_told in oracle.running_totals([{"bv": None, **row} for row in rows], "at", "bv", *MICROS)
    ]
    expected = [
        {"k": k, "window": bounds, "n": len(rows), "s": total(rows, "total")}
        for k, bounds, rows in counted(told, "seen", 6)
    ]
    check(chain, events, {"b": grace, "a": min(lateness, 3)}, ways, expected)


MICROS = IDLE * SECOND, SOON * SECOND


@histories(FEW)
@given(BOTH, TWO, GRACES, st.sampled_from([None, 0, 3]), st.booleans(), DIRECTIONS)
def test_rows_meet_the_windows_that_have_closed_by_their_time(
    events: list[Event], ways: list[Way], grace: int, own: int | None, left: bool, direction: AsofDirection
) -> None:
    """Or the next ones that close."""
    events = ticking(events)
    if own is None:
        direction = AsofDirection.BACKWARD
    tolerance = 7 * SECOND if direction.looks_ahead else None
    one = counts("one", B, "bt", TimeWindows(5_000, grace=grace * 1_000))
    how = JoinType.LEFT if left else JoinType.INNER
    two = make_asof_join(
        "two", A, one.rows.select("k", "n", end=("window", "end")), on="k", times=("at", "end"), history=LONG, how=how,
        grace=None if own is None else own * SECOND, tolerance=tolerance, direction=direction,
    )  # fmt: skip
    chain = chain_of(one, two)
    a, b = (rows_from(chain, events, source) for source in "ab")
    windows = [{"k": k, "n": len(rows), "end": bounds[1]} for k, bounds, rows in counted(b, "bt", 5)]
    how_ = "left" if left else "inner"
    found = oracle.asof(a, windows, how_, ("at", "end"), tolerance=tolerance, direction=direction.value)
    expected = list(found)
    check(chain, events, {"b": grace, "a": 4}, ways, expected)


@histories(FEW)
@given(ALL, TWO, GRACES, st.sampled_from(["inner", "left", "outer"]), st.sampled_from(["at", "bt"]))
def test_a_join_of_streams_behind_another(
    events: list[Event], ways: list[Way], grace: int, how: oracle.How, time: str
) -> None:
    events = ticking(events)
    reach, wait = (3 * SECOND, 6 * SECOND), grace * SECOND
    if time == "bt":
        how = "inner"
    one = make_stream_join(
        "one", A, B, on="k", times=("at", "bt"), before=reach[0], after=reach[1], grace=wait,
        how=JoinType.INNER if time == "bt" else JoinType.LEFT,
    )  # fmt: skip
    two = make_stream_join(
        "two", one.rows, C, on="k", times=(time, "ct"), before=reach[1], after=reach[0], grace=wait, how=JoinType(how)
    )
    chain = chain_of(one, two)
    a, b, c = (rows_from(chain, events, source) for source in "abc")
    first = list(oracle.near(a, b, "inner" if time == "bt" else "left", ("at", "bt"), reach))
    expected = list(oracle.near(first, c, how, (time, "ct"), (reach[1], reach[0])))
    check(chain, events, dict.fromkeys("abc", grace), ways, expected)


@histories(FEW)
@given(ONE, TWO, GRACES)
def test_windows_of_windows_of_windows(events: list[Event], ways: list[Way], grace: int) -> None:
    one = counts("one", A, "at", TimeWindows(6_000, advance=2_000, grace=grace * 1_000))
    ends = one.rows.select("k", "n", end=("window", "end"))
    two = make_aggregate(
        "two", ends, {"m": aggregates.sum("n")}, by="k", time="end", window=SessionWindows(3_000), final=True
    )
    last = two.rows.select("k", "m", last=("window", "end"))
    three = counts("three", last, "last", TimeWindows(20_000), s=aggregates.sum("m"))
    chain = chain_of(one, two, three)
    first = [
        {"k": k, "n": len(rows), "end": bounds[1]}
        for k, bounds, rows in counted(rows_from(chain, events, "a"), "at", 6, 2)
    ]
    sessions = oracle.by_window(first, "k", "end", oracle.sessions(3 * SECOND), oracle.holds_end)
    second = [
        {"k": key, "m": total(rows, "n"), "last": bounds[1] + 3 * SECOND} for (key, bounds), rows in sessions.items()
    ]
    expected = [
        {"k": k, "window": bounds, "n": len(rows), "s": total(rows, "m")}
        for k, bounds, rows in counted(second, "last", 20)
    ]
    check(chain, events, {"a": grace}, ways, expected)


OVERTAKEN = [
    event("a", key, second, 1, "", with_op=False)
    for key, second in [("a", 1), ("a", 4), ("a", 7), ("b", 8), ("a", 9), ("c", 13), ("c", 14)]
]
"""A session that starts last comes out first, and then the one that has been as long as sessions can be."""


@histories(FEW)
@example(OVERTAKEN, [Way(0, 0, 1, (1,))], 0, "start")
@given(ONE, TWO, GRACES, st.sampled_from(["start", "end"]))
def test_windows_of_sessions_of_a_largest_length(events: list[Event], ways: list[Way], grace: int, bound: str) -> None:
    """By their starts, too, which may be as much earlier as sessions can be long."""
    sessions = SessionWindows(4_000, grace=grace * 1_000, max_length=9_000, offset=2_000)
    one = counts("one", A, "at", sessions)
    rows = one.rows.select("k", "n", moment=("window", bound))
    two = counts("two", rows, "moment", TimeWindows(3_000), s=aggregates.sum("n"))
    chain = chain_of(one, two)
    cut = oracle.cut_sessions(4 * SECOND, 9 * SECOND, 2 * SECOND)
    found = oracle.by_window(rows_from(chain, events, "a"), "k", "at", cut, oracle.holds_end)
    first = []
    for (key, (start, last)), some in found.items():
        end = min(last + 4 * SECOND, ((last - 2 * SECOND) // (9 * SECOND) + 1) * 9 * SECOND + 2 * SECOND)
        first.append({"k": key, "n": len(some), "moment": start if bound == "start" else end})
    expected = [
        {"k": k, "window": bounds, "n": len(some), "s": total(some, "n")}
        for k, bounds, some in counted(first, "moment", 3)
    ]
    check(chain, events, {"a": grace}, ways, expected)


@histories(FEW)
@given(ONE, TWO, GRACES, st.booleans())
def test_weeks_of_days_of_other_clocks(events: list[Event], ways: list[Way], grace: int, shared: bool) -> None:
    """A day of 25 hours, too, is waited for."""
    events = [stretched(event) for event in events]
    day = TimeWindows("1 day", zone="America/New_York", grace=grace * STEP * 1_000)
    week = TimeWindows("1 week", zone="Europe/Berlin")
    assert day.calendar is not None
    assert week.calendar is not None
    one = counts("one", A, "at", day)
    two = counts("two", one.rows.select("k", "n", end=("window", "end")), "end", week, s=aggregates.sum("n"))
    chain = chain_of(one, two)
    found = defaultdict[Any, dict[Any, int]](lambda: defaultdict(int))
    for row in rows_from(chain, events, "a"):
        _, end = spanned(day.calendar, row["at"])
        found[row["k"], spanned(week.calendar, end)][end] += 1
    expected = [{"k": k, "window": bounds, "n": len(ns), "s": sum(ns.values())} for (k, bounds), ns in found.items()]
    ways = [replace(way, complete=True, shared=shared) for way in ways]
    check(chain, events, {"a": grace * STEP}, ways, expected)


@histories(FEW)
@given(BOTH, TWO, st.sampled_from([0, 2, 50]), st.sampled_from(TABLE_JOINS))
def test_totals_beside_the_latest_rows(events: list[Event], ways: list[Way], history: int, how: JoinType) -> None:
    one = make_aggregate("one", A, {"s": aggregates.sum("av"), "n": aggregates.count()}, by="k", time="at")
    two = make_latest("two", B, key="k", time="bt", history=history * SECOND)
    three = make_table_join(
        "three", one.rows.select("k", "s", "n", "op", at="change_time"),
        two.rows.select("k", "bv", "bt", bo="op", changed="change_time"),
        on="k", times=("at", "changed"), ops=("op", "bo"), how=how, history=LONG,
    )  # fmt: skip
    chain = chain_of(one, two, three)
    by_key = defaultdict[Any, list[Row]](list)
    for row in rows_from(chain, events, "a"):
        by_key[row["k"]].append(row)
    totals = {key: {"k": key, "s": total(rows, "av"), "n": len(rows)} for key, rows in by_key.items()}
    newest = oracle.newest(rows_from(chain, events, "b"), "k", "bt")
    expected = {(key,): row for key, row in oracle.joined_tables(totals, newest, how.value).items()}
    for answer in answers(chain, events, {"a": 30, "b": history}, ways):
        assert table(current(answer.rows, ["k"]), "change_time", "at", "changed") == table(expected)


TIED = st.tuples(rows_of("a", KEYS[:2], 8, until=4), rows_of("b", KEYS[:2], 8, until=4))


@histories(FEW)
@given(TIED.map(lambda both: [*both[0], *both[1]]), TWO, GRACES, st.sampled_from(TABLE_JOINS))
def test_the_latest_and_the_number_of_all_rows_of_a_table_of_tables(
    events: list[Event], ways: list[Way], history: int, how: JoinType
) -> None:
    """A change feed of a join has several changes of a key at one time."""
    one = make_table_join("one", A, B, on="k", times=("at", "bt"), how=how, history=history * SECOND)
    changes = one.rows.select("k", "av", "bv", "op", changed="change_time")
    two = make_latest("two", changes, key="k", time="changed", history=LONG, op="op")
    chain = chain_of(one, two)
    sides = [oracle.newest(rows_from(chain, events, side), "k", f"{side}t") for side in "ab"]
    expected = {(key,): row for key, row in oracle.joined_tables(sides[0], sides[1], how.value).items()}
    for answer in answers(chain, events, {"a": history, "b": history}, ways):
        assert table(current(answer.rows, ["k"]), "change_time", "changed") == table(expected, "at", "bt")
