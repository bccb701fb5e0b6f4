"""A pattern on a store that is open, or on the engine alone, with a clock; the figures of one run.

Rule of this module: steps and values are made ready while no clock runs. What the store holds is checked at the end,
when the clock has stopped.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from time import perf_counter_ns, process_time
from typing import Any

from millpond.bench.engines.engine import RawEngine
from millpond.bench.measure import peak_bytes, reset_peak, without_gc
from millpond.bench.rows import VALUE_SIZE
from millpond.bench.runs.recording import Values, Work, by_operation, record, same
from millpond.bench.runs.summary import FEWEST_TIMES, latency_of_many, over_batches
from millpond.bench.stores.pattern import Batch, EngineSide, Kind, Plan, Step, rows_of
from millpond.bench.stores.patterns import AnyPattern
from millpond.bench.stores.place import Place
from millpond.bench.stores.sizes import Sizes
from millpond.bench.stores.whole_stores import Restore, WholeStore


def on_store(pattern: AnyPattern, place: Place, sizes: Sizes) -> dict[str, Any]:
    """Return the figures of a pattern on a store.

    Raises:
        LookupError: the store does not hold in the end what it must.
    """
    if isinstance(pattern, WholeStore):
        return _whole(sizes, lambda timed: pattern.on_store(place, sizes, timed))
    plan, values = pattern.plan(sizes), Values(VALUE_SIZE, sizes.seed)
    with place.opened(pattern.spec) as opened:
        figures = _stepwise(plan, lambda: {**pattern.work(opened.store, values), Kind.COMMIT: (same, opened.commit)})
        pattern.check(opened, plan)
    return figures


def on_engine(pattern: AnyPattern, engine: RawEngine, sizes: Sizes, directory: Path) -> dict[str, Any]:
    """Return the figures of ``engine_does`` on the engine alone; other files go to ``directory``."""
    if isinstance(pattern, WholeStore):
        assert isinstance(pattern, Restore), f"{pattern.name} is nothing to an engine alone"
        return _whole(sizes, lambda timed: pattern.on_engine(engine, sizes, directory, timed))
    side, values = EngineSide(engine), Values(VALUE_SIZE, sizes.seed)
    return _stepwise(
        pattern.plan(sizes), lambda: {**pattern.engine_work(side, values), Kind.COMMIT: (same, side.commit)}
    )


def _stepwise(plan: Plan, work_of: Callable[[], Mapping[Kind, Work]]) -> dict[str, Any]:
    """Return the figures of a plan; ``work_of`` is asked again when the store is filled, since readers may be stale."""
    with without_gc():
        record(_joined(plan.filled), work_of())
        work = work_of()
        record(_joined(plan.warm_up), work)
        steps = _joined(plan.batches)
        reset_peak()
        processor = process_time()
        times = record(steps, work)
        processor, peak = process_time() - processor, peak_bytes()
    rows = [sum(map(rows_of, batch)) for batch in plan.batches]
    single = [time for (kind, _), time in zip(steps, times, strict=True) if kind is not Kind.COMMIT]
    return {
        **_figures(sum(rows), sum(times), processor, peak),
        "latency_us": latency_of_many(single),
        "by_operation": by_operation(steps, times, FEWEST_TIMES),
        "over_time": over_batches(_of_batches(plan.batches, times), rows),
    }


def _whole(sizes: Sizes, work: Callable[[Callable[[Callable[[], object]], None]], None]) -> dict[str, Any]:
    """Return the figures of what is done at once."""
    found: dict[str, Any] = {}

    def timed(act: Callable[[], object]) -> None:
        with without_gc():
            reset_peak()
            processor, start = process_time(), perf_counter_ns()
            act()
            took, processor = perf_counter_ns() - start, process_time() - processor
            found.update(_figures(sizes.keys, took, processor, peak_bytes()))

    work(timed)
    return {**found, "latency_us": None}


def _figures(operations: int, took: int, processor: float, peak: int) -> dict[str, Any]:
    return {
        "operations": operations,
        "throughput": operations / (took / 1e9),
        "cpu_s": processor,
        "peak_rss_bytes": peak,
    }


def _joined(batches: Sequence[Batch]) -> list[Step]:
    return list(chain.from_iterable(batches))


def _of_batches(batches: Sequence[Batch], times: Sequence[int]) -> list[int]:
    """Return the nanoseconds of each batch."""
    left = iter(times)
    return [sum(next(left) for _ in batch) for batch in batches]
