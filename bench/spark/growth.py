"""The growth of a micro-batch's time with the state: many micro-batches, each with as many new keys as the last one.

Each contender runs once, in one query. The first micro-batches, in which processes start, do not count; the last ten of
the others are held against the first ten.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median
from typing import Any, Final

from pyspark.sql import SparkSession

from millpond.bench.runs.turns import Watch
from millpond.bench.spark.contest import WARM_UP, Contest
from millpond.bench.spark.workloads import MAP_IN_ARROW, SPARK_JVM, VERBS, named
from millpond.errors import ConfigurationError

KEYS: Final = 10_000_000
"""The default number of keys in the end."""

BATCHES: Final = 50
"""The default number of micro-batches after those that warm up."""

COMPARED: Final = 10
"""The number of micro-batches at either end that are compared."""


def run(contest: Contest, spark: Callable[[], SparkSession], watch: Watch = lambda *_: None) -> dict[str, Any]:
    """Measure one workload while its keys grow.

    Args:
        contest: what is measured; by default verbs and its backends, Spark's JVM operator if the workload has one, and
            the pass-through, which shows how the machine varied.
        spark: gives the session.
        watch: called for each query.

    Returns:
        The settings, the figures of ``Contest.figures``, and for each contender the ratio of the last micro-batches to
        the first. Of one that has failed there is nothing but the reason.

    Raises:
        ConfigurationError: the workload or a contender is unknown, there are fewer than two micro-batches, or they
            have too few rows for so many keys, or a contender runs in Flink.
    """
    if contest.batches < 2:
        raise ConfigurationError(f"growth is seen from the first micro-batches to the last, not in {contest.batches}")
    streams = sorted(set(contest.contenders or ()) & set(contest.work.in_flink))
    if streams:
        raise ConfigurationError(
            f"growth compares micro-batches, and {' and '.join(streams)} have none; leave them out"
        )
    contest = replace(contest, contenders=contest.contenders or default(contest))
    batches = WARM_UP + contest.batches
    seconds, memory = {}, {}
    with contest.hold(spark, batches, growing=True) as runs:
        for name in contest.chosen:
            ran = runs.run(name, WARM_UP, contest.batches)
            watch(contest.workload, name)
            if ran is not None:
                seconds[name], memory[name] = ran.seconds, ran.memory
    return {
        "workload": contest.workload,
        **contest.settings(),
        "backend": contest.backend,
        "seed": contest.seed,
        **contest.figures(seconds, memory),
        "growth": {name: growth(times) for name, times in seconds.items()},
        **({"failed": runs.failed} if runs.failed else {}),
    }


def ends(seconds: Sequence[float]) -> tuple[float, float]:
    """Return the median of the first micro-batches and that of the last ones, which are others."""
    compared = min(COMPARED, len(seconds) // 2)
    return median(seconds[:compared]), median(seconds[-compared:])


def growth(seconds: Sequence[float]) -> float:
    """Return the time of the last micro-batches over that of the first ones."""
    first, last = ends(seconds)
    return last / first


def default(contest: Contest) -> list[str]:
    """Return the contenders that are measured unless somebody says otherwise."""
    known = contest.work.contenders(contest.backends)
    return [name for name in known if name in (VERBS, *named(contest.backends), SPARK_JVM, MAP_IN_ARROW)]
