"""Steps on an open engine, each with the clock around it, and what the times of one run say.

Rule of this module: whatever is not the engine's work is done outside of the time measured: the choice of the step, the
bytes of its value, the form in which the engine takes rows.
"""

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import compress
from time import perf_counter_ns
from typing import Any, Final

import numpy as np

from millpond.bench.engines.engine import Engine, OrderedEngine
from millpond.bench.engines.workloads import WRITES, Kind, Step, rows_of
from millpond.bench.runs.summary import POINTS, latency_us

_POOL: Final = 2**20
_CALLS: Final = 20_000

Work = tuple[Callable[[Any], Any], Callable[[Any], object]]
"""What makes an argument ready before the clock starts, and what is measured."""


class Values:
    """Values of one size, bytes that do not compress, each an object of its own as a store in memory has to keep it."""

    def __init__(self, size: int, seed: int) -> None:
        self._size = size
        self._pool = np.random.default_rng(seed).bytes(_POOL + size)
        self._place = 0

    def next(self) -> bytes:
        """The next value."""
        self._place = (self._place + self._size + 1) % _POOL
        return self._pool[self._place : self._place + self._size]

    def rows(self, keys: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
        """Each key with a value."""
        return [(key, self.next()) for key in keys]


def work_of(engine: Engine, values: Values, kinds: set[Kind]) -> dict[Kind, Work]:
    """How an engine does each kind of step that it can do, if none but ``kinds`` are done."""
    put, prepared = engine.put_each, engine.prepared
    lasts = engine.getter_lasts or not kinds & WRITES
    get: Callable[[bytes], Any] = engine.getter() if lasts else lambda key: engine.getter()(key)

    def read_modify_write(keyed: tuple[bytes, Any]) -> None:
        key, rows = keyed
        get(key)
        put(rows)

    writing: Work = (lambda keys: prepared(values.rows(keys)), put)
    return {
        Kind.READ: (_same, get),
        Kind.INSERT: writing,
        Kind.UPDATE: writing,
        Kind.READ_MODIFY_WRITE: (lambda key: (key, prepared(values.rows([key]))), read_modify_write),
        Kind.DELETE: (_same, engine.delete_each),
        **(_work_in_order(engine, kinds) if isinstance(engine, OrderedEngine) else {}),
    }


def _work_in_order(engine: OrderedEngine, kinds: set[Kind]) -> dict[Kind, Work]:
    walk = {kind: iter(engine.entries(reverse=kind is Kind.PREVIOUS)) for kind in kinds & {Kind.NEXT, Kind.PREVIOUS}}
    return {
        Kind.SCAN: (_same, lambda place: engine.scan(*place)),
        **{kind: (_same, partial(_step, rows)) for kind, rows in walk.items()},
    }


def record(steps: Sequence[Step], work: Mapping[Kind, Work]) -> "array[int]":
    """Do the steps; nanoseconds of each."""
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
    """What an operation that does nothing is recorded with, at the median: the least latency that can be told."""
    times = record([(Kind.READ, None)] * _CALLS, {Kind.READ: (_same, _same)})
    return sorted(times)[_CALLS // 2]


def by_operation(steps: Sequence[Step], times: Sequence[int]) -> dict[str, dict[str, float]] | None:
    """Percentiles of each kind of step, None where there is one kind alone."""
    kinds = [kind for kind, _ in steps]
    if len(set(kinds)) == 1:
        return None
    return {name: latency_us(list(compress(times, (kind == name for kind in kinds)))) for name in sorted(set(kinds))}


def over_time(steps: Sequence[Step], times: Sequence[int]) -> list[list[float]]:
    """Seconds spent in operations, and operations per second in the stretch that ends there; all stretches are as long.

    An operation counts in the stretch in which it ends.
    """
    ends = np.cumsum(np.asarray(times)) / 1e9
    stretches = min(POINTS, len(times))
    counts, edges = np.histogram(ends, stretches, (0, float(ends[-1])), weights=[rows_of(step) for step in steps])
    width = float(ends[-1]) / stretches
    return [[float(edge), float(count) / width] for edge, count in zip(edges[1:], counts, strict=True)]


def _step(rows: Iterator[Any], _: object) -> Any:
    return next(rows)


def _same(argument: Any) -> Any:
    return argument
