"""A join of a stream with a versioned table with corrected results: a late version revises the results it is for.

The records of the stream are kept for the history, each with its match. So whatever comes, the results that have
gone out are those of the kept records, and only differences go out: at the end of a micro-batch, or as soon as
the table is about to forget, at most one for each record.

A version is the match of records from its own time on up to the next version of its key, as far as the tolerance
reaches, and where versions are passed over, or may be newer, of all within the tolerance. Only these are looked up
again. What the table forgets, or the records' own history has passed, stays as it came out.

Rule of this module: matches are the same as record by record (``millpond.processors.streams.table_join``).
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, TypeAlias

import msgpack
import numpy as np
import pyarrow as pa

from millpond.errors import SerdeError
from millpond.processors.options.joins import AsofDirection, JoinType, Side, Unfit
from millpond.processors.runtime.batches.batch import Batch
from millpond.processors.runtime.batches.columns import Array, Columns, joined
from millpond.processors.runtime.counters import CounterName
from millpond.processors.runtime.late import Booleans, Integers
from millpond.processors.runtime.operator import Operator
from millpond.processors.runtime.processor import ProcessorContext
from millpond.processors.runtime.promises import Promises
from millpond.processors.streams.vectorized_table_join import VectorizedStreamTableJoin
from millpond.processors.tables.table_view import store_view
from millpond.stores.encoding.serdes import Serde
from millpond.stores.encoding.times import MAX_TIME, MIN_TIME, NO_TIME
from millpond.stores.typed.versions.versioned import VersionedKeyValueStore
from millpond.stores.typed.windows.segments import Span
from millpond.stores.typed.windows.window import WindowStore

PAIR: Final = "pair"
GONE: Final = "gone"
"""The fields of results: what the joiner makes of a record and its match, and whether that is no result any more."""

_MATCHED: Final = b""
"""Stands for a match of which nothing is shown."""


class Kept(NamedTuple):
    """A record of the stream, as the store has it.

    Attributes:
        identity: tells it from others of its key and time.
        value: its value.
        match: its match; None if it has none.
    """

    identity: bytes
    value: bytes
    match: bytes | None


class KeptSerde(Serde[Sequence[Kept]]):
    r"""The records of one key and time: a MessagePack array of arrays of identity, value and match (or nil).

    >>> KeptSerde().serialize([Kept(b"7", b"row", None)])
    b'\x91\x93\xc4\x017\xc4\x03row\xc0'
    """

    name = "corrected-records-1"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KeptSerde)

    def __hash__(self) -> int:
        return hash(self.name)

    def serialize(self, value: Sequence[Kept]) -> bytes:
        packed: bytes = msgpack.packb(value)
        return packed

    def deserialize(self, data: bytes) -> Sequence[Kept]:
        try:
            found = [Kept(*one) for one in msgpack.unpackb(data)]
        except (ValueError, TypeError, msgpack.UnpackException) as error:
            raise SerdeError(f"{data!r:.60} was not written by serde {self.name!r}: {error}") from error
        if not all(isinstance(one, bytes) for kept in found for one in kept[: 2 if kept.match is None else 3]):
            raise SerdeError(f"{data!r:.60} was not written by serde {self.name!r}")
        return found


class Changes:
    """The changes of the table: keys, and times since which they have changed, until they are taken."""

    def __init__(self) -> None:
        self._runs: list[tuple[Sequence[bytes], Integers]] = []
        self.earliest: int | None = None

    def add(self, keys: Sequence[bytes], times: Integers) -> None:
        """Note changes."""
        least = int(times.min())
        self.earliest = least if self.earliest is None else min(least, self.earliest)
        self._runs.append((keys, times))

    def take(self) -> list[tuple[Sequence[bytes], Integers]]:
        """Return what has been noted since the last call."""
        taken, self._runs, self.earliest = self._runs, [], None
        return taken


class NotedChanges(Operator):
    """Notes the changes of a table for the join that keeps its records in ``store``."""

    promises = Promises(repeatable=True, by_key=True, commutes=True)

    def __init__(self, store: str) -> None:
        self._store = store

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._changes = context.shared(self._store, Changes)

    def process(self, batch: Batch) -> None:
        self._changes.add(batch.keys, np.asarray(batch.timestamps, np.int64))

    def process_columns(self, columns: Columns) -> None:
        self._changes.add(columns.keys.to_pylist(), columns.timestamps)


_Place: TypeAlias = tuple[bytes, int, bytes]
"""Key, time and identity of a record."""


class CorrectedJoin(VectorizedStreamTableJoin):
    """Joins each record of a stream with the table's value for its key, again and again as long as it is kept.

    Keys and values are bytes.

    Args:
        table: the name of the versioned table's store, whose changes ``NotedChanges`` notes.
        joiner: called with keys, values and the table's values, null where there is none, as Arrow arrays.
        join_type: says which records have a result, and whether it shows their matches.
        store: the name of the window store of records with ``KeptSerde``.
        identity: returns what tells each of some values, an Arrow array, from others of its key and time; of equal ones
            the greatest value counts.
        tolerance, exact, direction, where, unfit: as in ``StreamTableJoin``; a direction that looks ahead has a
            tolerance.
    """

    def __init__(
        self,
        table: str,
        joiner: Callable[[Any, Any, Any], Any],
        join_type: JoinType,
        *,
        store: str,
        identity: Callable[[Array], Sequence[bytes]],
        tolerance: int | None = None,
        exact: bool = True,
        direction: AsofDirection = AsofDirection.BACKWARD,
        where: Callable[[Any, Any], Any] | None = None,
        unfit: Unfit = Unfit.MISS,
    ) -> None:
        super().__init__(
            store_view(table),
            joiner,
            join_type,
            tolerance=tolerance,
            exact=exact,
            direction=direction,
            where=where,
            unfit=unfit,
        )
        self._join_type = join_type
        self._table_name, self._store_name = table, store
        self._identity = identity
        self._at_flush = True
        self._reached = MIN_TIME
        self.promises = replace(self.promises, by_key=False, keeps_records=False, at_flush=True)

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._store: WindowStore[bytes, Sequence[Kept]] = context.store(self._store_name)
        self._table: VersionedKeyValueStore[bytes, bytes] = context.store(self._table_name)
        self._changes = context.shared(self._store_name, Changes)
        self._table.stragglers.append(self)

    def advance(self, time: int) -> None:
        self._take_in()
        self._store.observe(time)
        super().advance(time)

    @property
    def earliest(self) -> int | None:
        """The least time as of which the table is looked up, for new records or for kept ones that may still change."""
        newest, pending = self._store.observed_stream_time, self._pending
        times = [] if pending is None else [pending]
        if newest is not None and self._reached <= newest + self._ahead:
            times.append(max(self._kept_from + self._from, self._reached - self._table.history_retention))
        return min(times, default=None)

    def catch_up(self, before: int) -> None:
        self._reached = before + self._table.history_retention
        pending = self._pending
        if pending is not None and pending < before:
            self._take_in()

    @property
    def _pending(self) -> int | None:
        """The least time as of which the table is to be looked up for new records; None if there are none."""
        changed = self._changes.earliest
        times = [] if changed is None else [max(changed - self._ahead, self._kept_from)]
        times += [] if self._arrived_from is None else [self._arrived_from]
        return min(times) + self._from if times else None

    @property
    def _kept_from(self) -> int:
        """The least time of which records may be kept."""
        return max(self._store.segments.horizon() + 1, MIN_TIME)

    def _take_in(self) -> None:
        """Join the new records, join again those that may have another match now, and forward the differences."""
        arrived, self._arrived, self._arrived_from = self._arrived, [], None
        wanted = self._changed_spans(self._changes.take())
        new = list(self._new_records(joined(arrived).to_batch())) if arrived else []
        for (key, time, _), _ in new:
            wanted[key].append((time, time))
        if not wanted:
            return
        before = self._read(wanted)
        now = {place: kept.value for place, kept in before.items()}
        for place, value in new:
            known = now.get(place)
            now[place] = value if known is None else max(known, value)
        places = self._again(now, before)
        matches = self._matches_of(places, [now[place] for place in places])
        self._forward_changes(now, before, matches)
        self._write(now, before, matches)

    def _changed_spans(self, changes: Sequence[tuple[Sequence[bytes], Integers]]) -> defaultdict[bytes, list[Span]]:
        """Return spans of times in which records of a key may have another match since the table has changed."""
        spans: defaultdict[bytes, list[Span]] = defaultdict(list)
        newest = self._store.observed_stream_time
        if newest is None:
            return spans
        for keys, times in changes:
            near = np.flatnonzero(times - self._ahead <= newest)
            for place, time in zip(near.tolist(), times[near].tolist(), strict=True):
                span = self._span(keys[place], time)
                if span[0] <= span[1]:
                    spans[keys[place]].append(span)
        return spans

    def _span(self, key: bytes, time: int) -> Span:
        """Return the span of records that may have another match since a version of that time has come."""
        first, last = time - self._ahead, time - self._apart
        if self._direction.looks_back:
            first = first if self._ahead else time + self._apart
            last = MAX_TIME if self._tolerance is None else time + self._tolerance
            if not self._ahead and self._unfit is not Unfit.NEXT:
                following = self._table.next_version_time(key, time)
                last = last if following is None else min(last, following - 1 + self._apart)
        return max(first, self._kept_from), min(last, MAX_TIME)

    def _new_records(self, batch: Batch) -> Iterator[tuple[_Place, bytes]]:
        """Yield place and value of each record that can be kept, and forward records that can meet nothing."""
        arrived, batch = len(batch), self._usable(batch)
        self.context.count(CounterName.DROPPED_NULL, arrived - len(batch))
        alone = [key is None or time == NO_TIME for key, time in zip(batch.keys, batch.timestamps, strict=True)]
        if any(alone):
            self._forward_alone(batch.select(alone))
            batch = batch.select([not one for one in alone])
        identities = self._identity(pa.array(batch.values, pa.binary())) if len(batch) else []
        for key, time, identity, value in zip(batch.keys, batch.timestamps, identities, batch.values, strict=True):
            yield (key, time, identity), value

    def _forward_alone(self, batch: Batch) -> None:
        """Forward results of records that meet nothing, whatever comes."""
        if self._left:
            values = pa.array(batch.values, pa.binary())
            columns = Columns(pa.array(batch.keys, pa.binary()), values, np.asarray(batch.timestamps, np.int64))
            self._forward(columns, pa.nulls(len(batch), pa.binary()), np.zeros(len(batch), np.bool_))

    def _read(self, wanted: Mapping[bytes, Sequence[Span]]) -> dict[_Place, Kept]:
        """Return the records of these keys and times that are kept."""
        found = self._store.fetch_range_of_each(wanted, wanted.values())
        return {
            (key, time, kept.identity): kept
            for key, cells in zip(wanted, found, strict=True)
            for time, cell in cells
            for kept in cell
        }

    def _again(self, now: Mapping[_Place, bytes], before: Mapping[_Place, Kept]) -> list[_Place]:
        """Return the records to look up: new ones, and others as far back as the table knows what was valid."""
        horizon = self._table.horizon
        known = MIN_TIME if horizon is None else horizon - self._from
        return [place for place in now if place[1] >= known or place not in before]

    def _matches_of(self, places: Sequence[_Place], values: Sequence[bytes]) -> dict[_Place, bytes | None]:
        """Return the match of each record now; records for which a condition fails are left out if the policy is so."""
        if not places:
            return {}
        keys = pa.array([key for key, _, _ in places], pa.binary())
        times = np.fromiter((time for _, time, _ in places), np.int64, len(places))
        records = Columns(keys, pa.array(values, pa.binary()), times)
        try:
            found, missed = self._met(records)
        except Exception as error:  # a user's code may raise anything, and one by one shows for which record
            if len(places) == 1:
                self.context.leave_out(error, places[0][0], values[0], places[0][1])
                return {}
            each = (self._matches_of([place], [value]) for place, value in zip(places, values, strict=True))
            return {place: match for one in each for place, match in one.items()}
        self._note_missed(records, missed)
        matches = found.to_pylist()
        if not self._join_type.shows_right:
            matches = [None if match is None else _MATCHED for match in matches]
        return dict(zip(places, matches, strict=True))

    def _forward_changes(
        self, now: Mapping[_Place, bytes], before: Mapping[_Place, Kept], matches: Mapping[_Place, bytes | None]
    ) -> None:
        """Forward changed results, and results that are none any more, in the order of time."""
        changed = []
        for place, match in matches.items():
            was = before.get(place)
            had, has = was is not None and self._has_result(was.match), self._has_result(match)
            if has != had or (has and was is not None and (was.value, was.match) != (now[place], match)):
                changed.append((place, match, had and not has))
        if not changed:
            return
        changed.sort(key=lambda one: one[0][1])
        places = [place for place, _, _ in changed]
        columns = Columns(
            pa.array([key for key, _, _ in places], pa.binary()),
            pa.array([now[place] for place in places], pa.binary()),
            np.fromiter((time for _, time, _ in places), np.int64, len(places)),
        )
        shown = [None if gone or not self._join_type.shows_right else match for _, match, gone in changed]
        self._forward(columns, pa.array(shown, pa.binary()), np.array([gone for _, _, gone in changed], np.bool_))

    def _has_result(self, match: bytes | None) -> bool:
        """Return whether a record with that match has a result."""
        if self._join_type is JoinType.ANTI:
            return match is None
        return match is not None or self._join_type.keeps(Side.LEFT)

    def _forward(self, records: Columns, matches: Array, gone: Booleans) -> None:
        pairs = self._joiner(records.keys, records.values, matches)
        values = pa.StructArray.from_arrays([pairs, pa.array(gone)], [PAIR, GONE])
        self.context.forward_columns(records.with_values(values))

    def _write(
        self, now: Mapping[_Place, bytes], before: Mapping[_Place, Kept], matches: Mapping[_Place, bytes | None]
    ) -> None:
        """Keep the records with their matches."""
        touched = set()
        for place, match in matches.items():
            was = before.get(place)
            if was is None or (was.value, was.match) != (now[place], match):
                touched.add(place[:2])
        cells: defaultdict[tuple[bytes, int], list[Kept]] = defaultdict(list)
        for place, value in now.items():
            if place[:2] in touched and (place in matches or place in before):
                match = matches[place] if place in matches else before[place].match
                cells[place[:2]].append(Kept(place[2], value, match))
        # The newest first, so that what expires by it is not written.
        for key, time in sorted(cells, key=lambda cell: -cell[1]):
            self._store.put(key, sorted(cells[key, time]), time)
