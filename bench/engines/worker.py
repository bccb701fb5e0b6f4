"""One run of one contender on one workload, in a process of its own.

Rule of this module: it is a program, which ``millpond.bench.runs.process`` starts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import process_time
from typing import Any, Final

from millpond.bench.engines.contenders import ContenderKind, opener, teller
from millpond.bench.engines.engine import Engine, Use
from millpond.bench.engines.recording import over_time, work_of
from millpond.bench.engines.workloads import WORKLOADS, WRITES, Kind, Plan, Sizes, Step, rows_of
from millpond.bench.measure import bytes_below, peak_bytes, reset_peak, without_gc
from millpond.bench.runs.job import RunJob
from millpond.bench.runs.process import answer
from millpond.bench.runs.recording import Values, by_operation, record
from millpond.bench.runs.summary import latency_us

LOAD_BATCH: Final = 1_000
"""Rows of a write while the store is filled before a workload."""


@dataclass(frozen=True)
class Job(RunJob):
    """The run to make: a contender by its kind and source, and a workload."""

    kind: ContenderKind
    source: str
    workload: str
    sizes: Sizes
    run: int
    cache_bytes: int | None
    synced: bool


def measure(job: Job) -> dict[str, Any]:
    """Fill the store, warm it up, and do the steps of the workload; the figures of this run."""
    directory, plan = Path(job.directory), WORKLOADS[job.workload].plan(job.sizes, job.run)
    kind, use = opener(job.kind, job.source, Use(None, job.cache_bytes, job.synced))
    engine = kind(directory, use)
    try:
        figures = _run(engine, plan, Values(job.sizes.value_bytes, job.sizes.seed))
    finally:
        engine.close()
    told = teller(job.kind, job.source)
    written = None if told is None else told.bytes_written(directory)
    given = _bytes_given(plan, job.sizes)
    return {
        **figures,
        "disk_bytes": bytes_below(directory),
        "write_amplification": None if written is None else written / given,
    }


def _run(engine: Engine, plan: Plan, values: Values) -> dict[str, Any]:
    _load(engine, plan.loaded, values)
    kinds = {kind for kind, _ in plan.steps}
    with without_gc():
        record(plan.warm_up, work_of(engine, values, kinds))
        work = work_of(engine, values, kinds)
        reset_peak()
        processor = process_time()
        times = record(plan.steps, work)
        processor, peak = process_time() - processor, peak_bytes()
    operations = sum(map(rows_of, plan.steps))
    return {
        "operations": operations,
        "throughput": operations / (sum(times) / 1e9),
        "latency_us": latency_us(times),
        "by_operation": by_operation(plan.steps, times),
        "over_time": over_time(plan.steps, times),
        "cpu_s": processor,
        "peak_rss_bytes": peak,
    }


def _load(engine: Engine, keys: Sequence[bytes], values: Values) -> None:
    """Fill the store, and see that it has what it was given."""
    for start in range(0, len(keys), LOAD_BATCH):
        rows = values.rows(keys[start : start + LOAD_BATCH])
        engine.put_each(engine.prepared(rows))
        if engine.getter()(rows[0][0]) is None:
            raise LookupError(f"the key {rows[0][0]!r} was written and is not there")


def _bytes_given(plan: Plan, sizes: Sizes) -> int:
    """Return the bytes of the keys and values that the engine was given to write, all in all."""
    row = sizes.key_bytes + sizes.value_bytes
    return row * len(plan.loaded) + sum(_written(step, sizes) for step in (*plan.warm_up, *plan.steps))


def _written(step: Step, sizes: Sizes) -> int:
    kind, _ = step
    if kind not in WRITES:
        return 0
    return rows_of(step) * (sizes.key_bytes + (0 if kind is Kind.DELETE else sizes.value_bytes))


if __name__ == "__main__":
    answer(Job.of, measure)
