"""Stores that others look up, and whose entries expire: before a look-up, expired entries are forwarded.

The stream time of such a store is the task's, not only that of its own records. So records are cut into runs,
of all inputs, within which nothing expires that was there before; what expires before a run is forwarded
before its records come. Where several stores tell what has expired, they do so in the order of time.

Rule of this module: it decides when, and processors what (``Operator.expire``).
"""

from collections.abc import Iterator, Mapping

import numpy as np

from millpond.processors.runtime.batches.columns import Records
from millpond.processors.runtime.operator import Operator
from millpond.stores.encoding.times import NO_TIME
from millpond.stores.typed.expiry import Expiry


class ExpiringStores:
    """The stores of a task that others look up, and whose entries expire.

    Args:
        filled: the processors that fill them, with their time to live.
    """

    def __init__(self, filled: Mapping[Operator, Expiry]) -> None:
        self._filled = filled
        self._telling = [expiry for expiry in filled.values() if expiry.tells]

    def runs(self, records: Records) -> Iterator[Records]:
        """Yield the records in runs; before each, what has expired by its first record is gone, and was forwarded."""
        reached = np.maximum.accumulate(np.asarray(records.timestamps, np.int64))
        start = 0
        while start < len(reached):
            self.reach(int(reached[start]))
            due = min(expiry.due for expiry in self._filled.values())
            stop = max(start + 1, int(np.searchsorted(reached, due, "left")))
            yield records.slice(start, stop)
            start = stop

    def reach(self, time: int) -> None:
        """Let everything expire that expires by ``time``."""
        if time == NO_TIME:
            return
        for processor, expiry in self._filled.items():
            if expiry.observed is None:
                processor.expire(time)
        if len(self._telling) > 1:
            while (due := min(expiry.due for expiry in self._telling)) < time:
                self._expire(due)
        self._expire(time)

    def _expire(self, time: int) -> None:
        for processor in self._filled:
            processor.expire(time)
