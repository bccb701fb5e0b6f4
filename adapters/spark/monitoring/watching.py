"""``watch``: reports each micro-batch of all queries of a session.

Rule of this module: it listens to what Spark reports anyway. In a query's own thread only its start is remembered, and
nothing that fails here fails a query.
"""

import logging
from collections.abc import Iterator, Sequence
from time import time
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from millpond.adapters.monitor.kept.kept_progress import ProgressWriter
from millpond.adapters.spark.monitoring.instruments import Instruments
from millpond.adapters.spark.monitoring.keeping import micro_batch, millis
from millpond.adapters.spark.monitoring.live_runs import LiveRuns
from millpond.adapters.spark.monitoring.measured import Measured, measured_in
from millpond.errors import InvalidArgumentError, MillpondError
from millpond.metrics import StoreMetric
from millpond.processors.runtime.metrics import TaskMetric

_DURATIONS = {
    "open": StoreMetric.OPEN_DURATION,
    "restore": StoreMetric.RESTORE_DURATION,
    "process": TaskMetric.PROCESS_DURATION,
    "flush": TaskMetric.FLUSH_DURATION,
    "commit": StoreMetric.COMMIT_DURATION,
    "file": StoreMetric.FILE_DURATION,
    "engine": StoreMetric.ENGINE_DURATION,
}


def log_line(query: str, batch: int, measured: Sequence[Measured]) -> str:
    """Return the events of a micro-batch as text, by input and operator; times are sums over tasks.

    Zero and unknown figures are left out, except the records that came in and went out.

    >>> tasks = [{"records.in": 5, "records.out": 2, "process.duration": 1500, "stream.lag": 3_200_000}]
    >>> tasks[0] |= {"lateness.largest": 60_000_000}
    >>> log_line("counts", 7, [Measured("shop", "operator.0", tasks, [{"count:dropped-late": 1}])])
    'query counts, batch 7: operator.0: 5 in, 2 out, 1 dropped, 1 late, latest by 60.0 s, lag 3.2 s, process 1.5 ms'
    """
    parts = "; ".join(f"{one.operator}: {', '.join(_parts(one))}" for one in measured if one.tasks)
    return f"query {query}, batch {batch}: {parts or 'no records'}"


def _parts(one: Measured) -> Iterator[str]:
    yield f"{one.figure(TaskMetric.RECORDS_IN) or 0} in"
    yield f"{one.figure(TaskMetric.RECORDS_OUT) or 0} out"
    for word, counted in (("dropped", one.dropped), ("late", one.late), ("waiting", one.waiting)):
        if any(counted.values()):
            yield f"{sum(counted.values())} {word}"
    lateness = one.figure(TaskMetric.LATENESS)
    if lateness is not None:
        yield f"latest by {lateness / 1_000_000:.1f} s"
    lag = one.figure(TaskMetric.STREAM_LAG)
    if lag is not None:
        yield f"lag {lag / 1_000_000:.1f} s"
    rows, size = one.figure(StoreMetric.COMMIT_ROWS), one.figure(StoreMetric.FILE_SIZE)
    if rows:
        yield f"{rows} rows written"
    if size:
        yield f"{size} bytes written"
    for word, name in _DURATIONS.items():
        took = one.figure(name)
        if took:
            yield f"{word} {took / 1_000:.1f} ms"


_log: Final = logging.getLogger("millpond.spark.progress")


def watch(session: SparkSession, meter_provider: Any = None, *, keep: str | None = None) -> StreamingQueryListener:
    """Report each micro-batch of Millpond's queries from now on; call it once for a session.

    The logger ``millpond.spark.progress`` gets one line for each, at the level INFO. If OpenTelemetry is installed
    (``pip install 'millpond[metrics]'``), its metrics get the figures of docs/metrics.md.

    Args:
        session: a session, classic or of Spark Connect.
        meter_provider: OpenTelemetry's; by default the one that is set for the process.
        keep: a directory, a path or URI, that keeps the progress of the last 500 micro-batches of each query, and how
            its runs have ended, for ``millpond top``, ``millpond ui`` and ``millpond doctor``; None to keep nothing.

    Returns:
        The listener, for ``session.streams.removeListener``.

    Raises:
        ConfigurationError: it is no session, or no file system is known for ``keep``.
    """
    if not hasattr(session, "streams"):
        raise InvalidArgumentError(
            f"watch takes a SparkSession, not {session!r}; give that of the queries: SparkSession.builder.getOrCreate()"
        )
    writer = None if keep is None else ProgressWriter.at(keep)
    listener = _Watcher(_instruments(meter_provider), writer)
    session.streams.addListener(listener)
    return listener


def _instruments(meter_provider: Any) -> Instruments | None:
    try:
        from opentelemetry.metrics import get_meter
    except ModuleNotFoundError:
        return None
    return Instruments(get_meter("millpond", meter_provider=meter_provider))


class _Watcher(StreamingQueryListener):
    """Logs, records and keeps what the progress of a query says."""

    def __init__(self, instruments: Instruments | None, writer: ProgressWriter | None) -> None:
        self._instruments, self._writer = instruments, writer
        self._runs = None if writer is None else LiveRuns(writer)
        self._names: dict[str, str] = {}

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        progress = event.progress
        measured = measured_in(progress.observedMetrics)
        if not measured:
            if self._runs is not None:
                self._runs.is_foreign(str(progress.runId))
            return
        query = progress.name or str(progress.id)
        self._names[str(progress.runId)] = query
        _log.info("%s", log_line(query, progress.batchId, measured))
        if self._instruments is not None:
            for one in measured:
                self._instruments.record(query, one)
            self._instruments.committed(query, time())
        if self._writer is not None:
            try:
                self._writer.keep(micro_batch(progress, measured))
            except MillpondError as error:
                _log.warning("query %s, batch %s: its progress is not kept: %s", query, progress.batchId, error)
        if self._runs is not None:
            started = millis(progress.timestamp)
            restarts = self._runs.progressed(str(progress.id), str(progress.runId), progress.name or None, started)
            if self._instruments is not None:
                self._instruments.restarted(query, restarts)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        if self._runs is not None:
            self._runs.begun(str(event.id), str(event.runId), event.name or None, millis(event.timestamp))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Do nothing for want of a micro-batch."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        query = self._names.pop(str(event.runId), None)
        if self._instruments is not None and query is not None:
            self._instruments.ended(query, event.exception)
        if self._runs is not None:
            self._runs.ended(str(event.id), str(event.runId), event.exception)
