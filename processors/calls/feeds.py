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
"""The key of the mark, which says which verb made the feed, what the column is in it (``KEY`` or one of
``CHANGE_COLUMNS``), and of how many columns the feed's key is."""

KEY: Final = "key"


class _Mark(NamedTuple):
    verb: str
    role: str
    keys: int


@dataclass(frozen=True)
class Feed:
    """The change feed of a verb among the columns of a DataFrame.

    Attributes:
        keys: those of its key's columns that are there.
        whole: whether those are all.
        op, sequence, time: the names of its other columns; None for one that is not there.
    """

    keys: Collection[str]
    whole: bool
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


def feed_marks(verb: str, keys: Collection[str]) -> Mapping[Path, Mapping[str, Any]]:
    """What the columns of a verb's change feed are marked with.

    Args:
        verb: its name.
        keys: the columns of its key.
    """
    roles = {**dict.fromkeys(keys, KEY), **{name: name for name in CHANGE_COLUMNS}}
    return {(name,): {FEED: [verb, role, str(len(keys))]} for name, role in roles.items()}


def feed_among(marks: Mapping[str, Sequence[str] | None]) -> Feed | None:
    """The change feed that rows are of; None if there is none, or columns of several.

    Args:
        marks: by column, what ``feed_marks`` has noted of it under ``FEED``; None if nothing.
    """
    known = {name: _Mark(mark[0], mark[1], int(mark[2])) for name, mark in marks.items() if mark is not None}
    verbs = {mark.verb for mark in known.values() if mark.role != KEY}
    if len(verbs) != 1:
        return None
    own = {name: mark for name, mark in known.items() if mark.verb in verbs}
    roles = Counter(mark.role for mark in own.values())
    if any(roles[role] > 1 for role in CHANGE_COLUMNS):
        return None
    named = {mark.role: name for name, mark in own.items()}
    keys = [name for name, mark in own.items() if mark.role == KEY]
    size = next(mark.keys for mark in own.values() if mark.role != KEY)
    return Feed(keys, len(keys) == size, named.get(OP), named.get(SEQUENCE), named.get(CHANGE_TIME))
