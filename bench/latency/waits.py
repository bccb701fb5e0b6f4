"""The waits of rows for their results, and how far a query lags behind, from what its micro-batches have read and when.

Rule of this module: it knows no Spark but the reports of a query's progress. All times are integers, microseconds since
1970 or of a wait. A row waits from the moment at which it comes into being until its micro-batch has been committed.
"""

import json
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import ceil
from typing import Any, Final

import numpy as np

from millpond.bench.latency.arrivals import SECOND, Arrivals
from millpond.bench.runs.summary import SHARES

MILLISECOND: Final = 1_000
MOMENTS: Final = 1_000
"""The moments at which the lag is looked at for its mean."""

GROWN: Final = 1.25
SLACK: Final = SECOND // 2
"""The lag at half time, so many times and so much more, is what it may be at the end."""


@dataclass(frozen=True)
class MicroBatch:
    """A micro-batch.

    Attributes:
        began: when Spark began to look for rows.
        done: when it had been written and committed.
        rows: the first row, and the row after the last one, by topic.
    """

    began: int
    done: int
    rows: Mapping[str, tuple[int, int]]

    @property
    def count(self) -> int:
        """The number of rows."""
        return sum(stop - first for first, stop in self.rows.values())


def micro_batches(reports: Iterable[Mapping[str, Any]]) -> list[MicroBatch]:
    """Return the micro-batches that had rows, in order, from the reports of a query on ``read_arrivals``."""
    found = []
    for report in reports:
        began = round(datetime.fromisoformat(report["timestamp"]).timestamp() * 1_000) * MILLISECOND
        starts, ends = (
            {topic: row for source in report["sources"] for topic, row in _offset(source[name]).items()}
            for name in ("startOffset", "endOffset")
        )
        rows = {topic: (starts.get(topic, 0), end) for topic, end in ends.items()}
        found.append(MicroBatch(began, began + report["durationMs"]["triggerExecution"] * MILLISECOND, rows))
    return [batch for batch in found if batch.count]


def _offset(told: Any) -> Mapping[str, int]:
    """Return the offset of a report, JSON's text or its values, which is null before the first."""
    found: Mapping[str, int] = json.loads(told) if isinstance(told, str) else told
    return found or {}


class Waits:
    """The waits of the rows that come into being from one moment on and before another.

    Args:
        batches: all micro-batches up to the last of these rows, in order.
        arrivals: when rows come into being, by topic.
        start: the first moment.
        stop: the moment after the last.

    Attributes:
        rows: how many of them have been committed.
    """

    def __init__(self, batches: Sequence[MicroBatch], arrivals: Mapping[str, Arrivals], start: int, stop: int) -> None:
        self._done = np.array([batch.done for batch in batches], np.int64)
        self._topics = []
        for topic, when in arrivals.items():
            first, end = when.count(start - 1), when.count(stop - 1)
            read = np.array([batch.rows[topic] for batch in batches], np.int64).reshape(-1, 2)
            self._topics.append((when, *np.clip(read, first, end).T))
        self.rows = int(sum((ends - starts).sum() for _, starts, ends in self._topics))

    def within(self, wait: int) -> int:
        """Return how many rows waited for so long at most."""
        before = self._done - wait - 1
        return int(sum((ends - np.clip(when.count(before), starts, ends)).sum() for when, starts, ends in self._topics))

    def percentiles(self) -> dict[str, float]:
        """Return percentiles of all rows: the least wait that so many of them did not exceed.

        Raises:
            ValueError: there is no row.
        """
        if not self.rows:
            raise ValueError("no row has been committed")
        longest = max(
            int((self._done - when.moment(starts))[starts < ends].max(initial=0)) for when, starts, ends in self._topics
        )
        return {
            name: float(bisect_left(range(longest), ceil(share * self.rows), key=self.within))
            for name, share in SHARES.items()
        }


@dataclass(frozen=True)
class Lag:
    """The age of the oldest row without a result, in the mean of two fifths of the time.

    Attributes:
        half: around half time.
        end: at the end.
    """

    half: int
    end: int

    @property
    def grows(self) -> bool:
        """The query falls behind ever more, as far as two looks can tell."""
        return self.end > GROWN * self.half + SLACK

    @classmethod
    def between(cls, batches: Sequence[MicroBatch], arrivals: Mapping[str, Arrivals], start: int, stop: int) -> "Lag":
        """Return the lag between two moments."""
        fifth = (stop - start) // 5
        half = mean_lag(batches, arrivals, start + 2 * fifth, start + 3 * fifth)
        return cls(half, mean_lag(batches, arrivals, stop - fifth, stop))


def mean_lag(batches: Sequence[MicroBatch], arrivals: Mapping[str, Arrivals], start: int, stop: int) -> int:
    """Return how long the oldest row without a result has been waiting, in the mean between two moments."""
    moments = np.linspace(start, stop, MOMENTS).astype(np.int64)
    committed = np.searchsorted([batch.done for batch in batches], moments, side="right")
    oldest = np.array([next_moment(batch, arrivals) for batch in (None, *batches)])
    return int(np.maximum(moments - oldest[committed], 0).mean())


def next_moment(last: MicroBatch | None, arrivals: Mapping[str, Arrivals]) -> int:
    """Return the moment at which the first row comes into being, or has, that is not in the last micro-batch or before.

    Args:
        last: the last micro-batch; None before the first.
        arrivals: when rows come into being, by topic.
    """
    return min(int(when.moment(0 if last is None else last.rows[topic][1])) for topic, when in arrivals.items())
