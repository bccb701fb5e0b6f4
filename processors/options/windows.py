"""The windows of time: tumbling, hopping, sliding, and sessions.

Rule of this module: configuration and arithmetic only, in int milliseconds. Stream time is the greatest timestamp that
an aggregation has seen; a window closes, and accepts no more records, once stream time is past its end plus its grace.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, field
from datetime import date, timedelta
from enum import Enum
from typing import Any, ClassVar, Final, NamedTuple, Self, TypeAlias, TypeGuard, TypeVar

from millpond.errors import ConfigurationError, InvalidWindowError, MillpondError
from millpond.processors.options.calendar_units import calendar_unit
from millpond.processors.options.given import fitted
from millpond.stores.encoding.times import FARTHEST, MAX_TIME, MIN_TIME, Duration, TimeUnit, to_millis
from millpond.stores.typed.terms import Term
from millpond.stores.typed.windows.calendar import Calendar, CalendarUnit, Weekday, zone_of
from millpond.stores.typed.windows.grids import EvenGrid, Grid
from millpond.stores.typed.windows.session import LONGEST_GAP

GapFunction: TypeAlias = Callable[[Any, Any], Duration | None]
"""Gives the gap after a record by its key and value; None for a record that is in no session."""


class EmitStrategy(Enum):
    """The moment at which a windowed aggregation emits: with each record, or once, when a window closes (KIP-825)."""

    ON_WINDOW_UPDATE = "on-window-update"
    ON_WINDOW_CLOSE = "on-window-close"


@dataclass(frozen=True)
class Windows(ABC):
    """The base of all definitions of windows.

    Attributes:
        grace: how long after its end a window still accepts late records, in milliseconds.
        from_epoch: whether a record from 1970 on is in no window that starts earlier, as in Kafka Streams.
    """

    grace: int
    from_epoch: ClassVar[bool] = True

    @property
    @abstractmethod
    def retention(self) -> int:
        """The time to keep a window in a store, in milliseconds after its start (a session's: its end); at least 1."""

    @property
    @abstractmethod
    def delay(self) -> int:
        """The time by which stream time must be past the end in a window's key for a final result, in milliseconds."""

    @property
    def terms(self) -> Mapping[str, Term]:
        """The terms that tell these windows from others, by the names that a user writes."""
        return {name: value for name, value in vars(self).items() if name != "grace"}

    def with_grace(self, grace: int) -> Self:
        """Return the same windows with another grace."""
        made = copy(self)
        object.__setattr__(made, "grace", grace)
        return made

    def _set(self, what: str, duration: Duration, least: int) -> None:
        millis = to_millis(duration, f"{what} of {type(self).__name__}")
        if millis < least:
            raise InvalidWindowError(f"{type(self).__name__}: {what} is {millis} ms; give at least {least} ms")
        object.__setattr__(self, what, millis)


class GridWindows(Windows):
    """Windows that begin and end at times which no record decides.

    The place of a window is the time by which its store has it: its start, unless several start together.
    """

    @property
    @abstractmethod
    def grid(self) -> Grid:
        """The grid of times at which windows begin and end."""

    @property
    @abstractmethod
    def distance(self) -> int:
        """The distance between the places of a window and of the next one."""

    @property
    @abstractmethod
    def length(self) -> int:
        """From the place of a window to its end; of windows of a calendar, at most."""

    @property
    @abstractmethod
    def is_tumbling(self) -> bool:
        """True if a record is in one window alone."""

    @property
    def is_bounded(self) -> bool:
        """True if a record from 1970 on is in no window that starts earlier."""
        return False

    @property
    def delay(self) -> int:
        return self.grace

    def starts(self, timestamp: int) -> list[int]:
        """Return the places of the windows that hold ``timestamp``, ascending."""
        first, last = self.grid.first(timestamp), min(self.grid.latest(timestamp), MAX_TIME)
        return list(range(max(first, 0) if self.is_bounded and timestamp >= 0 else first, last + 1, self.distance))

    def closed(self, stream_time: int) -> int:
        """Return the time up to which windows are placed that have closed when stream time is ``stream_time``."""
        return stream_time - self.length - self.grace


@dataclass(frozen=True, init=False)
class TimeWindows(GridWindows):
    """Windows ``[start, start + size)``: tumbling, hopping if they overlap, or windows of the calendar.

    Windows of a fixed length start at multiples of their advance since 1970, moved by the offset. Without one, a record
    from 1970 on is in no window that starts earlier.

    Windows of the calendar of a time zone are tumbling: a day there has 23 or 25 hours where the clocks change, and
    begins when the clock first shows its date. As the rules of zones change, all machines and later runs need the same
    ones (``tzdata``).

    Args:
        size: the length of a window. With ``zone``: ``"1 day"``, ``"1 week"``, ``"1 month"``, ``"3 months"`` for
            quarters, or ``"1 year"``.
        advance: the distance between the starts of consecutive windows; at most ``size``, which is the default.
        grace: how long after its end a window still accepts late records.
        offset: how much later than 1970 a window starts; less than the advance. ``TimeWindows("1 hour", offset="15
            minutes")`` are from a quarter past to a quarter past, as ``startTime`` has it in Spark.
        zone: the time zone of their calendar, such as ``"America/New_York"``. Times without a zone
            (``timestamp_ntz``) need none, and then months and years are as they show.
        week_start: the day with which weeks begin, ``"monday"`` unless another is given; without a ``zone``, of times
            without one.

    Attributes:
        size, advance: for a calendar, the greatest length of a window, which takes the clocks into account.

    Raises:
        TopologyError: the size or the advance is not positive, the advance exceeds the size, the offset is not less
            than the advance, the grace is negative, or the calendar has no such windows.
        ConfigurationError: there is no such zone, or day of the week.

    >>> from datetime import timedelta
    >>> TimeWindows(timedelta(minutes=1), advance=timedelta(seconds=30)).starts(70_000)
    [30000, 60000]
    >>> TimeWindows("1 hour", offset="15 minutes").starts(7_200_000)
    [4500000]
    >>> TimeWindows("1 day", zone="America/New_York").starts(7_200_000)
    [-68400000]
    """

    size: int
    advance: int
    offset: int = 0
    calendar: Calendar | None = None

    @fitted
    def __init__(
        self,
        size: Duration,
        *,
        advance: Duration | None = None,
        grace: Duration = 0,
        offset: Duration = 0,
        zone: str | None = None,
        week_start: str | None = None,
    ) -> None:
        unit = calendar_unit(size, zone, week_start)
        if unit is None:
            self._set("size", size, 1)
            self._set("advance", size if advance is None else advance, 1)
        else:
            self._set_calendar(unit, size, advance, zone, week_start)
        self._set("grace", grace, 0)
        if self.advance > self.size:
            raise InvalidWindowError(
                f"TimeWindows: an advance of {advance!r} leaves gaps between windows of {size!r}; give at most the size"
            )
        if to_millis(offset, "offset of TimeWindows") != 0:
            self._set_offset(offset)

    @property
    def retention(self) -> int:
        return self.size + self.grace

    @property
    def distance(self) -> int:
        return self.advance

    @property
    def length(self) -> int:
        return self.size

    @property
    def is_tumbling(self) -> bool:
        return self.advance == self.size

    @property
    def terms(self) -> Mapping[str, Term]:
        if self.calendar is not None:
            return self.calendar.terms
        moved = {"offset": self.offset} if self.offset else {}
        return {"size": self.size, "advance": self.advance, **moved}

    @property
    def grid(self) -> Grid:
        return EvenGrid(self.size, self.advance, self.offset) if self.calendar is None else self.calendar

    @property
    def is_bounded(self) -> bool:
        return self.from_epoch and self.calendar is None and not self.offset

    def closed(self, stream_time: int) -> int:
        if self.calendar is None:
            return super().closed(stream_time)
        return self.calendar.first(stream_time - self.grace) - 1

    def _set_calendar(
        self, unit: CalendarUnit, size: Duration, advance: Duration | None, zone: str | None, week_start: str | None
    ) -> None:
        if advance is not None and advance != size:
            raise InvalidWindowError(
                f"TimeWindows: windows of the calendar follow one another, and an advance of {advance!r} is not their "
                f"size, {size!r}; leave out advance, or give windows of a fixed length, without zone"
            )
        calendar = Calendar(
            unit, None if zone is None else zone_of(zone).key, Weekday(week_start or Weekday.MONDAY).value
        )
        object.__setattr__(self, "size", calendar.longest)
        object.__setattr__(self, "advance", calendar.longest)
        object.__setattr__(self, "calendar", calendar)

    def _set_offset(self, offset: Duration) -> None:
        if self.calendar is not None:
            raise InvalidWindowError(
                "TimeWindows: windows of the calendar begin with its days; leave out offset, or for weeks that begin "
                "on another day give week_start='sunday'"
            )
        late, shown = to_millis(offset, "offset of TimeWindows"), TimeUnit.MILLISECOND.length
        if not 0 <= late < self.advance:
            raise InvalidWindowError(
                f"TimeWindows: an offset of {offset!r} is not within the advance, {shown(self.advance)}; windows start "
                f"at the same times with offset={shown(late % self.advance)!r}"
            )
        object.__setattr__(self, "offset", late)


@dataclass(frozen=True, init=False)
class SlidingWindows(Windows):
    """Windows ``[start, start + difference]``, one per distinct set of records at most that far apart (KIP-450).

    Args:
        difference: the largest time between two records of a window.
        grace: how long after its end a window still accepts late records.

    Raises:
        TopologyError: the difference or the grace is negative.
    """

    difference: int

    @fitted
    def __init__(self, difference: Duration, *, grace: Duration = 0) -> None:
        self._set("difference", difference, 0)
        self._set("grace", grace, 0)

    @property
    def retention(self) -> int:
        return max(2 * self.difference + self.grace, 1)

    @property
    def delay(self) -> int:
        # The end is inclusive: a record exactly there is still accepted while stream time is end + grace.
        return self.grace + 1


@dataclass(frozen=True, init=False)
class SessionWindows(Windows):
    """Sessions ``[first, last]`` of records, none further than ``gap`` from the next (KIP-94).

    The gap may be each record's own: then a record of time ``t`` lasts until ``t`` and its gap, a session is of records
    that overlap or touch, ``[first, end]``, and ``end`` is the latest time until which one of them lasts, as in Spark's
    ``session_window`` with a column. A record whose gap is zero, negative or none is in no session: it is left out, and
    counted. A record that comes after its session has closed begins another one.

    Sessions with a largest length do not cross the boundaries of the windows that ``TimeWindows`` of that size are: the
    records on either side of one are in two sessions, however near they are. Boundaries depend on no record, so the
    sessions are the same for any order of records.

    Args:
        gap: the largest time between consecutive records of a session. Or, for each record its own: in a topology a
            function of key and value, which may give None; of verbs, a column or an expression, an interval or an
            integer of milliseconds.
        at_most: the greatest gap that a record may have of its own. A record with a greater one is unusable.
        grace: how long a session still accepts late records once the gap after it has passed.
        max_length: how long a session can be, as a size of ``TimeWindows``, and longer than the gap.
        offset, zone, week_start: where sessions of a largest length are cut, as in ``TimeWindows``.

    Attributes:
        gap: the gap of all records, or the greatest that one may have.
        gap_of: the function or column of each record's gap; None if all have the same.
        within: the windows that no session leaves; None for sessions of any length.

    Raises:
        TopologyError: the gap or the grace is negative, the largest length is not longer than the gap, there are no
            ``TimeWindows`` of that size, or something says where sessions are cut that have no largest length; or gaps
            are of each record and nothing says how great they may be, or the other way round.
        ConfigurationError: there is no such zone, or day of the week.

    >>> from millpond.processors import StreamsBuilder, TopologyDriver
    >>> builder = StreamsBuilder()
    >>> sessions = builder.stream("in").group_by_key().windowed_by(SessionWindows(10, max_length=20))
    >>> sessions.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count().to("out")
    >>> with TopologyDriver(builder.build()) as driver:
    ...     driver.pipe_all("in", [("a", "x", time) for time in (1, 9, 18, 22, 25, 60)])
    ...     for record in driver.read("out"):
    ...         print(record.key, record.value)
    Windowed(key='a', start=1, end=18) 3
    Windowed(key='a', start=22, end=25) 2

    >>> builder = StreamsBuilder()
    >>> windows = SessionWindows(lambda key, device: 30 if device == "phone" else 5, at_most=30)
    >>> sessions = builder.stream("in").group_by_key().windowed_by(windows)
    >>> sessions.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count().to("out")
    >>> with TopologyDriver(builder.build()) as driver:
    ...     driver.pipe_all("in", [("a", "phone", 1), ("a", "desk", 20), ("a", "desk", 40), ("a", "desk", 99)])
    ...     for record in driver.read("out"):
    ...         print(record.key, record.value)
    Windowed(key='a', start=1, end=31) 2
    Windowed(key='a', start=40, end=45) 1
    """

    gap: int
    within: TimeWindows | None = None
    gap_of: Any = field(default=None, compare=False)

    @fitted
    def __init__(
        self,
        gap: Duration | GapFunction | Any,
        *,
        at_most: Duration | None = None,
        grace: Duration = 0,
        max_length: Duration | None = None,
        offset: Duration = 0,
        zone: str | None = None,
        week_start: str | None = None,
    ) -> None:
        self._set_gap(gap, at_most)
        self._set("grace", grace, 0)
        if max_length is None:
            self._check_uncut({"offset": offset, "zone": zone, "week_start": week_start})
            return
        try:
            within = TimeWindows(max_length, offset=offset, zone=zone, week_start=week_start)
        except MillpondError as error:
            said = str(error).removeprefix("TimeWindows: ")
            error.args = (f"SessionWindows: max_length is a size of TimeWindows: {said}",)
            raise
        if self.gap >= within.size:
            shown = TimeUnit.MILLISECOND.length
            raise InvalidWindowError(
                f"SessionWindows: a gap of {shown(self.gap)} is not shorter than the largest length, "
                f"{max_length!r}, which alone would end sessions; give a shorter gap, or TimeWindows({max_length!r})"
            )
        object.__setattr__(self, "within", within)

    @property
    def apart(self) -> int:
        """The greatest distance between a record and the end of a session, as stores have it, that takes the record.

        That end is the time of the last record or, if records have their own gaps, the latest end of such a gap.
        """
        return self.gap if self.gap_of is None else 0

    @property
    def ahead(self) -> int:
        """The longest time by which the end of a session, as stores have it, is ahead of its last record."""
        return self.gap - self.apart

    @property
    def retention(self) -> int:
        # A record with its own gap still meets a session that has been over for as long as the grace.
        return max(self.gap + self.grace, 1) + (self.gap_of is not None)

    @property
    def delay(self) -> int:
        # Updates have the times of ends, by which stream time behind the aggregation may be ahead, too.
        return self.gap + self.grace

    @property
    def terms(self) -> Mapping[str, Term]:
        gap: dict[str, Term] = {"gap": self.gap}
        if self.gap_of is not None:
            gap = {"gap": "of each record", LONGEST_GAP: self.gap}
        if self.within is None:
            return gap
        cut = {"max_length" if name == "size" else name: value for name, value in self.within.terms.items()}
        del cut["advance"]
        return {**gap, **cut}

    def _set_gap(self, gap: Duration | GapFunction | Any, at_most: Duration | None) -> None:
        if _is_length(gap):
            if at_most is not None:
                raise InvalidWindowError(
                    f"SessionWindows: at_most is {at_most!r}, but {gap!r} is the gap of all records; leave out "
                    "at_most, or give a gap of each record: F.col('gap'), in Pond pc.field('gap'), or in a topology a "
                    "function of key and value"
                )
            try:
                self._set("gap", gap, 0)
            except ConfigurationError as error:
                if isinstance(gap, str) and gap.isidentifier():
                    raise InvalidWindowError(
                        f"{error}; for the gaps that a column has, write SessionWindows(F.col({gap!r}), "
                        f"at_most='1 hour'), or in Pond SessionWindows(pc.field({gap!r}), at_most='1 hour')"
                    ) from error
                raise
            return
        if at_most is None:
            raise InvalidWindowError(
                "SessionWindows: gaps differ from record to record, and sessions are kept for the greatest; give it: "
                "at_most='1 hour'"
            )
        self._set("gap", at_most, 1)
        if self.gap > FARTHEST // 8_000:
            raise InvalidWindowError(f"SessionWindows: at_most is {at_most!r}; give less than 9000 years")
        object.__setattr__(self, "gap_of", gap)

    def _check_uncut(self, places: Mapping[str, object]) -> None:
        for name, place in places.items():
            if place not in (None, 0):
                raise InvalidWindowError(
                    f"SessionWindows: {name} is {place!r}, but only sessions with a largest length are cut; give "
                    f"one, such as max_length='1 day', or leave out {name}"
                )


AnyWindows = TypeVar("AnyWindows", bound=Windows)


def _is_length(gap: object) -> TypeGuard[Duration]:
    """Return whether something is meant as a length of time, right or wrong, and not as the gap of each record."""
    return isinstance(gap, int | float | str | date | timedelta | None) or hasattr(gap, "__index__")


def of_topology(windows: AnyWindows) -> AnyWindows:
    """Return windows as topologies have them: of times that are moments, and of gaps that are functions of records.

    Raises:
        TopologyError: they are of a calendar without a time zone, or the gaps are not given by a function.
    """
    calendar = calendar_of(windows)
    if calendar is not None and calendar.zone is None:
        raise InvalidWindowError(
            f"{type(windows).__name__}: windows of the calendar, {calendar.text!r}, need a time zone; "
            f"give it: {in_a_zone(windows, calendar)}"
        )
    gap_of = own_gap(windows)
    if gap_of is not None and not callable(gap_of):
        raise InvalidWindowError(
            f"SessionWindows: the gap is {gap_of!r}; in a topology give a function of key and value, such as "
            "lambda key, value: value['gap']"
        )
    return windows


def own_gap(windows: object) -> Any:
    """Return the function or column of each record's gap; None if all have the same, or these are no sessions."""
    return windows.gap_of if isinstance(windows, SessionWindows) else None


def calendar_of(windows: object) -> Calendar | None:
    """Return the calendar by which windows begin, or sessions are cut; None without one."""
    cut = windows.within if isinstance(windows, SessionWindows) else windows
    return cut.calendar if isinstance(cut, TimeWindows) else None


def in_a_zone(windows: object, calendar: Calendar) -> str:
    """Return the code for windows of a calendar with a time zone."""
    zoned = f"{calendar.unit.value!r}, zone='Europe/Berlin')"
    if isinstance(windows, SessionWindows):
        return f"SessionWindows({TimeUnit.MILLISECOND.length(windows.gap)!r}, max_length={zoned}"
    return f"TimeWindows({zoned}"


class Span(NamedTuple):
    """Windows that begin within some time.

    Attributes:
        first, last: the first and the last time at which they may begin.
    """

    first: int = MIN_TIME
    last: int = MAX_TIME

    def cut(self, first: int, last: int) -> "Span":
        """Return the part from ``first`` to ``last``, both included; empty where it ends before it begins."""
        return Span(max(first, self.first), min(last, self.last))


ALL_TIMES: Final = Span()
