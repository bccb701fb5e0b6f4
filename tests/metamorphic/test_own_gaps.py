"""Sessions with a gap of each row answer the same in any cut, and are those of plain Python."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.processors import SessionWindows, TimeWindows
from millpond.processors.calls.aggregate import make_aggregate
from millpond.processors.calls.tables import Rows
from millpond.processors.verbs import aggregates
from millpond.processors.verbs.aggregate import GAP
from tests.metamorphic import oracle
from tests.metamorphic.checking import EXAMPLES, LENGTHS, NULLABLE, answers, bag, histories, own, rows_of, schema
from tests.metamorphic.histories import SECOND, SHARING, WAYS, Answer, Chain, Event, Way, current
from tests.metamorphic.test_late import GRACES, late_batches
from tests.metamorphic.test_late import answers as answers_of

LONGEST = 9
"""Seconds that a gap may have."""
PIECE, OFFSET = 14, 3
"""Of those in which sessions stay that are cut, in seconds."""
GAPS = st.sampled_from([None, -SECOND, 0, 1, SECOND // 2, SECOND, 2 * SECOND, 5 * SECOND, LONGEST * SECOND])
SOURCE = schema("a").append(pa.field(GAP, pa.int64()))
COMPLETE = st.builds(replace, st.one_of(WAYS, SHARING), complete=st.just(True))
"""Ways that tell of the end: what would move the time else has no gap."""
CALLS = {"n": aggregates.count(), "s": aggregates.sum("av"), "f": aggregates.first("av"), "c": aggregates.collect("av")}

HISTORIES = st.builds(
    lambda events, gaps: [
        replace(one, row={**one.row, GAP: gap}) for one, gap in zip(events, gaps, strict=False)
    ],
    rows_of("a", NULLABLE, 14),
    st.lists(GAPS, min_size=14, max_size=14),
)  # fmt: skip


def chain(grace: int, *, final: bool, cut: bool) -> Chain:
    length: dict[str, Any] = {"max_length": PIECE * 1_000, "offset": OFFSET * 1_000} if cut else {}
    window = SessionWindows(object(), at_most=LONGEST * 1_000, grace=grace * 1_000, **length)
    made = make_aggregate("out", Rows.of("a", SOURCE), CALLS, by="k", time="at", window=window, final=final)
    return Chain([made], {"a": SOURCE}, {"a": "at"})


def end_of(row: oracle.Row, *, cut: bool) -> int:
    """Return until when a row lasts."""
    end = int(row["at"] + row[GAP])
    return min(end, ((row["at"] // SECOND - OFFSET) // PIECE + 1) * PIECE * SECOND + OFFSET * SECOND) if cut else end


def shown(key: Any, start: int, end: int, rows: Sequence[oracle.Row]) -> dict[str, Any]:
    values = [row["av"] for row in sorted(rows, key=lambda row: int(row["at"]))]
    present = [value for value in values if value is not None]
    results = {"n": len(values), "s": sum(present) if present else None, "f": values[0], "c": tuple(present)}
    return {"k": key, "window": (start, end), **results}


def islands(events: Sequence[Event], *, cut: bool) -> Iterator[dict[str, Any]]:
    """Yield gaps and islands: the rows of a key that overlap or touch, by the latest time until which one lasts."""
    rows = [row for row in own(events, "a") if (row[GAP] or 0) > 0]
    for key in {row["k"] for row in rows}:
        held: list[oracle.Row] = []
        latest = before = 0
        for row in sorted((row for row in rows if row["k"] == key), key=lambda row: int(row["at"])):
            piece = (row["at"] // SECOND - OFFSET) // PIECE if cut else 0
            if held and (row["at"] > latest or piece != before):
                yield shown(key, held[0]["at"], latest, held)
                held, latest = [], 0
            held, latest, before = [*held, row], max(latest, end_of(row, cut=cut)), piece
        if held:
            yield shown(key, held[0]["at"], latest, held)


def table_of(answer: Answer, *, final: bool) -> list[Mapping[str, Any]]:
    """Return the results; of updates, those that stand, without their times, which are the ends of the sessions."""
    if final:
        return list(answer.rows)
    found = current(answer.rows, ["k", "window"]).values()
    assert all(row["change_time"] == row["window"][1] for row in found)
    return [{name: row[name] for name in row if name != "change_time"} for row in found]


@histories(2 * EXAMPLES)
@given(HISTORIES, st.lists(COMPLETE, min_size=2, max_size=2), LENGTHS, st.booleans(), st.booleans())
def test_sessions_are_islands_of_rows_that_last_until_their_own_gaps_are_over(
    events: list[Event], ways: list[Way], grace: int, final: bool, cut: bool
) -> None:
    expected = bag(islands(events, cut=cut))
    for answer in answers(chain(grace, final=final, cut=cut), events, {"a": grace}, ways):
        assert bag(table_of(answer, final=final)) == expected
        assert not any(some for verb in answer.late.values() for some in verb)


@dataclass
class Session:
    """One that takes rows."""

    key: Any
    start: int
    end: int
    rows: list[oracle.Row] = field(default_factory=list)


def judged(
    batches: Sequence[Sequence[Event]], grace: int, *, cut: bool
) -> tuple[list[dict[str, Any]], list[Counter[Any]]]:
    """Return the sessions of rows as they come, each batch by time, and the late rows of each batch: time and need."""
    clock, late = 0, list[Counter[Any]]()
    open_ones, closed = list[Session](), list[Session]()
    for events in batches:
        late.append(Counter())
        for row in sorted((row for row in own(events, "a") if (row[GAP] or 0) > 0), key=lambda row: int(row["at"])):
            clock = max(clock, row["at"])
            closed += [one for one in open_ones if one.end < clock - grace]
            open_ones = [one for one in open_ones if one.end >= clock - grace]
            new = Session(row["k"], row["at"], end_of(row, cut=cut), [row])
            met = [
                one
                for one in open_ones
                if one.key == new.key
                and one.start <= new.end
                and new.start <= one.end
                and (not cut or _piece(one.start) == _piece(new.start))
            ]
            if not met and new.end < clock - grace:
                late[-1][row["at"], clock, clock - grace - new.end] += 1
                continue
            whole = [*met, new]
            open_ones = [one for one in open_ones if one not in met]
            ends = min(one.start for one in whole), max(one.end for one in whole)
            open_ones.append(Session(new.key, *ends, [row for one in whole for row in one.rows]))
    return [shown(one.key, one.start, one.end, one.rows) for one in [*closed, *open_ones]], late


def _piece(time: int) -> int:
    return (time // SECOND - OFFSET) // PIECE


@histories(2 * EXAMPLES)
@given(HISTORIES, st.lists(COMPLETE, min_size=3, max_size=3), GRACES, st.booleans(), st.booleans())
def test_what_is_late_depends_on_micro_batches_alone_and_a_session_that_has_closed_takes_no_more_rows(
    events: list[Event], ways: list[Way], grace: int, final: bool, cut: bool
) -> None:
    sessions = chain(grace, final=final, cut=cut)
    batches = late_batches(sessions, events, ways[0])
    expected, late = judged(batches, grace * SECOND, cut=cut)
    for answer in answers_of(sessions, batches, ways):
        assert bag(table_of(answer, final=final)) == bag(expected)
        (found,) = answer.late.values()
        assert [Counter((time, reached, short) for _, _, time, reached, short in some) for some in found] == late


def lasting(key: str, second: int, seconds: int) -> Event:
    at = (1_000 + second) * SECOND
    return Event("a", at, {"k": key, "at": at, "av": second, GAP: seconds * SECOND})


@pytest.mark.parametrize("backend", ["memory", "lmdb", "rocksdb", None])
@pytest.mark.parametrize("final", [False, True])
def test_a_late_row_that_still_lasts_meets_no_session_that_has_closed_but_one_that_is_open(
    backend: str | None, final: bool
) -> None:
    """It holds whatever the store still has: how much that is depends on the gaps of others."""
    batches = [
        [lasting("a", 1, 1), lasting("b", 5, 9)],
        [lasting("a", 2, 9), lasting("a", 3, 1), lasting("b", 1, 1), lasting("c", 20, 9)],
        [lasting("b", 13, 8), lasting("b", 3, 9), lasting("a", 0, 9), lasting("a", 30, 1)],
    ]
    expected, late = judged(batches, 0, cut=False)
    assert [row["window"][0] // SECOND - 1_000 for row in expected if row["k"] == "a"] == [1, 2, 30]
    ways = [Way(seed, 3, 2, (seed,), shared=shared, backend=backend) for seed in (1, 2) for shared in (False, True)]
    sessions = chain(0, final=final, cut=False)
    for answer in answers_of(sessions, batches, ways):
        assert bag(table_of(answer, final=final)) == bag(expected)
        (found,) = answer.late.values()
        assert [Counter((time, reached, short) for _, _, time, reached, short in some) for some in found] == late


def test_a_row_with_a_gap_beyond_at_most_cannot_be_used() -> None:
    events = [Event("a", SECOND, {"k": "a", "at": SECOND, "av": 1, GAP: LONGEST * SECOND + 1})]
    way = Way(1, 1, 1, (1,))
    with pytest.raises(Exception, match="column 'gap': more than at_most='9 seconds'"):
        list(answers(chain(0, final=True, cut=False), events, {"a": 0}, [way]))


@histories()
@given(
    HISTORIES, st.lists(COMPLETE, min_size=2, max_size=2), st.sampled_from([0, 3]), st.sampled_from(["start", "end"])
)
def test_the_next_verb_waits_for_sessions_by_their_ends_and_those_that_are_cut_by_their_starts(
    events: list[Event], ways: list[Way], grace: int, bound: str
) -> None:
    cut = bound == "start"
    one = chain(grace, final=True, cut=cut).verbs[0]
    rows = one.rows.select("k", "n", moment=("window", bound))
    calls = {"m": aggregates.count(), "t": aggregates.sum("n")}
    two = make_aggregate("two", rows, calls, by="k", time="moment", window=TimeWindows(3_000), final=True)
    found = defaultdict[Any, list[int]](list)
    for row in islands(events, cut=cut):
        start = row["window"][not cut] // (3 * SECOND) * 3 * SECOND
        found[row["k"], (start, start + 3 * SECOND)].append(row["n"])
    expected = [{"k": key, "window": of, "m": len(some), "t": sum(some)} for (key, of), some in found.items()]
    for answer in answers(Chain([one, two], {"a": SOURCE}, {"a": "at"}), events, {"a": grace}, ways):
        assert bag(answer.rows) == bag(expected)
        assert not any(some for verb in answer.late.values() for some in verb)
