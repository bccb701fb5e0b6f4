"""``millpond bench engines``: every contender on every workload, each run in a fresh process, in turn.

Rule of this module: it opens no engine. The contenders of a workload take turns, run after run, so that noise on the
machine affects all alike, and whatever becomes of one of them, the others go on.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from millpond.bench.documents import SCHEMA
from millpond.bench.engines.contenders import Contender, contenders
from millpond.bench.engines.engine import Use
from millpond.bench.engines.worker import Job
from millpond.bench.engines.workloads import ORDERED, WORKLOADS, Sizes, Workload
from millpond.bench.runs.alone import run_alone
from millpond.bench.runs.asked import cache_bytes, check_cache_ratio, check_known, check_turns
from millpond.bench.runs.leftovers import left_by_store
from millpond.bench.runs.recording import clock_ns
from millpond.bench.runs.turns import Watch, figures_in_turn
from millpond.errors import ConfigurationError

UNORDERED: Final = "takes no part: it does not find keys in order"
"""The reason of a contender without order in a workload that needs it, which is not a failure."""

DURABILITIES: Final = ("none", "synced")

_WORKER: Final = "millpond.bench.engines.worker"


@dataclass(frozen=True)
class Contest:
    """The contest to be measured.

    Args:
        backends: names or URLs of registered backends.
        peers: names of peers.
        workloads: their names; all of them if there are none.
        sizes: how much there is, and how much is done.
        repeat: runs of each contender on each workload.
        cache_ratio: how many times larger the data is than the cache of each engine whose cache can be set.
        durability: ``none``, or ``synced`` if each write is to have reached the disk when it returns.
        directory: where the files go, on the file system to measure; by default the temporary directory.
        timeout_s: seconds after which a run is ended and has failed; None waits for ever.

    Raises:
        ConfigurationError: one of these is unknown or makes no sense.
    """

    backends: Sequence[str]
    peers: Sequence[str]
    workloads: Sequence[str]
    sizes: Sizes
    repeat: int = 3
    cache_ratio: float | None = None
    durability: str = "none"
    directory: Path | None = None
    timeout_s: float | None = None

    def __post_init__(self) -> None:
        check_known("workload", self.workloads, WORKLOADS)
        if self.durability not in DURABILITIES:
            raise ConfigurationError(f"the durability is {self.durability!r}, but must be {' or '.join(DURABILITIES)}")
        check_cache_ratio(self.cache_ratio)
        check_turns(self.repeat, self.directory, self.timeout_s)

    @property
    def use(self) -> Use:
        """The way in which engines are opened."""
        return Use(None, cache_bytes(self.sizes.data_bytes, self.cache_ratio), self.durability == "synced")

    @property
    def chosen(self) -> list[Workload]:
        """The workloads, each once, in the order in which they are listed."""
        return [workload for name, workload in WORKLOADS.items() if name in self.workloads or not self.workloads]

    def taking_part(self) -> list[Contender]:
        """Return the contenders.

        Raises:
            ConfigurationError: there are none, or a backend or a peer is unknown or has an option that makes no sense.
        """
        found = contenders(self.backends, self.peers, self.use)
        if not found:
            raise ConfigurationError("there is nobody to measure; name a backend or a peer")
        return found

    def settings(self) -> dict[str, Any]:
        """Return the settings to report."""
        sizes = self.sizes
        return {
            "records": sizes.records,
            "operations": sizes.operations,
            "key_bytes": sizes.key_bytes,
            "value_bytes": sizes.value_bytes,
            "batch": sizes.batch,
            "data_bytes": sizes.data_bytes,
            "cache_bytes": self.use.cache_bytes,
            "cache_ratio": self.cache_ratio,
            "seed": sizes.seed,
            "repeat": self.repeat,
            "warm_up": sizes.warm_up,
            "clock_ns": clock_ns(),
        }


def runs(contest: Contest, who: Sequence[Contender]) -> int:
    """Return how many runs there are."""
    pairs = sum(_cannot(workload, contender) is None for contender in who for workload in contest.chosen)
    return pairs * contest.repeat


def run(contest: Contest, watch: Watch = lambda workload, contender: None) -> dict[str, Any]:
    """Measure, and return the figures, and failures with their reasons."""
    who = contest.taking_part()
    results: list[dict[str, Any]] = []
    failures: list[dict[str, str]] = []
    for workload in contest.chosen:
        cannot, measure = partial(_cannot, workload), partial(_one, contest, workload)
        measured, failed = figures_in_turn(workload.name, who, cannot, contest.repeat, measure, watch)
        results += measured
        failures += failed
    return {
        "schema": SCHEMA,
        "settings": contest.settings(),
        "unit": "operations",
        "contenders": [contender.shown() for contender in who],
        "results": results,
        "failures": failures,
    }


def broken(figures: dict[str, Any]) -> bool:
    """Return whether a contender failed at something that it can do."""
    return any(failure["reason"] != UNORDERED for failure in figures["failures"])


def _cannot(workload: Workload, contender: Contender) -> str | None:
    """Return why a contender takes no part in a workload; None if it does."""
    if workload.kinds & ORDERED and not contender.ordered:
        return UNORDERED
    return None


def _one(contest: Contest, workload: Workload, contender: Contender, number: int) -> dict[str, Any]:
    """Run one contender with one workload once, and return the result."""
    use = contest.use
    job_of = partial(
        Job, contender.kind, contender.source, workload.name, contest.sizes, number, use.cache_bytes, use.synced
    )
    clean_up = partial(_left_behind, contender)
    return run_alone(_WORKER, job_of, clean_up, directory=contest.directory, timeout_s=contest.timeout_s)


def _left_behind(contender: Contender, directory: Path) -> str | None:
    return left_by_store(contender.source, directory) if contender.kind == "backend" else None
