"""The filling of a store whose entries expire: run by run, so that within one no entry of its own expires.

What has expired goes by the time that has been reached at each record, which within a micro-batch comes before the
store's observed stream time has moved. So records are cut into runs: an entry that a record of a run puts is there for
the others. Only earlier entries have to be compared with the time that their key's first record has reached.

A record that is older than the time to live when it comes would make an entry that is gone: it is left out, counted and
reported, like a record that comes after the grace of its window.
"""

from collections.abc import Iterator
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from millpond.processors.runtime.batches.batch import Batch
from millpond.processors.runtime.batches.columns import Columns
from millpond.processors.runtime.counters import CounterName
from millpond.processors.runtime.processor import ProcessorContext
from millpond.stores.encoding.times import MAX_TIME, MIN_TIME
from millpond.stores.typed.expiry import Expiry

R = TypeVar("R", Batch, Columns)
Integers = npt.NDArray[np.int64]


class TimeToLive:
    """The time to live of a store, for the processor that fills it.

    Args:
        context: the context of the processor.
        store: the store.
    """

    def __init__(self, context: ProcessorContext, store: Any) -> None:
        self._context = context
        self._store = store
        self._expiry: Expiry | None = getattr(store, "expiry", None)

    @property
    def expires(self) -> bool:
        """True if entries of the store expire, or have done so in an earlier run."""
        return self._expiry is not None

    @property
    def tells(self) -> bool:
        """True if expired entries are forwarded as deletes."""
        return self._expiry is not None and self._expiry.tells

    def runs(self, records: R) -> Iterator[R]:
        """Yield the records that are young enough, in runs; the store's time moves on after each run is processed.

        Args:
            records: records with keys.
        """
        expiry = self._expiry
        if expiry is None:
            yield records
            return
        kept = self._young(records, expiry)
        times, ttl = np.asarray(kept.timestamps, np.int64), expiry.ttl
        reached = self.reached(times)
        start = 0
        while start < len(kept):
            stop = len(kept) if ttl is None else start + _run(times[start:], reached[start:], ttl)
            yield kept.slice(start, stop)
            expiry.observe(int(reached[stop - 1]))
            start = stop

    def reached(self, timestamps: Any) -> Integers:
        """Return the time that has been reached at each of some records."""
        reached = np.maximum.accumulate(np.asarray(timestamps, np.int64))
        observed = None if self._expiry is None else self._expiry.observed
        return reached if observed is None else np.maximum(reached, observed)

    def reached_first(self, numbers: Integers, keys: int, timestamps: Integers) -> Integers | None:
        """Return the time that has been reached at the first record of each key; None where nothing expires.

        Args:
            numbers: the number of each record's key.
            keys: the number of keys.
            timestamps: the records' timestamps.
        """
        if self._expiry is None:
            return None
        first = np.empty(keys, np.int64)
        first[numbers[::-1]] = self.reached(timestamps)[::-1]
        return first

    def observe(self, time: int) -> None:
        """Learn that the time of the input is ``time``."""
        if self._expiry is not None:
            self._expiry.observe(time)

    def deletes(self, keys: list[Any], values: list[Any], times: list[int], *, olds: bool) -> Batch:
        """Return the updates that entries were deleted, given their values and the times of their last updates."""
        assert self._expiry is not None, "nothing expires"
        assert self._expiry.ttl is not None, "nothing expires any more"
        ends = [time + self._expiry.ttl for time in times]
        return Batch(keys, [None] * len(keys), ends, values if olds else None)

    def expired(self, *, olds: bool) -> Batch:
        """Return the updates for all that has expired since the last time; only where ``tells``."""
        taken = self._store.take_expired()
        keys, values, times = (list(column) for column in zip(*taken, strict=True)) if taken else ([], [], [])
        return self.deletes(keys, values, times, olds=olds)

    def _young(self, records: R, expiry: Expiry) -> R:
        times = np.asarray(records.timestamps, np.int64)
        if not len(times):
            return records
        reached = self.reached(times)
        gone = max(expiry.gone_at(MIN_TIME), MIN_TIME - 1)
        old = times <= gone if gone >= MIN_TIME else np.zeros(len(times), np.bool_)
        if expiry.ttl is not None:
            old |= _end(times, expiry.ttl) <= reached
        if not old.any():
            return records
        allowed = expiry.ttl or 0
        self._context.count(CounterName.DROPPED_EXPIRED, int(np.count_nonzero(old)))
        short = np.maximum(reached - times - allowed + 1, 1)
        self._context.tell_late(CounterName.DROPPED_EXPIRED, records, old, reached, short, allowed)
        return records.select(~old) if isinstance(records, Columns) else records.select((~old).tolist())


def _run(times: Integers, reached: Integers, ttl: int) -> int:
    """Return how many records from the first on come before an entry of one of them expires."""
    if (times[1:] >= times[:-1]).all():
        return int(np.searchsorted(reached, _end(times[:1], ttl)[0], "left"))
    over = _end(np.minimum.accumulate(times), ttl) <= reached
    return int(over.argmax()) if over.any() else len(times)


def _end(times: Integers, ttl: int) -> Integers:
    """Return the times at which entries of these times are gone."""
    return np.minimum(times, MAX_TIME - ttl) + ttl
