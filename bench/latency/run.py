"""Contenders at a fixed rate, one after the other: how long rows wait, and who keeps up.

Rule of this module: rows come into being by the clock (``source``), so while a contender stalls, others come and wait.
Results go to Spark's ``noop`` sink.
"""

import json
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from millpond.adapters.spark.monitoring.measured import measured_in
from millpond.bench.latency.arrivals import SECOND, Arrivals
from millpond.bench.latency.fixed_rate import FixedRate
from millpond.bench.latency.source import read_arrivals
from millpond.bench.latency.waits import Lag, MicroBatch, Waits, micro_batches, next_moment
from millpond.bench.runs.turns import Watch
from millpond.bench.spark.contest import why
from millpond.bench.spark.queries import scratch, state_bytes, writer_on
from millpond.bench.spark.workers import workers_of_its_own
from millpond.bench.spark.workloads import Contender

_PAUSE_SECONDS: Final = 0.2
"""The seconds from a look at a query's progress to the next."""


@dataclass(frozen=True)
class Kept:
    """The figures of a contender that has kept up; times in microseconds.

    Attributes:
        rows: how many count.
        per_second: rows that were committed in a second of the time that counts.
        waits: percentiles of the waits of rows.
        lag: at half time and at the end.
        late: rows that came too late for a contender, since two topics are not cut at the same moment.
        batches: the micro-batches that were committed in that time, one at least.
        processor: seconds that all processes spent in that time, on all cores together.
        disk: bytes of durable state at the end, with what is kept of earlier micro-batches.
    """

    rows: int
    per_second: float
    waits: Mapping[str, float]
    lag: Lag
    late: int
    batches: Sequence[MicroBatch]
    processor: float
    disk: int


@dataclass
class Measured:
    """The measurements of a workload at a rate, by contender.

    Attributes:
        contest: what it was.
        kept: of those who have kept up.
        behind: why others have no latency: they fell behind.
        failed: why others have none: they failed.
    """

    contest: FixedRate
    kept: dict[str, Kept] = field(default_factory=dict)
    behind: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


def run(contest: FixedRate, spark: Callable[[], SparkSession], watch: Watch = lambda *_: None) -> Measured:
    """Measure one workload at one rate.

    Args:
        contest: what is measured.
        spark: gives the session.
        watch: called for each contender.

    Raises:
        ConfigurationError: as ``FixedRate`` says.
    """
    found = Measured(contest)
    with scratch(contest.directory) as place:
        for name, contender in contest.chosen.items():
            try:
                came = measure(spark(), Path(tempfile.mkdtemp(dir=place)), contest, contender)
            except Exception as error:  # whatever a contender is made of may fail in a way of its own
                found.failed[name] = why(error)
            else:
                if isinstance(came, Kept):
                    found.kept[name] = came
                else:
                    found.behind[name] = came
            watch(contest.title, name)
    return found


def measure(spark: SparkSession, own: Path, contest: FixedRate, contender: Contender) -> Kept | str:
    """Run a contender, whose files are in ``own``.

    Returns:
        Its figures; or, if it has not kept up, how that was seen.
    """
    with workers_of_its_own(spark) as watch:
        arrivals = contest.arrivals(_now())
        inputs = read_arrivals(
            spark, contest.workload, arrivals, keys=contest.keys, partitions=contest.cores, seed=contest.seed
        )
        writer = writer_on(inputs, contender, contest.scale, own).format("noop")
        watch.start()
        try:
            query = writer.trigger(processingTime=f"{round(contest.trigger * 1_000)} milliseconds").start()
            try:
                too_long = _follow(query, contest, arrivals)
                reports = [json.loads(progress.json) for progress in query.recentProgress]
            finally:
                query.stop()
        finally:
            watch.stop()
    if too_long is not None:
        return too_long
    batches = micro_batches(reports)
    start, stop = contest.counted(batches[0].done)
    then = [batch for batch in batches if start <= batch.done < stop]
    if not then:
        return "did not keep up: no micro-batch ended in the time that counts"
    lag = Lag.between(batches, arrivals, start, stop)
    if lag.grows:
        grown = f"{lag.half / SECOND:.1f} s at half time and {lag.end / SECOND:.1f} s at the end"
        return f"did not keep up: its lag was {grown}"
    waits = Waits(batches, arrivals, start, stop)
    return Kept(
        waits.rows,
        sum(batch.count for batch in then) * SECOND / (stop - start),
        waits.percentiles(),
        lag,
        late_rows(reports),
        then,
        watch.spent.between(start / SECOND, stop / SECOND),
        state_bytes(own),
    )


def _follow(query: StreamingQuery, contest: FixedRate, arrivals: Mapping[str, Arrivals]) -> str | None:
    """Wait until all rows that count are committed; or else say why that was given up."""
    start = stop = 0
    while True:
        time.sleep(_PAUSE_SECONDS)
        if not query.isActive:
            query.awaitTermination()  # raises what has ended it
        progress, now = query.lastProgress, _now()
        for last in micro_batches([json.loads(progress.json)] if progress is not None else []):
            if not stop:
                start, stop = contest.counted(last.done)
            oldest = next_moment(last, arrivals)
        if not stop:
            continue
        if oldest >= stop:
            return None
        if now - max(oldest, start) > contest.patience * SECOND:
            after, most = (now - start) / SECOND, f"{contest.patience:g} s"
            return f"did not keep up: {after:.0f} s after its warm-up, a row had waited for more than {most}"


def late_rows(reports: Iterable[Mapping[str, Any]]) -> int:
    """Return how many rows came too late, by the watermarks of Spark or the counters of Millpond."""
    by_spark = by_millpond = 0
    for report in reports:
        by_spark += sum(operator["numRowsDroppedByWatermark"] for operator in report["stateOperators"])
        measured = measured_in(report.get("observedMetrics", {}))
        by_millpond += sum(amount for one in measured for amount in one.late.values())
    return by_spark + by_millpond


def _now() -> int:
    return time.time_ns() // 1_000
