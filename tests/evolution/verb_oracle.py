"""What verbs hold and put out, told by rows of committed micro-batches and what each column and call is known by."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from tests.evolution.verb_drafts import CALLS, GAP, REACH, SECOND, TIMES, WINDOW, WINDOWS, Call, Column, Draft
from tests.metamorphic.oracle import asof, by_window, holds, holds_end, joined_tables, near, newest, sessions, tumbling

Row = dict[str, Any]


class Come(NamedTuple):
    """A row that has come to a verb: by the numbers of columns, its values."""

    side: str
    key: str
    time: int
    values: Mapping[int, int | None]
    plain: int | None


@dataclass(frozen=True)
class Told:
    """What a verb knows.

    Attributes:
        rows: that have come, in the order of micro-batches.
        since: with how many of them each call began, by its number.
    """

    rows: tuple[Come, ...] = ()
    since: Mapping[int, int] = field(default_factory=dict)

    def grown(self, rows: Sequence[Come]) -> "Told":
        return replace(self, rows=(*self.rows, *rows))

    def with_calls(self, calls: Sequence[Call]) -> "Told":
        """Those that are new begin now."""
        return replace(self, since={one.number: self.since.get(one.number, len(self.rows)) for one in calls})

    def back_at(self, before: "Told") -> "Told":
        """The rows of an earlier micro-batch, and the calls of today."""
        since = {number: min(place, len(before.rows)) for number, place in self.since.items()}
        return replace(before, since={number: before.since.get(number, place) for number, place in since.items()})

    def without(self, key: str, side: str | None = None) -> "Told":
        """All that is of a key is gone, from one side or from all."""
        gone = [one.key == key and side in (None, one.side) for one in self.rows]
        since = {number: place - sum(gone[:place]) for number, place in self.since.items()}
        return Told(tuple(one for one, goes in zip(self.rows, gone, strict=True) if not goes), since)


def side(draft: Draft, told: Told, which: str) -> list[Row]:
    """The rows of one input, as they are called now."""
    columns = draft.of(which)
    return [{"k": one.key, TIMES[which]: one.time, **_named(columns, one)} for one in told.rows if one.side == which]


def _named(columns: Sequence[Column], row: Come) -> Row:
    return {column.name: row.values.get(column.number) for column in columns}


_CUTS: Final[Mapping[str, Any]] = {
    "windows": (tumbling(WINDOW * SECOND), holds, 0),
    "sessions": (sessions(GAP * SECOND), holds_end, GAP * SECOND),
}


def table(draft: Draft, told: Told) -> dict[Any, Row]:
    """The table that a verb holds, by key, or by key and window."""
    if draft.kind == "latest":
        return newest(side(draft, told, "left"), "k", "at")  # type: ignore[return-value]
    if draft.kind == "tables":
        one, other = (newest(side(draft, told, which), "k", TIMES[which]) for which in ("left", "right"))
        return joined_tables(one, other, "inner")
    rows: list[Row] = [
        {"k": one.key, "at": one.time, "v": one.plain, "place": place} for place, one in enumerate(told.rows)
    ]
    rows.sort(key=lambda row: row["at"])
    if draft.kind == "totals":
        keys = {
            row["k"]: sorted((one for one in rows if one["k"] == row["k"]), key=lambda one: one["at"]) for row in rows
        }
        return {key: {"k": key, **_called(draft, told, some)} for key, some in keys.items()}
    cut, within, shown = _CUTS[draft.kind]
    found = {}
    for (key, (start, end)), some in by_window(rows, "k", "at", cut, within).items():
        window = (start, end + shown)
        found[key, window] = {"k": key, "window": window, **_called(draft, told, some)}
    return found


def _called(draft: Draft, told: Told, rows: Sequence[Mapping[str, Any]]) -> Row:
    """What the calls answer of rows in the order of time."""
    return {
        call.name: CALLS[call.function][1]([row["v"] for row in rows if row["place"] >= told.since[call.number]])
        for call in draft.calls
    }


def pairs(draft: Draft, told: Told) -> list[Row]:
    """The pairs of rows of two streams."""
    times, reach = (TIMES["left"], TIMES["right"]), (REACH, REACH)
    return list(near(side(draft, told, "left"), side(draft, told, "right"), "inner", times, reach))


def matched(draft: Draft, before: Told, come: Sequence[Come]) -> list[Row]:
    """The left rows of a micro-batch, which has no right ones, with the right ones that they find."""
    times = TIMES["left"], TIMES["right"]
    return list(asof(side(draft, Told(tuple(come)), "left"), side(draft, before, "right"), "inner", times))


HOLDS_A_TABLE: Final = frozenset({"latest", "tables", *WINDOWS})
