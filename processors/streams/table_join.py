"""Stream-table join: each stream record looks the table up once (KIP-77), at its own time if the table is versioned.

KIP-914: against a versioned table the lookup is as of the record's timestamp, so that an out-of-order record meets the
value that was valid then. A lookup beyond the history retention finds null: an inner join drops the record, a left join
keeps it, and both count it.

A record that waits may also meet what becomes valid after its own time. It then waits for as much longer as that may be
later, so nothing is looked up that is still to come.

What a record meets may have to fulfill a condition of both values. A version that does not is no match, or is passed
over, one look-up after the other, until the tolerance ends. A delete ends it, too: nothing is valid behind it.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from millpond.processors.options.joins import AsofDirection, JoinType, Side, Unfit
from millpond.processors.runtime.batches.batch import Batch
from millpond.processors.runtime.batches.columns import Records, joined
from millpond.processors.runtime.counters import CounterName
from millpond.processors.runtime.late import Booleans, Integers
from millpond.processors.runtime.operator import Operator
from millpond.processors.runtime.processor import ProcessorContext
from millpond.processors.runtime.promises import Promises
from millpond.processors.tables.table_view import ViewFactory
from millpond.processors.tables.time_ordered_buffer import BufferSpec, TimeOrderedBuffer
from millpond.stores.encoding.times import FARTHEST, MAX_TIME, NO_TIME

_log = logging.getLogger(__name__)

_Further: TypeAlias = Callable[[list[Any], list[int], list[int]], list[Any]]
"""Looks up what is beyond the versions of these keys, for records of these times, by the times of the versions."""


class StreamTableJoin(Operator):
    """Joins each record of a stream with the table's value for its key.

    A null key joins nothing: an inner join drops the record, a left join passes it on alone (KIP-962). A null value is
    dropped by both. A record without a time (``NO_TIME``) waits for nothing.

    Args:
        table: the table's view.
        joiner: called with the record's key, its value and the table's.
        join_type: inner, or left, which keeps a record without a match.
        selector: ``selector(key, value)`` returns the key to look up; the record's own unless given.
        buffer: holds records that wait for late table records (KIP-923).
        within_history: whether waiting records are joined before the table forgets the values valid at their times.
            Then records enter the buffer at the end of a micro-batch, or as soon as the table is about to forget.
        tolerance: how much older, or newer, than the record its match may be; None for any age.
        exact: whether it meets a value valid from its own time on; otherwise, the one valid just before, or the next
            one after it. The table is versioned then.
        direction: the version that it meets. If it may be a newer one, there is a tolerance, the table is versioned,
            and records are held back for the tolerance and longer.
        where: called with the record's value and the table's, true for a match; None if all values match.
        unfit: the match of a record whose value of the table does not fulfill ``where``. If it is the next value,
            there is a tolerance, the table is versioned, and its history reaches back for the tolerance more.
    """

    def __init__(
        self,
        table: ViewFactory,
        joiner: Callable[[Any, Any, Any], Any],
        join_type: JoinType,
        *,
        selector: Callable[[Any, Any], Any] | None = None,
        buffer: BufferSpec | None = None,
        within_history: bool = False,
        tolerance: int | None = None,
        exact: bool = True,
        direction: AsofDirection = AsofDirection.BACKWARD,
        where: Callable[[Any, Any], Any] | None = None,
        unfit: Unfit = Unfit.MISS,
    ) -> None:
        self._factory = table
        self._joiner = joiner
        self._left = join_type.keeps(Side.LEFT)
        self._selector = selector
        self._buffer_spec = buffer
        self._tolerance = tolerance
        self._direction = direction
        self._apart = 0 if exact else 1
        self._first = -self._apart if direction.looks_back else self._apart
        self._where = where
        self._unfit = unfit
        self._ahead = direction.ahead(tolerance)
        self._back = min(unfit.back(tolerance, direction), 2 * FARTHEST)
        self._from = self._first - self._back
        self._at_flush = within_history and buffer is not None
        self._arrived: list[Records] = []
        self._arrived_from: int | None = None
        self.promises = Promises(
            repeatable=True,
            commutes=True,
            by_key=buffer is None and selector is None,
            keeps_records=buffer is None,
            at_flush=self._at_flush,
            looks_ahead=self._ahead,
            looks_back=self._back,
        )

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._view = self._factory.make(context)
        if self.promises.by_key or self._at_flush:
            looks_up = dict.fromkeys(self._factory.stores, self._view.versioned)
            self.promises = replace(self.promises, looks_up=looks_up)
        self._warned = False
        self._buffer: TimeOrderedBuffer | None = None
        if self._buffer_spec is not None:
            buffer = self._buffer = TimeOrderedBuffer(self._buffer_spec, context.store(self._buffer_spec.store))
            context.level(CounterName.WAITING, lambda: buffer.waiting)
            for store in self._factory.stores if self._at_flush else ():
                context.store(store).stragglers.append(self)

    def process(self, batch: Batch) -> None:
        if self._at_flush:
            self._keep(batch)
        else:
            self._process(batch)

    def _keep(self, records: Records) -> None:
        """Keep records until they are taken in, and the least of their times."""
        self._arrived.append(records)
        times = np.asarray(records.timestamps, np.int64)
        timed = times[times != NO_TIME]
        if len(timed):
            self._arrived_from = _least(self._arrived_from, int(timed.min()))

    def flush(self) -> None:
        self._take_in()

    def _take_in(self) -> None:
        """Process the records that were kept."""
        arrived, self._arrived, self._arrived_from = self._arrived, [], None
        if arrived:
            self._process(joined(arrived).to_batch())

    def _process(self, batch: Batch) -> None:
        kept = self._usable(batch)
        dropped = len(batch) - len(kept)
        if self._buffer is not None and NO_TIME in kept.timestamps:
            untimed = [timestamp == NO_TIME for timestamp in kept.timestamps]
            self.context.attempt(self._join, kept.select(untimed))
            kept = kept.select([not one for one in untimed])
        if self._buffer is not None and len(kept):
            kept, late = self._buffer.pass_through(kept)
            self.context.count(CounterName.PASSED_LATE, late)
        self.context.count(CounterName.DROPPED_NULL, dropped)
        self.context.attempt(self._join, kept)

    def advance(self, time: int) -> None:
        if self._buffer is not None:
            self._take_in()
            self.context.attempt(self._join, self._buffer.advance(time))
        super().advance(time)

    @property
    def earliest(self) -> int | None:
        """The least time as of which the table is looked up for waiting records; None if there are none."""
        least = _least(self._arrived_from, None if self._buffer is None else self._buffer.earliest)
        return None if least is None else least + self._from

    def catch_up(self, before: int) -> None:
        """Join the records for which the table is looked up as of a time before that: it is about to forget it."""
        if self._buffer is not None and self.earliest is not None and self.earliest < before:
            self._take_in()
            self.context.attempt(self._join, self._buffer.drain(before - 1 - self._from))

    def complete(self) -> None:
        if self._buffer is not None:
            self._take_in()
            self.context.attempt(self._join, self._buffer.drain())

    def _join(self, kept: Batch) -> None:
        """Join usable records whose time has come."""
        if not len(kept):
            return
        looked_up, (found, nothing) = kept, self._look_up(kept)
        missed = self._missed(nothing, kept.timestamps)
        found = self._matches(kept, found)
        joiner = self._joiner
        if not self._left:
            matched = [entry is not None for entry in found]
            kept, found = kept.select(matched), [entry for entry in found if entry is not None]
        results = [
            joiner(key, value, None if entry is None else entry.value)
            for key, value, entry in zip(kept.keys, kept.values, found, strict=True)
        ]
        self._note_missed(looked_up, missed)
        self.context.forward(kept.with_values(results))

    def _usable(self, batch: Batch) -> Batch:
        """Return the records that can have a result."""
        batch = batch.select([value is not None for value in batch.values])
        wanted = self._lookup_keys(batch)
        if None not in wanted:
            return batch
        # KIP-962: a left join keeps a record without a key, although there is nothing to look up.
        return batch.select(
            [key is not None or (self._left and own is None) for key, own in zip(wanted, batch.keys, strict=True)]
        )

    def _lookup_keys(self, batch: Batch) -> list[Any]:
        """Return the keys to look up."""
        return batch.keys if self._selector is None else list(map(self._selector, batch.keys, batch.values))

    def _look_up(self, batch: Batch) -> tuple[list[Any], list[bool]]:
        """Return the table's entry for each record, and a flag for each that was looked up and found nothing."""
        wanted = self._lookup_keys(batch)
        if None not in wanted:
            found = self._get(wanted, batch)
            return found, [entry is None for entry in found]
        present = [i for i, key in enumerate(wanted) if key is not None]
        entries = iter(self._get([wanted[i] for i in present], batch.select([key is not None for key in wanted])))
        found = [None if key is None else next(entries) for key in wanted]
        return found, [entry is None and key is not None for entry, key in zip(found, wanted, strict=True)]

    def _get(self, keys: list[Any], records: Batch) -> list[Any]:
        if not self._view.versioned:
            return self._view.get_many(keys)
        if self._direction is AsofDirection.FORWARD:
            return self._following(keys, records)
        before = self._view.get_many_as_of(keys, moved(records.timestamps, self._first))
        before = self._passed(before, keys, records, self._older)
        if self._direction is AsofDirection.BACKWARD:
            return before
        return list(map(_closer, records.timestamps, before, self._following(keys, records)))

    def _following(self, keys: list[Any], records: Batch) -> list[Any]:
        """Return the first version of each key after its record, within the tolerance."""
        starts = [time + self._apart - 1 for time in records.timestamps]
        return self._passed(self._newer(keys, records.timestamps, starts), keys, records, self._newer)

    def _older(self, keys: list[Any], timestamps: list[int], found: list[int]) -> list[Any]:
        """Return the versions before those that were found, as of just before their times."""
        return self._view.get_many_as_of(keys, [time - 1 for time in found])

    def _newer(self, keys: list[Any], timestamps: list[int], found: list[int]) -> list[Any]:
        """Return the first version after each that was found, within the tolerance of the record."""
        ahead = self._ahead
        latest = [time if time == NO_TIME else min(time + ahead, MAX_TIME) for time in timestamps]
        return self._view.get_many_from(keys, [time + 1 for time in found], latest)

    def _passed(self, found: list[Any], keys: list[Any], records: Batch, further: _Further) -> list[Any]:
        """Return the versions that were found; one that does not fit gives way to the next one that does."""
        if self._unfit is not Unfit.NEXT:
            return found
        failing = self._failing(range(len(found)), records, found)
        while failing:
            times = [records.timestamps[place] for place in failing]
            others = further([keys[place] for place in failing], times, [found[place].timestamp for place in failing])
            for place, other in zip(failing, others, strict=True):
                found[place] = other
            failing = self._failing(failing, records, found)
        return found

    def _failing(self, places: Sequence[int], records: Batch, found: list[Any]) -> list[int]:
        """Return the places where the version that was found is not too old, but does not fulfill the condition."""
        near = self._near([found[place] for place in places], [records.timestamps[place] for place in places])
        there = [place for place, entry in zip(places, near, strict=True) if entry is not None]
        fits = self._fits([records.values[place] for place in there], [found[place] for place in there])
        return [place for place, fit in zip(there, fits, strict=True) if not fit]

    def _fits(self, values: list[Any], entries: list[Any]) -> list[bool]:
        """Return which of the table's values fulfill the condition."""
        where = self._where
        assert where is not None
        return [bool(where(value, entry.value)) for value, entry in zip(values, entries, strict=True)]

    def _matches(self, records: Batch, found: list[Any]) -> list[Any]:
        """Return the entries that were found; None where they are no match."""
        found = self._near(found, records.timestamps)
        if self._where is not None and self._unfit is Unfit.MISS:
            for place in self._failing(range(len(found)), records, found):
                found[place] = None
        return found

    def _near(self, entries: list[Any], timestamps: Sequence[int]) -> list[Any]:
        """Return the table's entries; None where they are too old for their record."""
        most = self._tolerance
        if most is None:
            return list(entries)
        return [
            entry if entry is not None and time - entry.timestamp <= most else None
            for entry, time in zip(entries, timestamps, strict=True)
        ]

    def _missed(self, nothing: Sequence[bool] | Booleans, timestamps: Sequence[int] | Integers) -> Booleans | None:
        """Return which records found ``nothing`` and lie beyond the table's history; None if none do."""
        horizon = self._view.horizon() if self._view.versioned else None
        if horizon is None or not len(timestamps):
            return None
        times = np.asarray(moved(timestamps, self._from), np.int64)
        return None if times.min() >= horizon else np.asarray(nothing, np.bool_) & (times < horizon)

    def _note_missed(self, records: Records, missed: Booleans | None) -> None:
        """Count and tell of the records that were looked up beyond the history."""
        horizon = self._view.horizon()
        if missed is None or horizon is None or not missed.any():
            return
        self.context.count(CounterName.BEYOND_HISTORY_RETENTION, int(np.count_nonzero(missed)))
        times = np.asarray(moved(records.timestamps, self._from), np.int64)
        allowed = self._view.history_retention()
        reached = np.full(len(times), horizon + allowed)
        self.context.tell_late(CounterName.BEYOND_HISTORY_RETENTION, records, missed, reached, horizon - times, allowed)
        if not self._warned:
            self._warned = True
            _log.warning(
                "%s looked up times before the table's history retention and found nothing; such records are counted "
                "as %r. If they should find a value, make the history retention longer",
                self.context.shown,
                CounterName.BEYOND_HISTORY_RETENTION.value,
            )


def moved(timestamps: Any, by: int) -> Any:
    """Return the times, later by so much; ``NO_TIME`` stays."""
    if not by:
        return timestamps
    times = np.asarray(timestamps, np.int64)
    times = times + by * (times != NO_TIME)
    return times if isinstance(timestamps, np.ndarray) else times.tolist()


def _closer(time: int, before: Any, after: Any) -> Any:
    """Return the version that is closer to a time; the one before it if they are equally close."""
    if before is None or after is None:
        return after if before is None else before
    return after if after.timestamp - time < time - before.timestamp else before


def _least(one: int | None, other: int | None) -> int | None:
    """Return the less of two times, either of which may be unknown."""
    return min((time for time in (one, other) if time is not None), default=None)
