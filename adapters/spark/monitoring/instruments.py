"""Metrics of OpenTelemetry that report on queries.

Rule of this module: it knows OpenTelemetry's interface and no exporter. Names are those of the figures with
``millpond.`` before them; sums are counters, levels are gauges, and durations are histograms, in seconds. Each task has
values of its own, as far as it says which it is.
"""

from time import time
from typing import Any, Final

from millpond.adapters.monitor.kept.runs import cause, code_in
from millpond.adapters.spark.monitoring.measured import Figure, Measured
from millpond.metrics import StoreMetric
from millpond.processors.runtime.metrics import TaskMetric

_SUMS: Final = {
    TaskMetric.RECORDS_IN: "{record}",
    TaskMetric.RECORDS_OUT: "{record}",
    TaskMetric.CACHE_UPDATES: "{update}",
    TaskMetric.CACHE_HITS: "{update}",
    StoreMetric.RESTORE_FULL: "{copy}",
    StoreMetric.RESTORE_ROWS: "{row}",
    StoreMetric.COMMIT_ROWS: "{row}",
    StoreMetric.FILE_ROWS: "{row}",
    StoreMetric.FILE_SIZE: "By",
    StoreMetric.FILE_SNAPSHOTS: "{file}",
}
_LEVELS: Final = {
    StoreMetric.COPY_SIZE: "By",
    StoreMetric.MEMORY_HELD: "By",
    StoreMetric.MEMORY_BUDGET: "By",
    StoreMetric.DISK_FREE: "By",
    StoreMetric.DISK_SIZE: "By",
    StoreMetric.FILES_RETAINED: "{file}",
}
_SECONDS: Final = (TaskMetric.STREAM_TIME, TaskMetric.STREAM_LAG, TaskMetric.LATENESS)
_DURATIONS: Final = (
    TaskMetric.TASK_DURATION,
    TaskMetric.PROCESS_DURATION,
    TaskMetric.FLUSH_DURATION,
    StoreMetric.OPEN_DURATION,
    StoreMetric.RESTORE_DURATION,
    StoreMetric.COMMIT_DURATION,
    StoreMetric.FILE_DURATION,
    StoreMetric.ENGINE_DURATION,
)
_BUCKETS: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
_MICROSECONDS: Final = 1_000_000
_OF_NODES: Final = frozenset((TaskMetric.CACHE_UPDATES, TaskMetric.CACHE_HITS))


class Instruments:
    """The instruments of one meter.

    Args:
        meter: a meter of OpenTelemetry.
    """

    def __init__(self, meter: Any) -> None:
        self._sums: dict[str, Any] = {
            name: meter.create_counter(f"millpond.{name}", unit) for name, unit in _SUMS.items()
        }
        self._seconds: dict[str, Any] = {name: meter.create_gauge(f"millpond.{name}", "s") for name in _SECONDS}
        self._durations: dict[str, Any] = {
            name: meter.create_histogram(f"millpond.{name}", "s", explicit_bucket_boundaries_advisory=_BUCKETS)
            for name in _DURATIONS
        }
        self._levels: dict[str, Any] = {
            name: meter.create_gauge(f"millpond.{name}", unit) for name, unit in _LEVELS.items()
        }
        self._dropped = meter.create_counter("millpond.records.dropped", "{record}")
        self._late = meter.create_counter("millpond.records.late", "{record}")
        self._waiting = meter.create_gauge("millpond.records.waiting", "{record}")
        self._restarts = meter.create_gauge("millpond.query.restarts", "{restart}")
        self._failures = meter.create_counter("millpond.query.failures", "{failure}")
        self._committed: dict[str, float] = {}
        meter.create_observable_gauge("millpond.commit.age", [self._ages], "s")

    def record(self, query: str, measured: Measured) -> None:
        """Record what an input or an operator has told of a micro-batch of ``query``."""
        own = {"query": query, "application": measured.application, "operator": measured.operator}
        for task, told in measured.each:
            self._record_task({**own, "task": task} if task else own, told)

    def committed(self, query: str, at: float) -> None:
        """Take it that a micro-batch of ``query`` was committed at a time, in seconds since 1970.

        From then on ``millpond.commit.age`` tells how long ago that was, whenever it is read.
        """
        self._committed[query] = at

    def ended(self, query: str, failure: str | None) -> None:
        """Take it that ``query`` has ended; if it has failed, the age of its last commit goes on growing.

        Args:
            query: its name, or its id.
            failure: what Spark tells of the error, with traces; None if there was none.
        """
        if failure is None:
            self._committed.pop(query, None)
            return
        error, message = cause(failure)
        self._failures.add(1, {"query": query, "code": code_in(message) or error})

    def restarted(self, query: str, restarts: int) -> None:
        """Record how often ``query`` was started again."""
        self._restarts.set(restarts, {"query": query})

    def _ages(self, _: Any) -> list[Any]:
        from opentelemetry.metrics import Observation

        now = time()
        return [Observation(now - at, {"query": query}) for query, at in list(self._committed.items())]

    def _record_task(self, own: dict[str, str], measured: Measured) -> None:
        for figure, amount in measured.figures.items():
            attributes = {**own, **_of(figure)}
            if figure.name in self._sums:
                self._sums[figure.name].add(amount, attributes)
            elif figure.name in self._seconds:
                self._seconds[figure.name].set(amount / _MICROSECONDS, attributes)
            elif figure.name in self._levels:
                self._levels[figure.name].set(amount, attributes)
        for figures in measured.tasks:
            for key, amount in figures.items():
                scope, _, name = key.rpartition(":")
                if name in self._durations:
                    self._durations[name].record(amount / _MICROSECONDS, {**own, **_of(Figure(scope, name))})
        self._record_counts(own, measured)

    def _record_counts(self, own: dict[str, str], measured: Measured) -> None:
        for counter, counted in ((self._dropped, measured.dropped), (self._late, measured.late)):
            for (node, reason), amount in counted.items():
                counter.add(amount, {**own, "node": node, "reason": reason})
        for (node, _), amount in measured.waiting.items():
            self._waiting.set(amount, {**own, "node": node})


def _of(figure: Figure) -> dict[str, str]:
    """Return the attribute that tells of which node or store a figure is."""
    if not figure.scope:
        return {}
    return {"node" if figure.name in _OF_NODES else "store": figure.scope}
