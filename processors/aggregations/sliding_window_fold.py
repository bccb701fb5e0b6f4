"""Folding whole columns into sliding windows.

A record at ``t`` has a left window, ``[t - difference, t]``, and if there are records within the difference after it, a
right one, ``[t + 1, t + 1 + difference]``. So the windows of a key do not depend on the order of its records. A new
window begins with the aggregate of the last window before it if that has a record in common with it; else it has new
records alone.

Rule of this module: this holds for records none of whose windows has closed. A record whose windows have closed is
late. A record with windows of both kinds is left to objects, and so is a run that meets its windows.
"""

from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.processors.aggregations.column_fold import ColumnFold, Groups
from millpond.processors.aggregations.window_fold import (
    Folded,
    Integers,
    Standing,
    StartedWindowFold,
    places_in,
    reached_since,
)
from millpond.processors.options.windows import SlidingWindows
from millpond.processors.runtime.batches.column_tuples import chosen, taken
from millpond.processors.runtime.batches.columns import Columns, spread
from millpond.stores.encoding.column_serdes import ColumnSerde
from millpond.stores.encoding.times import MIN_TIME
from millpond.stores.typed.windows.timestamped_window import TimestampedWindowStore
from millpond.stores.typed.windows.window_columns import Windows

_AT_ONCE: Final = 1 << 22
"""About the number of folds of records into windows at once: a record is in many windows."""


class _Moments:
    """Pairs of a key's number and a time as numbers, which are ordered as the pairs are.

    Args:
        times: all times that there are.
    """

    def __init__(self, *times: Integers) -> None:
        self._times = np.unique(np.concatenate(times))

    def of(self, keys: Integers, times: Integers) -> Integers:
        """Return the numbers of pairs."""
        return keys * len(self._times) + np.searchsorted(self._times, times)

    def pairs(self, moments: Integers) -> tuple[Integers, Integers]:
        """Return the pairs whose numbers these are."""
        keys, places = np.divmod(moments, len(self._times))
        return keys, self._times[places]


class _Run(NamedTuple):
    """Records that are not late, and stored windows near them, by key and start.

    Attributes:
        groups: the records by key.
        times: the records' times.
        keys: for each window, the number of its key.
        met: the windows.
        earliest, latest: for each window, the first and the last start of known windows near it.
    """

    groups: Groups
    times: Integers
    keys: Integers
    met: Windows
    earliest: Integers
    latest: Integers


class _Slots(NamedTuple):
    """Windows that records change, by key and start.

    Attributes:
        keys: the number of the key of each.
        starts: the start of each.
        bases: the stored window that each has the aggregate of before these records; -1 where there is none.
        known: whether it is that window itself.
        records: the records, each once for every window that it is in.
        numbers: the window of each of these.
    """

    keys: Integers
    starts: Integers
    bases: Integers
    known: npt.NDArray[np.bool_]
    records: Integers
    numbers: Integers


