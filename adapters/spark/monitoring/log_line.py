"""One line of text for a micro-batch.

Rule of this module: what is zero or unknown is left out, but for the records that came in and went out.
"""

from collections.abc import Iterator, Sequence

from millpond.adapters.spark.monitoring.measured import Measured
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
