"""A workload of the benchmark on Spark at a fixed rate, and its contenders.

Rule of this module: a workload has no job of its own here. Those take part in which each row has its result at once,
in the micro-batch that reads it.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from millpond.bench.latency.arrivals import SECOND, Arrivals, pace_of
from millpond.bench.spark.contest import shared_out
from millpond.bench.spark.inputs import Topic
from millpond.bench.spark.shapes import Scale
from millpond.bench.spark.workloads import (
    SPARK_JVM,
    WORKLOADS,
    Answer,
    Contender,
    Workload,
    chosen_contenders,
    workload_named,
)
from millpond.errors import ConfigurationError

RATES: Final = (1_000, 10_000, 100_000)
USUAL: Final = ("count", "temporal-join", "stream-join")
"""The rates, and the workloads, that are measured unless somebody says otherwise."""

_ROWS_OF_A_KEY: Final = 5
"""The rows that a key has in the time of a window, by default as many as in the benchmark on Spark."""


@dataclass(frozen=True)
class FixedRate:
    """A workload at a rate.

    Attributes:
        workload: one of the benchmark on Spark.
        rate: rows per second, over all topics.
        seconds: for so long rows come into being that count.
        warm_up: for so many seconds before, from the end of the first micro-batch on, they do not count.
        patience: a contender that lets a row wait for more seconds than that is stopped, once it has warmed up.
        trigger: seconds from the begin of a micro-batch to that of the next; 0 for as soon as the one before is done.
        keys: distinct ones.
        backend: the name or URL of the one that verbs are on.
        cores: of Spark; as many tasks read a topic.
        tuned: whether the session is one in which Spark is at its best, instead of a user's.
        contenders: only these of the workload's; None for verbs and the best that Spark has.
        directory: where state goes, on the file system to measure; None for the temporary directory.
        seed: of all chance in the rows.

    Raises:
        ConfigurationError: by the properties: the workload or a contender is unknown, or rows of the workload have to
            wait for others.
    """

    workload: str
    rate: int
    seconds: float
    warm_up: float = 60
    patience: float = 60
    trigger: float = 0
    keys: int = 10_000
    backend: str = "lmdb"
    cores: int = 2
    tuned: bool = False
    contenders: Collection[str] | None = None
    directory: Path | None = None
    seed: int = 1

    @property
    def title(self) -> str:
        """The name of the workload with its rate."""
        return f"{self.workload}, {self.rate:,} rows/s"

    @property
    def work(self) -> Workload[Topic]:
        """The workload."""
        work = workload_named(self.workload)
        if not _answers_at_once(work):
            others = ", ".join(name for name, other in WORKLOADS.items() if _answers_at_once(other))
            raise ConfigurationError(
                f"the rows of {self.workload} have no result at once, or are read from files that are there from the "
                f"beginning, so there is no latency of a row; give one of {others}"
            )
        return work

    @property
    def known(self) -> Collection[str]:
        """The names of all contenders that the workload has."""
        return self.work.contenders([self.backend])

    @property
    def chosen(self) -> dict[str, Contender]:
        """The contenders by name, verbs first."""
        work = self.work
        found = chosen_contenders(work, [self.backend], best(work) if self.contenders is None else self.contenders)
        return {name: one for name, one in found.items() if isinstance(one, Contender)}

    @property
    def scale(self) -> Scale:
        """The lengths of time, with which a key has as many rows in a window at each rate."""
        return Scale(max(1, _ROWS_OF_A_KEY * self.keys * 1_000 // self.rate), self.keys, self.cores)

    def arrivals(self, begin: int) -> dict[str, Arrivals]:
        """Return when the rows of each topic come into being, if their clock starts at ``begin``, in microseconds."""
        return {topic.name: Arrivals(begin, pace_of(self.rate, topic.share)) for topic in self.work.topics}

    def counted(self, first: int) -> tuple[int, int]:
        """Return the moments from which on and before which rows count, if the first micro-batch ends at ``first``."""
        start = first + round(self.warm_up * SECOND)
        return start, start + round(self.seconds * SECOND)


def best(work: Workload[Topic]) -> list[str]:
    """Return the names of the verbs, and of the best that Spark has for streams."""
    peers = [name for name, peer in work.peers.items() if not peer.static]
    return [*work.verbs, *([SPARK_JVM] if SPARK_JVM in peers else peers)]


def _answers_at_once(work: Workload[Topic]) -> bool:
    return bool(work.verbs) and work.answer is not Answer.SETTLED and not work.static


def fixed_rates(
    workloads: Sequence[str], rates: Sequence[int], *, contenders: Sequence[str] | None, **how: Any
) -> list[FixedRate]:
    """Return each workload at each rate, the slowest first, and none twice.

    Args:
        workloads: their names.
        rates: rows per second.
        contenders: only these, where a workload has them; None for verbs and the best that Spark has.
        how: the other attributes of each.

    Raises:
        ConfigurationError: as ``FixedRate`` says, or a workload has none of the contenders.
    """
    shares = shared_out(workloads, contenders, lambda name: FixedRate(name, rates[0], **how).known)
    found = [
        FixedRate(name, rate, contenders=own, **how) for name, own in shares.items() for rate in sorted(set(rates))
    ]
    return [contest for contest in found if contest.chosen]  # which refuses what it does not know
