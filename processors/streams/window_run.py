"""A run of records of both sides of a join within a window, as whole columns: its pairs, and their order.

Records have places: the order in which they came. Of two partners the later one finds the earlier one.

Rule of this module: results, their order and the kept records are the same as record by record
(``millpond.processors.streams.window_join``). Here no user's function is called, and nothing changes before ``write``.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.processors.options.joins import Side
from millpond.processors.runtime.batches.columns import spread
from millpond.processors.runtime.order.time_order import reached_by_key
from millpond.processors.streams.arrivals import Arrivals, SideRecords
from millpond.processors.streams.own_windows import Reach
from millpond.processors.streams.unpaired_columns import UnpairedRun
from millpond.processors.streams.unpaired_rows import UnpairedRows
from millpond.stores.typed.windows.duplicate_columns import NEVER, DuplicateColumns

Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]

NOTHING = -1
"""The position of a value that is not there."""


class BuildSide(NamedTuple):
    """Records of one side that records of the other may meet.

    Attributes:
        keys: the number of each one's key; -1 for a record that meets nobody.
        times: their timestamps.
        places: the places in which they came; -1 for earlier runs. They ascend among equal keys and times.
    """

    keys: Integers
    times: Integers
    places: Integers


class ProbeSide(NamedTuple):
    """Records of the other side, and the bounds of their partners.

    Attributes:
        keys: the number of each one's key.
        earliest, latest: the bounds of a partner's time, both included; none if they cross.
        places: the places in which they came.
    """

    keys: Integers
    earliest: Integers
    latest: Integers
    places: Integers


def partners(seekers: ProbeSide, candidates: BuildSide) -> tuple[Integers, Integers]:
    """Return all pairs, by seeker, then by the candidate's time, then as the candidates came.

    Returns:
        The positions of seeker and candidate of each pair.

    >>> candidates = BuildSide(np.array([0, 0, 1, 0]), np.array([7, 5, 5, 6]), np.array([-1, 0, 1, 3]))
    >>> seekers = ProbeSide(np.array([0]), np.array([5]), np.array([7]), np.array([2]))
    >>> [found.tolist() for found in partners(seekers, candidates)]
    [[0, 0], [1, 0]]
    """
    times = np.unique(candidates.times)
    # As a digit before which the key's number stands, the rank of a time fits into 64 bits whatever the times are.
    base = len(times) + 1
    codes = candidates.keys * base + np.searchsorted(times, candidates.times)
    order = codes.argsort(kind="stable")
    codes = codes[order]
    first = np.searchsorted(codes, seekers.keys * base + np.searchsorted(times, seekers.earliest))
    past = np.searchsorted(codes, seekers.keys * base + np.searchsorted(times, seekers.latest, side="right"))
    found, at = spread(np.maximum(past - first, 0))
    met = order[first[found] + at]
    earlier = candidates.places[met] < seekers.places[found]
    return found[earlier], met[earlier]


def spans_of_each(keys: Integers, earliest: Integers, latest: Integers) -> tuple[Integers, Integers, Integers]:
    """Return the times that are between some bounds, both included: as spans that do not overlap, by key, then time.

    Args:
        keys: the number of each bound's key.
        earliest, latest: the bounds; there is nothing between them if they cross.

    >>> columns = np.array([1, 1, 0, 1, 0]), np.array([3, 9, 0, 2, 5]), np.array([5, 9, 4, 4, 4])
    >>> [column.tolist() for column in spans_of_each(*columns)]
    [[0, 1, 1], [0, 2, 9], [4, 5, 9]]
    """
    crossed = earliest > latest
    keys, earliest, latest = keys[~crossed], earliest[~crossed], latest[~crossed]
    order = np.lexsort((earliest, keys))
    keys, earliest, latest = keys[order], earliest[order], latest[order]
    begins = np.ones(len(keys), np.bool_)
    begins[1:] = (keys[1:] != keys[:-1]) | (earliest[1:] > reached_by_key(latest, keys)[:-1])
    firsts = np.flatnonzero(begins)
    return keys[firsts], earliest[firsts], np.maximum.reduceat(latest, firsts) if len(firsts) else latest


class SidePlan(NamedTuple):
    """The plan of one side of a join.

    Attributes:
        store: keeps its records.
        back, ahead: how far back and how far ahead of a record its partners may be.
        closes_after: the time after which a record's window and grace are over.
        emits_unmatched: whether its records come out without a partner, too.
        meets_once: whether a record is forgotten with its first partner.
        emits_pairs: whether records that have met have a result.
        reach: reads from values how far the partners of each record may be; None if all have ``back`` and ``ahead``.
    """

    store: DuplicateColumns
    back: int
    ahead: int
    closes_after: int
    emits_unmatched: bool
    meets_once: bool
    emits_pairs: bool
    reach: Callable[[Any], Reach] | None


class Results(NamedTuple):
    """Results, by the positions of their parts.

    Attributes:
        places: the place of the record that lets each come out.
        keys: positions in the column of left keys, right keys and the keys of records that waited before.
        left, right: positions in the columns of ``WindowRun.values``; ``NOTHING`` where there is no partner.
        times: their timestamps.
    """

    places: Integers
    keys: Integers
    left: Integers
    right: Integers
    times: Integers


class _Side:
    """One side: its records, and the candidates that records of the other may meet.

    Attributes:
        reach: the reach of its candidates, in their order, if each has its own.
        closes: the times at which windows and graces of its candidates are over.
        met: the other side's candidate in each pair.
        found: its own record in each pair.
        done: the other side's candidates that have met one of its records, and are forgotten with it.
    """

    reach: Reach | None
    closes: Integers
    found: Integers
    met: Integers
    done: Integers

    def __init__(self, plan: SidePlan, arrived: Arrivals, side: Side) -> None:
        self.plan = plan
        self.records: SideRecords = arrived.sides[side]
        self.complete = self.records.complete
        places, times = self.records.places[self.complete], self.records.times[self.complete]
        put = np.full(len(arrived.times), NEVER)
        put[places] = times
        self.horizons = plan.store.horizons(put)[1:]
        numbers = self.records.numbers[self.complete]
        self.reach = None if plan.reach is None else plan.reach(self.records.values)
        back, ahead = (plan.back, plan.ahead) if self.reach is None else self.reach.of(self.complete)
        self.seekers = ProbeSide(numbers, times - back, times + ahead, places)

    def load(self, keys: Any, seekers: ProbeSide) -> None:
        """Read what the other side's records look for."""
        wanted, first, last = spans_of_each(seekers.keys, seekers.earliest, seekers.latest)
        self.stored = self.plan.store.between(keys.take(pa.array(wanted)), first, last)
        self.before = len(self.stored.times)
        self.candidates = BuildSide(
            np.concatenate([wanted[self.stored.keys], self.records.numbers]),
            np.concatenate([self.stored.times, self.records.times]),
            np.concatenate([np.full(self.before, -1), self.records.places]),
        )
        self.closes = self.candidates.times + self.plan.closes_after
        if self.plan.reach is not None and self.reach is not None:
            self.reach = self.plan.reach(self.stored.values).followed_by(self.reach)
            self.closes = self.reach.closes(self.candidates.times, self.plan.closes_after - self.plan.ahead)

    def seek(self, other: "_Side") -> None:
        """Find the partners of its records."""
        mine = self.seekers
        earliest = np.maximum(mine.earliest, other.horizons[mine.places] + 1)
        found, self.met = partners(mine._replace(earliest=earliest), other.candidates)
        self.found = self.complete[found]
        if other.reach is not None:
            times = other.candidates.times[self.met], self.records.times[self.found]
            self._choose(np.flatnonzero(other.reach.of(self.met).holds(*times)))
        self.done = np.empty(0, np.int64)
        if self.plan.meets_once:
            self._choose(np.unique(self.found, return_index=True)[1])

    def let_go(self, other: "_Side") -> None:
        """Leave the other side's candidates to those that meet them first; that side has found its partners."""
        early = np.zeros(len(other.candidates.times), np.bool_)
        early[other.before + other.found] = True
        self._choose(np.flatnonzero(~early[self.met]))
        self.done, first = np.unique(self.met, return_index=True)
        self._choose(np.sort(first))

    def _choose(self, pairs: Integers) -> None:
        self.found, self.met = self.found[pairs], self.met[pairs]

    def unmatched(self) -> Booleans:
        """Return which of its records could have had a partner, and have none."""
        alone = np.zeros(len(self.records.times), np.bool_)
        alone[self.complete] = True
        alone[self.found] = False
        return alone

    def write(self, keys: Any, done: Integers) -> None:
        """Keep its records for the other side, except forgotten ones; ``done`` has the forgotten candidates."""
        at, records, store = self.complete, self.records, self.plan.store
        gone = np.zeros(len(records.times), np.bool_)
        if self.plan.meets_once:
            at = np.flatnonzero(self.unmatched())
            gone[done[done >= self.before] - self.before] = True
            store.remove(self.stored.rows.take(pa.array(done[done < self.before])))
        if len(at):
            numbers: Any = pa.array(records.numbers[at])
            data = records.data.take(pa.array(at, mask=gone[at] if gone.any() else None))
            store.put(keys.take(numbers), data, records.times[at])
        if self.plan.meets_once:
            store.observe(records.times[self.complete])


