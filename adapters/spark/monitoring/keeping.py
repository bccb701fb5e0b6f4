"""The records that are kept of a query's progress, for other processes.

Rule of this module: it makes one value of what Spark and Millpond have told, of a size that does not grow with the
tasks beyond the first few hundred.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Final

from millpond.adapters.monitor.kept.micro_batch import (
    STATE,
    Limit,
    MicroBatch,
    Report,
    SourceRead,
    TaskReport,
)
from millpond.adapters.spark.monitoring.measured import LATE, Figure, Measured, is_dropped
from millpond.masking import masked
from millpond.metrics import StoreMetric
from millpond.processors.runtime.metrics import TaskMetric

_BEHIND: Final = "maxOffsetsBehindLatest"
"""The name that Spark's source for Kafka has for the records that its most distant partition has not read yet."""

TASKS: Final = 256
"""The number of an operator's tasks that are told of one by one."""

_OF_TASKS: Final = (
    TaskMetric.RECORDS_IN,
    TaskMetric.RECORDS_OUT,
    TaskMetric.TASK_DURATION,
    TaskMetric.PROCESS_DURATION,
    StoreMetric.OPEN_DURATION,
    StoreMetric.RESTORE_FULL,
    StoreMetric.RESTORE_ROWS,
    StoreMetric.COMMIT_DURATION,
    StoreMetric.COMMIT_ROWS,
    StoreMetric.FILE_DURATION,
    StoreMetric.FILE_SIZE,
)
_HELD: Final = (StoreMetric.COPY_SIZE, StoreMetric.MEMORY_HELD)


def micro_batch(progress: Any, measured: Sequence[Measured]) -> MicroBatch:
    """Return the record that is kept of a micro-batch.

    Args:
        progress: Spark's, of a ``QueryProgressEvent``.
        measured: what Millpond's inputs and operators have told in it.
    """
    return MicroBatch(
        query=str(progress.id),
        run=str(progress.runId),
        name=progress.name or None,
        batch=progress.batchId,
        started=millis(progress.timestamp),
        durations={str(step): int(took) for step, took in progress.durationMs.items()},
        sources=tuple(map(_source, progress.sources)),
        reports=tuple(map(_report, measured)),
        limits=tuple(_limits(measured)),
    )


def millis(timestamp: str) -> int:
    """Return a time of Spark's progress in milliseconds since 1970."""
    return round(datetime.fromisoformat(timestamp).timestamp() * 1000)


def _source(source: Any) -> SourceRead:
    behind = None
    with suppress(KeyError, ValueError):
        behind = int(float(source.metrics[_BEHIND]))
    return SourceRead(masked(source.description), max(0, source.numInputRows), behind)


def _report(one: Measured) -> Report:
    return Report(
        one.application,
        one.operator,
        len(one.tasks),
        _named(one.figures),
        _named(one.dropped),
        _named(one.late),
        _named(one.waiting),
        tuple(_each(one)),
    )


def _each(one: Measured) -> list[TaskReport]:
    """Return the tasks, those with the most records first; a task that Spark has run twice is there once."""
    told = [
        TaskReport(
            place.task,
            _of_task(figures),
            sum(amount for name, amount in place.counts.items() if name.rpartition(":")[2] in LATE),
            sum(amount for name, amount in place.counts.items() if is_dropped(name.rpartition(":")[2])),
            place.keys,
        )
        for figures, place in zip(one.tasks, one.places, strict=True)
        if place.task
    ]
    once = {report.task: report for report in told}
    return sorted(once.values(), key=lambda report: -report.figures.get(TaskMetric.RECORDS_IN, 0))[:TASKS]


def _of_task(figures: Mapping[str, int]) -> dict[str, int]:
    """Return the figures of a task that are kept, those of its stores together."""
    found: dict[str, int] = {}
    for key, amount in figures.items():
        name = key.rpartition(":")[2]
        name = STATE if name in _HELD else name
        if name == STATE or name in _OF_TASKS:
            found[name] = found.get(name, 0) + amount
    return found


def _limits(measured: Sequence[Measured]) -> list[Limit]:
    """Return each limited resource where it is nearest to its limit."""
    nearest: dict[str, Limit] = {}
    for one in measured:
        for figures, place in zip(one.tasks, one.places, strict=True):
            for limit in _limits_of(f"{one.operator} {place.task}", figures):
                known = nearest.get(limit.what)
                if known is None or limit.used * known.limit > known.used * limit.limit:
                    nearest[limit.what] = limit
    return list(nearest.values())


def _limits_of(task: str, figures: Mapping[str, int]) -> Iterator[Limit]:
    size, free = figures.get(StoreMetric.DISK_SIZE), figures.get(StoreMetric.DISK_FREE)
    if size and free is not None:
        yield Limit("disk", task, max(0, size - free), size)
    budget = figures.get(StoreMetric.MEMORY_BUDGET)
    if budget:
        held = sum(amount for name, amount in figures.items() if name.endswith(f":{StoreMetric.MEMORY_HELD}"))
        yield Limit("memory", task, held, budget)


def _named(figures: Mapping[Figure, int]) -> dict[str, int]:
    return {f"{scope}:{name}" if scope else str(name): amount for (scope, name), amount in figures.items()}
