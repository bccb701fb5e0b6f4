"""The waiting time of each verb, from the user's arguments and the bounds of its inputs, and the bounds of its result.

Rule of this module: arithmetic and words. What one verb holds back, the next one waits for: a row is in time for it as
long as it is not later than the bound of its input and what the user gave together. What a verb lets out when its own
clock has come far enough is later still, by as much as that clock is behind: the bound of its input once more. Lengths
of time are in microseconds, but windows of aggregates have milliseconds, as the user wrote them.
"""

from collections.abc import Collection
from dataclasses import replace
from typing import Final, TypeVar, cast

from millpond.processors.calls.account import (
    GRACE,
    HISTORY,
    Account,
    Allowance,
    InputTime,
    Path,
    shown,
)
from millpond.processors.options.join_windows import JoinWindows
from millpond.processors.options.joins import JoinType, Side
from millpond.processors.options.windows import SessionWindows, SlidingWindows, own_gap
from millpond.processors.verbs.aggregate import WINDOW, Windows
from millpond.processors.verbs.ordered.over_spec import Frame
from millpond.processors.verbs.projections import CHANGE_TIME
from millpond.processors.verbs.verb import MICROS

AnyWindows = TypeVar("AnyWindows", bound=Windows | None)

_OF_INPUT: Final = "the newest time that earlier micro-batches have shown"
_OF_BOTH: Final = "the newest time of left and right that earlier micro-batches have shown"
_OF_ALL: Final = "the newest time of all tables that earlier micro-batches have shown"
_IN_TURN: Final = "none: changes apply by time within a micro-batch, and those of a later one after them"
_NOTHING: Final = "for nothing"
_EXPIRED: Final = "the clock is the ttl past its last row"


def extended(windows: AnyWindows, late: int) -> AnyWindows:
    """Return the windows with a grace for rows that come so much later."""
    if windows is None or not late:
        return windows
    return cast(AnyWindows, windows.with_grace(windows.grace + _in_millis(late)))


def aggregate_account(
    name: str,
    windows: Windows | None,
    late: int,
    *,
    final: bool,
    until: Collection[Windows] = (),
    ttl: Allowance | None = None,
) -> Account:
    """Return the account of an aggregate, with windows as the user wrote them or without; rows come so much later.

    If there have been other windows, ``until`` some time, the account is for those that wait longest.
    """
    if windows is None:
        keeps = "a result for each key, for ever: it grows with the number of keys"
        if ttl is not None:
            keeps = f"a result for each key, until {_EXPIRED}: it grows with the number of keys within a ttl"
        kept = [] if ttl is None else [ttl]
        return Account(name, "aggregate, updates", _OF_INPUT, kept, _NOTHING, 0, {(CHANGE_TIME,): late}, keeps)
    every = (windows, *until)
    windows = max(every, key=lambda one: _length(one) + one.grace)
    grace = Allowance(GRACE, windows.grace * MICROS, _in_millis(late) * MICROS)
    sessions = isinstance(windows, SessionWindows)
    length = _length(windows) * MICROS
    behind = grace.total + grace.added
    most = _longest_session(every)
    # The end of a session that is cut may be shown by as much as a gap sooner than those of others.
    sooner = length if any(isinstance(one, SessionWindows) and one.within is not None for one in every) else 0
    window: dict[Path, int | None] = {
        (WINDOW, "start"): most and most + length + behind if sessions else length + behind,
        # While a window is open, rows of a later one move the time that an update of it is compared with.
        (WINDOW, "end"): (behind if final else length + behind) + sooner,
    }
    longest: int | None = 0
    if not final:
        waits = _NOTHING
        window[CHANGE_TIME,] = length + behind
    elif sessions:
        quiet = shown(length) if own_gap(windows) is None else f"its own gap, at most {shown(length)},"
        waits = f"for the end of its session: {quiet} without a row, and the grace"
        longest = most and most + length + behind
    else:
        waits, longest = "for the end of its window, and the grace", length + behind
    return Account(
        name,
        f"aggregate, {'final' if final else 'updates'}",
        _OF_INPUT,
        [grace],
        waits,
        longest,
        window,
        "each window until it and its grace are over",
    )


