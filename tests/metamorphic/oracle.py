"""The answers of verbs if all rows are there from the beginning: plain Python that shares no code with them.

Rows are dicts, and times microseconds. Rows of the same key and time are taken for equal by what decides by time.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

Row: TypeAlias = Mapping[str, Any]
How: TypeAlias = Literal["inner", "left", "right", "outer", "semi", "anti"]
Bounds: TypeAlias = tuple[int, int]
Cutting: TypeAlias = Callable[[Sequence[int]], Collection[Bounds]]
"""The windows of all rows of a key, of their times."""

SECOND: Final = 1_000_000


def newest(rows: Iterable[Row], key: str, time: str, op: str | None = None) -> dict[Any, Row]:
    """Return the latest row of each key, unless it is a delete."""
    found: dict[Any, Row] = {}
    for row in sorted(rows, key=lambda row: int(row[time])):
        found[row[key]] = row
    return {one: row for one, row in found.items() if op is None or row[op] != "delete"}


def judge_versions(
    batches: Iterable[Sequence[Row]], key: str, time: str, history: int, op: str | None = None
) -> tuple[list[Row], list[list[Row]]]:
    """Return the rows of a table that count, in the order of time, and those of each micro-batch that come too late.

    A row that is older than the history comes too late if another one of its key has replaced it before the history
    begins. A delete is known as long as the history goes back.
    """
    known: list[Row] = []
    late: list[list[Row]] = []
    clock: float = float("-inf")
    for rows in batches:
        late.append([])
        for row in sorted(rows, key=lambda row: int(row[time])):
            own = [one for one in known if one[key] == row[key]]
            gone = [one for one in own if row[time] < one[time] <= clock - history]
            last = max(gone, default=None, key=lambda one: int(one[time]))
            if last is not None and (op is None or last[op] != "delete"):
                late[-1].append(row)
                continue
            known = [one for one in known if not any(one is forgotten for forgotten in gone)]
            known.append(row)
        clock = max([clock, *(row[time] for row in rows)])
    return known, late


def asof(
    left: Sequence[Row], right: Sequence[Row], how: str, times: tuple[str, str], op: str | None = None,
    tolerance: int | None = None, exact: bool = True, default: Mapping[str, Any] | None = None,
    direction: str = "backward", where: Callable[[Row, Row], bool] | None = None, passed: bool = False,
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """Yield each left row with the right row that was valid at its time, unless that is older than the tolerance.

    Or with the first that becomes valid from its time on, or the closer one. One that does not fulfill the condition is
    no match, or is ``passed`` over as if it were not there.
    """
    bisect = bisect_right if exact else bisect_left
    versions = defaultdict[Any, list[Row]](list)
    for row in sorted(right, key=lambda row: int(row[times[1]])):
        versions[row["k"]].append(row)
    nothing = {name: None for row in right[:1] for name in row if name not in ("k", op)} | dict(default or {})
    for row in left:
        known = versions[row["k"]] if row["k"] is not None else []
        if where is not None and passed:
            known = [one for one in known if (op is not None and one[op] == "delete") or where(row, one)]
        place = bisect([one[times[1]] for one in known], row[times[0]])
        match = known[place - 1] if place and (op is None or known[place - 1][op] != "delete") else None
        at, time = row[times[0]], times[1]
        if direction != "backward":
            here = (one for one in known if op is None or one[op] != "delete")
            later = next((one for one in here if one[time] > at or (exact and one[time] == at)), None)
            closer = match is None or (later is not None and later[time] - at < at - match[time])
            match = later if direction == "forward" or closer else match
        if match is not None and tolerance is not None and abs(at - match[time]) > tolerance:
            match = None
        if match is not None and where is not None and not where(row, match):
            match = None
        if how in ("semi", "anti"):
            if (match is None) is (how == "anti"):
                yield dict(row)
        elif match is not None:
            yield {**match, **row}
        elif how == "left":
            yield {**nothing, **row}


def near(
    left: Sequence[Row], right: Sequence[Row], how: How, times: tuple[str, str], reach: Bounds
) -> Iterator[dict[str, Any]]:
    """Yield the pairs of rows of which the right one is at most so much older, and so much newer, than the left one."""
    met: set[int] = set()
    for one in left:
        matches = [
            other
            for other in right
            if one["k"] is not None
            and one["k"] == other["k"]
            and -reach[0] <= other[times[1]] - one[times[0]] <= reach[1]
        ]
        met.update(map(id, matches))
        if how in ("semi", "anti"):
            if bool(matches) is (how == "semi"):
                yield dict(one)
            continue
        yield from ({**other, **one} for other in matches)
        if not matches and how in ("left", "outer"):
            yield dict(one)
    if how in ("right", "outer"):
        yield from (dict(other) for other in right if id(other) not in met)


def joined_tables(left: Mapping[Any, Row], right: Mapping[Any, Row], how: How) -> dict[Any, dict[str, Any]]:
    """Join two tables by key."""
    found = {}
    for key in left.keys() | right.keys():
        one, other = left.get(key), None if key is None else right.get(key)
        if (one is not None or how == "outer") and (other is not None or how != "inner"):
            found[key] = {**(other or {}), **(one or {})}
    return found


def joined_by_foreign_key(
    left: Mapping[Any, Row], right: Mapping[Any, Row], how: How, foreign: str
) -> dict[Any, dict[str, Any]]:
    """Join two tables by a column of the left one; rows of the right one alone have no left key."""
    found: dict[Any, dict[str, Any]] = {}
    for key, one in left.items():
        other = None if one[foreign] is None else right.get(one[foreign])
        if other is not None or how in ("left", "outer"):
            found[key, one[foreign]] = {**(other or {}), **one}
    named = {one[foreign] for one in left.values()} - {None}
    if how in ("right", "outer"):
        found |= {(None, key): dict(other) for key, other in right.items() if key not in named}
    return found


def tumbling(size: int, advance: int | None = None) -> Cutting:
    """Cut windows of that size, one after the other or overlapping."""
    step = advance or size

    def cut(times: Sequence[int]) -> Collection[Bounds]:
        starts = {time // step * step - number * step for time in times for number in range(-(-size // step))}
        found = [(start, start + size) for start in starts]
        return {window for window in found if any(holds(window, time) for time in times)}

    return cut


def cumulative(size: int, step: int, offset: int) -> Cutting:
    """Cut windows that start together and end step by step until they have that size."""

    def cut(times: Sequence[int]) -> Collection[Bounds]:
        starts = {(time - offset) // size * size + offset for time in times}
        found = [(start, start + length) for start in starts for length in range(step, size + 1, step)]
        return {window for window in found if any(holds(window, time) for time in times)}

    return cut


def holds(window: Bounds, time: int) -> bool:
    """Return whether a window without its end holds a time."""
    return window[0] <= time < window[1]


def holds_end(window: Bounds, time: int) -> bool:
    """Return whether a window with its end holds a time."""
    return window[0] <= time <= window[1]


def sliding(difference: int) -> Cutting:
    """Cut windows that end with a row, or begin right behind one."""

    def cut(times: Sequence[int]) -> Collection[Bounds]:
        return {(time - difference, time) for time in times} | {(time + 1, time + 1 + difference) for time in times}

    return cut


def sessions(gap: int) -> Cutting:
    """Cut sessions: from the first to the last row of those that are no further apart than the gap."""

    def cut(times: Sequence[int]) -> Collection[Bounds]:
        found: list[list[int]] = []
        for time in sorted(times):
            if not found or time - found[-1][-1] > gap:
                found.append([])
            found[-1].append(time)
        return {(one[0], one[-1]) for one in found}

    return cut


def cut_sessions(gap: int, length: int, offset: int) -> Cutting:
    """Cut sessions of the times between multiples of the length, moved by the offset, each by themselves."""

    def cut(times: Sequence[int]) -> Collection[Bounds]:
        pieces = defaultdict[int, list[int]](list)
        for time in times:
            pieces[(time - offset) // length].append(time)
        return {one for piece in pieces.values() for one in sessions(gap)(piece)}

    return cut


def by_window(
    rows: Iterable[Row], key: str, time: str, cut: Cutting, within: Callable[[Bounds, int], bool]
) -> dict[tuple[Any, Bounds], list[Row]]:
    """Return the rows of each key and window, in the order of time; no window is empty."""
    by_key = defaultdict[Any, list[Row]](list)
    for row in sorted(rows, key=lambda row: int(row[time])):
        by_key[row[key]].append(row)
    found = {
        (one, window): [row for row in some if within(window, row[time])]
        for one, some in by_key.items()
        for window in cut([row[time] for row in some])
    }
    return {place: some for place, some in found.items() if some}


def running_totals(rows: Iterable[Row], time: str, value: str, idle: int, soon: int) -> Iterator[dict[str, Any]]:
    """Yield what the rule ``Totals`` tells of the rows of one key."""
    total, timers = 0, dict[str, int]()

    def fired(before: float) -> Iterator[dict[str, Any]]:
        nonlocal total
        while timers and min(timers.values()) < before:
            moment, name = min((moment, name) for name, moment in timers.items())
            del timers[name]
            yield {"what": name, "total": total, "seen": moment}
            total = 0 if name == "idle" else total

    for row in sorted(rows, key=lambda row: int(row[time])):
        yield from fired(row[time])
        total += row[value] or 0
        timers["idle"] = row[time] + idle
        if (row[value] or 0) % 3 == 0:
            timers["soon"] = row[time] + soon
        elif (row[value] or 0) % 3 == 1:
            timers.pop("soon", None)
        yield {"what": "row", "total": total, "seen": row[time]}
    yield from fired(float("inf"))
