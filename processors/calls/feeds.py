"""Change feeds that verbs make, and how the next verb knows their columns.

``op`` says what a row does, and ``sequence`` orders the changes of a key, wherever they lie. So a verb that reads a
feed takes both from it, without being told.

Rule of this module: it alone knows what is noted of a feed's columns; the owner of the columns knows where.
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


class Gone(NamedTuple):
    """The columns that say when rows went that a feed deletes; its deletes show only the key, and so often no time.

    Attributes:
        op: the column that says which rows are deletes.
        time: the column with the times of the changes.
    """

    op: str
    time: str


@dataclass(frozen=True)
class Feed:
    """The change feed of a verb among the columns of a DataFrame.

    Attributes:
        keys: the columns of its key that are there.
        whole: whether these are all.
        row: the columns by which its rows replace each other; None if not all of them are there, or they are not known.
        op, sequence, time: the names of its other columns; None for a column that is not there.
    """

    keys: Collection[str]
    whole: bool
    row: Collection[str] | None
    op: str | None
    sequence: str | None
    time: str | None

    @property
    def changes(self) -> Collection[str]:
        """The columns that a feed adds to its rows."""
        return [name for name in (self.op, self.sequence, self.time) if name is not None]

    def gone(self, op: object, time: object) -> Gone | None:
        """Return the columns that say when deleted rows went; None if that is unknown, or the time of all rows says it.

        Args:
            op: the column, or the expression, that says for a verb which rows are deletes; None if nothing does.
            time: the column with the time of rows.
        """
        if self.op is None or self.time is None or not self.tells(op) or (isinstance(time, str) and time == self.time):
            return None
        return Gone(self.op, self.time)

    def tells(self, op: object) -> bool:
        """Return whether deletes are its own, where ``op`` is as in ``gone``."""
        return self.op is not None and (op is None or (isinstance(op, str) and op == self.op))

    def in_turn(self, keys: Collection[str], op: object) -> bool:
        """Return whether each change of one of these keys replaces the one before it, by the order of the feed."""
        if op is None or self.row is None or self.sequence is None:
            return False
        return self.tells(op) and set(self.row) == set(keys)

    def selected(self, names: Mapping[str, str]) -> "Feed":
        """Return the feed as it is known from the columns that are selected; ``names`` has their new names."""
        keys = [names[name] for name in self.keys if name in names]
        row = None if self.row is None or not set(self.row) <= names.keys() else [names[name] for name in self.row]
        changes = (None if name is None else names.get(name) for name in (self.op, self.sequence, self.time))
        return Feed(keys, self.whole and len(keys) == len(self.keys), row, *changes)

    def orders(self, keys: Collection[str]) -> bool:
        """Return whether rows of one of these keys come, or are numbered, in the order in which they count.

        They do if one task has made them, so all columns of the feed's key must be among them.
        """
        return self.whole and set(self.keys) <= set(keys)


def feed_marks(verb: str, keys: Collection[str], row: Collection[str]) -> Mapping[Path, Mapping[str, Any]]:
    """Return the marks for the columns of a verb's change feed.

    Args:
        verb: its name.
        keys: the columns of its key.
        row: the columns by which its rows replace each other.
    """
    roles = {**dict.fromkeys(row, ROW), **dict.fromkeys(keys, KEY), **{name: name for name in CHANGE_COLUMNS}}
    sizes = str(len(keys)), str(len(set(row)))
    return {(name,): {FEED: [verb, role, *sizes]} for name, role in roles.items()}


def feed_among(marks: Mapping[str, Sequence[str] | None]) -> Feed | None:
    """Return the change feed of rows; None if there is none, or columns of several.

    Args:
        marks: by column, the mark of ``feed_marks`` under ``FEED``; None without one.
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


def key_of_feed(feed: Feed | None, key: Sequence[str], op: object) -> str | None:
    """Return the key of a verb's change feed, as one writes it, if a table by another key would be wrong.

    A delete shows only the columns by which rows of its feed replace each other. So in a table by any other key, it
    does not say which row goes, and an update that moves a row to another key does not say so either.

    Args:
        feed: the feed; None if rows are none.
        key: the key of the table.
        op: the column with the operation, as the user gave it.

    Returns:
        None if the table has the key of the feed, or the rows are no feed with a known key.
    """
    if feed is None or feed.row is None or not feed.tells(op) or set(feed.row) == set(key):
        return None
    return as_written(sorted(feed.row))


def as_written(names: Sequence[str]) -> str:
    """Return columns as a user gives them: one by its name, several as a list.

    >>> as_written(["id"]), as_written(["id", "rank"])
    ("'id'", "['id', 'rank']")
    """
    return repr(names[0]) if len(names) == 1 else repr(list(names))


def _mark(noted: Sequence[str]) -> _Mark:
    """Return the mark of a column; marks of earlier releases do not say how many columns a row is replaced by."""
    verb, role, keys, *rows = noted
    return _Mark(verb, role, int(keys), int(rows[0]) if rows else None)
