"""Rows that come too late are told, and the others give the answer; which they are depends on micro-batches alone."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.processors import CumulativeWindows, SessionWindows, SlidingWindows, TimeWindows
from millpond.processors.calls.aggregate import make_aggregate
from millpond.processors.calls.apply import make_apply
from millpond.processors.calls.deduplicate import make_deduplicate
from millpond.processors.calls.joins.asof_join import make_asof_join
from millpond.processors.calls.joins.stream_join import make_stream_join
from millpond.processors.calls.joins.table_join import make_table_join
from millpond.processors.calls.latest import make_latest
from millpond.processors.calls.made import Made
from millpond.processors.calls.tables import Rows
from millpond.processors.options.joins import AsofDirection, JoinType
from millpond.processors.verbs import aggregates
from tests.metamorphic import oracle
from tests.metamorphic.applied import results_of
from tests.metamorphic.checking import EXAMPLES, KEYS, NULLABLE, bag, histories, own, rows_of, schema, table
from tests.metamorphic.histories import SECOND, WAYS, Answer, Chain, Event, Way, arrivals, current, cut, run
from tests.metamorphic.oracle import Row
from tests.metamorphic.rules import IDLE, RESULTS, SOON, Totals

ALIKE = st.lists(WAYS, min_size=3, max_size=3).map(lambda ways: [replace(way, complete=True) for way in ways])
"""Ways for the same micro-batches."""
GRACES = st.sampled_from([0, 2, 5])

Batches: TypeAlias = Sequence[Sequence[Event]]
Clock: TypeAlias = int
"""The newest time of earlier micro-batches; less than all times before the first."""


def late_batches(chain: Chain, events: Sequence[Event], way: Way) -> list[list[Event]]:
    """Return the rows in micro-batches, up to 30 seconds late."""
    random = Random(way.seed)
    return cut(arrivals(events, dict.fromkeys(chain.schemas, 30 * SECOND), random), way, random)


def judged(batches: Batches) -> Iterable[list[tuple[Event, Clock]]]:
    """Yield the rows of each micro-batch with the time that earlier ones have shown."""
    clock = -1
    for events in batches:
        yield [(event, clock) for event in events]
        clock = max([clock, *(event.at for event in events)])


def answers(chain: Chain, batches: Batches, ways: Iterable[Way]) -> list[Answer]:
    return [run(chain, batches, way) for way in ways]


def told(answer: Answer) -> list[Counter[tuple[int, int, int]]]:
    """Return the late rows of each micro-batch: the time, the time that was reached, and how much is missing."""
    (late,) = answer.late.values()
    return [Counter((time, reached, short) for _, _, time, reached, short in some) for some in late]


def counts(source: Any, window: Any, *, final: bool) -> Made:
    calls = {"n": aggregates.count(), "s": aggregates.sum("av")}
    return make_aggregate("out", Rows.of("a", source), calls, by="k", time="at", window=window, final=final)


@histories(EXAMPLES // 2)
@given(
    rows_of("a", NULLABLE, 14), ALIKE, GRACES, st.sampled_from([(7, 7), (10, 3), (6, 2), (5, 1)]), st.booleans(),
    st.booleans(),
)  # fmt: skip
def test_windows_that_have_closed_take_no_rows(
    events: list[Event], ways: list[Way], grace: int, lengths: tuple[int, int], final: bool, cumulative: bool
) -> None:
    source, (size, advance) = schema("a"), lengths
    window: Any = TimeWindows(size * 1_000, advance=advance * 1_000, grace=grace * 1_000)
    cut_windows = oracle.tumbling(size * SECOND, advance * SECOND)
    if cumulative:
        longest = size * advance
        window = CumulativeWindows(longest * 1_000, advance * 1_000, grace=grace * 1_000, offset=1_000)
        cut_windows = oracle.cumulative(longest * SECOND, advance * SECOND, SECOND)
    chain = Chain([counts(source, window, final=final)], {"a": source}, {"a": "at"})
    batches = late_batches(chain, events, ways[0])
    groups = defaultdict[tuple[Any, oracle.Bounds], list[Row]](list)
    expected_late = []
    for some in judged(batches):
        late = Counter[tuple[int, int]]()
        for event, clock in some:
            for start, end in cut_windows([event.at]):
                closed = end + grace * SECOND <= clock
                if not closed:
                    groups[event.row["k"], (start, end)].append(event.row)
                late[event.at, clock] |= closed
        expected_late.append(+late)
    expected = bag(
        {"k": key, "window": bounds, "n": len(rows), "s": _sum(rows)} for (key, bounds), rows in groups.items()
    )
    for answer in answers(chain, batches, ways):
        found = answer.rows if final else list(current(answer.rows, ["k", "window"]).values())
        assert bag({name: row[name] for name in ("k", "window", "n", "s")} for row in found) == expected
        shown = [Counter((time, reached) for time, reached, _ in some.elements()) for some in told(answer)]
        assert [set(some) for some in shown] == [set(late) for late in expected_late]


def _sum(rows: Sequence[Row]) -> int | None:
    values = [row["av"] for row in rows if row["av"] is not None]
    return sum(values) if values else None


BOTH = st.tuples(rows_of("a", NULLABLE), rows_of("b", NULLABLE)).map(lambda both: [*both[0], *both[1]])


@histories(EXAMPLES // 2)
@given(
    BOTH,
    ALIKE,
    GRACES,
    st.sampled_from([(0, 0), (3, 3), (2, 7), (10, -4), (-3, 9)]),
    st.sampled_from([JoinType.INNER, JoinType.SEMI]),
)
def test_an_inner_or_semi_join_of_streams_is_that_of_the_rows_in_time(
    events: list[Event], ways: list[Way], grace: int, reach: tuple[int, int], how: JoinType
) -> None:
    events = [event for event in events if event.row["k"] is not None]
    schemas = {"b": schema("b"), "a": schema("a")}
    before, after = reach[0] * SECOND, reach[1] * SECOND
    made = make_stream_join(
        "out",
        Rows.of("a", schemas["a"]),
        Rows.of("b", schemas["b"]),
        on="k",
        times=("at", "bt"),
        before=before,
        after=after,
        grace=grace * SECOND,
        how=how,
    )
    chain = Chain([made], schemas, {"b": "bt", "a": "at"})
    batches = late_batches(chain, events, ways[0])
    most = {"a": max(after, 0) + grace * SECOND, "b": max(before, 0) + grace * SECOND}
    in_time, late = _sorted_out(batches, lambda event, clock: event.at + most[event.source] < clock)
    expected = bag(oracle.near(own(in_time, "a"), own(in_time, "b"), how.value, ("at", "bt"), (before, after)))
    for answer in answers(chain, batches, ways):
        assert [Counter(time for time, _, _ in some.elements()) for some in told(answer)] == late
        assert bag(answer.rows) == expected


def _sorted_out(batches: Batches, is_late: Callable[[Event, Clock], bool]) -> tuple[list[Event], list[Counter[int]]]:
    """Return the rows that are in time, and the times of the others by micro-batch."""
    in_time, late = [], []
    for some in judged(batches):
        in_time += [event for event, clock in some if not is_late(event, clock)]
        late.append(Counter(event.at for event, clock in some if is_late(event, clock)))
    return in_time, late


@histories(EXAMPLES // 2)
@given(rows_of("a", KEYS, 14), ALIKE, GRACES)
def test_a_rule_sees_the_rows_in_time(events: list[Event], ways: list[Way], lateness: int) -> None:
    source = schema("a")
    made = make_apply(
        "out",
        Rows.of("a", source),
        Totals("av"),
        key="k",
        time="at",
        results=results_of(RESULTS),
        lateness=lateness * SECOND,
    )
    chain = Chain([made], {"a": source}, {"a": "at"})
    batches = late_batches(chain, events, ways[0])
    in_time, late = _sorted_out(batches, lambda event, clock: event.at + lateness * SECOND < clock)
    by_key = defaultdict[Any, list[Row]](list)
    for row in own(in_time, "a"):
        by_key[row["k"]].append(row)
    expected = bag(
        {"k": key, **shown}
        for key, rows in by_key.items()
        for shown in oracle.running_totals(rows, "at", "av", IDLE * SECOND, SOON * SECOND)
    )
    for answer in answers(chain, batches, ways):
        assert [Counter(time for time, _, _ in some.elements()) for some in told(answer)] == late
        assert bag(answer.rows) == expected


@histories(EXAMPLES // 2)
@given(rows_of("a", KEYS, 14, op=True), ALIKE, GRACES)
def test_a_table_of_latest_rows_is_that_of_the_rows_that_are_valid_within_the_history(
    events: list[Event], ways: list[Way], history: int
) -> None:
    source = schema("a", op=True)
    made = make_latest("out", Rows.of("a", source), key="k", time="at", history=history * SECOND, op="ao")
    chain = Chain([made], {"a": source}, {"a": "at"})
    batches = late_batches(chain, events, ways[0])
    by_batch = [own(some, "a") for some in batches]
    rows, late = oracle.judge_versions(by_batch, "k", "at", history * SECOND, "ao")
    expected = {(key,): row for key, row in oracle.newest(rows, "k", "at", "ao").items()}
    for answer in answers(chain, batches, ways):
        assert [sorted(time for time, _, _ in some.elements()) for some in told(answer)] == [
            [row["at"] for row in some] for some in late
        ]
        assert table(current(answer.rows, ["k"]), "change_time") == table(expected, "ao")


def verbs(grace: int) -> Mapping[str, Chain]:
    """Return verbs, each of which leaves out what is later than so many seconds."""
    plain, feeds = {one: schema(one) for one in "ba"}, {one: schema(one, op=True) for one in "ba"}
    left, right, micros = Rows.of("a", plain["a"]), Rows.of("b", plain["b"]), grace * SECOND
    changes = Rows.of("a", feeds["a"]), Rows.of("b", feeds["b"])
    times, one, two = ("at", "bt"), {"a": plain["a"]}, plain
    made: dict[str, tuple[Made, Mapping[str, Any]]] = {
        "sliding": (counts(plain["a"], SlidingWindows(5_000, grace=grace * 1_000), final=True), one),
        "sessions": (counts(plain["a"], SessionWindows(4_000, grace=grace * 1_000), final=True), one),
        "session updates": (counts(plain["a"], SessionWindows(4_000, grace=grace * 1_000), final=False), one),
        "cut sessions": (
            counts(plain["a"], SessionWindows(4_000, grace=grace * 1_000, max_length=6_000), final=True), one,
        ),
        "asof_join": (
            make_asof_join("out", left, right, on="k", times=times, history=micros, how=JoinType.LEFT),
            two,
        ),
        "asof_join ahead": (
            make_asof_join(
                "out", left, right, on="k", times=times, history=micros + 3 * SECOND, how=JoinType.LEFT, grace=micros,
                tolerance=3 * SECOND, direction=AsofDirection.FORWARD,
            ),
            two,
        ),
        "left join": (
            make_stream_join(
                "out", left, right, on="k", times=times, before=2 * SECOND, after=4 * SECOND, grace=micros,
                how=JoinType.LEFT,
            ),
            two,
        ),
        "outer join": (
            make_stream_join(
                "out", left, right, on="k", times=times, before=9 * SECOND, after=-4 * SECOND, grace=micros,
                how=JoinType.OUTER,
            ),
            two,
        ),
        **{
            f"{how.value} join": (
                make_stream_join(
                    "out", left, right, on="k", times=times, before=4 * SECOND, after=2 * SECOND, grace=micros, how=how
                ),
                two,
            )
            for how in (JoinType.RIGHT, JoinType.SEMI, JoinType.ANTI)
        },
        "table_join": (
            make_table_join("out", *changes, on="k", times=times, ops=("ao", "bo"), how=JoinType.OUTER, history=micros),
            feeds,
        ),
    }  # fmt: skip
    return {name: Chain([verb], schemas, {"a": "at", "b": "bt"}) for name, (verb, schemas) in made.items()}


def final(chain: Chain, answer: Answer) -> Mapping[Any, Any]:
    """Return all rows, or the table that a change feed leaves."""
    columns = chain.verbs[-1].verb.schema.names
    if "op" not in columns:
        return bag(answer.rows)
    return table(current(answer.rows, ["k", "window"] if "window" in columns else ["k"]), "change_time")


@pytest.mark.parametrize("name", verbs(0))
def test_what_is_late_and_what_comes_out_depends_on_micro_batches_alone(name: str) -> None:
    op = name == "table_join"
    both = st.tuples(rows_of("a", KEYS, op=op), rows_of("b", KEYS, op=op)).map(lambda both: [*both[0], *both[1]])

    @histories(EXAMPLES // 4)
    @given(both, ALIKE, GRACES)
    def check(events: list[Event], ways: list[Way], grace: int) -> None:
        chain = verbs(grace)[name]
        events = [event for event in events if event.source in chain.schemas]
        batches = late_batches(chain, events, ways[0])
        first, *rest = answers(chain, batches, ways)
        for answer in rest:
            assert told(answer) == told(first)
            assert final(chain, answer) == final(chain, first)

    check()


@pytest.mark.parametrize("name", verbs(0))
def test_a_backlog_in_one_micro_batch_is_a_steady_run(name: str) -> None:
    op = name == "table_join"
    both = st.tuples(rows_of("a", KEYS, op=op), rows_of("b", KEYS, op=op)).map(lambda both: [*both[0], *both[1]])

    @histories(EXAMPLES // 4)
    @given(both, ALIKE, GRACES)
    def check(events: list[Event], ways: list[Way], grace: int) -> None:
        chain = verbs(grace)[name]
        events = [event for event in events if event.source in chain.schemas]
        in_order = arrivals(events, dict.fromkeys("ba", 0), Random(ways[0].seed))
        backlog = run(chain, [in_order], ways[0])
        steady = run(chain, [[event] for event in in_order], ways[1])
        assert not any(told(backlog) + told(steady))
        assert final(chain, backlog) == final(chain, steady)

    check()


@histories(EXAMPLES // 2)
@given(rows_of("a", NULLABLE, 14), ALIKE, st.sampled_from([None, 0, 2, 5]), st.sampled_from([0, 3, 20]))
def test_first_rows_are_those_of_the_rows_in_time(
    events: list[Event], ways: list[Way], grace: int | None, within: int
) -> None:
    source = schema("a")
    waits = None if grace is None else grace * SECOND
    made = make_deduplicate("out", Rows.of("a", source), key="k", time="at", within=within * SECOND, grace=waits)
    chain = Chain([made], {"a": source}, {"a": "at"})
    batches = late_batches(chain, events, ways[0])
    late_by = (within if grace is None else grace) * SECOND
    in_time, late = _sorted_out(batches, lambda event, clock: event.at + late_by < clock)
    numbers = {id(event): number for number, some in enumerate(batches) for event in some}
    kept: dict[Any, int] = {}
    expected = []
    for event in sorted(in_time, key=lambda event: (numbers[id(event)] if grace is None else 0, event.at)):
        key = event.row["k"]
        if key not in kept or event.at > kept[key] + within * SECOND:
            kept[key] = event.at
            expected.append((key, event.at))
    for answer in answers(chain, batches, ways):
        assert [Counter(time for time, _, _ in some.elements()) for some in told(answer)] == late
        assert Counter((row["k"], row["at"]) for row in answer.rows) == Counter(expected)
