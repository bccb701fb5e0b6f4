"""Change feeds that verbs make, and how the next verb knows their columns.

``op`` says what a row does, and ``sequence`` orders the changes of a key, wherever they lie. So a verb that reads a
feed takes both from it, without being told.

Rule of this module: nobody else knows what is noted of a feed's columns; whoever has columns knows where it is noted.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from millpond.processors.calls.account import Path
from millpond.processors.verbs.projections import CHANGE_COLUMNS, CHANGE_TIME, OP, SEQUENCE

FEED: Final = "millpond.change-feed"
"""The key of the mark, which says which verb made the feed, what the column is in it (``KEY``, ``ROW``
or one of ``CHANGE_COLUMNS``), of how many columns the feed's key is, and by how many its rows replace each other."""

KEY: Final = "key"
"""A column of the key, of which one task makes all changes."""

ROW: Final = "row"
"""A column that tells rows of one key apart: a window, or a rank."""


class _Mark(NamedTuple):
    verb: str
    role: str
    keys: int
    rows: int | None


@dataclass(frozen=True)
class Feed:
    """The change feed of a verb among the columns of a DataFrame.

    Attributes:
        keys: those of its key's columns that are there.
        whole: whether those are all.
        row: the columns by which its rows replace each other; None if not all of them are there, or nobody knows them.
        op, sequence, time: the names of its other columns; None for one that is not there.
    """

    keys: Collection[str]
    whole: bool
    row: Collection[str] | None
    op: str | None
    sequence: str | None
    time: str | None

    @property
    def changes(self) -> Collection[str]:
        """The columns that it has besides those of its rows."""
        return [name for name in (self.op, self.sequence, self.time) if name is not None]

    def orders(self, keys: Collection[str]) -> bool:
        """Whether rows of one of these keys come, or are numbered, in the order in which they count.

        They do if one task has made them, so all columns of the feed's key must be among them.
        """
        return self.whole and set(self.keys) <= set(keys)


def feed_marks(verb: str, keys: Collection[str], row: Collection[str]) -> Mapping[Path, Mapping[str, Any]]:
    """What the columns of a verb's change feed are marked with.

    Args:
        verb: its name.
        keys: the columns of its key.
        row: those by which its rows replace each other.
    """
    roles = {**dict.fromkeys(row, ROW), **dict.fromkeys(keys, KEY), **{name: name for name in CHANGE_COLUMNS}}
    sizes = str(len(keys)), str(len(set(row)))
    return {(name,): {FEED: [verb, role, *sizes]} for name, role in roles.items()}


def feed_among(marks: Mapping[str, Sequence[str] | None]) -> Feed | None:
    """The change feed that rows are of; None if there is none, or columns of several.

    Args:
        marks: by column, what ``feed_marks`` has noted of it under ``FEED``; None if nothing.
    """
    known = {name: _mark(mark) for name, mark in marks.items() if mark is not None}
    verbs = {mark.verb for mark in known.values() if mark.role in CHANGE_COLUMNS}
    if len(verbs) != 1:
        return None
    own = {name: mark for name, mark in known.items() if mark.verb in verbs}
    roles = Counter(mark.role for mark in own.values())
    if any(roles[role] > 1 for role in CHANGE_COLUMNS):
        return None
    named = {mark.role: name for name, mark in own.items()}
    keys = [name for name, mark in own.items() if mark.role == KEY]
    of_row = [name for name, mark in own.items() if mark.role in (KEY, ROW)]
    one = next(mark for mark in own.values() if mark.role in CHANGE_COLUMNS)
    row = of_row if len(of_row) == one.rows else None
    return Feed(keys, len(keys) == one.keys, row, named.get(OP), named.get(SEQUENCE), named.get(CHANGE_TIME))


def _mark(noted: Sequence[str]) -> _Mark:
    """What is noted of a column; marks of earlier releases do not say by how many columns rows replace each other."""
    verb, role, keys, *rows = noted
    return _Mark(verb, role, int(keys), int(rows[0]) if rows else None)
