"""Folding whole columns into sessions.

Rule of this module: as long as no record meets a session that has closed, a key's sessions are what its records and its
open sessions are when they are laid out by time and cut at the gaps, and where a largest length cuts them, whatever
order the records came in. Only a record that is further behind stream time than the grace period can meet such a
session. One that is further behind than gap and grace together is late, unless an open session is within the gap of it.
A run in which a record meets a closed session, or an open one keeps it from being late, is cut around such records, and
these are left to objects.

Where records have gaps of their own, they are laid out from their times until when they last, and cut where none lasts
until the next one. A record further behind than the grace period is left to objects then, unless it is behind by the
greatest gap as well.

For final results, all sessions that are open are read at once, which costs less than seeking those of each key, unless
there are many more of them than records.
"""

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.processors.aggregations.column_fold import Groups, MergingFold
from millpond.processors.aggregations.own_gaps import PackedGaps
from millpond.processors.aggregations.session_parts import parted
from millpond.processors.aggregations.window_fold import (
    Folded,
    Integers,
    Standing,
    WindowFold,
    closing_order,
    places_in,
    reached_since,
)
from millpond.processors.options.placing import ends_of, last_starts, lasting
from millpond.processors.options.windows import ALL_TIMES, SessionWindows, Span
from millpond.processors.runtime.batches.column_tuples import chosen, laid_end_to_end, taken
from millpond.processors.runtime.batches.columns import Columns, nulls
from millpond.processors.runtime.order.time_order import reached_by_key
from millpond.stores.encoding.column_serdes import ColumnSerde
from millpond.stores.encoding.times import FARTHEST, MIN_TIME
from millpond.stores.typed.windows.session import SessionStore
from millpond.stores.typed.windows.session_columns import SessionColumns, Sessions

_PATIENCE: Final = 16
"""The number of open sessions that are read in the time that it takes to seek those of one key."""


class _Laid(NamedTuple):
    """Open sessions and records, by key, then start.

    Attributes:
        order: the session or record at each place; numbers of sessions come first.
        numbers: the session of the result that each place belongs to.
        starts, ends: the starts and ends of the sessions of the result.
        keys: for each of these, the number of its key.
    """

    order: Integers
    numbers: Integers
    starts: Integers
    ends: Integers
    keys: Integers


class _Run(NamedTuple):
    """Records, some of which are late unless an open session is within the gap of them.

    Attributes:
        groups: the records by key.
        times: their timestamps.
        ends: the times until which they last; their timestamps, if all have the same gap.
        reached: stream time at each of them.
        late: a mask of the late ones.
    """

    groups: Groups
    times: Integers
    ends: Integers
    reached: Integers
    late: npt.NDArray[np.bool_]


