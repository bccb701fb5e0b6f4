"""``State`` and ``Finding``: the bad states of a query, and a report of one.

Rule of this module: it is plain data. docs/doctor.md has a section for each state, of the state's name.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

PAGE: Final = "docs/doctor.md"


class State(StrEnum):
    """The bad states that are known, the ones that stop a query first."""

    OUT_OF_MEMORY = "executor-out-of-memory"
    """A process that ran tasks had no memory left, and the query ended by it."""

    CORRUPT_COPY = "corrupt-copy"
    """The query ended because files of its state are damaged."""

    POISON = "poison-rows"
    """Rows cannot be used: they are left out, or the query ended by one."""

    DIED = "query-died"
    """The query ended by an error, or nobody has heard of it."""

    STUCK_SINK = "stuck-sink"
    """All tasks are done and the micro-batch is not: the writer of the results does not return."""

    LISTING = "listing-lags"
    """The storage does not list what was written."""

    DISK = "disk-nearly-full"
    """The disk of local copies has little room left, or soon will have."""

    STATE = "state-without-bound"
    """The state grows, and does not slow down."""

    LAG = "growing-lag"
    """The query is slower than its input."""

    SKEW = "skewed-key"
    """One key has so many records that one task has most of the work."""

    STORAGE = "slow-storage"
    """Writing files takes most of the time."""

    CLOCK = "clock-jumps"
    """A clock went back, or records are from the future."""

    LATE = "late-data"
    """Many records come too late to count."""

    STANDBY = "forgotten-standby"
    """The copies of a standby are far behind: nobody keeps them warm."""


@dataclass(frozen=True)
class Finding:
    """One bad state that a query is in.

    Attributes:
        state: which.
        figures: by which figures it is known.
        since: since when, as far as it is kept, in milliseconds since 1970; None if nothing tells.
        advice: what to do.
        page: where that is explained.
    """

    state: State
    figures: str
    since: int | None
    advice: str

    @property
    def page(self) -> str:
        """The address of the page that explains the state."""
        return f"{PAGE}#{self.state}"

    def to_dict(self) -> dict[str, str | int | None]:
        """Return the same as JSON has it."""
        return {
            "state": str(self.state),
            "figures": self.figures,
            "since": self.since,
            "advice": self.advice,
            "page": self.page,
        }
