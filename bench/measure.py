"""The measuring of figures: rounds and their median, percentiles of single operations, and the cost of one call."""

import gc
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter, perf_counter_ns, process_time

from millpond.bench.report import resident_bytes

_PEAK = re.compile(r"^VmHWM:\s+(\d+) kB$", re.MULTILINE)


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
    """Return how long one call takes."""
    start = perf_counter()
    work()
    return perf_counter() - start


@dataclass(frozen=True)
class Cost:
    """The cost of one call: seconds, seconds of the processor, and bytes of memory beyond those in use before."""

    wall_s: float
    processor_s: float
    peak_bytes: int


def cost(work: Callable[[], object]) -> Cost:
    """Return the cost of one call; no other thread of this process may do anything meanwhile."""
    before = resident_bytes()
    reset_peak()
    wall, processor = perf_counter(), process_time()
    work()
    wall, processor = perf_counter() - wall, process_time() - processor
    return Cost(wall, processor, max(0, peak_bytes() - before))


def reset_peak() -> None:
    """Count the peak of this process's memory from now on."""
    Path("/proc/self/clear_refs").write_text("5")


def peak_bytes() -> int:
    """Return the most memory that this process had in RAM since the last ``reset_peak``."""
    found = _PEAK.search(Path("/proc/self/status").read_text())
    assert found is not None, "the system does not tell the peak of a process's memory"
    return int(found[1]) << 10


def bytes_below(directory: Path) -> int:
    """Return the bytes that files below a directory take on the disk; a file that goes meanwhile takes none."""
    total = 0
    for path in directory.rglob("*"):
        try:
            total += path.stat().st_blocks * 512 if path.is_file() else 0
        except FileNotFoundError:
            continue
    return total


def rate(operations: int, rounds: Sequence[float]) -> float:
    """Return the operations per second at the median round."""
    return operations / median(rounds)


def percentiles(single: Callable[[int], object], samples: int) -> tuple[float, float]:
    """Return p50 and p99 in microseconds of ``single(i)`` for ``i`` in ``range(samples)``, each timed on its own."""
    times = []
    for i in range(samples):
        start = perf_counter_ns()
        single(i)
        times.append(perf_counter_ns() - start)
    times.sort()
    return times[samples // 2] / 1000, times[samples * 99 // 100] / 1000
