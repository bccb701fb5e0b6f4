"""Rules of a query's load: a key that has most records, lag that grows, storage that is slow.

Rule of this module: a rule is a function of figures alone.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from millpond.adapters.monitor.diagnosis import thresholds as at_least
from millpond.adapters.monitor.diagnosis import units
from millpond.adapters.monitor.diagnosis.figures import Figures
from millpond.adapters.monitor.diagnosis.finding import Finding, State
from millpond.adapters.monitor.kept.history import Point
from millpond.adapters.monitor.kept.micro_batch import MicroBatch, Report
from millpond.metrics import StoreMetric
from millpond.processors.runtime.metrics import TaskMetric

_MICROS: Final = 1_000


def skewed_key(figures: Figures) -> Finding | None:
    """Find a key that has half of an operator's records, or more, again and again."""
    loads: dict[tuple[str, str], list[tuple[MicroBatch, Report]]] = {}
    tasks: Counter[tuple[str, str]] = Counter()
    for one in figures.batches:
        for report in one.reports:
            place = report.application, report.operator
            tasks[place] = max(tasks[place], report.tasks)
            if report.each and report.figure(TaskMetric.RECORDS_IN) >= at_least.SKEW_RECORDS:
                loads.setdefault(place, []).append((one, report))
    for place, told in loads.items():
        if tasks[place] > 1 and (found := _skew(told)) is not None:
            return found
    return None


def _skew(told: Sequence[tuple[MicroBatch, Report]]) -> Finding | None:
    hottest = [_hottest(report) for _, report in told]
    key, share, task = hottest[-1]
    since = None
    for (one, _), (_, its_share, _) in zip(reversed(told), reversed(hottest), strict=True):
        if its_share < at_least.SKEW_SHARE:  # whichever key it was: some are those of an hour, or of a file
            break
        since = one
    count = 0 if since is None else sum(one.batch >= since.batch for one, _ in told)
    if since is None or count < at_least.IN_A_ROW:
        return None
    report = told[-1][1]
    took = {one.task: one.figures.get(TaskMetric.TASK_DURATION, 0) / _MICROS for one in report.each}
    rest = [spent for name, spent in took.items() if name != task]
    others = f", the others {units.duration(sum(rest) / len(rest))} on average" if rest else ""
    return Finding(
        State.SKEW,
        f"key {key} has {share:.0%} of the {units.number(report.figure(TaskMetric.RECORDS_IN))} records of "
        f"{report.operator} in the last micro-batch, and one key half or more in each of the last {count}; its task "
        f"{task} took {units.duration(took.get(task))}{others}",
        since.started,
        "spread it: a key with one more column, whose results are combined behind it; or filter the key out before, if "
        "it stands for a missing value",
    )


def _hottest(report: Report) -> tuple[str, float, str]:
    """Return the key that most records of an operator have, the share that it has of them, and its task."""
    totals: Counter[str] = Counter()
    tasks: dict[str, str] = {}
    for one in report.each:
        for key, records in one.keys.items():
            totals[key] += records
            tasks.setdefault(key, one.task)
    if not totals:
        return "", 0.0, ""
    ((key, records),) = totals.most_common(1)
    return key, min(1.0, records / max(1, report.figure(TaskMetric.RECORDS_IN))), tasks[key]


def growing_lag(figures: Figures) -> Finding | None:
    """Find a lag that grows while micro-batches follow each other without a pause."""
    if figures.ended or not figures.batches:
        return None
    last = figures.batches[-1]
    if figures.at - (last.started + last.took) > at_least.LAG_SPAN and figures.open_batch is None:
        return None
    for name in ("lag", "behind"):
        points = [point for point in figures.history.minutes if getattr(point, name) is not None]
        window = _window(points)
        amounts = [getattr(point, name) for point in window]
        if window and _is_busy(window, last) and _rises(amounts, window, name):
            said = units.duration if name == "lag" else units.number
            what = "lag" if name == "lag" else "the records that a source is behind"
            return Finding(
                State.LAG,
                f"{what} went from {said(amounts[0])} to {said(amounts[-1])} in "
                f"{units.duration(window[-1].at - window[0].at)}, in which micro-batches took "
                f"{_busy(window, last):.0%} of the time",
                _since(points, name),
                "give the query more partitions and cores, or larger micro-batches; see what its tasks spend time on, "
                "and whether one of them has most of it",
            )
    return None


def _window(points: Sequence[Point]) -> Sequence[Point]:
    """Return the last points that span the time that is looked at; none if there are too few."""
    for place in range(len(points) - at_least.LAG_POINTS, -1, -1):
        if points[-1].at - points[place].at >= at_least.LAG_SPAN:
            return points[place:]
    return ()


