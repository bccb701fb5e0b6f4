"""How far a streaming query is and how fast it was, from the progress that Spark reports."""

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from millpond.demo.data import Cut

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


@dataclass(frozen=True)
class Pace:
    """How fast a query was in one run: the flights and micro-batches that it processed, and the seconds it took."""

    rows: int
    batches: int
    seconds: float

    @property
    def rows_per_second(self) -> float:
        return self.rows / self.seconds


class Meter:
    """Watches a query that reads one file of each of its topics per micro-batch."""

    def __init__(self, query: "StreamingQuery", cut: Cut) -> None:
        self._query = query
        self._cut = cut
        self._started = time.monotonic()
        self._before: int | None = None
        self._files = 0

    @property
    def ended(self) -> bool:
        """Whether the query has come to its end.

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
        self._look()
        return self._cut.rows(self._files)

    def pace(self) -> Pace:
        """What the query did in this run, up to now."""
        self._look()
        before = self._files if self._before is None else self._before
        rows = self._cut.rows(self._files) - self._cut.rows(before)
        return Pace(rows, self._files - before, time.monotonic() - self._started)

    def _look(self) -> None:
        reported = self._query.recentProgress
        if reported:
            if self._before is None:
                self._before = _files_read(reported[0], "startOffset")
            self._files = _files_read(reported[-1], "endOffset")


def _files_read(progress: Any, side: str) -> int:
    """The files of each topic that were read when a batch began or ended; the file source's offset is the last one."""
    offsets = [source[side] for source in json.loads(progress.json)["sources"]]
    return min(0 if offset is None else offset["logOffset"] + 1 for offset in offsets)
