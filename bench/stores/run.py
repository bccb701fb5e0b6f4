"""``millpond bench stores``: every contender on every pattern, each run in a fresh process, in turn.

Rule of this module: it opens no store. The contenders of a pattern take turns, run after run, so that noise on the
machine affects all alike, and whatever becomes of one of them, the others go on.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from millpond.bench.documents import SCHEMA
from millpond.bench.engines.contenders import ContenderKind, contenders
from millpond.bench.engines.engine import Use
from millpond.bench.rows import VALUE_SIZE
from millpond.bench.runs.alone import run_alone
from millpond.bench.runs.asked import cache_bytes, check_cache_ratio, check_known, check_turns
from millpond.bench.runs.leftovers import left_by_stores
from millpond.bench.runs.recording import clock_ns
from millpond.bench.runs.turns import Watch, figures_in_turn
from millpond.bench.stores.patterns import PATTERNS, AnyPattern
from millpond.bench.stores.place import LOCAL_DIRECTORIES
from millpond.bench.stores.sizes import KEY_SIZE, Sizes
from millpond.bench.stores.whole_stores import WholeStore
from millpond.bench.stores.worker import Job
from millpond.stores.backend.registry import supplier

BACKENDS: Final = ("memory", "lmdb", "rocksdb")

NO_ENGINE: Final = "takes no part: it is nothing that an engine does alone"
NOTHING_KEPT: Final = "takes no part: it keeps nothing that could be opened again"
TAKING_NO_PART: Final = (NO_ENGINE, NOTHING_KEPT)
"""The reasons of contenders to which a pattern is nothing, which are no failures."""

_WORKER: Final = "millpond.bench.stores.worker"


class Contender(NamedTuple):
    """A contender: its entry in reports, and the way in which it is opened."""

    shown: dict[str, str]
    kind: ContenderKind
    source: str
    checksums: bool = False

    @property
    def label(self) -> str:
        """The name of the contender."""
        return self.shown["label"]

    def with_checksums(self) -> "Contender":
        """Return the contender with checksums of its rows."""
        label = self.label.replace("(Millpond)", "(Millpond, checksums)")
        return self._replace(shown={**self.shown, "label": label}, checksums=True)


class Workload(NamedTuple):
    """A pattern at a size."""

    name: str
    pattern: AnyPattern
    sizes: Sizes


@dataclass(frozen=True)
class Contest:
    """The contest to be measured.

    Args:
        backends: names or URLs of registered backends; the engine under each is measured beside it, if one is known.
        workloads: names of patterns; all of them if there are none.
        sizes: how much is done.
        growth: numbers of keys to measure at, one after the other, in place of that of ``sizes``.
        checksums: also measure each backend with checksums of rows.
        repeat: runs of each contender on each pattern.
        cache_ratio: how many times larger the data is than the cache of each engine whose cache can be set.
        directory: where the files go, on the file system to measure; by default the temporary directory.
        timeout_s: seconds after which a run is ended and has failed; None waits for ever.

    Raises:
        ConfigurationError: one of these is unknown or makes no sense.
    """

    backends: Sequence[str]
    workloads: Sequence[str]
    sizes: Sizes
    growth: Sequence[int] = ()
    checksums: bool = False
    repeat: int = 3
    cache_ratio: float | None = None
    directory: Path | None = None
    timeout_s: float | None = None

    def __post_init__(self) -> None:
        check_known("workload", self.workloads, PATTERNS)
        check_cache_ratio(self.cache_ratio)
        check_turns(self.repeat, self.directory, self.timeout_s)

    @property
    def chosen(self) -> list[Workload]:
        """The workloads to measure, in the order of the list of patterns; with several sizes, each names its own."""
        patterns = [one for name, one in PATTERNS.items() if name in self.workloads or not self.workloads]
        if not self.growth:
            return [Workload(one.name, one, self.sizes) for one in patterns]
        sizes = [self.sizes.with_keys(keys) for keys in dict.fromkeys(self.growth)]
        return [Workload(f"{one.name}, {size.keys:,} keys", one, size) for one in patterns for size in sizes]

    def taking_part(self) -> list[Contender]:
        """Return the contenders.

        Raises:
            ConfigurationError: a backend is unknown or has an option that makes no sense.
        """
        return list(self._taking_part())

    def _taking_part(self) -> Iterator[Contender]:
        largest = max(self.growth, default=self.sizes.keys)
        for one in contenders(
            self.backends, (), Use(None, cache_bytes(self.sizes.with_keys(largest).data_bytes, self.cache_ratio))
        ):
            contender = Contender(one.shown(), one.kind, one.source)
            yield contender
            if self.checksums and one.kind == "backend":
                yield contender.with_checksums()

    def settings(self) -> dict[str, Any]:
        """Return the settings to report."""
        sizes = self.sizes
        return {
            "records": sizes.records,
            "keys": list(self.growth) or sizes.keys,
            "key_bytes": KEY_SIZE,
            "value_bytes": VALUE_SIZE,
            "batch": sizes.batch,
            "cache_ratio": self.cache_ratio,
            "seed": sizes.seed,
            "repeat": self.repeat,
            "warm_up": sizes.warming,
            "latency_of": "single calls without the commit, which is told apart; of put_many and get_many, a call",
            "clock_ns": clock_ns(),
        }


def runs(contest: Contest, who: Sequence[Contender]) -> int:
    """Return how many runs there are at most."""
    return contest.repeat * sum(_cannot(workload, one) is None for one in who for workload in contest.chosen)


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
        "unit": "operations",
        "settings": contest.settings(),
        "workloads": {one.name: _meaning(one.pattern) for one in contest.chosen},
        "contenders": [one.shown for one in who],
        "results": results,
        "failures": failures,
    }


def broken(figures: dict[str, Any]) -> bool:
    """Return whether a contender failed at something that it can do."""
    return any(failure["reason"] not in TAKING_NO_PART for failure in figures["failures"])


def _meaning(pattern: AnyPattern) -> dict[str, str | None]:
    return {"operation": pattern.operation, "engine": pattern.engine_does}


def _cannot(workload: Workload, contender: Contender) -> str | None:
    """Return why a contender takes no part in a workload; None if it does."""
    pattern = workload.pattern
    if contender.kind == "engine" and pattern.engine_does is None:
        return NO_ENGINE
    if isinstance(pattern, WholeStore) and pattern.needs_disk and not supplier(contender.source).persistent:
        return NOTHING_KEPT
    return None


def _one(contest: Contest, workload: Workload, contender: Contender, number: int) -> dict[str, Any]:
    """Run one contender on one pattern once, and return the result; each run does the same, whatever its number."""
    job_of = partial(
        Job,
        contender.kind,
        contender.source,
        contender.checksums,
        workload.pattern.name,
        workload.sizes,
        cache_bytes(workload.sizes.data_bytes, contest.cache_ratio),
    )
    clean_up = partial(_left_behind, contender)
    return run_alone(_WORKER, job_of, clean_up, directory=contest.directory, timeout_s=contest.timeout_s)


def _left_behind(contender: Contender, directory: Path) -> str | None:
    if contender.kind != "backend":
        return None
    reasons = (left_by_stores(contender.source, directory / local) for local in LOCAL_DIRECTORIES)
    return next((why for why in reasons if why is not None), None)
