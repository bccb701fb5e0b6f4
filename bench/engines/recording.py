"""The steps of workloads on an open engine, and their times over time.

Rule of this module: whatever is not the engine's work is done before the clock starts: the bytes of a value, the form
in which the engine takes rows.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from millpond.bench.engines.engine import Engine, OrderedEngine
from millpond.bench.engines.workloads import WRITES, Kind, Step, rows_of
from millpond.bench.runs.recording import Values, Work, same
from millpond.bench.runs.summary import POINTS


def work_of(engine: Engine, values: Values, kinds: set[Kind]) -> dict[Kind, Work]:
    """Return how an engine does each kind of step that it can do, if none but ``kinds`` are done."""
    put, prepared = engine.put_each, engine.prepared
    lasts = engine.getter_lasts or not kinds & WRITES
    get: Callable[[bytes], Any] = engine.getter() if lasts else lambda key: engine.getter()(key)

    def read_modify_write(keyed: tuple[bytes, Any]) -> None:
        key, rows = keyed
        get(key)
        put(rows)

    writing: Work = (lambda keys: prepared(values.rows(keys)), put)
    return {
        Kind.READ: (same, get),
        Kind.INSERT: writing,
        Kind.UPDATE: writing,
        Kind.READ_MODIFY_WRITE: (lambda key: (key, prepared(values.rows([key]))), read_modify_write),
        Kind.DELETE: (same, engine.delete_each),
        **(_work_in_order(engine, kinds) if isinstance(engine, OrderedEngine) else {}),
    }


def _work_in_order(engine: OrderedEngine, kinds: set[Kind]) -> dict[Kind, Work]:
    walk = {kind: iter(engine.entries(reverse=kind is Kind.PREVIOUS)) for kind in kinds & {Kind.NEXT, Kind.PREVIOUS}}
    return {
        Kind.SCAN: (same, lambda place: engine.scan(*place)),
        **{kind: (same, partial(_step, rows)) for kind, rows in walk.items()},
    }


def over_time(steps: Sequence[Step], times: Sequence[int]) -> list[list[float]]:
    """Return seconds spent in operations, and operations per second in the stretch that ends there, all equally long.

    An operation counts in the stretch in which it ends.
    """
    ends = np.cumsum(np.asarray(times)) / 1e9
    stretches = min(POINTS, len(times))
    counts, edges = np.histogram(ends, stretches, (0, float(ends[-1])), weights=[rows_of(step) for step in steps])
    width = float(ends[-1]) / stretches
    return [[float(edge), float(count) / width] for edge, count in zip(edges[1:], counts, strict=True)]


def _step(rows: Iterator[Any], _: object) -> Any:
    return next(rows)