def top_n_account(
    name: str,
    n: int,
    windows: Windows | None,
    late: int,
    *,
    final: bool,
    until: Collection[Windows],
    ttl: Allowance | None,
) -> Account:
    """Return the account of the first n rows of each key, or key and window; its times are those of an aggregate."""
    rows = "one row" if n == 1 else f"up to {n} rows"
    if windows is not None:
        keeps = f"{rows} of each key and window, until the window and its grace are over"
    elif ttl is not None:
        keeps = f"{rows} of each key, until {_EXPIRED}: it grows with the number of keys within a ttl"
    else:
        keeps = f"{rows} of each key, for ever: it grows with the number of keys"
    made = aggregate_account(name, windows, late, final=final, until=until, ttl=ttl)
    return replace(made, kind=f"top_n, {'final' if final else 'updates'}", keeps=keeps)


def stream_join_account(
    name: str, join_type: JoinType, windows: JoinWindows, left: InputTime, right: InputTime
) -> Account:
    """Return the account of a join of streams, with its windows as the user wrote them, in microseconds."""
    grace = Allowance(GRACE, windows.grace, max(left.bound, right.bound))
    # The clock of both is that of the side which is less behind; only rows that wait for it are let out by it.
    keeps = [join_type.keeps(side) for side in Side]
    behind = grace.total + (min(left.bound, right.bound) if any(keeps) else 0)
    bounds = [max(0, windows.after) + behind, max(0, windows.before) + behind]
    kept = "row" if all(keeps) else "left row" if keeps[0] else "right row"
    waits, stays = "each row for its match", "the rows of both sides until their windows and graces are over"
    if any(keeps):
        waits = f"a {kept} without a match, until its window and grace are over"
    if not join_type.shows_right:
        waits = waits.replace("each row for its", "each left row for its first")
        stays = (
            "left rows until their first match or the end of their windows and graces, and keys and times of right ones"
        )
    return Account(
        name,
        f"stream_join, {join_type.value}",
        _OF_BOTH,
        [grace],
        waits,
        max(bounds) if all(keeps) else bounds[1] if join_type is JoinType.RIGHT else bounds[0],
        {time.path: bound for time, bound in zip((left, right), bounds, strict=True) if time.path is not None},
        stays,
    )


def asof_allowances(
    grace: int | None, history: int, left: InputTime, right: InputTime
) -> tuple[Allowance | None, Allowance]:
    """Return grace and history of an as-of join; no grace if the user gave none and no right row is held back."""
    waits = grace is not None or right.bound > 0
    return (
        Allowance(GRACE, grace or 0, right.bound) if waits else None,
        Allowance(HISTORY, history, left.bound + right.bound),
    )


def held_back(grace: Allowance | None) -> int | None:
    """Return how long an as-of join holds left rows back, beyond what matches are later; None if it joins them at once.

    A left row goes as soon as the time that it is held for has passed, and a right row may be late by all of the grace.
    So it is held for a moment longer.
    """
    return None if grace is None else grace.total + 1


def asof_history(history: Allowance, hold: int | None, exact: bool, ahead: int = 0, back: int = 0) -> int:
    """Return how far back an as-of join looks the right side up; a moment farther for versions just before a row.

    Matches may be so much ``ahead`` of a left row, and versions so far ``back`` be looked up one after the other.
    """
    return max(history.total, (hold or 0) + ahead) + (0 if exact else 1) + back


