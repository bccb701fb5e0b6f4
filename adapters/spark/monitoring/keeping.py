"""What is kept of the progress of a query, for those who watch it from another process.

Rule of this module: it makes one value of what Spark and Millpond have told, and keeps nothing of single tasks.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Final

from millpond.adapters.monitor.micro_batch import MicroBatch, Report, SourceRead
from millpond.adapters.spark.monitoring.measured import Figure, Measured
from millpond.masking import masked

_BEHIND: Final = "maxOffsetsBehindLatest"
"""What Spark's source for Kafka calls the records that its most distant partition has not read yet."""


def micro_batch(progress: Any, measured: Sequence[Measured]) -> MicroBatch:
    """What is kept of a micro-batch.

    Args:
        progress: Spark's, of a ``QueryProgressEvent``.
        measured: what Millpond's inputs and operators have told in it.
    """
    return MicroBatch(
        query=str(progress.id),
        run=str(progress.runId),
        name=progress.name or None,
        batch=progress.batchId,
        started=round(datetime.fromisoformat(progress.timestamp).timestamp() * 1000),
        durations={str(step): int(took) for step, took in progress.durationMs.items()},
        sources=tuple(map(_source, progress.sources)),
        reports=tuple(map(_report, measured)),
    )


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
    )


def _named(figures: Mapping[Figure, int]) -> dict[str, int]:
    return {f"{scope}:{name}" if scope else str(name): amount for (scope, name), amount in figures.items()}
