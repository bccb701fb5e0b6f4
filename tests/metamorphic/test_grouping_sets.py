"""By grouping sets, each row counts once for each set, however rows are cut into micro-batches and files."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.processors import (
    CumulativeWindows,
    SessionWindows,
    SlidingWindows,
    TimeWindows,
    cube,
    grouping_sets,
    rollup,
)
from millpond.processors.calls.aggregate import make_aggregate
from millpond.processors.calls.latest import make_latest
from millpond.processors.calls.tables import Rows
from millpond.processors.options.grouping import By
from millpond.processors.verbs import aggregates
from millpond.processors.verbs import verb as verbs
from millpond.processors.verbs.verb import INSTANT
from tests.metamorphic import oracle
from tests.metamorphic.checking import LENGTHS, answers, bag, combined, histories, own, table
from tests.metamorphic.histories import FAR, SECOND, SHARING, WAYS, Chain, Event, Way, current
from tests.metamorphic.oracle import Row
from tests.metamorphic.test_verbs import CALLS, aggregated


@pytest.fixture(autouse=True, scope="module")
def _combined() -> Iterator[None]:
    """Few rows are combined, and spread in several tables, as many are."""
    with combined(most_new=0.5) as patch:
        patch.setattr(verbs, "_TOGETHER", 9)
        yield


COLUMNS: list[tuple[str, pa.DataType]] = [("k", pa.string()), ("g", pa.int32()), ("at", INSTANT), ("av", pa.int64())]
SOURCE = pa.schema(COLUMNS)
BY: dict[str, tuple[By, list[tuple[str, ...]]]] = {
    "cube": (cube("k", "g"), [("k", "g"), ("k",), ("g",), ()]),
    "rollup": (rollup("k", "g"), [("k", "g"), ("k",), ()]),
    "sets": (grouping_sets(["k", ["g"]]), [("k",), ("g",)]),
    "one set": (grouping_sets([["k", "g"]]), [("k", "g")]),
    "beside": (["k", cube("g")], [("k", "g"), ("k",)]),
}
"""What a user gives, and the sets."""

KINDS: dict[str, tuple[Any, Any, int, Any]] = {
    "tumbling": (lambda grace: TimeWindows(7_000, grace=grace), oracle.tumbling(7 * SECOND), 0, oracle.holds),
    "hopping": (
        lambda grace: TimeWindows(10_000, advance=3_000, grace=grace),
        oracle.tumbling(10 * SECOND, 3 * SECOND),
        0,
        oracle.holds,
    ),
    "cumulative": (
        lambda grace: CumulativeWindows(12_000, 3_000, grace=grace),
        oracle.cumulative(12 * SECOND, 3 * SECOND, 0),
        0,
        oracle.holds,
    ),
    "sliding": (lambda grace: SlidingWindows(5_000, grace=grace), oracle.sliding(5 * SECOND), 0, oracle.holds_end),
    "sessions": (
        lambda grace: SessionWindows(4_000, grace=grace),
        oracle.sessions(4 * SECOND),
        4 * SECOND,
        oracle.holds_end,
    ),
}
"""The windows, how the oracle cuts them, how much later their ends are shown, and what they hold."""

GROUPS = st.sampled_from([1, 2, None])
ROW = st.tuples(st.sampled_from(["a", "b", "", None]), GROUPS, st.integers(0, 40), st.none() | st.integers(0, 9))
SOME = st.lists(ROW, max_size=14, unique_by=lambda row: row[2]).map(
    lambda rows: [_event(key, group, second, value) for key, group, second, value in rows]
)
TWO = st.lists(WAYS, min_size=2, max_size=2)
WHICH = st.sampled_from(sorted(CALLS))
SETS = st.sampled_from(sorted(BY))


def _event(key: Any, group: Any, second: int, value: int | None) -> Event:
    at = (1_000 + second) * SECOND
    return Event("a", at, {"k": key, "g": group, "at": at, "av": value})


def spread(rows: Sequence[Row], sets: str) -> list[Row]:
    """Return each row for each set, with the key that it has there."""
    columns = ("k", "g") if any("k" in one for one in BY[sets][1]) else ("g",)
    found: list[Row] = []
    for one in BY[sets][1]:
        number = sum((name not in one) << place for place, name in enumerate(reversed(columns)))
        for row in rows:
            key = tuple(row[name] if name in one else None for name in columns)
            found.append({**row, "key": (*key, number)})
    return found


def check(
    events: Sequence[Event], ways: Sequence[Way], sets: str, calls: str, delay: int, kind: str = "", final: bool = False
) -> None:  # fmt: skip
    make, cut, shown, within = KINDS.get(kind, (None, None, 0, None))
    window = make and make(delay * 1_000)
    told = {"of all": aggregates.grouping("k"), **CALLS[calls]}
    made = make_aggregate("out", Rows.of("a", SOURCE), told, by=BY[sets][0], time="at", window=window, final=final)
    rows = spread(own(events, "a"), sets)
    groups: dict[Any, list[Row]] = {}
    if cut is None:
        for row in sorted(rows, key=lambda row: int(row["at"])):
            groups.setdefault((*row["key"],), []).append(row)
    else:
        for (key, (start, end)), some in oracle.by_window(rows, "key", "at", cut, within).items():
            groups[*key, (start, end + shown)] = some
    names = ["k", "g", "grouping_id", *([] if window is None else ["window"])]
    expected = {
        key: {
            **dict(zip(names, key, strict=True)),
            "of all": key[2] >> 1,
            **{name: value for name, value in aggregated(some).items() if name in CALLS[calls]},
            **({} if final else {"change_time": max(row["at"] for row in some)}),
        }
        for key, some in groups.items()
    }
    chain = Chain([made], {"a": SOURCE}, {"a": "at"}, key="none")
    for answer in answers(chain, events, {"a": delay}, ways):
        found = [row for row in answer.rows if (row["window"][1] if "window" in row else row["change_time"]) < FAR]
        if final:
            assert bag(found) == bag(expected.values())
        else:
            assert table(current(found, names)) == table(expected)


@histories(24)
@given(SOME, TWO, SETS, WHICH)
def test_by_grouping_sets(events: list[Event], ways: list[Way], sets: str, calls: str) -> None:
    check(events, ways, sets, calls, 40)


@histories(48)
@given(SOME, TWO, SETS, WHICH, LENGTHS, st.booleans(), st.sampled_from(sorted(KINDS)))
def test_by_grouping_sets_and_windows(
    events: list[Event], ways: list[Way], sets: str, calls: str, grace: int, final: bool, kind: str
) -> None:
    check(events, ways, sets, calls, grace, kind, final)


SHARED = st.tuples(WAYS, SHARING).map(list)
"""In operators of their own, over backends alone, and in operators that verbs share where they may."""


@histories(24)
@given(SOME, SHARED, st.sampled_from([0, 2, 5, 15]))
def test_verbs_before_and_behind_one_by_grouping_sets(events: list[Event], ways: list[Way], grace: int) -> None:
    """The one before is by the same columns, but rows have other keys; the one behind by one of the columns."""
    plain = Rows.of("a", SOURCE)
    one = make_latest("one", plain, key=["k", "at"], time="at", history=100 * SECOND)
    counts = {"n": aggregates.count(), "s": aggregates.sum("av")}
    window = TimeWindows(6_000, grace=grace * 1_000)
    rows = one.rows.select("k", "g", "av", "at", change="change_time")
    two = make_aggregate("two", rows, counts, by=["k", cube("at")], time="change", window=window, final=True)
    ends = two.rows.select("k", "grouping_id", "n", "s", end=("window", "end"))
    last = {"n": aggregates.sum("n"), "s": aggregates.sum("s"), "id": aggregates.max("grouping_id")}
    three = make_aggregate("three", ends, last, by="k", time="end", window=TimeWindows(18_000), final=True)
    chain = Chain([one, two, three], {"a": SOURCE}, {"a": "at"}, key="none")
    own_rows = own(events, "a")
    expected = []
    for (key, (start, end)), some in oracle.by_window(
        [{**row, "end": row["at"] // (6 * SECOND) * 6 * SECOND + 6 * SECOND} for row in own_rows],
        "k",
        "end",
        oracle.tumbling(18 * SECOND),
        oracle.holds,
    ).items():
        values = [row["av"] for row in some if row["av"] is not None]
        expected.append(
            {"k": key, "window": (start, end), "n": 2 * len(some), "s": 2 * sum(values) if values else None, "id": 1}
        )
    ways = [replace(way, complete=True) for way in ways]
    for answer in answers(chain, events, {"a": grace}, ways):
        assert bag(answer.rows) == bag(expected)


@histories(24)
@given(SOME, SHARED)
def test_the_latest_results_by_grouping_sets(events: list[Event], ways: list[Way]) -> None:
    """A change feed by grouping sets has a key of its own, by which the next verb knows its changes."""
    one = make_aggregate("one", Rows.of("a", SOURCE), {"n": aggregates.count()}, by=cube("k", "g"), time="at")
    assert one.feed == ["k", "g", "grouping_id"]
    feed = one.rows.select("k", "g", "grouping_id", "n", "op", at="change_time")
    two = make_latest("two", feed, key=["k", "g", "grouping_id"], time="at", history=100 * SECOND, op="op")
    chain = Chain([one, two], {"a": SOURCE}, {"a": "at"}, key="none")
    groups = Counter(row["key"] for row in spread(own(events, "a"), "cube"))
    expected = {key: {**dict(zip(("k", "g", "grouping_id"), key, strict=True)), "n": n} for key, n in groups.items()}
    ways = [replace(way, complete=True) for way in ways]
    for answer in answers(chain, events, {"a": 40}, ways):
        assert table(current(answer.rows, ["k", "g", "grouping_id"]), "change_time", "at") == table(expected)