def asof_join_account(
    name: str,
    join_type: JoinType,
    grace: Allowance | None,
    history: Allowance,
    left: InputTime,
    ahead: int = 0,
    back: int = 0,
) -> Account:
    """Return the account of an as-of join whose matches may be so much ahead of a left row, or so far behind it."""
    wait = left.bound + (0 if grace is None else grace.total + ahead)
    until = f"until {shown(ahead)} and its grace are over" if ahead else "until its grace is over"
    reach = f"the history and {shown(back)} more" if back else "the history"
    clock = "for versions, the newest time of right that earlier micro-batches have shown"
    return Account(
        name,
        f"asof_join, {join_type.value}",
        clock if grace is None else f"for the grace, the newest time of left; {clock}",
        [history] if grace is None else [grace, history],
        _NOTHING
        if grace is None
        else f"each left row for right rows that are {'later or ' if ahead else ''}late, {until}",
        wait,
        {} if left.path is None else {left.path: wait},
        f"versions of the right side for {reach}, and the latest one of each key for ever: it grows with the number of "
        "keys that are not deleted",
        sides=("left",),
    )


def lookup_join_account(name: str, join_type: JoinType, left: InputTime) -> Account:
    """Return the account of a join with a table that others keep."""
    return Account(
        name,
        f"lookup_join, {join_type.value}",
        "none: a left row meets the table as it is when its micro-batch begins",
        [],
        _NOTHING,
        left.bound,
        {} if left.path is None else {left.path: left.bound},
        "nothing but which version of the table each micro-batch has read",
        sides=("left",),
    )


def corrected_account(
    name: str, join_type: JoinType, history: Allowance, left: InputTime, ahead: int = 0, back: int = 0
) -> Account:
    """Return the account of an as-of join with corrected results, of matches so much ahead or so far back."""
    reach = f"the history and {shown(ahead + back)} more" if ahead + back else "the history"
    bounds: dict[Path, int | None] = {(CHANGE_TIME,): history.total}
    return Account(
        name,
        f"asof_join, {join_type.value}, updates",
        "of each side, " + _OF_INPUT,
        [history],
        _NOTHING,
        0,
        bounds if left.path is None else {left.path: history.total, **bounds},
        f"left rows with their matches for the history, versions of the right side for {reach}, and the latest one of "
        "each key for ever: it grows with the number of keys that are not deleted",
        sides=("left",),
    )


def latest_account(name: str, history: Allowance, ttl: Allowance | None = None) -> Account:
    """Return the account of a table of the latest rows."""
    keeps = "older rows and deletes for the history, and the latest row of each key for ever, until it is deleted"
    if ttl is not None:
        keeps = (
            f"older rows and deletes for the history, and the latest row of each key until {_EXPIRED}, and for the "
            "history after that: it grows with the number of keys within ttl and history"
        )
    kept = [history] if ttl is None else [history, ttl]
    return Account(name, "latest", _OF_INPUT, kept, _NOTHING, 0, {(CHANGE_TIME,): history.added}, keeps)


def feed_aggregate_account(name: str, late: int, *, orders: bool) -> Account:
    """Return the account of an aggregate of the rows that a change feed describes.

    Args:
        name: the verb's name.
        late: how much later its changes come.
        orders: whether the order of each row's last change is kept.
    """
    keeps = "each row that is there, and a result for each key that has some: it grows with their number"
    if orders:
        keeps = (
            "each row that is there, the order of its last change, that of each row that is deleted, for ever, and a "
            "result for each key that has rows: it grows with the number of rows that there ever were"
        )
    return Account(name, "aggregate, updates", _IN_TURN, [], _NOTHING, 0, {(CHANGE_TIME,): late}, keeps)


def deduplicate_account(name: str, within: Allowance, grace: Allowance | None, time: InputTime) -> Account:
    """Return the account of the first rows of keys; with no grace, they come out at once."""
    length = shown(within.own)
    behind = time.bound if grace is None else grace.total + grace.added
    until = within.own + (within.total if grace is None else grace.total)
    return Account(
        name,
        "deduplicate",
        _OF_INPUT,
        [within] if grace is None else [grace],
        _NOTHING if grace is None else "each row for earlier ones, until its grace is over",
        0 if grace is None else behind,
        {} if time.path is None else {time.path: behind},
        f"the time of each key's last row that came out, until the clock is {shown(until)} past it: it grows with the "
        f"number of keys within that time; duplicates are at most {length} later",
    )


