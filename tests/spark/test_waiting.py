"""The time that verbs wait, what they add for verbs before them, and how ``explain`` says it; no Spark is started."""

from dataclasses import replace

import pyarrow as pa
import pytest

from millpond.processors import SessionWindows, SlidingWindows, TimeWindows
from millpond.processors.calls.account import (
    GRACE,
    HISTORY,
    LATENESS,
    Account,
    Allowance,
    InputTime,
    explained,
    shown,
)
from millpond.processors.calls.latest import make_latest
from millpond.processors.calls.tables import Rows
from millpond.processors.calls.waiting import (
    aggregate_account,
    apply_account,
    asof_allowances,
    asof_history,
    asof_join_account,
    extended,
    held_back,
    latest_account,
    stream_join_account,
    table_join_account,
)
from millpond.processors.options.join_windows import JoinWindows
from millpond.processors.options.joins import JoinType
from millpond.processors.verbs.aggregate import Windows

MINUTE = 60_000_000
LATE = InputTime(10 * MINUTE, ("sold",))
EARLY = InputTime(0, ("paid",))


def minutes(account: Account) -> dict[str, float | None]:
    return {".".join(path): bound and bound / MINUTE for path, bound in account.bounds.items()}


@pytest.mark.parametrize(
    ("length", "text"),
    [
        (0, "0 s"),
        (1, "1 us"),
        (15 * MINUTE, "15 min"),
        (90 * MINUTE, "1 h 30 min"),
        (26 * 60 * MINUTE + 1_500_001, "1 d 2 h 1 s 500 ms 1 us"),
    ],
)
def test_lengths_of_time_are_shown_in_all_units_that_they_have(length: int, text: str) -> None:
    assert shown(length) == text


@pytest.mark.parametrize(
    "windows",
    [
        TimeWindows(60_000, advance=30_000, grace=7),
        SlidingWindows(60_000, grace=7),
        SessionWindows(60_000, grace=7),
    ],
)
def test_a_window_waits_as_much_longer_as_its_rows_are_late_in_whole_milliseconds(windows: Windows) -> None:
    assert extended(windows, 0) is windows
    assert extended(windows, 1) == extended(windows, 1_000) == windows.with_grace(8)
    assert extended(None, 1) is None


@pytest.mark.parametrize(
    ("windows", "final", "bounds", "longest"),
    [
        (TimeWindows("5 minutes", grace="2 minutes"), True, {"window.start": 27, "window.end": 22}, 27),
        (TimeWindows("5 minutes", grace="2 minutes"), False,
         {"window.start": 27, "window.end": 27, "change_time": 27}, 0),
        (SlidingWindows("5 minutes"), True, {"window.start": 25, "window.end": 20}, 25),
        (SessionWindows("5 minutes"), True, {"window.start": None, "window.end": 20}, None),
        (SessionWindows("5 minutes"), False, {"window.start": None, "window.end": 25, "change_time": 25}, 0),
        (SessionWindows(object(), at_most="5 minutes"), True, {"window.start": None, "window.end": 20}, None),
        (SessionWindows(object(), at_most="5 minutes"), False,
         {"window.start": None, "window.end": 25, "change_time": 25}, 0),
        (SessionWindows("5 minutes", max_length="1 hour"), True, {"window.start": 85, "window.end": 25}, 85),
        (SessionWindows("5 minutes", max_length="1 hour"), False,
         {"window.start": 85, "window.end": 30, "change_time": 25}, 0),
        (None, False, {"change_time": 10}, 0),
    ],
)  # fmt: skip
def test_the_windows_of_an_aggregate_come_out_after_their_grace_and_that_of_their_rows(
    windows: Windows | None, final: bool, bounds: dict[str, float | None], longest: int | None
) -> None:
    account = aggregate_account("counts", windows, LATE.bound, final=final)
    assert minutes(account) == bounds
    assert account.longest == (longest and longest * MINUTE)
    assert ("for ever" in account.keeps) is (windows is None)


@pytest.mark.parametrize(
    ("join_type", "before", "after", "bounds", "longest"),
    [
        (JoinType.INNER, 1, 3, {"sold": 15, "paid": 13}, 15),
        (JoinType.LEFT, 1, 3, {"sold": 15, "paid": 13}, 15),
        (JoinType.OUTER, 4, 3, {"sold": 15, "paid": 16}, 16),
        (JoinType.LEFT, 4, -3, {"sold": 12, "paid": 16}, 12),
        (JoinType.RIGHT, 4, -3, {"sold": 12, "paid": 16}, 16),
        (JoinType.SEMI, 1, 3, {"sold": 15, "paid": 13}, 15),
        (JoinType.ANTI, 1, 3, {"sold": 15, "paid": 13}, 15),
    ],
)
def test_a_join_of_streams_waits_for_the_later_side(
    join_type: JoinType, before: int, after: int, bounds: dict[str, float], longest: int
) -> None:
    windows = JoinWindows(before * MINUTE, after * MINUTE, 2 * MINUTE)
    account = stream_join_account("paid", join_type, windows, LATE, EARLY)
    assert account.allowances == [Allowance(GRACE, 2 * MINUTE, 10 * MINUTE)]
    assert minutes(account) == bounds
    assert account.longest == longest * MINUTE
    assert minutes(stream_join_account("paid", join_type, windows, InputTime(0), EARLY)).keys() == {"paid"}


