"""The state and output of verbs, told by rows of committed micro-batches and what each column and call is known by."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from operator import add
from typing import Any, Final, NamedTuple, TypeAlias

from millpond.processors.options.joins import JoinType, Side
from millpond.processors.verbs.aggregates.call import LAG
from millpond.stores.typed.expiry import Expired
from tests.evolution.histories import KEYS
from tests.evolution.verb_drafts import (
    CALLS,
    CORRECTED,
    CUBES,
    CUTS,
    FOREIGN,
    GROUPED,
    GROUPS,
    MORTAL,
    OVER,
    OVER_CALLS,
    REACH,
    SECOND,
    TIMES,
    TOP,
    WAIT,
    Call,
    Column,
    Draft,
)
from tests.metamorphic.oracle import (
    asof,
    by_window,
    cut_sessions,
    holds_end,
    joined_by_foreign_key,
    joined_tables,
    near,
    sessions,
)
from tests.metamorphic.rules import IDLE, SOON

Row = dict[str, Any]
NEVER: Final = -(1 << 62)


PUT: Final = "put"
"""The side of a result that somebody has put: by the numbers of calls, what it says."""
REPLACED: Final = "replaced"
"""The side of the rows in whose place it was put, which still have their times."""


Window: TypeAlias = tuple[int, int]


class Come(NamedTuple):
    """A row that has come to a verb: by the numbers of columns, its values."""

    side: str
    key: str
    time: int
    values: Mapping[int, int | None]
    plain: int | None
    group: str = ""
    elsewhere: frozenset[Window] = frozenset()
    """The windows in which it does not count any more."""
    within: Window | None = None
    """The only window in which it counts, if somebody has put it there."""

    @property
    def named(self) -> str | None:
        """The key of the right row that a left one names."""
        return None if self.plain is None else KEYS[self.plain % 5]

    @property
    def marked(self) -> int | None:
        """Return not null if calls with a condition count the row: some rows with a value do, and some without.

        The conditions read it as the column ``w``.
        """
        return 1 if (self.time + (self.plain or 0)) % 2 else None

    @property
    def operation(self) -> str:
        """Return what it does as a change of its key."""
        return "delete" if (self.plain or 0) % 4 == 3 else "upsert"


@dataclass(frozen=True)
class Ruled:
    """The state of a key in the rule ``Totals``: the total, when it was set, and when its timers fire, by name."""

    total: int = 0
    set_at: int = NEVER
    timers: Mapping[str, int] = field(default_factory=dict)

    def left_at(self, gone: int) -> "Ruled":
        """Return it without the total, if that was not set later."""
        return self if self.set_at > gone else replace(self, total=0)

    def taken(self, key: str, time: int, value: int) -> tuple["Ruled", Row]:
        """Return it after a row."""
        timers = {**self.timers, "idle": time + IDLE * SECOND}
        if value % 3 == 0:
            timers["soon"] = time + SOON * SECOND
        elif value % 3 == 1:
            timers.pop("soon", None)
        total = self.total + value
        return Ruled(total, time, timers), {"k": key, "what": "row", "total": total, "seen": time}

    def fired(self, key: str, name: str) -> tuple["Ruled", Row]:
        """Return it after a timer."""
        timers = {one: time for one, time in self.timers.items() if one != name}
        told = {"k": key, "what": name, "total": self.total, "seen": self.timers[name]}
        return replace(self, total=0 if name == "idle" else self.total, timers=timers), told


@dataclass(frozen=True)
class Told:
    """The knowledge of a verb.

    Attributes:
        rows: that have come, micro-batch by micro-batch, those of each in the order of time.
        since: with how many of them each call began, by its number.
        unseen: the times of rows that waited then, by the same; they have not got what a condition says of them.
        clock: the greatest time that it has seen.
        gone: up to which time what it held is gone.
        ruled: what a rule knows, by key; it has not seen the rows yet.
        results: of a rule, in the last micro-batch.
        waiting: left rows of a join, or rows of an over, that wait.
        due: those of them that waited no longer, in the last micro-batch.
    """

    rows: tuple[Come, ...] = ()
    since: Mapping[int, int] = field(default_factory=dict)
    unseen: Mapping[int, frozenset[int]] = field(default_factory=dict)
    clock: int = NEVER
    gone: int = NEVER
    ruled: Mapping[str, Ruled] = field(default_factory=dict)
    results: Sequence[Row] = ()
    waiting: tuple[Come, ...] = ()
    due: tuple[Come, ...] = ()

    def grown(self, draft: Draft, rows: Sequence[Come]) -> "Told":
        """Return it with the rows of a micro-batch; a key that was gone begins anew, and a row as old is left out."""
        in_order = sorted(rows, key=lambda one: one.time)
        if draft.kind == "waiting":
            return self.after_waiting(draft, in_order)
        if draft.kind in OVER:
            return self.after_watermark(in_order)
        if draft.kind not in MORTAL:
            clock = max([self.clock, *(row.time for row in rows)])
            told = replace(self, rows=(*self.rows, *in_order), clock=clock)
            return told.after_rule(draft) if draft.kind == "apply" else told
        told = self
        for row in in_order:
            told = replace(told, clock=max(told.clock, row.time))
            told = replace(told, gone=told.gone_by(draft))
            if row.time > told.gone:
                if keyed(draft, row) not in told.living(draft):
                    told = told.without(row.key, group=row.group if draft.grouped else None)
                told = replace(told, rows=(*told.rows, row))
        return told

    def after_waiting(self, draft: Draft, rows: Sequence[Come]) -> "Told":
        """Return it after left rows have waited until their side is so much further; right ones are there at once."""
        left = [*self.waiting, *(row for row in rows if row.side == "left")]
        clock = max([self.clock, *(row.time for row in left)])
        due = tuple(row for row in left if row.time + draft.match.wait <= clock)
        return replace(
            self,
            rows=(*self.rows, *(row for row in rows if row.side == "right")),
            clock=clock,
            waiting=tuple(row for row in left if row not in due),
            due=due,
        )

    def after_watermark(self, rows: Sequence[Come]) -> "Told":
        """Return it after rows have waited until time is past all that could come before them."""
        all_ = sorted([*self.waiting, *rows], key=lambda one: one.time)
        clock = max([self.clock, *(row.time for row in all_)])
        due = tuple(row for row in all_ if row.time + WAIT < clock)
        waiting = tuple(row for row in all_ if row not in due)
        return replace(self, rows=(*self.rows, *due), clock=clock, waiting=waiting, due=due)

    def after_rule(self, draft: Draft) -> "Told":
        """Return it after all rows and timers that need not wait any more, in the order of time."""
        until, column = self.clock - WAIT, draft.columns[0].number
        rows, ruled, results = {one.time: one for one in self.rows}, dict(self.ruled), list[Row]()
        while True:
            timers = [(time, key, name) for key, one in ruled.items() for name, time in one.timers.items()]
            time = min([*rows, *(one[0] for one in timers)], default=until)
            if time > until or (time == until and time not in rows):
                gone = self.gone_by(draft, until)
                return replace(self, rows=tuple(rows.values()), ruled=ruled, results=results, gone=gone)
            gone = self.gone_by(draft, time)
            if time in rows:
                row = rows.pop(time)
                key, value = row.key, row.values.get(column) or 0
                ruled[key], result = ruled.get(key, Ruled()).left_at(gone).taken(key, time, value)
            else:
                _, key, name = min(timers)
                ruled[key], result = ruled[key].left_at(gone).fired(key, name)
            results.append(result)

    def gone_by(self, draft: Draft, time: int | None = None) -> int:
        """Return up to which time all is gone at a time, or now, with the time to live of today."""
        now = self.clock if time is None else time
        return self.gone if draft.ttl is None else max(self.gone, now - draft.ttl)

    def living(self, draft: Draft) -> set[Any]:
        """Return the keys with something that is not gone."""
        return {keyed(draft, one) for one in self.rows if one.time > self.gone}

    def lent(self, pairs: Mapping[str, str]) -> "Told":
        """Return what a verb knows that begins with the rows of this one, each side with one of its sides."""
        rows = [one._replace(side=new) for one in self.rows for new, old in pairs.items() if one.side == old]
        return Told(tuple(rows), clock=max([NEVER, *(one.time for one in rows)]))

    def with_calls(self, calls: Sequence[Call]) -> "Told":
        """Return those that are new begin now."""
        return self._begun([one.number for one in calls])

    def back_at(self, before: "Told") -> "Told":
        """Return the rows of an earlier micro-batch, and the calls of today; those that came later begin there."""
        return before._begun(list(self.since))

    def _begun(self, calls: Sequence[int]) -> "Told":
        waiting = frozenset(row.time for row in self.waiting)
        began = {number: self.unseen.get(number, frozenset()) for number in self.since}
        return replace(
            self,
            since={number: self.since.get(number, len(self.rows)) for number in calls},
            unseen={number: began.get(number, waiting) for number in calls},
        )

    def put(self, draft: Draft, key: Any, values: Mapping[int, int]) -> "Told":
        """Return a result that goes on from here, and has the time that it had."""
        places = places_of(draft, self, key)
        own = {place: self.rows[place] for place in places}
        if draft.kind == "windows":
            changed = {place: one._replace(elsewhere=one.elsewhere | {key[1]}) for place, one in own.items()}
        else:
            changed = {place: one._replace(side=REPLACED) for place, one in own.items()}
        newest = max(own.values(), key=lambda one: one.time)
        result = Come(PUT, newest.key, newest.time, values, None, within=key[1] if draft.kind == "windows" else None)
        rows = (changed.get(place, one) for place, one in enumerate(self.rows))
        return replace(self, rows=(*rows, result))

    def with_timer(self, key: str, name: str, time: int | None) -> "Told":
        """Return what was told, with a timer of a rule set for a time, or deleted."""
        one = self.ruled.get(key, Ruled())
        timers = {other: at for other, at in one.timers.items() if other != name}
        if time is not None:
            timers[name] = time
        return replace(self, ruled={**self.ruled, key: replace(one, timers=timers)})

    def deleted(self, draft: Draft, key: Any) -> "Told":
        """Return what was told, with a result gone, so that it begins anew."""
        places = places_of(draft, self, key)
        if draft.kind != "windows":
            return self._left([place in places for place in range(len(self.rows))])
        rows = (
            one._replace(elsewhere=one.elsewhere | {key[1]}) if place in places else one
            for place, one in enumerate(self.rows)
        )
        return replace(self, rows=tuple(rows))

    def without(self, key: str, side: str | None = None, group: str | None = None) -> "Told":
        """Return it without all that is of a key, from one side or from all, and of one group or of all."""
        gone = [one.key == key and side in (None, one.side) and group in (None, one.group) for one in self.rows]
        waiting = tuple(one for one in self.waiting if one.key != key)
        return replace(
            self._left(gone), waiting=waiting, ruled={one: it for one, it in self.ruled.items() if one != key}
        )

    def _left(self, gone: Sequence[bool]) -> "Told":
        """Return the rows but for some."""
        since = {number: place - sum(gone[:place]) for number, place in self.since.items()}
        rows = tuple(one for one, goes in zip(self.rows, gone, strict=True) if not goes)
        return replace(self, rows=rows, since=since)


def side(draft: Draft, told: Told, which: str) -> list[Row]:
    """Return the rows of one input, as they are called now."""
    columns, time = draft.of(which), draft.named(TIMES, which)
    groups = [draft.named(GROUPS, which)] if draft.has_group(which) else []
    foreign = ["f"] if draft.kind == FOREIGN and which == "left" else []
    return [
        {"k": one.key, time: one.time, **dict.fromkeys(groups, one.group), **dict.fromkeys(foreign, one.named)}
        | _named(columns, one)
        for one in told.rows
        if one.side == which
    ]


def keyed(draft: Draft, row: Come) -> Any:
    """Return the key of a row of a table."""
    return (row.key, row.group) if draft.grouped else row.key


def _newest(draft: Draft, told: Told, which: str) -> dict[Any, Row]:
    """Return the latest row of each key of one input."""
    keys, time = draft.keys(which), draft.named(TIMES, which)
    rows = sorted(side(draft, told, which), key=lambda row: int(row[time]))
    return {tuple(row[name] for name in keys) if draft.grouped else row["k"]: row for row in rows}


def _newest_first(draft: Draft, told: Told) -> dict[Any, Row]:
    """Return the first rows of each key, by key and rank."""
    found: dict[Any, Row] = {}
    ranks = Counter[str]()
    for row in sorted(side(draft, told, "left"), key=lambda row: -int(row["at"])):
        ranks[row["k"]] += 1
        if (rank := ranks[row["k"]]) <= TOP:
            found[row["k"], rank] = {**row, "rank": rank}
    return found


def _named(columns: Sequence[Column], row: Come) -> Row:
    return {column.name: row.values.get(column.number) for column in columns}


def table(draft: Draft, told: Told) -> dict[Any, Row]:
    """Return the table that a verb holds, by key, or by key and window."""
    whole = last_told(draft, told)
    if draft.kind not in MORTAL:
        return whole
    living = replace(told, gone=told.gone_by(draft)).living(draft)
    return {key: row for key, row in whole.items() if key in living}


def change(draft: Draft, before: Told, after: Told) -> tuple[dict[Any, Row], dict[Any, Row]]:
    """Return the tables before and after a micro-batch, as far as what comes out of it tells of them."""
    if draft.kind in MORTAL and draft.expired is Expired.SILENT:
        return last_told(draft, before), last_told(draft, after)
    return table(replace(draft, ttl=None), before), table(draft, after)


def last_told(draft: Draft, told: Told) -> dict[Any, Row]:
    """Return the table with what is gone, until something else comes in its place."""
    if draft.kind == "latest":
        return _newest(draft, told, "left")
    if draft.kind == "top":
        return _newest_first(draft, told)
    if draft.kind == "versions":
        return _joined(draft, _newest(draft, told, "left"), _newest(draft, told, "right"))
    if draft.kind == "tables":
        one, other = ({row["k"]: row for row in side(draft, told, which)} for which in ("left", "right"))
        return _joined(draft, one, other)
    if draft.kind in OVER:
        return _last_beside(draft, told)
    if draft.kind == FOREIGN:
        return _named_rows(draft, told)
    if draft.kind == CORRECTED:
        lefts = [row for row in told.rows if row.side == "left"]
        return {(row["k"], row["g"], row["at"]): row for row in matched(draft, told, lefts)}
    named = {"totals": ("k",), GROUPED: ("g",), CUBES: ("k", "g", "grouping_id")}.get(draft.kind, ("k", "window"))
    return {
        key: {**dict(zip(named, (key,) if len(named) == 1 else key, strict=True)), **_called(draft, told, some)}
        for key, some in _grouped(draft, told).items()
    }


def _named_rows(draft: Draft, told: Told) -> dict[Any, Row]:
    """Return left rows with those that they name; of a right or an outer join also right rows that none names."""
    one, other = ({row["k"]: row for row in side(draft, told, which)} for which in ("left", "right"))
    found = joined_by_foreign_key(one, other, draft.how.value, "f")
    rows = {(key, name): {**_nothing(draft), **row, "k": key, "f": name} for (key, name), row in found.items()}
    return rows if draft.how.keeps(Side.RIGHT) else {key: row for (key, _), row in rows.items()}


def _joined(draft: Draft, left: Mapping[Any, Row], right: Mapping[Any, Row]) -> dict[Any, Row]:
    """Join two tables by key, with nulls where one has no row."""
    found = joined_tables(left, right, draft.how.value)
    return {key: {**_nothing(draft), **row} for key, row in found.items()}


def _nothing(draft: Draft) -> Row:
    """Return the columns of a join, without values."""
    return dict.fromkeys([*draft.schema("left").names, *draft.schema("right").names])


def places_of(draft: Draft, told: Told, key: Any) -> set[int]:
    """Return which rows a result is made of."""
    return {row["place"] for row in _grouped(draft, told)[key]}


def _grouped(draft: Draft, told: Told) -> Mapping[Any, Sequence[Mapping[str, Any]]]:
    """Return the rows of each result of an aggregate, in the order of time."""
    rows: list[Row] = [
        {"k": one.key, "at": one.time, "v": one.plain, "w": one.marked, "place": place, "come": one}
        for place, one in enumerate(told.rows)
    ]
    rows.sort(key=lambda row: row["at"])
    if draft.kind == "totals":
        found = defaultdict[Any, list[Row]](list)
        for row in rows:
            found[row["k"]].append(row)
        return found
    if draft.kind == GROUPED:
        last = {row["k"]: row for row in rows}
        groups = defaultdict[Any, list[Row]](list)
        for row in sorted(last.values(), key=lambda row: row["at"]):
            if row["come"].operation != "delete":
                groups[row["come"].group].append(row)
        return groups
    if draft.kind == CUBES:
        cubes = defaultdict[Any, list[Row]](list)
        for row in rows:
            for key in ((row["k"], row["come"].group, 0), (row["k"], None, 1), (None, None, 3)):
                cubes[key].append(row)
        return cubes
    return _in_sessions(draft, rows) if draft.kind == "sessions" else _in_windows(draft, rows)


def _eras(draft: Draft) -> Iterator[tuple[int, int, int]]:
    """Yield how long windows or gaps are, and from when until when."""
    begin = NEVER
    for size, end in [*draft.eras, (draft.window, -NEVER)]:
        yield size * SECOND, begin, end
        begin = end


def _in_sessions(draft: Draft, rows: Sequence[Row]) -> dict[Any, Sequence[Mapping[str, Any]]]:
    """Return sessions, which end where the gap becomes another one, and where they are cut."""
    found: dict[Any, Sequence[Mapping[str, Any]]] = {}
    for gap, begin, end in _eras(draft):
        own = [row for row in rows if begin <= row["at"] < end]
        length = CUTS.get(gap // SECOND, 0) * SECOND
        cut = by_window(own, "k", "at", cut_sessions(gap, length, 0) if length else sessions(gap), holds_end)
        for (key, (first, last)), some in cut.items():
            end = min(last + gap, (last // length + 1) * length) if length else last + gap
            found[key, (first, end)] = some
    return found


def _in_windows(draft: Draft, rows: Sequence[Row]) -> dict[Any, Sequence[Mapping[str, Any]]]:
    """Return the rows of each window, which is as long as windows are at the time when it begins."""
    found = defaultdict[Any, list[Row]](list)
    for size, begin, end in _eras(draft):
        for row in rows:
            start, come = row["at"] // size * size, row["come"]
            window = start, start + size
            if begin <= start < end and window not in come.elsewhere and come.within in (None, window):
                found[row["k"], window].append(row)
    return dict(found)


def _called(draft: Draft, told: Told, rows: Sequence[Mapping[str, Any]]) -> Row:
    """Return what the calls answer of rows in the order of time."""
    puts = [row["come"].values for row in rows if row["come"].side == PUT]
    come = [row for row in rows if row["come"].side not in (PUT, REPLACED)]
    found = {}
    for call in draft.calls:
        aggregate, answers = CALLS[call.function]
        own = [row for row in come if row["place"] >= told.since[call.number]]
        answer = answers([row["v"] for row in own if aggregate.where is None or row[str(aggregate.where)] is not None])
        for put in puts:
            answer = TELLING[call.function](put[call.number], answer) if call.number in put else answer
        found[call.name] = answer
    return found


def _both(function: Callable[[int, int], int], one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else function(one, other)


TELLING: Final[Mapping[str, Callable[[int | None, int | None], int | None]]] = {
    "rows": partial(_both, add),
    "sum": partial(_both, add),
    "max": partial(_both, max),
    "some": partial(_both, add),
    "sum of some": partial(_both, add),
}
"""Calls whose answers tell all that they know: what they answer of what was put and what has come since."""
COUNTS: Final = ("rows", "some")
"""Those that are put as equal numbers of rows."""


def shown(draft: Draft, told: Told) -> list[Row]:
    """Return the rows of an over that came out in the last micro-batch, with their results."""
    first = len(told.rows) - len(told.due)
    return [
        {"k": row.key, "at": row.time, "v": row.plain, "w": row.marked, **_named(draft.columns, row)}
        | _beside(draft, told, place)
        for place, row in enumerate(told.rows)
        if place >= first
    ]


def _beside(draft: Draft, told: Told, place: int) -> Row:
    """Return the results of the row at that place."""
    key, frame = told.rows[place].key, OVER[draft.kind].rows
    up_to = [(at, row) for at, row in enumerate(told.rows[: place + 1]) if row.key == key]
    found = {}
    for call in draft.calls:
        aggregate, answers = OVER_CALLS[call.function]
        counting = up_to if frame is None or aggregate.function == LAG else up_to[-frame:]
        own = [row for at, row in counting if at >= told.since[call.number]]
        if aggregate.where is not None:
            unseen = told.unseen[call.number]
            own = [row for row in own if row.marked is not None and row.time not in unseen]
        found[call.name] = answers([row.plain for row in own])
    return found


def _last_beside(draft: Draft, told: Told) -> dict[Any, Row]:
    """Return what an over keeps of each key: the results of its last row, of the calls that aggregate."""
    lags = [one.name for one in draft.calls if OVER_CALLS[one.function][0].function == LAG]
    lasts = {row.key: place for place, row in enumerate(told.rows)}
    return {
        key: {"k": key, **{name: one for name, one in _beside(draft, told, place).items() if name not in lags}}
        | {"last_time": told.rows[place].time}
        for key, place in lasts.items()
    }


def pairs(draft: Draft, told: Told) -> list[Row]:
    """Return the pairs of rows of two streams, and rows that are told alone, as nobody can come to them any more."""
    sides = side(draft, told, "left"), side(draft, told, "right")
    found = near(*sides, draft.how.value, draft.times, (REACH, REACH))
    if draft.how is JoinType.SEMI:
        return list(found)
    if draft.kind == "alone":
        found = (row for row in found if all(time in row for time in draft.times) or _passed(draft, told, row))
        nothing = _nothing(draft) if draft.how.shows_right else {}
        return [{**nothing, **row} for row in found]
    if not draft.grouped:
        return list(found)
    one, other = draft.keys("left")[1], draft.keys("right")[1]
    return [{name: row[name] for name in row if name != other} for row in found if row[one] == row[other]]


def _passed(draft: Draft, told: Told, row: Row) -> bool:
    """Return whether time is past all that could come to a row which is alone."""
    (time,) = (row[name] for name in draft.times if name in row)
    return bool(time + REACH + WAIT < told.clock)


def matched(draft: Draft, before: Told, come: Sequence[Come]) -> list[Row]:
    """Return the left rows of a micro-batch, which has no right ones, with the right ones that they find."""
    here, known, match = side(draft, Told(tuple(come)), "left"), side(draft, before, "right"), draft.match
    found = asof(
        here, known, match.how.value, draft.times, tolerance=match.tolerance, exact=match.exact,
        direction=match.direction.value,
    )  # fmt: skip
    nothing = dict.fromkeys(draft.schema("right").names) if match.how.shows_right else {}
    return [{**nothing, **row} for row in found]