def over_account(name: str, frame: Frame, grace: Allowance, ttl: Allowance | None, time: InputTime) -> Account:
    """Return the account of results of each row, of the rows of its key up to it."""
    behind = grace.total + grace.added
    kept = [] if ttl is None else [ttl]
    rows = "what its last row came out with" if frame.whole else "the rows that the next one may reach"
    until = "for ever: it grows with the number of keys"
    lives = frame.within if ttl is None else ttl.own
    if lives is not None:
        until = f"until the clock is {shown(lives + grace.total)} past its last row"
    return Account(
        name,
        "over",
        _OF_INPUT,
        [grace, *kept],
        "each row for earlier ones, until its grace is over",
        behind,
        {} if time.path is None else {time.path: behind},
        f"of each key {rows}, {until}",
    )


def table_join_account(
    name: str, join_type: JoinType, history: Allowance | None, late: int, ttl: Allowance | None = None
) -> Account:
    """Return the account of a join of tables, whose changes come so much later."""
    return _tables_account(name, f"table_join, {join_type.value}", history, late, ttl, (_OF_BOTH, "both sides"))


def multi_join_account(
    name: str, how: str, history: Allowance | None, late: int, ttl: Allowance | None = None
) -> Account:
    """Return the account of a join of many tables, whose changes come so much later."""
    return _tables_account(name, f"multi_join, {how}", history, late, ttl, (_OF_ALL, "all tables"))


def _tables_account(
    name: str, kind: str, history: Allowance | None, late: int, ttl: Allowance | None, inputs: tuple[str, str]
) -> Account:
    """Return the account of a join of tables; ``inputs`` has the words for the time of all of them, and for them."""
    of_all, called = inputs
    older = "" if history is None else "older rows and deletes for the history, and "
    until = "for ever, until it is deleted"
    clock = _IN_TURN if history is None else "of each side, " + _OF_INPUT
    if ttl is not None:
        clock = f"for the ttl, {of_all}; {'for the order, ' if history is None else ''}{clock}"
        after = "" if history is None else ", and for the history after that"
        until = (
            f"until the newest time of {called} is the ttl past its own{after}: it grows with the number of keys "
            "within a ttl"
        )
    return Account(
        name,
        kind,
        clock,
        [allowance for allowance in (history, ttl) if allowance is not None],
        _NOTHING,
        0,
        {(CHANGE_TIME,): late},
        f"{older}the latest row of each key of {called} {until}",
    )


def apply_account(
    name: str, processor: str, lateness: Allowance, times: Collection[str], ttl: Allowance | None = None
) -> Account:
    """Return the account of a processor of the user's own, whose results have these time columns."""
    state = "what the processor keeps in context.state for ever, until it deletes it"
    if ttl is not None:
        state = (
            "what the processor keeps in context.state until it deletes it, or the clock is the ttl and the lateness "
            "past its last update: it grows with the number of keys within a ttl"
        )
    return Account(
        name,
        f"apply, {processor}",
        _OF_INPUT,
        [lateness] if ttl is None else [lateness, ttl],
        "each row for older ones, until its lateness is over; timers likewise, for their time",
        lateness.total + lateness.added,
        {(column,): lateness.total + lateness.added for column in times},
        f"{state}, and timers until they fire",
    )


def _longest_session(every: Collection[Windows]) -> int | None:
    """Return the longest length of a session, in microseconds; None if there is no limit, or there are no sessions."""
    cuts = [one.within for one in every if isinstance(one, SessionWindows)]
    lengths = [cut.size * MICROS for cut in cuts if cut is not None]
    return max(lengths) if cuts and len(lengths) == len(cuts) else None


def _length(windows: Windows) -> int:
    """Return how long a window is, or the least time that a session waits for its next row."""
    if isinstance(windows, SessionWindows):
        return windows.gap
    return windows.difference if isinstance(windows, SlidingWindows) else windows.size


def _in_millis(late: int) -> int:
    """Return the time in whole milliseconds, rounded up."""
    return -(-late // MICROS)
