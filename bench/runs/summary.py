"""What several runs say together."""

from collections.abc import Sequence
from statistics import median, median_low
from typing import Any


def throughput(runs: Sequence[float]) -> dict[str, Any]:
    """The median of what was done per second, the least and the most, and each run's."""
    return {"median": median(runs), "min": min(runs), "max": max(runs), "runs": list(runs)}


def middle_run(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The run whose throughput is the median, of two in the middle the slower one; with the throughput of all runs."""
    rates = [run["throughput"] for run in runs]
    middle = median_low(rates)
    return {**runs[rates.index(middle)], "throughput": {**throughput(rates), "median": middle}}
