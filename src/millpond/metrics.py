"""The metrics of a micro-batch: amounts and times, by name.

Rule of this module: a figure is an integer, and durations are microseconds of a monotonic clock. A figure of a store or
an operator has the name of that before its own, ``<store>:<figure>``, as counters have their node's. Measuring takes a
few readings of the clock for a task and a micro-batch, none for a record. docs/metrics.md lists all figures.
"""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from time import monotonic_ns
from types import TracebackType
from typing import TypeVar

_Item = TypeVar("_Item")


class StoreMetric(StrEnum):
    """The metrics of the opening and the commit of stores."""

    OPEN_DURATION = "open.duration"
    """The time until the stores of a task were open, with all restores that took."""

    RESTORE_DURATION = "restore.duration"
    """Of a store: the time in which its local copy got rows from durable files; part of ``open.duration``."""

    RESTORE_FULL = "restore.full"
    """Of a store: 1 if its local copy was filled anew, rather than only caught up."""

    RESTORE_ROWS = "restore.rows"
    """Of a store: the rows that its local copy got from durable files."""

    COMMIT_DURATION = "commit.duration"
    """The time of the commit, until the local copies were closed."""

    COMMIT_ROWS = "commit.rows"
    """Of a store: the rows that the commit put or deleted."""

    FILE_DURATION = "file.duration"
    """The time in which the durable file was written; part of ``commit.duration``."""

    FILE_ROWS = "file.rows"
    """The rows of the durable file: those that have changed in a delta, all in a snapshot."""

    FILE_SIZE = "file.size"
    """The bytes of the durable file."""

    FILE_SNAPSHOTS = "file.snapshots"
    """1 if the durable file is a snapshot."""

    ENGINE_DURATION = "engine.duration"
    """Of a store: the time in which its engine wrote the changes; part of ``commit.duration``."""

    COPY_SIZE = "copy.size"
    """Of a store: the bytes of its local copy's files, once these are closed."""

    MEMORY_HELD = "memory.held"
    """Of a store without files: about how many bytes its rows take in the worker's memory after the commit."""

    MEMORY_BUDGET = "memory.budget"
    """The bytes that all stores of a worker may take in its memory; not measured where there is no limit."""

    DISK_FREE = "disk.free"
    """The bytes that are free on the disk of the task's local copies."""

    DISK_SIZE = "disk.size"
    """The bytes that the disk has."""

    FILES_RETAINED = "files.retained"
    """The durable files that the task has in the storage after a garbage collection, which a snapshot causes."""


class Stopwatch:
    """A measure of stretches of time, one after the other."""

    def __init__(self) -> None:
        self._since = monotonic_ns()

    def lap(self) -> int:
        """Return the microseconds since the last call, or since the object was made."""
        before, self._since = self._since, monotonic_ns()
        return (self._since - before) // 1_000


class Metrics:
    """The figures of one task and micro-batch.

    >>> metrics = Metrics()
    >>> metrics.add(StoreMetric.FILE_ROWS, 3)
    >>> metrics.add(StoreMetric.COMMIT_ROWS, 1, "orders")
    >>> metrics.add(StoreMetric.COMMIT_ROWS, 2, "orders")
    >>> metrics.figures
    {'file.rows': 3, 'orders:commit.rows': 3}
    """

    def __init__(self) -> None:
        self._figures: dict[str, int] = {}

    @property
    def figures(self) -> dict[str, int]:
        """All figures by name."""
        return {str(name): amount for name, amount in self._figures.items()}

    def add(self, metric: StrEnum, amount: int, scope: str = "") -> None:
        """Add to a figure, which begins with 0.

        Args:
            metric: the figure's name.
            amount: the amount.
            scope: the store or the node that is measured; empty for the task.
        """
        name = _scoped(metric, scope)
        self._figures[name] = self._figures.get(name, 0) + amount

    def put(self, metric: StrEnum, amount: int, scope: str = "") -> None:
        """Set a figure, whatever its value."""
        self._figures[_scoped(metric, scope)] = amount

    def timed(self, metric: StrEnum, scope: str = "") -> "_Timed":
        """Add the time that the block takes; nothing if it raises."""
        return _Timed(self, metric, scope)

    def timed_each(self, metric: StrEnum, items: Iterable[_Item]) -> Iterator[_Item]:
        """Yield the items; add the time that making them takes, without the caller's time between them."""
        watch = Stopwatch()
        for item in items:
            self.add(metric, watch.lap())
            yield item
            watch.lap()
        self.add(metric, watch.lap())

    def clear(self) -> None:
        """Forget all figures: a micro-batch begins."""
        self._figures.clear()


class _Timed:
    """A block whose time is measured. A generator would take three times as long to enter and to leave."""

    __slots__ = ("_metric", "_metrics", "_scope", "_since")

    def __init__(self, metrics: Metrics, metric: StrEnum, scope: str) -> None:
        self._metrics, self._metric, self._scope = metrics, metric, scope

    def __enter__(self) -> None:
        self._since = monotonic_ns()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._metrics.add(self._metric, (monotonic_ns() - self._since) // 1_000, self._scope)


def _scoped(metric: StrEnum, scope: str) -> str:
    return f"{scope}:{metric}" if scope else metric
