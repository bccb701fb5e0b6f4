"""The flow of records: batch times, rates, lag, and dropped, late or waiting records, from the kept progress.

Rule of this module: it computes and reads nothing.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from millpond.adapters.monitor.kept.micro_batch import STATE, TRIGGER, MicroBatch, Report, TaskReport
from millpond.adapters.monitor.overview import BatchSeen, HotKey, OperatorSeen, Reason, SourceSeen, TaskWork
from millpond.metrics import StoreMetric
from millpond.processors.runtime.metrics import TaskMetric

OTHER: Final = "other"
_WORK: Final = {
    "open": StoreMetric.OPEN_DURATION,
    "process": TaskMetric.PROCESS_DURATION,
    "flush": TaskMetric.FLUSH_DURATION,
    "commit": StoreMetric.COMMIT_DURATION,
}
_MILLISECOND: Final = 1_000
_HOT_KEYS: Final = 10


def batches_seen(
    kept: Sequence[MicroBatch], begun: Mapping[int, int], committed: Mapping[int, int], count: int
) -> list[BatchSeen]:
    """Return the last ``count`` micro-batches that have ended, the first one first.

    Args:
        kept: their progress, as far as there is any.
        begun: when each was begun, as the checkpoint has it.
        committed: when each was committed, as the checkpoint has it.
        count: how many.
    """
    by_number = {one.batch: one for one in kept}
    numbers = sorted({*by_number, *committed})[-count:] if count else []
    return [
        _seen(number, by_number.get(number), by_number.get(number - 1), begun.get(number), committed.get(number))
        for number in numbers
    ]


def _seen(
    number: int, one: MicroBatch | None, before: MicroBatch | None, begun: int | None, committed: int | None
) -> BatchSeen:
    if one is None:
        took = None if begun is None or committed is None else max(0, committed - begun)
        return BatchSeen(number, begun, committed, took, None, None, None, {}, {})
    took, rows = one.durations.get(TRIGGER), sum(source.rows for source in one.sources)
    steps = {name: spent for name, spent in one.durations.items() if name != TRIGGER and spent > 0}
    if took is not None and took > sum(steps.values()):
        steps[OTHER] = took - sum(steps.values())
    work: dict[str, float] = {}
    for report in one.reports:
        for name, spent in _work(report).items():
            work[name] = work.get(name, 0.0) + spent
    since = None if before is None else one.started - before.started
    return BatchSeen(number, one.started, committed, took, rows, _rate(rows, since), _rate(rows, took), steps, work)


def sources_seen(kept: Sequence[MicroBatch]) -> list[SourceSeen]:
    """Return the sources in the last micro-batch that was kept."""
    if not kept:
        return []
    since = kept[-1].started - kept[-2].started if len(kept) > 1 and kept[-2].batch == kept[-1].batch - 1 else None
    return [SourceSeen(one.name, one.rows, _rate(one.rows, since), one.behind) for one in kept[-1].sources]


def operators_seen(kept: Sequence[MicroBatch]) -> list[OperatorSeen]:
    """Return inputs and operators, each in the last micro-batch in which tasks of it were run; inputs first."""
    last: dict[tuple[str, str], tuple[int, Report]] = {}
    files: dict[tuple[str, str], int] = {}
    for one in kept:
        for report in one.reports:
            place = report.application, report.operator
            if report.tasks or place not in last:
                last[place] = one.batch, report
            if StoreMetric.FILES_RETAINED in report.figures:
                files[place] = report.figures[StoreMetric.FILES_RETAINED]
    return sorted(
        (_operator(batch, report, files.get(place)) for place, (batch, report) in last.items()),
        key=lambda one: (one.application, one.lag is not None, one.operator),
    )


def _operator(batch: int, report: Report, files: int | None) -> OperatorSeen:
    lag, time = report.figures.get(TaskMetric.STREAM_LAG), report.figures.get(TaskMetric.STREAM_TIME)
    return OperatorSeen(
        report.application,
        report.operator,
        batch,
        report.tasks,
        report.figure(TaskMetric.RECORDS_IN),
        report.figure(TaskMetric.RECORDS_OUT),
        None if lag is None else lag // _MILLISECOND,
        None if time is None else time // _MILLISECOND,
        sum(report.dropped.values()),
        sum(report.late.values()),
        sum(report.waiting.values()),
        _work(report),
        files,
    )


def work_seen(kept: Sequence[MicroBatch]) -> list[TaskWork]:
    """Return what each task did in the last micro-batch in which it ran, those with the most records first."""
    last: dict[tuple[str, str, str], TaskWork] = {}
    for one in kept:
        for report in one.reports:
            for task in report.each:
                last[report.application, report.operator, task.task] = _task(one.batch, report, task)
    return sorted(last.values(), key=lambda one: (-one.records_in, one.application, one.operator, one.task))


def _task(batch: int, report: Report, task: TaskReport) -> TaskWork:
    figures = task.figures
    spent = {name: figures.get(figure, 0) / _MILLISECOND for name, figure in _WORK.items()}
    return TaskWork(
        report.application,
        report.operator,
        task.task,
        batch,
        figures.get(TaskMetric.RECORDS_IN, 0),
        figures.get(TaskMetric.RECORDS_OUT, 0),
        task.late,
        task.dropped,
        figures.get(StoreMetric.COMMIT_ROWS, 0),
        figures.get(StoreMetric.FILE_SIZE, 0),
        figures.get(STATE),
        spent["open"],
        spent["process"],
        spent["commit"],
        figures.get(TaskMetric.TASK_DURATION, 0) / _MILLISECOND,
    )


def hot_keys_seen(kept: Sequence[MicroBatch]) -> list[HotKey]:
    """Return the keys that most records of an operator have, in the last micro-batch in which it had records."""
    last: dict[tuple[str, str], list[HotKey]] = {}
    for one in kept:
        for report in one.reports:
            taken = report.figure(TaskMetric.RECORDS_IN)
            if report.each and taken:
                last[report.application, report.operator] = [
                    HotKey(report.application, report.operator, task.task, key, records, min(1.0, records / taken))
                    for task in report.each
                    for key, records in task.keys.items()
                ]
    return sorted((key for keys in last.values() for key in keys), key=lambda one: -one.share)[:_HOT_KEYS]


def reasons_seen(kept: Sequence[MicroBatch]) -> list[Reason]:
    """Return the records dropped or late in all kept micro-batches, and those that wait after the last run of tasks."""
    totals: Counter[tuple[str, str]] = Counter()
    waiting: dict[str, Mapping[str, int]] = {}
    for one in kept:
        for report in one.reports:
            totals.update(
                {(report.operator, name): records for name, records in {**report.dropped, **report.late}.items()}
            )
            if report.tasks:
                waiting[report.operator] = report.waiting
    for operator, waits in waiting.items():
        totals.update({(operator, name): records for name, records in waits.items()})
    named = ((operator, *name.rpartition(":"), records) for (operator, name), records in totals.items())
    found = [Reason(operator, node, reason, records) for operator, node, _, reason, records in named if records]
    return sorted(found, key=lambda one: (one.operator, one.node, one.reason))


def _work(report: Report) -> dict[str, float]:
    """Return the time that an operator's tasks took for each kind of work, in milliseconds; the rest is ``other``."""
    micros = {name: report.figure(figure) for name, figure in _WORK.items()}
    micros[OTHER] = max(0, report.figure(TaskMetric.TASK_DURATION) - sum(micros.values()))
    return {name: spent / _MILLISECOND for name, spent in micros.items() if spent}


def _rate(rows: int, millis: int | None) -> float | None:
    return None if not millis or millis < 0 else rows * 1000 / millis
