"""``MatchExplanation``: the rows of the other side that a row could have met, and the reasons for its matches.

Rule of this module: it holds and shows what others have found out.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from html import escape
from typing import Any, Final

from millpond.processors.verbs.encoding.python_values import shown_columns

_TITLES: Final = ("", "side", "row", "from", "until", "older by", "why")
_MARK: Final = "=>"
_NOTHING: Final = "-"


@dataclass(frozen=True)
class Candidate:
    """A row that could have been the match, or a delete.

    Attributes:
        side: ``"left"`` or ``"right"``, or the name of a table, whose row it is.
        row: its columns; None for a delete.
        since: its time, since which it is valid where the side is a table.
        until: the time at which the next version or a delete ended it; None if it is valid still, or its side is a
            stream.
        older_by: how much older it is than the explained row, less than zero if it is newer; None if that row has
            no time.
        won: whether it is the match, or one of several.
        why: the reason.
    """

    side: str
    row: Mapping[str, Any] | None
    since: datetime
    until: datetime | None
    older_by: timedelta | None
    won: bool
    why: str


@dataclass(frozen=True)
class MatchExplanation:
    """The explanation of a row's match. ``str`` makes a table of it, and a notebook shows one.

    Attributes:
        verb: the name of the join.
        row: the row that is explained, as it was given.
        time: its time; None if it has none.
        candidates: the rows of its key that the state has, and the deletes among them, the oldest first.
        verdict: the outcome, in a sentence.
        notes: further facts, such as how far back the state reaches.
    """

    verb: str
    row: Mapping[str, Any]
    time: datetime | None
    candidates: tuple[Candidate, ...]
    verdict: str
    notes: tuple[str, ...] = ()

    @property
    def winners(self) -> tuple[Candidate, ...]:
        """The candidates that are its matches: at most one for an as-of join."""
        return tuple(one for one in self.candidates if one.won)

    def __str__(self) -> str:
        widths = [max(map(len, column)) for column in zip(_TITLES, *self._cells(), strict=True)]
        table = [
            "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
            for line in (_TITLES, *self._cells())
        ]
        said = [self.verdict, *(f"note: {note}" for note in self.notes)]
        return "\n".join([f"{self.verb}: {shown_columns(self.row)}", *(table if self.candidates else ()), *said])

    def _repr_html_(self) -> str:
        lines = [_line("th", _TITLES), *(_line("td", cells) for cells in self._cells())]
        said = "".join(f"<p>{escape(text)}</p>" for text in (self.verdict, *self.notes))
        return f"<p>{escape(f'{self.verb}: {shown_columns(self.row)}')}</p><table>{''.join(lines)}</table>{said}"

    def _cells(self) -> Iterator[Sequence[str]]:
        for one in self.candidates:
            row = "a delete" if one.row is None else shown_columns(one.row)
            until = _NOTHING if one.until is None else str(one.until)
            yield (_MARK if one.won else "", one.side, row, str(one.since), until, _length(one.older_by), one.why)


def _length(of_time: timedelta | None) -> str:
    if of_time is None:
        return _NOTHING
    return str(of_time) if of_time >= timedelta() else f"-{-of_time}"


def _line(tag: str, cells: Sequence[str]) -> str:
    return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"
