"""Rules of room: a disk that fills up, state that grows without bound, a standby that lags behind.

Rule of this module: a rule is a function of figures alone.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from millpond.adapters.monitor.diagnosis import thresholds as at_least
from millpond.adapters.monitor.diagnosis import units
from millpond.adapters.monitor.diagnosis.figures import Figures
from millpond.adapters.monitor.diagnosis.finding import Finding, State
from millpond.adapters.monitor.kept.history import Point
from millpond.adapters.monitor.kept.micro_batch import Limit

_ROOM: Final = "more executors or larger disks; a retention or ttl for what need not stay; millpond state clean"


def disk_nearly_full(figures: Figures) -> Finding | None:
    """Find that the disk of local copies has little room, or soon will have."""
    disks = [limit for one in figures.batches for limit in one.limits if limit.what == "disk"]
    if not disks:
        return None
    last = disks[-1]
    if last.used >= last.limit * at_least.DISK_USED:
        first = _first_full(figures)
        return Finding(State.DISK, f"{_of(last)} is used", first, _ROOM)
    points = [point for point in figures.history.minutes if point.free is not None]
    left = _until_full(points)
    if left is None or left > at_least.DISK_SOON or last.used < last.limit * at_least.DISK_HALF:
        return None
    return Finding(
        State.DISK,
        f"{_of(last)} is used; as it went in the last {units.duration(points[-1].at - points[0].at)}, it is full in "
        f"{units.duration(left)}",
        points[0].at,
        _ROOM,
    )


def _of(disk: Limit) -> str:
    share = disk.used / max(1, disk.limit)
    return f"{share:.0%} of the disk of task {disk.of}, {units.size(disk.used)} of {units.size(disk.limit)},"


def _first_full(figures: Figures) -> int | None:
    """Return when the first of the latest micro-batches with a full disk was begun; None if the disk is not full."""
    first = None
    for one in reversed(figures.batches):
        for limit in one.limits:
            if limit.what == "disk":
                if limit.used < limit.limit * at_least.DISK_USED:
                    return first
                first = one.started
    return first


def _until_full(points: Sequence[Point]) -> float | None:
    """Return how long a disk lasts, by its free bytes; None if they do not fall steadily, or are not known for long."""
    if len(points) < 2 or points[-1].at - points[0].at < at_least.DISK_SPAN:
        return None
    means = _means(points, 4, "free")
    if means is None or not all(later < earlier for earlier, later in pairwise(means)):
        return None
    pace = (means[0] - means[-1]) / (0.75 * (points[-1].at - points[0].at))
    return (points[-1].free or 0) / pace


def state_without_bound(figures: Figures) -> Finding | None:
    """Find that the state grows over days, and does not slow down."""
    for level in (figures.history.days, figures.history.hours):
        points = [point for point in level if point.state is not None]
        if len(points) < at_least.GROWTH_POINTS or points[-1].at - points[0].at < at_least.GROWTH_SPAN:
            continue
        means = _means(points, 4, "state")
        if means is None or not _grows(means):
            return None
        span = points[-1].at - points[0].at
        pace = (means[3] - means[0]) / (0.75 * span)
        now, free = points[-1].state or 0, points[-1].free
        forecast = f"it doubles in {units.duration(now / pace)}"
        if free is not None:
            forecast += f", and fills the disk in {units.duration(free / pace)}"
        return Finding(
            State.STATE,
            f"state grew from {units.size(points[0].state)} to {units.size(now)} in {units.duration(span)} and does "
            f"not slow down: {forecast}",
            points[0].at,
            "give stores a retention, keys a ttl, or delete what has ended; if a retention is longer than the query "
            "runs, wait for it",
        )
    return None


def _grows(means: Sequence[float]) -> bool:
    rises = all(earlier < later for earlier, later in pairwise(means))
    steady = means[3] - means[2] >= at_least.GROWTH_SLOWING * (means[1] - means[0])
    return rises and steady and means[3] >= at_least.GROWTH_LEAST * means[0]


def _means(points: Sequence[Point], count: int, name: str) -> list[float] | None:
    """Return the means of a figure over parts of the same length; None if there is one without a point."""
    first, span = points[0].at, points[-1].at - points[0].at + 1
    parts: list[list[int]] = [[] for _ in range(count)]
    for point in points:
        parts[(point.at - first) * count // span].append(getattr(point, name))
    return [sum(part) / len(part) for part in parts] if all(parts) else None


def forgotten_standby(figures: Figures) -> Finding | None:
    """Find that a warm copy was not brought on for long, while the query went on."""
    left = [
        (copy, behind)
        for copy in figures.standby
        if figures.at - copy.used >= at_least.STANDBY_AGE
        and (behind := sum(at > copy.used for at in figures.committed.values())) >= at_least.STANDBY_BATCHES
    ]
    if not left:
        return None
    oldest, behind = min(left, key=lambda one: one[0].used)
    return Finding(
        State.STANDBY,
        f"{len(left)} of {len(figures.standby)} copies were not brought on for an hour or longer; that of task "
        f"{oldest.task} for {units.duration(figures.at - oldest.used)}, in which at least {behind} micro-batches were "
        "committed",
        min(copy.used for copy, _ in left),
        "start millpond state warm --standby again on this machine, with this checkpoint; or delete the copies with "
        "millpond state clean",
    )
