"""The move of an aggregation's windows and sessions to other partitions.

Rule of this module: what has come out does not come out again, and what has not is not lost. Updates that go out at
once need only the latest stream time. Final results need more where partitions become one: windows of a partition
whose time was behind have not come out, although the others have closed theirs. So the new partition goes on
from the time that was behind, and knows, as after the end of an input, what has come out beyond it: all windows up to
where the partition that was ahead has closed them, except those that it lists (``completion``).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from millpond.processors.aggregations.completion import (
    COMPLETION,
    Change,
    bytes_of_changes,
    changed_of,
    completion_of,
    kept_changes,
)
from millpond.processors.aggregations.windowed_processor import GRACE, since_named
from millpond.processors.options.windows import ALL_TIMES, Span
from millpond.processors.runtime.kept_time import STREAM_TIME, KeptTime, stream_time_of, versioned
from millpond.processors.runtime.waiting_counts import WAITING, bytes_of_counts, counted_at, waiting_of
from millpond.stores.encoding.keys import TIME_SIZE, last_time, pack_time, unpack_time, unterminated
from millpond.stores.encoding.times import MAX_TIME, MIN_TIME
from millpond.stores.evolution.carriage import LayoutCarriage, OldStore, forgotten, greatest, least
from millpond.stores.specs.store_spec import KeyForm
from millpond.stores.typed.observed_stream_time import METADATA_NAME as OBSERVED
from millpond.stores.typed.terms import TERMS, KeptTerms
from millpond.stores.typed.windows.calendar import Calendar, grid_of
from millpond.stores.typed.windows.segments import key_part

_Place: TypeAlias = tuple[bytes, int, int | None]
"""The bytes of a key, and the start and end of a window; None for an end that follows from the start."""


class _Part(NamedTuple):
    """The final results of one processor in one old partition.

    Attributes:
        old: its store.
        time: the stream time.
        closed: the time up to which windows have closed.
        seen: the time up to which they have come out, except the changed ones.
        changed: the changed ones.
        span: the times at which its windows begin.
    """

    old: OldStore
    time: int
    closed: int
    seen: int
    changed: list[Change]
    span: Span

    def to_come(self, until: int) -> Iterator[Change]:
        """Yield the windows up to ``until`` that have not come out as they are, and are going to."""
        by_end = self.old.kind.key_form is KeyForm.SESSION
        for change in self.changed:
            time = change[2] if by_end else change[1]
            if time is not None and time > self.closed:
                yield change
        if self.seen < until:
            yield from ((*place, None) for place in self.places() if self.seen < _time_of(place) <= until)

    def places(self) -> Iterator[_Place]:
        """Yield all windows that it has."""
        by_end = self.old.kind.key_form is KeyForm.SESSION
        rest = 2 * TIME_SIZE if by_end else TIME_SIZE
        for row, _ in self.old.entries():
            reached = unpack_time(row, len(row) - rest)
            start, end = (last_time(row), reached) if by_end else (reached, None)
            if self.span.first <= start <= self.span.last:
                yield unterminated(key_part(row, rest)), start, end


def _span_of(olds: Sequence[OldStore], number: int) -> Span:
    """Return the times at which windows of a processor begin: a span of its own if the windows change at some time."""
    since = sorted({time for old in olds for time in KeptTerms.from_bytes(old.get_metadata(TERMS)).since})
    ends = [MIN_TIME, *since, MAX_TIME + 1]
    return Span(ends[number], ends[number + 1] - 1) if since else ALL_TIMES


def _calendar_of(olds: Sequence[OldStore], span: Span) -> Calendar | None:
    """Return the calendar that the windows of a span have; None for other windows."""
    known = [KeptTerms.from_bytes(old.get_metadata(TERMS)) for old in olds]
    # A partition without a record since windows are these does not know of them.
    grids = (grid_of(one.at(span.first)) for one in known if span.first in (MIN_TIME, *one.since))
    return next((grid for grid in grids if isinstance(grid, Calendar)), None)


def _closed_by(old: OldStore, time: int, calendar: Calendar, span: Span) -> int:
    """Return the last start of windows of a calendar that have closed when stream time is ``time``."""
    noted = KeptTerms.from_bytes(old.get_metadata(TERMS)).noted
    return calendar.first(time - noted.get(since_named(GRACE, span.first), 0)) - 1


def _parts(olds: Sequence[OldStore], number: int) -> list[_Part]:
    """Return the partitions in which the processor has had records."""
    span = _span_of(olds, number)
    calendar = _calendar_of(olds, span)
    times = [(old, time) for old in olds if (time := _time_in(old, number, span)) is not None]
    counted = [(time, counted_at(old, waiting_of(number), 1)) for old, time in times]
    reach = max((time - closed for time, closed in counted if closed is not None and closed > MIN_TIME), default=None)
    parts = []
    for old, time in times:
        closed = MIN_TIME if reach is None else max(time - reach, MIN_TIME)
        if calendar is not None:
            closed = _closed_by(old, time, calendar, span)
        complete = KeptTime(old, completion_of(number)).get()
        seen = closed if complete is None else max(closed, complete)
        parts.append(_Part(old, time, closed, seen, kept_changes(old, number), span))
    return parts


def _time_in(old: OldStore, number: int, span: Span) -> int | None:
    """Return the stream time of a processor; if it has not begun there, the time of the windows before its own."""
    time = KeptTime(old, stream_time_of(number)).get()
    while time is None and number and span.first > MIN_TIME:
        number -= 1
        time = KeptTime(old, stream_time_of(number)).get()
    return time


def _revise(olds: Sequence[OldStore], belongs: Callable[[bytes], bool]) -> Mapping[str, bytes | None]:
    """Return the times of processors whose results are final."""
    prefixes = waiting_of(""), completion_of("")
    numbers = {
        int(name.removeprefix(prefix)) for prefix in prefixes for old in olds for name in old.metadata_names(prefix)
    }
    revised: dict[str, bytes | None] = {}
    for number in sorted(numbers):
        revised |= _of_processor(number, _parts(olds, number), belongs)
    observed = [data for old in olds if (data := old.get_metadata(OBSERVED)) is not None]
    if numbers and observed:
        revised[OBSERVED] = least(observed)  # else the store would hide what has not come out
    return revised


def _of_processor(number: int, parts: Sequence[_Part], belongs: Callable[[bytes], bool]) -> dict[str, bytes | None]:
    if not parts:
        return {}
    seen, closed = max(part.seen for part in parts), min(part.closed for part in parts)
    revised: dict[str, bytes | None] = {
        stream_time_of(number): versioned(pack_time(min(part.time for part in parts))),
        completion_of(number): None,
        changed_of(number): None,
    }
    changed = set[_Place]()
    if seen > closed:
        entries = [entry for part in parts for entry in part.to_come(seen) if belongs(entry[0])]
        revised[completion_of(number)] = versioned(pack_time(seen))
        revised[changed_of(number)] = bytes_of_changes(entries)
        by_end = parts[0].old.kind.key_form is KeyForm.SESSION
        changed = {(key, start, end if by_end else None) for key, start, end, _ in entries}
    if closed > MIN_TIME:
        there = (place for part in parts for place in part.places() if belongs(place[0]))
        count = sum(_time_of(place) > closed and (_time_of(place) > seen or place in changed) for place in there)
        revised[waiting_of(number)] = bytes_of_counts(closed, [count])
    return revised


def _time_of(place: _Place) -> int:
    """Return the time by which a window closes: its end if it has one of its own, else its start."""
    _, start, end = place
    return start if end is None else end


def _seeded(time: int, users: int) -> dict[str, bytes]:
    """Return the stream time of each processor: windows that have closed by then came out where the seeds are from."""
    return {stream_time_of(number): versioned(pack_time(time)) for number in range(users)}


WINDOWED_AGGREGATION_CARRIAGE: Final = LayoutCarriage(
    rules={f"{STREAM_TIME}-*": greatest, f"{COMPLETION}-*": greatest, f"{WAITING}-*": forgotten},
    revise=_revise,
    seeded=_seeded,
)
