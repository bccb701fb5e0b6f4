"""Summaries of several runs, and of the times of many steps."""

from collections.abc import Sequence
from itertools import accumulate
from math import ceil
from statistics import median, median_low
from typing import Any, Final

FEWEST_TIMES: Final = 100
"""The fewest times that have a 99th percentile to speak of."""

POINTS: Final = 100
"""The most points of throughput over time."""

SHARES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99_9": 0.999, "max": 1.0}
"""The share of times that do not exceed a percentile, by its name."""


def throughput(runs: Sequence[float]) -> dict[str, Any]:
    """Return the median of what was done per second, the least and the most, and each run's."""
    return {"median": median(runs), "min": min(runs), "max": max(runs), "runs": list(runs)}


def middle_run(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the run with the median throughput, the slower of two in the middle; with the throughput of all runs."""
    rates = [run["throughput"] for run in runs]
    middle = median_low(rates)
    return {**runs[rates.index(middle)], "throughput": {**throughput(rates), "median": middle}}


def latency_us(times: Sequence[int]) -> dict[str, float]:
    """Return percentiles in microseconds of times in nanoseconds: the least that so many of them did not exceed."""
    ordered = sorted(times)
    return {name: ordered[ceil(share * len(ordered)) - 1] / 1e3 for name, share in SHARES.items()}


def latency_of_many(times: Sequence[int]) -> dict[str, float] | None:
    """Return percentiles as ``latency_us`` does; None if there are fewer than ``FEWEST_TIMES``."""
    return latency_us(times) if len(times) >= FEWEST_TIMES else None


def over_batches(times: Sequence[int], rows: Sequence[int]) -> list[list[float]]:
    """Return seconds since the first batch, and rows per second in the batches since the point before.

    Args:
        times: nanoseconds of each batch.
        rows: of each batch.
    """
    together = -(-len(times) // POINTS)
    starts = range(0, len(times), together)
    stretches = [sum(times[start : start + together]) / 1e9 for start in starts]
    done = [sum(rows[start : start + together]) for start in starts]
    return [[end, count / took] for end, count, took in zip(accumulate(stretches), done, stretches, strict=True)]
