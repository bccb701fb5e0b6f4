"""How figures are measured: several rounds, the median of them, and percentiles of single operations."""

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from time import perf_counter, perf_counter_ns


@dataclass(frozen=True)
class Timing:
    """Operations per second (median of the rounds) and the latency of single operations in microseconds."""

    per_second: float
    p50_us: float | None = None
    p99_us: float | None = None


@contextmanager
def without_gc() -> Iterator[None]:
    """Keep the garbage collector out of a measurement: it would strike the two sides of a comparison at random."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def seconds(work: Callable[[], object]) -> float:
    """How long one call takes."""
    start = perf_counter()
    work()
    return perf_counter() - start


def rate(operations: int, rounds: Sequence[float]) -> float:
    """Operations per second at the median round."""
    return operations / median(rounds)


def percentiles(single: Callable[[int], object], samples: int) -> tuple[float, float]:
    """p50 and p99 in microseconds of ``single(i)`` for ``i`` in ``range(samples)``, each timed on its own."""
    times = []
    for i in range(samples):
        start = perf_counter_ns()
        single(i)
        times.append(perf_counter_ns() - start)
    times.sort()
    return times[samples // 2] / 1000, times[samples * 99 // 100] / 1000