class SlidingWindowFold(StartedWindowFold):
    """Folds columns into sliding windows.

    Args:
        windows: the windows.
        fold: the aggregate.
        store: has the aggregates.
        keys, values: its serdes, for whole columns.
        final: whether final results come out, or else updates.
        olds: whether updates have the aggregate before them.
    """

    def __init__(
        self,
        windows: SlidingWindows,
        fold: ColumnFold,
        store: TimestampedWindowStore[Any, Any],
        keys: ColumnSerde,
        values: ColumnSerde,
        *,
        final: bool,
        olds: bool,
    ) -> None:
        difference = windows.difference
        self._length = difference
        reach = difference + windows.grace + 1
        super().__init__(
            fold, store, keys, values, reach, lambda starts: (starts, starts + difference), final=final, olds=olds
        )
        # Beyond this, some of a record's windows have closed, or the store has forgotten one that tells of them.
        self._in_time = min(windows.grace, store.retention - 2 * difference - 1)
        self._earliest = 2 * difference + 1 if windows.from_epoch else None

    def fold(self, columns: Columns, standing: Standing, partials: Columns | None = None) -> Folded | None:
        reached = reached_since(standing.stream_time, columns.timestamps)
        behind, now = reached - columns.timestamps, int(reached[-1])
        late = behind >= self._reach
        if self._strays(behind).any() or standing.observed > standing.stream_time:
            return None
        records, number = columns.select(~late), int(np.count_nonzero(late))
        if not len(records):
            return Folded(self._closed(self._nothing), now, standing.waiting, number)
        if self._earliest is not None and int(records.timestamps.min()) < self._earliest:
            return None  # Records of the first moments after 1970 share a window.
        run = self._met(records)
        slots = _slots(run, self._length)
        if slots is None:
            return None
        folded = self._folded(slots, run, records)
        if not self._final:
            self._store.put(folded)
            before = run.met.values.take(pa.array(slots.bases, mask=~slots.known))
            return Folded(self._updates(folded, before), now, standing.waiting, number)
        last = now - self._reach
        untouched = self._untouched(standing.stream_time, last, run.groups.keys, slots)
        self._store.put(folded)
        waiting = standing.waiting - len(untouched.starts) - int(np.count_nonzero(slots.known))
        waiting += int(np.count_nonzero(folded.starts > last))
        return Folded(self._closed(untouched, chosen(folded, folded.starts <= last)), now, waiting, number)

    def _strays(self, behind: Integers) -> npt.NDArray[np.bool_]:
        strays: npt.NDArray[np.bool_] = (behind > self._in_time) & (behind < self._reach)
        return strays

    def _met(self, records: Columns) -> _Run:
        """Return the records, and the windows of the store that are near to them."""
        groups, times = Groups(self._keys.write(records.keys)), records.timestamps
        order = np.lexsort((times, groups.numbers))
        owners, sorted_times = groups.numbers[order], times[order]
        begins = np.ones(len(order), np.bool_)
        begins[1:] = (owners[1:] != owners[:-1]) | (sorted_times[1:] - sorted_times[:-1] > 2 * self._length + 2)
        firsts = np.flatnonzero(begins)
        lasts = np.append(firsts[1:], len(order)) - 1
        spans = owners[firsts], sorted_times[firsts] - 2 * self._length, sorted_times[lasts] + 1
        met = self._store.of_keys(groups.keys, *spans)
        keys = places_in(met.keys, groups.keys)
        by_key = np.lexsort((met.starts, keys))
        keys, met = keys[by_key], chosen(met, by_key)
        moments = _Moments(spans[1], met.starts)
        places = np.searchsorted(moments.of(*spans[:2]), moments.of(keys, met.starts), side="right") - 1
        return _Run(groups, times, keys, met, spans[1][places], spans[2][places])

    def _folded(self, slots: _Slots, run: _Run, records: Columns) -> Windows:
        """Return the windows with the records folded in."""
        keys = taken(run.groups.keys, slots.keys)
        absent = slots.bases < 0
        values = run.met.values.take(pa.array(slots.bases, mask=absent))
        timestamps = np.full(len(absent), MIN_TIME)
        timestamps[~absent] = run.met.timestamps[slots.bases[~absent]]
        for start, stop in pairwise([*range(0, len(slots.records), _AT_ONCE), len(slots.records)]):
            some = slots.records[start:stop]
            groups = Groups(keys, slots.numbers[start:stop])
            values = self._values.own(self._fold.totals(groups, taken(records.values, some), values))
            timestamps = np.maximum(timestamps, groups.latest(run.times[some]))
        return Windows(keys, slots.starts, values, timestamps)

    def _untouched(self, stream_time: int, last: int, keys: Any, slots: _Slots) -> Windows:
        """Return the stored windows that close up to the start ``last``, except those that records have come to."""
        first = stream_time - self._reach + 1
        if stream_time == MIN_TIME or first > last:
            return self._nothing
        stored = self._store.between(first, last)
        owners = places_in(stored.keys, keys)
        moments = _Moments(stored.starts, slots.starts)
        touched = np.isin(moments.of(owners, stored.starts), moments.of(slots.keys, slots.starts))
        return chosen(stored, ~(touched & (owners >= 0)))


def _slots(run: _Run, difference: int) -> _Slots | None:
    """Return the windows that records change; None if stored windows lack some that their records have."""
    own, times, (_, starts, _, latest) = run.groups.numbers, run.times, run.met
    moments = _Moments(starts, latest - difference, latest + 1, times - difference, times, times + 1)
    stored, near = moments.of(run.keys, starts), latest - difference >= run.earliest
    if not np.isin(moments.of(run.keys, latest - difference)[near], stored).all():
        return None
    near = latest < run.latest
    behind = np.unique(moments.of(run.keys, latest + 1)[near])
    if (_begun(behind, stored, run, moments)[1] >= 0).any():
        return None
    lefts, rights = moments.of(own, times - difference), moments.of(own, times + 1)
    begun = np.unique(np.concatenate([lefts, rights, behind]))
    begun, bases = _begun(begun, stored, run, moments)
    # All windows that there may be, with the place in the store of what they have.
    every = np.concatenate([stored, begun])
    order = every.argsort()
    every, bases = every[order], np.concatenate([np.arange(len(stored)), bases])[order]
    known = order < len(stored)
    firsts = np.searchsorted(every, lefts)
    counts = np.searchsorted(every, moments.of(own, times), side="right") - firsts
    records, within = spread(counts)
    numbers = within + firsts[records]
    changed = np.bincount(numbers, minlength=len(every)) > 0
    changed |= ~known & (bases >= 0)
    places = np.cumsum(changed) - 1
    keys, begins = moments.pairs(every[changed])
    return _Slots(keys, begins, bases[changed], known[changed], records, places[numbers])


def _begun(begun: Integers, stored: Integers, run: _Run, moments: _Moments) -> tuple[Integers, Integers]:
    """Return windows to begin that are not stored, and the place of the stored one with their start; -1 for none."""
    places = np.searchsorted(stored, begun)
    there = np.append(stored, -1)[places] == begun
    begun, places = begun[~there], places[~there] - 1
    keys, starts = moments.pairs(begun)
    if not len(stored):
        return begun, places
    has = (places >= 0) & (run.keys[places] == keys) & (run.met.timestamps[places] >= starts)
    return begun, np.where(has, places, -1)
