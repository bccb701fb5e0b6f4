"""``millpond bench processors``: every contender on every topology, each run in a fresh process, in turn.

Rule of this module: it opens no store. The contenders of a topology take turns, run after run, so that noise on the
machine affects all alike, and whatever becomes of one of them, the others go on.
"""

import platform
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from millpond.bench.documents import SCHEMA
from millpond.bench.engines.contenders import backend_contenders
from millpond.bench.engines.engine import Use
from millpond.bench.processors.cases import CASES
from millpond.bench.processors.inputs import Sizes
from millpond.bench.processors.worker import Job
from millpond.bench.runs.alone import run_alone
from millpond.bench.runs.asked import check_known, check_turns
from millpond.bench.runs.leftovers import left_by_stores
from millpond.bench.runs.summary import middle_run
from millpond.bench.runs.turns import Watch, in_turn

BACKENDS: Final = ("memory", "lmdb", "rocksdb")
DICT: Final = "dict"
"""The peer: the same work on plain dicts."""

_WORKER: Final = "millpond.bench.processors.worker"


class Contender(NamedTuple):
    """A contender: its entry in reports, and its backend; None for the work on dicts."""

    shown: dict[str, str]
    backend: str | None

    @property
    def label(self) -> str:
        """The name of the contender."""
        return self.shown["label"]


@dataclass(frozen=True)
class Contest:
    """The contest to be measured.

    Args:
        backends: names or URLs of registered backends.
        workloads: names of topologies; all of them if there are none.
        sizes: how much is sent.
        repeat: runs of each contender on each topology.
        profile: also profile each backend on each topology, in one more run.
        directory: where the files go, on the file system to measure; by default the temporary directory.
        timeout_s: seconds after which a run is ended and has failed; None waits for ever.

    Raises:
        ConfigurationError: one of these is unknown or makes no sense.
    """

    backends: Sequence[str]
    workloads: Sequence[str]
    sizes: Sizes
    repeat: int = 3
    profile: bool = True
    directory: Path | None = None
    timeout_s: float | None = None

    def __post_init__(self) -> None:
        check_known("workload", self.workloads, CASES)
        check_turns(self.repeat, self.directory, self.timeout_s)

    @property
    def chosen(self) -> list[str]:
        """The topologies, each once, in the order in which they are listed."""
        return [name for name in CASES if name in self.workloads or not self.workloads]

    def taking_part(self) -> list[Contender]:
        """Return the contenders.

        Raises:
            ConfigurationError: a backend is unknown or has an option that makes no sense.
        """
        backends = backend_contenders(self.backends, Use())
        return [*(Contender(one.shown(), one.source) for one in backends), Contender(_plain(), None)]

    def settings(self) -> dict[str, Any]:
        """Return the settings to report."""
        sizes = self.sizes
        return {
            "records": sizes.records,
            "keys": sizes.keys,
            "batch": sizes.batch_rows,
            "seed": sizes.seed,
            "repeat": self.repeat,
            "warm_up": sizes.warm_up_batches * sizes.batch_rows,
            "latency_of": f"a micro-batch of {sizes.batch_rows:,} records",
        }


def runs(contest: Contest, who: Sequence[Contender]) -> int:
    """Return how many runs there are at most."""
    profiled = sum(one.backend is not None for one in who) if contest.profile else 0
    return len(contest.chosen) * (contest.repeat * len(who) + profiled)


def run(contest: Contest, watch: Watch = lambda workload, contender: None) -> dict[str, Any]:
    """Measure, and return the figures, and failures with their reasons."""
    who = contest.taking_part()
    results: list[dict[str, Any]] = []
    failures: list[dict[str, str]] = []
    profiles: list[dict[str, Any]] = []
    for workload in contest.chosen:
        found, failed = in_turn(workload, who, contest.repeat, partial(_one, contest, workload), watch)
        for one in who:
            about = {"contender": one.label, "workload": workload}
            why = failed.get(one.label)
            if why is None and contest.profile and one.backend is not None:
                profiled = _one(contest, workload, one, profiled=True)
                watch(workload, one.label)
                why = profiled.get("failure")
                profiles.append({**about, "functions": profiled.get("functions", [])})
            if why is None:
                results.append({**about, **middle_run(found[one.label])})
            else:
                failures.append({**about, "reason": why})
    return {
        "schema": SCHEMA,
        "unit": "records",
        "settings": contest.settings(),
        "contenders": [one.shown for one in who],
        "results": results,
        "failures": failures,
        "profiles": [profiled for profiled in profiles if profiled["functions"]],
    }


def _one(
    contest: Contest, workload: str, contender: Contender, number: int = 0, *, profiled: bool = False
) -> dict[str, Any]:
    """Run one contender on one topology once, and return the result; each run does the same, whatever its number."""
    job_of = partial(Job, contender.backend, workload, contest.sizes, profiled)
    clean_up = partial(_left_behind, contender)
    return run_alone(_WORKER, job_of, clean_up, directory=contest.directory, timeout_s=contest.timeout_s)


def _left_behind(contender: Contender, directory: Path) -> str | None:
    return None if contender.backend is None else left_by_stores(contender.backend, directory)


def _plain() -> dict[str, str]:
    return {
        "name": DICT,
        "kind": "peer",
        "label": DICT,
        "version": platform.python_version(),
        "durability": "nothing is stored",
        "cache": "everything is in memory",
        "distribution": "python",
    }