def _is_busy(window: Sequence[Point], last: MicroBatch) -> bool:
    return _busy(window, last) >= at_least.LAG_BUSY


def _busy(window: Sequence[Point], last: MicroBatch) -> float:
    """Return the share of the time that micro-batches took."""
    elapsed = max(1, last.started + last.took - window[0].at)
    return min(1.0, sum(point.took for point in window) / elapsed)


def _rises(amounts: Sequence[int], window: Sequence[Point], name: str) -> bool:
    """Return whether a series rises from each third to the next, enough to count."""
    third = len(amounts) // 3
    parts = [amounts[:third], amounts[third : 2 * third], amounts[2 * third :]]
    means = [sum(part) / len(part) for part in parts]
    rise = amounts[-1] - amounts[0]
    span = window[-1].at - window[0].at
    enough = rise >= span * at_least.LAG_RISE if name == "lag" else rise >= amounts[0] * at_least.LAG_RISE and rise > 0
    return means[0] < means[1] < means[2] and enough and amounts[-1] >= max(amounts[:-1])


def _since(points: Sequence[Point], name: str) -> int:
    """Return the time of the series' lowest point, of the points since which it has only risen."""
    lowest = len(points) - 1
    for place in range(len(points) - 1, -1, -1):
        amount = getattr(points[place], name)
        if amount <= getattr(points[lowest], name):
            lowest = place
        elif points[lowest].at - points[place].at > at_least.LAG_SPAN:
            break
    return points[lowest].at


def slow_storage(figures: Figures) -> Finding | None:
    """Find durable files, or Spark's own, that take long, again and again."""
    told = [one for one in figures.batches if any(report.figure(StoreMetric.FILE_SIZE) for report in one.reports)]
    last = told[-at_least.IN_A_ROW :]
    if len(last) == at_least.IN_A_ROW and all(map(_is_slow, last)):
        tasks, took, size, share = _files(last[-1])
        return Finding(
            State.STORAGE,
            f"a task's durable file took {units.duration(took / tasks)} on average in the last micro-batch, at "
            f"{units.size(round(size * 1000 / max(1.0, took)))} a second and {share:.0%} of the tasks' time; likewise "
            f"in the {at_least.IN_A_ROW - 1} before",
            _first(told, _is_slow).started,
            "look at the storage of state_dir: its region, its limits of requests, its network; fewer partitions write "
            "fewer files",
        )
    last = list(figures.batches[-at_least.IN_A_ROW :])
    if len(last) == at_least.IN_A_ROW and all(_log(one) >= at_least.SLOW_LOG for one in last):
        return Finding(
            State.STORAGE,
            f"Spark's two files of the last micro-batch took {units.duration(_log(last[-1]))} of its "
            f"{units.duration(last[-1].took)}; likewise in the {at_least.IN_A_ROW - 1} before",
            _first(figures.batches, lambda one: _log(one) >= at_least.SLOW_LOG).started,
            "look at the storage of the checkpoint: its region, its limits of requests, its network",
        )
    return None


def _files(one: MicroBatch) -> tuple[int, float, int, float]:
    """Return the number, milliseconds and bytes of durable files, and their share of the tasks' time."""
    reports = [report for report in one.reports if report.figure(StoreMetric.FILE_SIZE)]
    took = sum(report.figure(StoreMetric.FILE_DURATION) for report in reports) / _MICROS
    spent = sum(report.figure(TaskMetric.TASK_DURATION) for report in reports) / _MICROS
    size = sum(report.figure(StoreMetric.FILE_SIZE) for report in reports)
    return max(1, sum(report.tasks for report in reports)), took, size, took / max(1.0, spent)


def _is_slow(one: MicroBatch) -> bool:
    tasks, took, size, share = _files(one)
    slow = took / tasks >= at_least.SLOW_FILE and size * 1000 < at_least.SLOW_RATE * took
    return slow and share >= at_least.SLOW_SHARE


def _log(one: MicroBatch) -> int:
    """Return how long Spark's own files took, in milliseconds."""
    return one.durations.get("walCommit", 0) + one.durations.get("commitOffsets", 0)


def _first(batches: Sequence[MicroBatch], is_bad: Callable[[MicroBatch], bool]) -> MicroBatch:
    """Return the first micro-batch of the unbroken run of bad ones at the end."""
    first = batches[-1]
    for one in reversed(batches):
        if not is_bad(one):
            break
        first = one
    return first
