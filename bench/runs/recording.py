"""Steps, each with the clock around it, and the times of each kind of step in one run.

Rule of this module: it knows no engine and no store. Whatever is not the measured one's work is done outside of the
time measured: the choice of the step, the bytes of its value, the form in which rows are taken.
"""

from array import array
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import compress
from time import perf_counter_ns
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np

from millpond.bench.runs.summary import latency_us

_POOL: Final = 2**20
_CALLS: Final = 20_000

K = TypeVar("K", bound=str)
"""The names of kinds of steps."""

Work: TypeAlias = tuple[Callable[[Any], Any], Callable[[Any], object]]
"""The function that makes an argument ready before the clock starts, and the function that is measured."""


class Values:
    """Values of one size, bytes that do not compress, each an object of its own as a store in memory has to keep it."""

    def __init__(self, size: int, seed: int) -> None:
        self._size = size
        self._pool = np.random.default_rng(seed).bytes(_POOL + size)
        self._place = 0

    def next(self) -> bytes:
        """Return the next value."""
        self._place = (self._place + self._size + 1) % _POOL
        return self._pool[self._place : self._place + self._size]

    def rows(self, keys: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
        """Return each key with a value."""
        return [(key, self.next()) for key in keys]


def record(steps: Sequence[tuple[K, Any]], work: Mapping[K, Work]) -> "array[int]":
    """Do the steps, which are kinds with their arguments; nanoseconds of each."""
    times = array("q", bytes(8 * len(steps)))
    clock = perf_counter_ns
    for place, (kind, argument) in enumerate(steps):
        make_ready, act = work[kind]
        ready = make_ready(argument)
        start = clock()
        act(ready)
        times[place] = clock() - start
    return times


def clock_ns() -> int:
    """Return the recorded time of an operation that does nothing, at the median: the least latency that can be told."""
    times = record([("nothing", None)] * _CALLS, {"nothing": (same, same)})
    return sorted(times)[_CALLS // 2]


def by_operation(
    steps: Sequence[tuple[K, Any]], times: Sequence[int], fewest: int = 1
) -> dict[str, dict[str, float]] | None:
    """Return percentiles of each kind of step with ``fewest`` times or more, None if there is one kind alone."""
    kinds = [kind for kind, _ in steps]
    counts = Counter(kinds)
    if len(counts) == 1:
        return None
    return {
        name: latency_us(list(compress(times, (kind == name for kind in kinds))))
        for name in sorted(counts)
        if counts[name] >= fewest
    }


def same(argument: Any) -> Any:
    """Return the argument, which is ready as it is."""
    return argument
