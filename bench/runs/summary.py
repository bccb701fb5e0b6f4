"""What several runs say together, and what the times of many steps do."""

from collections.abc import Sequence
from statistics import median, median_low
from typing import Any, Final

from millpond.bench.engines.recording import latency_us

FEWEST_TIMES: Final = 100
"""With fewer times there is no 99th percentile to speak of."""


def throughput(runs: Sequence[float]) -> dict[str, Any]:
    """The median of what was done per second, the least and the most, and each run's."""
    return {"median": median(runs), "min": min(runs), "max": max(runs), "runs": list(runs)}


def middle_run(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The run whose throughput is the median, of two in the middle the slower one; with the throughput of all runs."""
    rates = [run["throughput"] for run in runs]
    middle = median_low(rates)
    return {**runs[rates.index(middle)], "throughput": {**throughput(rates), "median": middle}}


def latency_of_many(times: Sequence[int]) -> dict[str, float] | None:
    """Percentiles in microseconds of times in nanoseconds; None if there are fewer than ``FEWEST_TIMES``."""
    return latency_us(times) if len(times) >= FEWEST_TIMES else None
