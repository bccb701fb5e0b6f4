"""The progress and the speed of a streaming query, from Spark's reports."""

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from millpond.demo.data import Cut

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


@dataclass(frozen=True)
class Pace:
    """The speed of a query in one run.

    Attributes:
        rows, batches: the flights and micro-batches that it processed.
        seconds: the time from its start to its end.
        steady: flights per second without the first micro-batch, which loads classes and starts Python; None if
            there is no second one.
    """

    rows: int
    batches: int
    seconds: float
    steady: float | None


@dataclass(frozen=True)
class _Batch:
    """The files of each topic that had been read before and after a micro-batch, and its seconds."""

    before: int
    after: int
    seconds: float


class Meter:
    """A watch on a query that reads one file of each of its topics per micro-batch."""

    def __init__(self, query: "StreamingQuery", cut: Cut) -> None:
        self._query = query
        self._cut = cut
        self._started = time.monotonic()
        self._batches: dict[int, _Batch] = {}

    @property
    def ended(self) -> bool:
        """True if the query has ended.

        Raises:
            StreamingQueryException: it has failed.
        """
        if self._query.isActive:
            return False
        error = self._query.exception()
        if error is not None:
            raise error
        return True

    @property
    def rows_so_far(self) -> int:
        """The flights that the query has processed in this run and those before."""
        self._note(self._query.lastProgress)
        return self._cut.rows(max((batch.after for batch in self._batches.values()), default=0))

    def pace(self) -> Pace:
        """Return the pace of the query in this run, from its start up to now."""
        seconds = time.monotonic() - self._started
        for progress in self._query.recentProgress:
            self._note(progress)
        batches = [self._batches[number] for number in sorted(self._batches)]
        later = batches[1:]
        steady = self._rows(later) / sum(batch.seconds for batch in later) if later else None
        return Pace(self._rows(batches), len(batches), seconds, steady)

    def _rows(self, batches: list[_Batch]) -> int:
        return sum(self._cut.rows(batch.after) - self._cut.rows(batch.before) for batch in batches)

    def _note(self, progress: Any) -> None:
        if progress is None or progress.batchId in self._batches:
            return
        report = json.loads(progress.json)
        before, after = (_files_read(report["sources"], side) for side in ("startOffset", "endOffset"))
        if after > before:
            self._batches[progress.batchId] = _Batch(before, after, report["durationMs"]["triggerExecution"] / 1000)


def _files_read(sources: list[dict[str, Any]], side: str) -> int:
    """Return the number of files of each topic that were read when a batch began or ended, by Spark's offsets."""
    offsets = [source[side] for source in sources]
    return min(0 if offset is None else offset["logOffset"] + 1 for offset in offsets)
