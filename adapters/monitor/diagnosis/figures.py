"""``Figures``: all that rules may look at.

Rule of this module: it is what was kept of a query at one moment, and nothing is read here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from millpond.adapters.monitor.kept.history import History
from millpond.adapters.monitor.kept.micro_batch import MicroBatch
from millpond.adapters.monitor.kept.runs import Run, Runs


@dataclass(frozen=True)
class OpenBatch:
    """A micro-batch that was begun and is not committed.

    Attributes:
        number: its number.
        since: when it was begun.
        done: how many partitions of Spark's state have its results.
        partitions: how many there are.
        done_at: when the last of them had; None if none has.
    """

    number: int
    since: int
    done: int = 0
    partitions: int = 0
    done_at: int | None = None


@dataclass(frozen=True)
class StandbyCopy:
    """A local copy that is to be kept warm: its task, and when it was last brought on."""

    task: str
    used: int


@dataclass(frozen=True)
class Figures:
    """A query at one moment, for rules; times are milliseconds since 1970.

    Attributes:
        at: the moment.
        batches: the last micro-batches of which progress is kept, the first one first.
        runs: its runs; None if they are not kept.
        history: what it did before.
        committed: when each micro-batch that the checkpoint retains was committed.
        open_batch: the one that was begun after them.
        standby: the copies that a standby is to keep warm.
    """

    at: int
    batches: Sequence[MicroBatch]
    runs: Runs
    history: History
    committed: Mapping[int, int] = field(default_factory=dict)
    open_batch: OpenBatch | None = None
    standby: Sequence[StandbyCopy] = ()

    @property
    def run(self) -> Run | None:
        """The last run; None if nobody has told of any."""
        return self.runs.last[-1] if self.runs.last else None

    @property
    def heard(self) -> int | None:
        """The last time at which the last run was seen; None if runs are not recorded, as in earlier releases."""
        run, last = self.run, self.batches[-1] if self.batches else None
        if run is None or (last is not None and last.run not in {one.run for one in self.runs.last}):
            return None
        ended = 0 if last is None else last.started + last.took
        return max(run.seen, ended, *self.committed.values())

    @property
    def ended(self) -> bool:
        """True if the last run has ended."""
        return self.run is not None and self.run.ended is not None