class WindowRun:
    """The records of a run, joined.

    Args:
        arrived: the records.
        plans: the plan of each side.
        waiting: the store of the records without a partner; None if they come out at once, or never.

    Attributes:
        results: the results, in order.
        dropped: how many records of each side have no result because of a null.

    Raises:
        pyarrow.ArrowInvalid: a row of a store is damaged.
        CorruptStoreError: a row of waiting records is damaged.
    """

    def __init__(self, arrived: Arrivals, plans: Mapping[Side, SidePlan], waiting: UnpairedRows | None) -> None:
        self._arrived = arrived
        self._sides = {side: _Side(plan, arrived, side) for side, plan in plans.items()}
        for side, one in self._sides.items():
            one.load(arrived.keys, self._sides[side.other].seekers)
        for side, one in self._sides.items():
            one.seek(self._sides[side.other])
        for side, one in self._sides.items():
            if plans[side.other].meets_once:
                one.let_go(self._sides[side.other])
        self._waiting = None if waiting is None else UnpairedRun(waiting, arrived.times)
        self._first_key = {Side.LEFT: 0, Side.RIGHT: len(arrived.sides[Side.LEFT].places)}
        alone = [self._alone(side, one) for side, one in self._sides.items()]
        pairs = [self._pairs(side, one) for side, one in self._sides.items() if one.plan.emits_pairs]
        parts = [*self._due(), *pairs, *alone]
        self.results = _in_order(parts)

    @property
    def dropped(self) -> dict[Side, int]:
        lost = {}
        for side, one in self._sides.items():
            kept = len(one.complete)
            kept += int(np.count_nonzero(one.records.keyless)) if one.plan.emits_unmatched else 0
            lost[side] = len(one.records.places) - kept
        return lost

    def keys(self, read: Any) -> Any:
        """Return the column of keys that ``results`` points into; ``read`` reads the bytes of keys."""
        columns = [one.records.keys for one in (self._sides[Side.LEFT], self._sides[Side.RIGHT])]
        return pa.concat_arrays([*columns, *([] if self._waiting is None else [read(self._waiting.over.keys)])])

    def values(self, side: Side, read: Any) -> Any:
        """Return the column of a side's values that ``results`` points into; ``read`` reads the bytes of values."""
        one = self._sides[side]
        over = [] if self._waiting is None else [read(self._waiting.over_of(side).data)]
        return pa.concat_arrays([one.stored.values, one.records.values, *over])

    def write(self) -> None:
        """Keep the records for those to come."""
        for side, one in self._sides.items():
            one.write(self._arrived.keys, self._sides[side.other].done)
        if self._waiting is not None:
            self._waiting.write()

    def _pairs(self, side: Side, one: _Side) -> Results:
        other, records = self._sides[side.other], one.records
        times = np.maximum(records.times[one.found], other.candidates.times[one.met])
        keys = self._first_key[side] + one.found
        return _results(side, records.places[one.found], keys, one.before + one.found, one.met, times)

    def _alone(self, side: Side, one: _Side) -> Results:
        """Return records that come out at once without a partner; tell ``self._waiting`` those that wait."""
        records, chosen = one.records, np.zeros(len(one.records.places), np.bool_)
        if one.plan.emits_unmatched:
            chosen = one.unmatched()
            if self._waiting is not None:
                closes = one.closes[one.before :]
                late = closes < self._waiting.reached[records.places]
                self._let_wait(side, one, closes, chosen & ~late)
                chosen &= late
            chosen |= records.keyless
        return self._unpaired(side, np.flatnonzero(chosen), records.places[chosen])

    def _let_wait(self, side: Side, one: _Side, closes: Integers, waits: Booleans) -> None:
        assert self._waiting is not None
        other = self._sides[side.other]
        met = other.met[one.closes[other.met] >= self._waiting.reached[other.records.places[other.found]]]
        waits[met[met >= one.before] - one.before] = False
        stored = np.unique(met[met < one.before])
        numbers: Any = pa.array(one.candidates.keys[stored])
        keys, times = self._arrived.keys.take(numbers), one.candidates.times[stored]
        # Of one key, time and end of window, some may have met a partner and others not.
        data = None if one.reach is None else one.stored.data.take(pa.array(stored))
        self._waiting.remove(side, one.closes[stored], times, keys, data)
        at = np.flatnonzero(waits)
        numbers = pa.array(one.records.numbers[at])
        data = one.records.data.take(pa.array(at))
        self._waiting.add(side, at, closes[at], one.records.times[at], self._arrived.keys.take(numbers), data)

    def _due(self) -> list[Results]:
        """Return records that waited until their time was over, in the order in which they come out."""
        if self._waiting is None:
            return []
        due = self._waiting.due()
        keys, values = due.at.copy(), due.at.copy()
        for side, one in self._sides.items():
            mine = due.lefts == (side is Side.LEFT)
            fresh = mine & due.fresh
            values[fresh] += one.before
            keys[fresh] += self._first_key[side]
            values[mine & ~due.fresh] += one.before + len(one.records.places)
        first = sum(len(one.records.places) for one in self._sides.values())
        keys[~due.fresh] = due.rows[~due.fresh] + first
        left = np.where(due.lefts, values, NOTHING)
        right = np.where(due.lefts, NOTHING, values)
        return [Results(due.places, keys, left, right, due.times)]

    def _unpaired(self, side: Side, at: Integers, places: Integers) -> Results:
        one = self._sides[side]
        nobody = np.full(len(at), NOTHING)
        return _results(side, places, self._first_key[side] + at, one.before + at, nobody, one.records.times[at])


def _results(side: Side, places: Integers, keys: Integers, own: Integers, other: Integers, times: Integers) -> Results:
    left, right = (own, other) if side is Side.LEFT else (other, own)
    return Results(places, keys, left, right, times)


def _in_order(parts: Sequence[Results]) -> Results:
    """Return results by place; results of one place as they come."""
    whole = [np.concatenate(columns) for columns in zip(*parts, strict=True)]
    order = whole[0].argsort(kind="stable")
    return Results(*(column[order] for column in whole))
