"""A leftover, which a cleaning finds: one thing, its kind, and either the way to delete it or the reason why it stays.

Rule of this module: only what is known to be useless goes. Nothing goes that is younger than the user says; a thing
without a time has no age.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final, Self

_UNITS: Final = ((86_400_000, "days"), (3_600_000, "hours"), (60_000, "minutes"), (1_000, "seconds"))


class GarbageKind(StrEnum):
    """The kind of a leftover."""

    COPY = "local copy"
    """The local copy of a store."""

    PREPARATION = "prepared format"
    """A directory prepared for a store's next format, whose store is not there."""

    REMNANT = "remnant"
    """The remains of an engine, a migration or a deletion that did not come to its end."""

    TASK = "empty task"
    """The local directory of a task without copies."""

    GARBAGE = "garbage"
    """Durable files beyond the retention."""

    ATTEMPT = "lost attempt"
    """A durable file of an attempt that failed or lost."""

    DRAFT = "draft"
    """A small file that never got its name."""

    LINEAGE = "lineage"
    """The durable files of one task of one query that no checkpoint names."""

    BACKFILL = "backfill"
    """The files of an attempt at a backfill that does not count."""

    APPLICATION = "application"
    """All state of an application."""

    LEFT_OUT = "left out"
    """Dead letters or late rows, which are the user's."""

    UNKNOWN = "not Millpond's"
    """A file or directory that is not understood, or cannot be read."""


@dataclass(frozen=True)
class Leftover:
    """One thing that was found.

    Attributes:
        what: its kind.
        where: its full name.
        size: its bytes.
        why: the reason why it may go, or why it stays.
        delete: deletes it; None if it stays. Raises a ``MillpondError`` if somebody has begun to use it.
    """

    what: GarbageKind
    where: str
    size: int
    why: str
    delete: Callable[[], None] | None = None

    @property
    def may_go(self) -> bool:
        return self.delete is not None

    def kept(self, why: str) -> Self:
        """Return the same leftover, which stays."""
        return replace(self, why=why, delete=None)

    def to_dict(self, verdict: str) -> dict[str, Any]:
        """Return the leftover as a row, with its verdict."""
        return {"what": str(self.what), "where": self.where, "bytes": self.size, "verdict": verdict, "why": self.why}


@dataclass(frozen=True)
class Age:
    """The age at which a leftover may go.

    Attributes:
        now_ms: the time now.
        least_ms: the time that must have passed since the last write to it.
    """

    now_ms: int
    least_ms: int

    def reached(self, modified_ms: int) -> bool:
        """Return whether a file that was last written then is old enough; 0 stands for an unknown time."""
        return 0 < modified_ms <= self.now_ms - self.least_ms

    def told(self, modified_ms: int) -> str:
        """Return the age, in words."""
        if modified_ms <= 0:
            return "nothing tells when it was last written"
        passed = max(0, self.now_ms - modified_ms)
        length, unit = next((one for one in _UNITS if passed >= one[0]), _UNITS[-1])
        return f"last written {passed // length} {unit} ago"
