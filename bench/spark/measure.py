"""Rows per second of a micro-batch by each contender, in one run.

The contenders run in turn, in three rounds: one to warm up, one in order and one in reverse. The first micro-batches of
a query, in which processes start, do not count; the median of the others does. Flink's rates are those of a job that
runs; what they are with its start-up is reported beside them.
"""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, Final

from millpond.bench.spark.contest import WARM_UP, Contest
from millpond.bench.spark.flink.queries import CHECKPOINT_SECONDS
from millpond.bench.spark.queries import Streamed
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
        second; the rows per second of the backend over those of each peer; where some run in Flink, how they did. Of a
        contender that has failed there is nothing but the reason.

    Raises:
        ConfigurationError: the workload or a contender is unknown.
    """
    names, backend = list(contest.chosen), contest.backend
    seconds: dict[str, list[float]] = {name: [] for name in names}
    memory = dict.fromkeys(names, WorkerMemory())
    streams: dict[str, list[Streamed]] = {}
    with contest.hold(WARM_UP + contest.batches) as runs:
        for number, names_of_round in enumerate(_rounds(names)):
            for name in names_of_round:
                contest.say("measuring" if number else "warming up with", name)
                skipped, counted = _micro_batches(name, contest.batches, warming=number == 0)
                ran = runs.run(name, skipped, counted)
                if ran is None:
                    continue
                seconds[name] += ran.seconds
                memory[name] = memory[name].at_most(ran.memory)
                if ran.stream is not None:
                    streams.setdefault(name, []).append(ran.stream)
    seconds = {name: times for name, times in seconds.items() if name not in runs.failed}
    streams = {name: rounds for name, rounds in streams.items() if name in seconds}
    per_batch = {name: median(times) for name, times in seconds.items()}
    known = [*contest.work.all_peers, *contest.work.in_flink]
    peers = [peer for peer in known if {peer, backend} <= set(per_batch)]
    return {
        **contest.figures(seconds, memory, runs.failed),
        **of_streams(streams, per_batch, contest),
        "seconds_per_batch": per_batch,
        "rows_per_second": {name: contest.rows / one for name, one in per_batch.items()},
        "ratios": {peer: per_batch[peer] / per_batch[backend] for peer in peers},
    }


def of_streams(
    streams: Mapping[str, Sequence[Streamed]], per_batch: Mapping[str, float], contest: Contest
) -> dict[str, Any]:
    """What there is to say of jobs without micro-batches, if there are any: medians of their rounds."""
    if not streams:
        return {}
    start_up = {name: median(one.start_up for one in rounds) for name, rounds in streams.items()}
    whole = {name: seconds + contest.batches * per_batch[name] for name, seconds in start_up.items()}
    return {
        "flink": {
            "versions": next(iter(streams.values()))[0].versions,
            "checkpoint_seconds": CHECKPOINT_SECONDS,
            "checkpoints": {name: [one.checkpoints for one in rounds] for name, rounds in streams.items()},
            "start_up_seconds": start_up,
            "rows_per_second_with_start_up": {
                name: contest.rows * contest.batches / seconds for name, seconds in whole.items()
            },
        }
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
