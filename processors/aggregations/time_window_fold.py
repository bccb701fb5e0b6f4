"""Folding whole columns into tumbling, hopping and cumulative windows.

Rule of this module: a window that has closed takes no more records, so its result is what all records of the run make
of it, and results come out in the order of the windows' places, then keys, whatever the order of the records was.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as _compute

from millpond.processors.aggregations.column_fold import ColumnFold, Groups, MergingFold, inverse
from millpond.processors.aggregations.window_fold import (
    Folded,
    Integers,
    Standing,
    StartedWindowFold,
    places_in,
    reached_since,
)
from millpond.processors.options.placing import begins_of, ends_of, first_starts, last_starts
from millpond.processors.options.windows import GridWindows, Span
from millpond.processors.runtime.batches.column_tuples import chosen, taken
from millpond.processors.runtime.batches.columns import Columns, spread
from millpond.stores.encoding.column_serdes import ColumnSerde
from millpond.stores.encoding.numbering import numbered
from millpond.stores.encoding.times import MIN_TIME
from millpond.stores.typed.windows.timestamped_window import TimestampedWindowStore
from millpond.stores.typed.windows.window_columns import Windows

pc: Any = _compute


class _Slots(NamedTuple):
    """Distinct pairs of a key and a window's start, in the order of starts, then keys.

    Attributes:
        keys, starts: the key and the start of each pair.
        numbers: the pair that each record goes to.
        distinct: the distinct keys.
        begins: the distinct starts.
        codes: for each pair, the place of its start times the number of keys, plus that of its key.
    """

    keys: Any
    starts: Integers
    numbers: Integers
    distinct: Any
    begins: Integers
    codes: Integers

    @property
    def as_they_came(self) -> Integers:
        """The pairs in the order of their first records."""
        records = len(self.numbers)
        firsts = np.empty(len(self.codes), np.int64)
        firsts[self.numbers[::-1]] = np.arange(records)[::-1]
        return firsts.argsort()

    def holds(self, windows: Windows) -> npt.NDArray[np.bool_]:
        """Return which windows are among these."""
        keys, begins = places_in(windows.keys, self.distinct), np.searchsorted(self.begins, windows.starts)
        begins = np.minimum(begins, len(self.begins) - 1)
        same = (keys >= 0) & (self.begins[begins] == windows.starts)
        held: npt.NDArray[np.bool_] = same & np.isin(begins * len(self.distinct) + keys, self.codes)
        return held


class TimeWindowFold(StartedWindowFold):
    """Folds columns into tumbling, hopping and cumulative windows.

    Args:
        windows: the windows.
        fold: the aggregate.
        store: has the aggregates.
        keys, values: its serdes, for whole columns.
        final: whether final results come out, or else updates.
        span: the times at which windows may begin.
        olds: whether updates have the aggregate before them.
    """

    def __init__(
        self,
        windows: GridWindows,
        fold: ColumnFold,
        store: TimestampedWindowStore[Any, Any],
        keys: ColumnSerde,
        values: ColumnSerde,
        *,
        final: bool,
        span: Span,
        olds: bool,
    ) -> None:
        super().__init__(fold, store, keys, values, windows.retention, self._bounds_of, final=final, olds=olds)
        self._windows = windows
        self._span = span

    def _bounds_of(self, places: Integers) -> tuple[Integers, Integers]:
        return begins_of(self._windows, places), ends_of(self._windows, places)

    def fold(self, columns: Columns, standing: Standing, partials: Columns | None = None) -> Folded | None:
        reached = reached_since(standing.stream_time, columns.timestamps)
        records, starts = _placed(self._windows, columns.timestamps, self._span)
        is_open = ends_of(self._windows, starts) > reached[records] - self._windows.grace
        late = len(is_open) - int(np.count_nonzero(is_open))
        if late:
            records, starts = records[is_open], starts[is_open]
        made = self._made(partials)
        now = int(np.concatenate([reached[-1:], made.timestamps, [standing.stream_time]]).max())
        if not len(starts) + len(made.starts):
            return Folded(self._closed(self._nothing), now, standing.waiting, late)
        if (ends_of(self._windows, made.starts) <= standing.stream_time - self._windows.grace).any():
            return None  # Some of the records are late.
        starts = np.concatenate([starts, made.starts])
        if int(starts.min()) <= standing.observed - self._retention:
            return None  # By another stream's time, the store has forgotten them.
        keys = taken(self._keys.write(columns.keys), records)
        slots = _slots(pa.concat_arrays([keys, made.keys]) if len(made.starts) else keys, starts)
        folded, before = self._folded(slots, columns, records, made)
        if not self._final:
            self._store.put(folded)
            order = slots.as_they_came
            updates = self._updates(chosen(folded, order), before.take(pa.array(order)))
            return Folded(updates, now, standing.waiting, late, len(starts) - len(updates))
        last = self._windows.closed(now)
        untouched = self._untouched(standing.stream_time, last, slots)
        self._store.put(folded)
        waiting = standing.waiting - len(untouched.starts) - (len(before) - before.null_count)
        waiting += int(np.count_nonzero(folded.starts > last))
        closed = chosen(folded, folded.starts <= last)
        return Folded(self._closed(untouched, closed), now, waiting, late)

    def _made(self, partials: Columns | None) -> Windows:
        """Return the windows that partial aggregates are of, each of one."""
        if partials is None:
            return self._nothing
        starts = last_starts(self._windows, partials.timestamps)
        return Windows(self._keys.write(partials.keys), starts, partials.values, partials.timestamps)

    def _folded(self, slots: _Slots, columns: Columns, records: Integers, made: Windows) -> tuple[Windows, Any]:
        """Return the windows with all folded in, and what they were before, null where they are new.

        Args:
            slots: the windows, by the records and then by the aggregates of others.
            columns: the records.
            records: the place of each record, for each window that holds it.
            made: aggregates of other records.
        """
        before, since = self._store.get(slots.keys, slots.starts)
        totals, size = before, len(records)
        if len(made.starts):
            assert isinstance(self._fold, MergingFold)
            known = np.flatnonzero(before.is_valid().to_numpy(zero_copy_only=False))
            groups = Groups(slots.keys, np.concatenate([known, slots.numbers[size:]]))
            totals = self._fold.merged(groups, pa.concat_arrays([before.drop_null(), made.values]))
        if size:
            groups = Groups(slots.keys, slots.numbers[:size])
            totals = self._fold.totals(groups, taken(columns.values, records), totals)
        times = np.concatenate([columns.timestamps[records], made.timestamps])
        latest = Groups(slots.keys, slots.numbers).latest(times)
        if since.null_count < len(since):
            latest = np.maximum(latest, since.fill_null(MIN_TIME).to_numpy())
        return Windows(slots.keys, slots.starts, self._values.own(totals), latest), before

    def _untouched(self, stream_time: int, last: int, slots: _Slots) -> Windows:
        """Return the stored windows that close up to the start ``last``, except those that records have come to."""
        first, last = self._span.cut(self._windows.closed(stream_time) + 1, last)
        if stream_time == MIN_TIME or first > self._windows.grid.last(last):
            return self._nothing
        stored = self._store.between(first, last)
        return chosen(stored, ~slots.holds(stored)) if slots.begins[0] <= last else stored


def _placed(windows: GridWindows, times: Integers, span: Span) -> tuple[Integers, Integers]:
    """Return each record once for every window that holds it: the record's place, and the window's."""
    advance = windows.distance
    lasts, firsts = last_starts(windows, np.minimum(times, span.last)), first_starts(windows, times, span)
    counts = (lasts - firsts) // advance + 1
    records, within = spread(counts)
    return records, firsts[records] + within * advance


def _slots(keys: Any, starts: Integers) -> _Slots:
    groups = Groups(keys)
    order = pc.sort_indices(groups.keys)
    distinct, numbers = groups.keys.take(order), inverse(order)[groups.numbers]
    begins, places = numbered(starts)
    codes, numbers = numbered(places * len(distinct) + numbers)
    of_keys, of_begins = codes % len(distinct), codes // len(distinct)
    return _Slots(taken(distinct, of_keys), begins[of_begins], numbers, distinct, begins, codes)
