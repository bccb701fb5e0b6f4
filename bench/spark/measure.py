"""Rows per second of a micro-batch by each contender, in one run.

The contenders run in turn, in three rounds: one to warm up, one in order and one in reverse. The first micro-batches of
a query, in which processes start, do not count; the median of the others does.
"""

from collections.abc import Sequence
from statistics import median
from typing import Any, Final

from millpond.bench.spark.contest import WARM_UP, Contest
from millpond.bench.spark.workers import WorkerMemory
from millpond.bench.spark.workloads import TRANSFORM_WITH_STATE

KEYS: Final = 200_000
"""How many distinct keys there are, unless somebody says otherwise."""

BATCHES: Final = 4
"""How many micro-batches of each query are measured, unless somebody says otherwise."""


def run(contest: Contest) -> dict[str, Any]:
    """Measure one workload.

    Args:
        contest: what is measured; by default all contenders. Of ``transform_with_state``, which is slow, one
            micro-batch counts.

    Returns:
        The figures of ``Contest.figures``; for each contender the median of its micro-batches' seconds and its rows per
        second; the rows per second of the backend over those of each peer.

    Raises:
        ConfigurationError: the workload or a contender is unknown.
    """
    names, backend = list(contest.chosen), contest.backend
    seconds: dict[str, list[float]] = {name: [] for name in names}
    memory = dict.fromkeys(names, WorkerMemory())
    with contest.hold(WARM_UP + contest.batches) as run_first:
        for number, names_of_round in enumerate(_rounds(names)):
            for name in names_of_round:
                contest.say("measuring" if number else "warming up with", name)
                skipped, counted = _micro_batches(name, contest.batches, warming=number == 0)
                ran = run_first(name, skipped + counted)
                seconds[name] += ran.seconds[skipped:]
                memory[name] = memory[name].at_most(ran.memory)
    per_batch = {name: median(times) for name, times in seconds.items()}
    peers = [peer for peer in contest.work.all_peers if {peer, backend} <= set(per_batch)]
    return {
        **contest.figures(seconds, memory),
        "seconds_per_batch": per_batch,
        "rows_per_second": {name: contest.rows / one for name, one in per_batch.items()},
        "ratios": {peer: per_batch[peer] / per_batch[backend] for peer in peers},
    }


def _rounds(names: Sequence[str]) -> list[list[str]]:
    """Who runs when: all to warm up the JVM, then all, then all in reverse, so that nobody gains from its position.

    ``transform_with_state`` takes as long as all the others together, and runs once.
    """
    quick = [name for name in names if name != TRANSFORM_WITH_STATE]
    return [quick, list(names), quick[::-1]]


def _micro_batches(name: str, batches: int, *, warming: bool) -> tuple[int, int]:
    """How many micro-batches of a query do not count, and how many do."""
    if name == TRANSFORM_WITH_STATE:
        return 1, 1
    return WARM_UP, 0 if warming else batches