@pytest.mark.parametrize(
    ("own", "left", "right", "waits", "history", "bound"),
    [
        (None, EARLY, EARLY, None, 60, 0),
        (None, LATE, EARLY, None, 70, 10),
        (None, EARLY, LATE, 10 * MINUTE + 1, 70, 10),
        (3 * MINUTE, LATE, LATE, 13 * MINUTE + 1, 80, 23),
        (3 * MINUTE, LATE, EARLY, 3 * MINUTE + 1, 70, 13),
    ],
)
def test_an_asof_join_waits_for_right_rows_that_are_held_back_and_remembers_as_much_longer(
    own: int | None, left: InputTime, right: InputTime, waits: int | None, history: int, bound: int
) -> None:
    grace, kept = asof_allowances(own, 60 * MINUTE, left, right)
    assert held_back(grace) == waits
    assert kept.total == history * MINUTE
    account = asof_join_account("priced", JoinType.LEFT, grace, kept, left)
    assert list(minutes(account).values()) == [bound]
    assert account.marks == ({left.path: bound * MINUTE} if bound else {})
    assert [one.what for one in account.allowances] == ([HISTORY] if waits is None else [GRACE, HISTORY])


def test_an_asof_join_that_looks_ahead_waits_for_its_tolerance_as_well() -> None:
    grace, kept = asof_allowances(3 * MINUTE, 30 * MINUTE, LATE, LATE)
    ahead = 20 * MINUTE
    account = asof_join_account("priced", JoinType.LEFT, grace, kept, LATE, ahead)
    # The bound of the left side, the tolerance, and the grace with the bound of the right side.
    assert minutes(account) == {"sold": 10 + 20 + 3 + 10}
    assert account.longest == account.bounds["sold",]
    assert asof_history(kept, held_back(grace), True, ahead) == 50 * MINUTE
    assert asof_history(replace(kept, own=23 * MINUTE, added=0), held_back(grace), False, ahead) == 33 * MINUTE + 2
    assert (
        "  waits      each left row for right rows that are later or late, until 20 min and its grace are over\n"
    ) in explained([account])


def test_tables_pass_on_how_late_their_changes_are() -> None:
    history = Allowance(HISTORY, 60 * MINUTE, 10 * MINUTE)
    accounts = [
        latest_account("newest", history),
        table_join_account("joined", JoinType.LEFT, history, 10 * MINUTE),
        table_join_account("joined", JoinType.LEFT, None, 10 * MINUTE),
    ]
    assert [minutes(account) for account in accounts] == [{"change_time": 10}] * 3
    assert all("for ever" in account.keeps for account in accounts)


def test_a_table_of_a_table_expects_deletes_as_late_as_the_changes_of_the_first() -> None:
    """Deletes have no other time, while the time of rows that stay is known to be never late."""
    times: pa.DataType = pa.timestamp("us", "UTC")
    columns = pa.schema([("key", pa.string()), ("sold", times), ("due", times)])
    newest = make_latest(
        "newest", Rows.of("sales", columns, {("sold",): 10 * MINUTE}), key="key", time="sold", history=0
    )
    due = make_latest("due", newest.rows, key="key", time="due", history=MINUTE)
    assert due.account.allowances == [Allowance(HISTORY, MINUTE, 10 * MINUTE)]


def test_the_results_of_a_processor_are_as_late_as_its_rows_may_be() -> None:
    account = apply_account("mine", "Mine", Allowance(LATENESS, MINUTE, 10 * MINUTE), ["seen", "until"])
    assert minutes(account) == {"seen": 21, "until": 21}


def test_sessions_wait_for_the_gaps_of_their_rows() -> None:
    account = aggregate_account("visits", SessionWindows(object(), at_most="30 minutes"), 0, final=True)
    assert account.waits == "for the end of its session: its own gap, at most 30 min, without a row, and the grace"


def test_explain_says_what_is_known_line_by_line() -> None:
    grace, kept = asof_allowances(None, 60 * MINUTE, EARLY, LATE)
    accounts = [
        asof_join_account("priced", JoinType.LEFT, grace, kept, EARLY),
        aggregate_account("visits", SessionWindows("30 minutes"), 0, final=True),
    ]
    assert explained(accounts) == (
        "priced (asof_join, left)\n"
        "  clock      for the grace, the newest time of left; for versions, the newest time of right that earlier "
        "micro-batches have shown\n"
        "  grace      0 s of its own + 10 min for its inputs = 10 min\n"
        "  history    1 h of its own + 10 min for its inputs = 1 h 10 min\n"
        "  waits      each left row for right rows that are late, until its grace is over\n"
        "  comes out  at most 10 min after its time\n"
        "  bound      paid: 10 min\n"
        "  keeps      versions of the right side for the history, and the latest one of each key for ever: it grows "
        "with the number of keys that are not deleted\n"
        "\n"
        "visits (aggregate, final)\n"
        "  clock      the newest time that earlier micro-batches have shown\n"
        "  grace      0 s of its own + 0 s for its inputs = 0 s\n"
        "  waits      for the end of its session: 30 min without a row, and the grace\n"
        "  comes out  when that has happened, however long it takes\n"
        "  bound      window.start: none, it may be of any age\n"
        "  bound      window.end: 0 s\n"
        "  keeps      each window until it and its grace are over"
    )
