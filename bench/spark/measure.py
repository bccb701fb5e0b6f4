"""Rows per second of a micro-batch by each contender, in one run.

The contenders run in turn: one round to warm up, then, unless somebody says otherwise, one in order and one in reverse.
The first micro-batches of a query, in which processes start, do not count; the median of the others does. Flink's rates
are those of a job that runs; what they are with its start-up is reported beside them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final

from pyspark.sql import SparkSession

from millpond.bench.flink.jobs import Streamed
from millpond.bench.flink.settings import CHECKPOINT_SECONDS
from millpond.bench.runs.turns import Watch
from millpond.bench.spark.contest import WARM_UP, Contest
from millpond.bench.spark.workers import WorkerMemory
from millpond.bench.spark.workloads import TRANSFORM_WITH_STATE

KEYS: Final = 200_000
"""The default number of distinct keys."""

BATCHES: Final = 4
"""The default number of measured micro-batches of each query."""


@dataclass
class Measured:
    """The measurements of one workload, by contender; for one that has failed, the reason only.

    Attributes:
        contest: what it was.
        seconds: of the micro-batches that count.
        memory: of Python workers.
        disk: bytes of durable state, zero for none.
        processor: seconds that all processes spent on the micro-batches that count, zero if that is not known.
        streams: how jobs did that have no micro-batches, each time.
        failed: why contenders have failed.
    """

    contest: Contest
    seconds: dict[str, list[float]]
    memory: dict[str, WorkerMemory]
    disk: dict[str, int]
    processor: dict[str, float]
    streams: dict[str, list[Streamed]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    @property
    def per_batch(self) -> dict[str, float]:
        """The median of the seconds of micro-batches."""
        return {name: median(times) for name, times in self.seconds.items()}

    @property
    def ratios(self) -> dict[str, float]:
        """The rows per second of the first of Millpond's contenders over those of each peer."""
        per_batch, foremost = self.per_batch, self.contest.foremost
        if foremost not in per_batch:
            return {}
        known = [*self.contest.work.all_peers, *self.contest.work.in_flink]
        return {peer: per_batch[peer] / per_batch[foremost] for peer in known if peer in per_batch}


def run(contest: Contest, spark: Callable[[], SparkSession], watch: Watch = lambda *_: None) -> Measured:
    """Measure one workload.

    Args:
        contest: what is measured; by default all contenders. Of ``transform_with_state``, which is slow, one
            micro-batch counts.
        spark: gives the session.
        watch: called for each query.

    Raises:
        ConfigurationError: the workload or a contender is unknown.
    """
    names = list(contest.chosen)
    found = Measured(
        contest,
        seconds={name: [] for name in names},
        memory=dict.fromkeys(names, WorkerMemory()),
        disk=dict.fromkeys(names, 0),
        processor=dict.fromkeys(names, 0.0),
    )
    with contest.hold(spark, WARM_UP + contest.batches) as runs:
        for number, names_of_round in enumerate(rounds(names, contest.repeat)):
            for name in names_of_round:
                skipped, counted = _micro_batches(name, contest.batches, warming=number == 0)
                ran = runs.run(name, skipped, counted)
                watch(contest.workload, name)
                if ran is None:
                    continue
                found.seconds[name] += ran.seconds
                found.memory[name] = found.memory[name].at_most(ran.memory)
                found.disk[name] = max(found.disk[name], ran.disk)
                found.processor[name] += ran.processor
                if ran.stream is not None:
                    found.streams.setdefault(name, []).append(ran.stream)
    found.failed = runs.failed
    for name in runs.failed:
        del found.seconds[name]
        found.streams.pop(name, None)
    return found


def of_streams(
    streams: Mapping[str, Sequence[Streamed]], per_batch: Mapping[str, float], contest: Contest
) -> dict[str, Any]:
    """Return figures of jobs without micro-batches, if there are any: medians of their rounds."""
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


def rounds(names: Sequence[str], repeat: int) -> list[list[str]]:
    """Return the order of runs: all to warm up the JVM, then all in each turn, every other time in reverse.

    So none gains from its position. ``transform_with_state`` takes as long as all the others together, and runs once.
    """
    quick = [name for name in names if name != TRANSFORM_WITH_STATE]
    turns = [quick if turn else list(names) for turn in range(repeat)]
    return [quick, *(turn[:: -1 if number % 2 else 1] for number, turn in enumerate(turns))]


def _micro_batches(name: str, batches: int, *, warming: bool) -> tuple[int, int]:
    """Return how many micro-batches of a query do not count, and how many do."""
    if name == TRANSFORM_WITH_STATE:
        return 1, 1
    return WARM_UP, 0 if warming else batches