class SessionFold(WindowFold):
    """Folds columns into sessions.

    Args:
        windows: the sessions' gap and grace, and the windows that cut them.
        fold: the aggregate.
        store: has the aggregates.
        keys, values: its serdes, for whole columns.
        gaps: tells the gaps of records; None if all have the same.
        final: whether final results come out, or else updates.
        span: the times at which sessions may begin and end.
        olds: whether updates have the aggregate before them.
    """

    def __init__(
        self,
        windows: SessionWindows,
        fold: MergingFold,
        store: SessionStore[Any, Any],
        keys: ColumnSerde,
        values: ColumnSerde,
        gaps: PackedGaps | None,
        *,
        final: bool,
        span: Span,
        olds: bool,
    ) -> None:
        super().__init__(keys, values, windows.apart + windows.grace + 1, final=final, olds=olds)
        self._windows = windows
        self._span = span
        self._own_gaps = gaps
        self._gap = windows.apart
        self._ahead = windows.ahead
        self._within = windows.within
        self._grace = windows.grace
        self._fold = fold
        self._retention = store.retention
        self._store = SessionColumns(store, values)

    def fold(self, columns: Columns, standing: Standing, partials: Columns | None = None) -> Folded | None:
        reached, ends = reached_since(standing.stream_time, columns.timestamps), self._ends(columns)
        late = reached - ends >= self._reach
        ahead = standing.observed - self._ahead > standing.stream_time
        made = self._made(partials)
        if ahead or self._retention < self._reach + self._ahead or (late.all() and not len(made.ends)):
            return None
        if standing.stream_time != MIN_TIME and (made.starts < standing.stream_time - self._grace).any():
            return None  # Some of the records may be late, or meet a session that has closed.
        keys = self._keys.write(columns.keys)
        run = _Run(
            Groups(pa.concat_arrays([keys, made.keys]) if len(made.ends) else keys),
            np.concatenate([columns.timestamps, made.starts]),
            np.concatenate([ends, made.ends]),
            np.concatenate([reached, made.starts]),
            np.concatenate([late, np.zeros(len(made.ends), np.bool_)]),
        )
        now = int(np.concatenate([reached[-1:], made.ends, [standing.stream_time]]).max())
        last = now - self._reach
        met, others = self._stored(run, standing, last)
        laid = self._laid_out(run, places_in(met.keys, run.groups.keys), met, standing.stream_time)
        if laid is None:
            return None
        folded, met_by = self._folded(laid, run, met, columns.select(~late), made)
        self._store.change(chosen(met, met_by >= 0), folded)
        number = int(np.count_nonzero(late))
        if not self._final:
            return Folded(self._updates(folded, met, met_by), now, standing.waiting, number)
        untouched = [chosen(some, some.ends <= last) for some in (others, chosen(met, met_by < 0))]
        waiting = standing.waiting - np.count_nonzero(met_by >= 0) - sum(len(some.ends) for some in untouched)
        waiting += np.count_nonzero(folded.ends > last)
        results = self._closed(*untouched, chosen(folded, folded.ends <= last))
        return Folded(results, now, int(waiting), number)

    def _made(self, partials: Columns | None) -> Sessions:
        """Return the parts of sessions that partial aggregates are."""
        if partials is None:
            return self._nothing
        values, starts = parted(partials.values)
        return Sessions(self._keys.write(partials.keys), starts, partials.timestamps, values)

    def _strays(self, behind: Integers) -> npt.NDArray[np.bool_]:
        strays: npt.NDArray[np.bool_] = (behind > self._grace) & (behind < self._reach + self._ahead)
        return strays

    def _ends(self, columns: Columns) -> Integers:
        """Return the times until which records last: their own times, if all have the same gap."""
        if self._own_gaps is None:
            return columns.timestamps
        return lasting(self._windows, columns.timestamps, self._own_gaps.of_columns(columns))

    def _laid_out(self, run: _Run, keys: Integers, met: Sessions, stream_time: int) -> _Laid | None:
        """Open sessions, with these keys, and the records that are not late; None if they have to be objects."""
        kept = ~run.late
        laid = self._laid(np.concatenate([keys, run.groups.numbers[kept]]), met, run.times[kept], run.ends[kept])
        if laid is None or self._saves_late(run, laid) or self._meets_closed(run, keys, met, stream_time):
            return None
        return laid

    def _laid(self, keys: Integers, met: Sessions, times: Integers, lasts: Integers) -> _Laid | None:
        """Return sessions and records by key and time, cut at gaps, and where a largest length cuts them.

        Args:
            keys: the number of the key of each session, then of each record.
            met: the sessions.
            times: the times of the records.
            lasts: the times until which they last.

        Returns:
            None if sessions of the store are not apart, so that it takes more than one record to merge them.
        """
        starts, ends = np.concatenate([met.starts, times]), np.concatenate([met.ends, lasts])
        order = np.lexsort((starts, keys))
        keys, starts, ends = keys[order], starts[order], ends[order]
        stored = order < len(met.starts)
        if not self._begins(keys[stored], starts[stored], ends[stored]).all():
            return None
        ends = reached_by_key(ends, keys)
        begins = self._begins(keys, starts, ends)
        firsts = np.flatnonzero(begins)
        lasts = np.append(firsts[1:], len(order)) - 1
        return _Laid(order, np.cumsum(begins) - 1, starts[firsts], ends[lasts], keys[firsts])

    def _begins(self, keys: Integers, starts: Integers, ends: Integers) -> npt.NDArray[np.bool_]:
        """Return whether each of some spans, by key and start, cannot be in one session with the one before it.

        It cannot if that one is of another key, ended more than the gap before, or is in another piece of time.

        Args:
            keys, starts: the keys and starts of the spans.
            ends: the latest end of the spans of its key up to each.
        """
        begins = np.ones(len(keys), np.bool_)
        begins[1:] = (keys[1:] != keys[:-1]) | (starts[1:] - ends[:-1] > self._gap)
        if self._within is not None:
            pieces = last_starts(self._within, starts)
            begins[1:] |= pieces[1:] != pieces[:-1]
        return begins

    def _earliest(self, times: Integers) -> Integers:
        """Return the earliest end of a session that takes a record, for records of these times."""
        earliest = times - self._gap
        return earliest if self._within is None else np.maximum(earliest, last_starts(self._within, times))

    def _latest(self, times: Integers, lasts: Integers) -> Integers:
        """Return the latest start of a session that takes a record, for records of these times that last so long."""
        latest = lasts + self._gap
        if self._within is None:
            return latest
        return np.minimum(latest, ends_of(self._within, last_starts(self._within, times)) - 1)

    def _saves_late(self, run: _Run, laid: _Laid) -> bool:
        """Return whether a session that may be open is within the gap of a late record."""
        latest, closed = self._latest(run.times[run.late], run.ends[run.late]), run.reached[run.late] - self._reach
        found = _first_from(laid.keys, laid.ends, run.groups.numbers[run.late], closed + 1)
        return bool((laid.starts[found] <= latest)[found >= 0].any())

    def _meets_closed(self, run: _Run, keys: Integers, met: Sessions, stream_time: int) -> bool:
        """Return whether a record in time is near a session that has closed, or too far behind to tell."""
        kept = ~run.late
        strays = kept & (run.reached - run.times > self._grace)
        if self._own_gaps is not None or not strays.any():
            return bool(strays.any())
        closed = stream_time - self._reach
        before = self._ended(stream_time, closed + 1 - self._gap, closed)
        places = places_in(before.keys, run.groups.keys)
        keys = np.concatenate([keys, places[places >= 0], run.groups.numbers[kept]])
        ends = np.concatenate([met.ends, before.ends[places >= 0], run.times[kept]])
        found = _first_from(keys, ends, run.groups.numbers[strays], self._earliest(run.times[strays]))
        return bool((ends[found] <= run.reached[strays] - self._reach).any())

    def _stored(self, run: _Run, standing: Standing, last: int) -> tuple[Sessions, Sessions]:
        """Return the open sessions that records may belong to, and others that end up to ``last``, for final results.

        A session that ended more than the gap before the first record of its key is not among the former. So if the
        records of a key come in order, only the sessions are read that its newest records may belong to.
        """
        time, keys, nothing = standing.stream_time, run.groups.keys, self._nothing
        if time == MIN_TIME:
            return nothing, nothing
        first = time - self._reach + 1
        near = np.maximum(run.groups.earliest(run.times) - min(self._gap, 2 * FARTHEST), max(first, MIN_TIME))
        seeks = not self._final or standing.waiting > _PATIENCE * len(keys)
        ended = self._ended(time, first, last if seeks else FARTHEST) if self._final else nothing
        places = places_in(ended.keys, keys)
        own = (places >= 0) & (ended.ends >= near[places])
        met = self._own(self._store.of_keys_ended_from(keys, near)) if seeks else chosen(ended, own)
        return met, chosen(ended, ~own)

    def _ended(self, stream_time: int, earliest: int, latest: int) -> Sessions:
        """Return the sessions of the store that end from ``earliest`` to ``latest``, both included."""
        return self._nothing if stream_time == MIN_TIME else self._own(self._store.ended_between(earliest, latest))

    def _own(self, sessions: Sessions) -> Sessions:
        """Return the sessions that are not of another gap."""
        if self._span == ALL_TIMES:
            return sessions
        return chosen(sessions, (sessions.starts >= self._span.first) & (sessions.ends <= self._span.last))

    @property
    def _nothing(self) -> Sessions:
        none = np.empty(0, np.int64)
        return Sessions(pa.array([], pa.binary()), none, none, pa.array([], self._values.type))

    def _folded(
        self, laid: _Laid, run: _Run, met: Sessions, columns: Columns, made: Sessions
    ) -> tuple[Sessions, Integers]:
        """Return the sessions that records are in, and for each session of the store which it became part of, or -1.

        Args:
            laid: the sessions of the store, the records, and parts that were made of others, laid out.
            run: the records and these parts.
            met: the sessions of the store.
            columns: the records that are not late.
            made: the parts.
        """
        known, size = len(met.starts), len(columns)
        numbers = np.empty(len(laid.order), np.int64)
        numbers[laid.order] = laid.numbers
        slots = Groups(taken(run.groups.keys, laid.keys), numbers[known:])
        parts = np.concatenate([numbers[:known], numbers[known + size :]])
        values = pa.concat_arrays([met.values, made.values]) if len(made.ends) else met.values
        values = self._fold.merged(Groups(slots.keys, parts), values)
        if size:
            rows = Groups(slots.keys, numbers[known : known + size])
            values = self._fold.totals(rows, columns.values, values)
        changed = slots.sizes > 0
        sessions = Sessions(slots.keys, laid.starts, laid.ends, self._values.own(values))
        places = np.where(changed, np.cumsum(changed) - 1, -1)
        return chosen(sessions, changed), places[numbers[:known]]

    def _updates(self, folded: Sessions, met: Sessions, met_by: Integers) -> Columns:
        """Return the sessions of the records, each behind the deletes of the stored sessions that it has absorbed."""
        same = (met.starts == folded.starts[met_by]) & (met.ends == folded.ends[met_by])
        replaced = (met_by >= 0) & ~same
        gone = chosen(met, replaced)
        deletes = gone._replace(values=nulls(len(gone.ends), gone.values.type))
        keys, starts, ends, values = laid_end_to_end([deletes, folded])
        order = np.append(met_by[replaced], np.arange(len(folded.ends))).argsort(kind="stable")
        updates = self._results(taken(keys, order), starts[order], ends[order], taken(values, order), ends[order])
        if self._olds:
            goes_on = np.flatnonzero((met_by >= 0) & same)
            places = np.full(len(folded.ends), -1)
            places[met_by[goes_on]] = goes_on
            before = met.values.take(pa.array(places, mask=places < 0))
            updates.olds = taken(pa.concat_arrays([gone.values, before]), order)
        return updates

    def _closed(self, *parts: Sessions) -> Columns:
        """Return the results of sessions that have closed."""
        keys, starts, ends, values = laid_end_to_end(parts)
        order = closing_order(keys, ends, starts)
        ends = ends[order]
        return self._results(taken(keys, order), starts[order], ends, taken(values, order), ends)


def _first_from(keys: Integers, ends: Integers, wanted: Integers, earliest: Integers) -> Integers:
    """Return the place of the first end of each of some keys that is no earlier than a time, -1 where there is none.

    Args:
        keys, ends: the key of each end; at least one.
        wanted, earliest: the keys, and for each the time.
    """
    known = len(keys)
    order = np.lexsort((np.arange(known + len(wanted)) < known, np.append(ends, earliest), np.append(keys, wanted)))
    following = np.where(order < known, np.arange(len(order)), len(order))
    places = np.empty(len(order), np.int64)
    places[order] = np.minimum.accumulate(following[::-1])[::-1]
    found = np.append(order, -1)[places[known:]]
    return np.where(keys[found] == wanted, found, -1)
