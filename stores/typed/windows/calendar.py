"""Windows of the calendar: days, weeks, months, quarters and years, as the clocks of a time zone show them.

Rule of this module: a day begins when the clock first shows its date, so each moment is in one day, also where clocks
are put back past midnight, and a date that a zone has left out has no moments. All other windows begin with one of
their days. The calendar is the Gregorian, for all times: it repeats itself every 400 years, as do the rules of zones
before the first and after the last change that is known.
"""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from enum import Enum, StrEnum
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final
from zoneinfo import ZoneInfo

from millpond.errors import CorruptStoreError, TimeZoneError
from millpond.stores.encoding.times import TimeUnit
from millpond.stores.typed.windows.grids import CumulativeGrid, EvenGrid, Grid

_OF_THE_MACHINE: Final = ("localtime", "Factory")
"""Names of zones that each machine sets for itself."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_DAY: Final = timedelta(days=1) // _MICROSECOND
_ERA: Final = 146_097 * _DAY
"""The length of 400 years, after which the calendar repeats itself."""

_EARLIEST: Final = (datetime(1000, 1, 1, tzinfo=UTC) - _EPOCH) // _MICROSECOND
_LATEST: Final = (datetime(5000, 1, 1, tzinfo=UTC) - _EPOCH) // _MICROSECOND
"""The bounds of ``datetime`` and the rules of zones; times beyond are as they are some eras nearer."""

_CHANGES_FROM: Final = datetime(1900, 1, 1, tzinfo=UTC)
_CHANGES_DAYS: Final = 140 * 366
"""The days within which clocks are put back by as much as they ever are, in the past or by the present rules."""

_MOST_CHANGES: Final = 10
"""The most changes of a zone's clocks within a year."""


class Weekday(StrEnum):
    """A day with which weeks begin."""

    MONDAY = "monday"
    TUESDAY = "tuesday"
    WEDNESDAY = "wednesday"
    THURSDAY = "thursday"
    FRIDAY = "friday"
    SATURDAY = "saturday"
    SUNDAY = "sunday"


class CalendarUnit(Enum):
    """The unit of windows of the calendar; the value is how a user writes it."""

    DAY = "1 day"
    WEEK = "1 week"
    MONTH = "1 month"
    QUARTER = "3 months"
    YEAR = "1 year"

    @property
    def days(self) -> int:
        """The number of days that it has at most."""
        return _DAYS[self]

    @property
    def is_even(self) -> bool:
        """True if all windows have the same number of days."""
        return self in (CalendarUnit.DAY, CalendarUnit.WEEK)

    @property
    def months(self) -> int:
        """The number of its months; 0 if it has days."""
        return _MONTHS.get(self, 0)


_DAYS: Final = {
    CalendarUnit.DAY: 1,
    CalendarUnit.WEEK: 7,
    CalendarUnit.MONTH: 31,
    CalendarUnit.QUARTER: 92,
    CalendarUnit.YEAR: 366,
}
_WEEKDAYS: Final = [day.value for day in Weekday]
_MONTHS: Final = {CalendarUnit.MONTH: 1, CalendarUnit.QUARTER: 3, CalendarUnit.YEAR: 12}


@dataclass(frozen=True)
class Calendar(Grid):
    """Windows of the calendar, one after the other.

    Attributes:
        unit: the unit of each.
        zone: the name of the time zone; None if times have no zone, but are those of some clock.
        week_start: the weekday with which weeks begin.
        scale: the unit of times, in microseconds.

    >>> Calendar(CalendarUnit.MONTH, "Europe/Berlin").last(1_700_000_000_000)
    1698793200000
    """

    unit: CalendarUnit
    zone: str | None = None
    week_start: str = Weekday.MONDAY.value
    scale: TimeUnit = TimeUnit.MILLISECOND

    def last(self, time: int) -> int:
        starts = starts_on(self, time // self.bucket)
        return starts[bisect_right(starts, time) - 1]

    def first(self, time: int) -> int:
        return self.last(time)

    def next(self, time: int) -> int:
        return self.end(self.last(time))

    def end(self, place: int) -> int:
        return end_of(self, place)

    def told(self, unit: TimeUnit) -> str:
        return f"every {self.text.removeprefix('1 ')}"

    @property
    def bucket(self) -> int:
        """A length of time within which few windows begin; the windows of each such time are looked up together."""
        return _DAY // self.scale

    @property
    def longest(self) -> int:
        """The greatest length of a window."""
        return (self.unit.days * _DAY + _put_back(self.zone, self.unit.days)) // self.scale

    def _found_end(self, start: int) -> int:
        """Return the result of ``end``, computed."""
        moved, eras = _within(start * self.scale)
        begins, end = self._first_day(_date_at(moved, self._tz)), moved
        while end <= moved:
            begins = self._following(begins)
            end = _begin_of(begins, self._tz)
        return (end + eras) // self.scale

    def _found(self, time: int) -> int:
        """Return the result of ``last``, computed."""
        moved, eras = _within(time * self.scale)
        begins = self._first_day(_date_at(moved, self._tz))
        while (following := _begin_of(self._following(begins), self._tz)) <= moved:
            begins = self._first_day(_date_at(following, self._tz))
        return (_begin_of(begins, self._tz) + eras) // self.scale

    @property
    def _tz(self) -> tzinfo:
        return UTC if self.zone is None else zone_of(self.zone)

    def _first_day(self, day: date) -> date:
        """Return the first day of the window with a day."""
        if self.unit.months:
            return day.replace(month=day.month - (day.month - 1) % self.unit.months, day=1)
        if self.unit is CalendarUnit.WEEK:
            return day - timedelta(days=(day.weekday() - _WEEKDAYS.index(self.week_start)) % 7)
        return day

    def _following(self, first: date) -> date:
        """Return the first day of the window after the one with this first day."""
        if self.unit.months:
            return self._first_day(first + timedelta(days=self.unit.days))
        return first + timedelta(days=self.unit.days)

    @property
    def terms(self) -> dict[str, Any]:
        """The terms that stores keep of it, by the names that a user writes."""
        size = self.unit.days * _DAY // self.scale if self.unit.is_even else self.unit.value
        found: dict[str, Any] = {"size": size, "advance": size}
        if self.zone is not None:
            found["zone"] = self.zone
        if self.unit is CalendarUnit.WEEK:
            found["week_start"] = self.week_start
        return found

    @property
    def text(self) -> str:
        """The calendar in one line."""
        weeks = f"from {self.week_start}" if self.unit is CalendarUnit.WEEK else None
        return " ".join(filter(None, (self.unit.value, weeks, self.zone and f"of {self.zone}")))


WINDOWS_OF_TIME: Final = {"TimeWindows": TimeUnit.MILLISECOND, "_TimeWindows": TimeUnit.MICROSECOND}
"""The names of windows of time in terms, with the unit of their times."""

_CUMULATIVE: Final = ("CumulativeWindows", "_CumulativeWindows")
"""The names of windows that end step by step."""


def grid_of(terms: Mapping[str, Any]) -> Grid | None:
    """Return the grid of windows of time, by the terms that a store keeps; None if they do not tell it.

    Args:
        terms: the terms, by name.

    Raises:
        CorruptStoreError: no windows have such terms.
    """
    if terms.get("windows") in _CUMULATIVE and "step" in terms:
        return CumulativeGrid(terms["size"], terms["step"], terms["offset"])
    scale = WINDOWS_OF_TIME.get(terms.get("windows", ""))
    if scale is None or "size" not in terms:
        return None
    size: Any = terms["size"]
    zone, week_start = terms.get("zone") or None, terms.get("week_start") or None
    if isinstance(size, int) and not (zone or week_start):
        return EvenGrid(size, terms.get("advance", size), terms.get("offset", 0))
    units: dict[Any, CalendarUnit] = {unit.value: unit for unit in CalendarUnit}
    units |= {unit.days * _DAY // scale: unit for unit in CalendarUnit if unit.is_even}
    if size not in units:
        raise CorruptStoreError(f"the terms {dict(terms)} describe windows that do not exist")
    return Calendar(units[size], zone, week_start or Weekday.MONDAY.value, scale)


@lru_cache(maxsize=1 << 8)
def zone_of(name: str) -> ZoneInfo:
    """Return the time zone of that name.

    Raises:
        ConfigurationError: there is none, or it is each machine's own.
    """
    if name in _OF_THE_MACHINE:
        raise TimeZoneError(
            f"zone is {name!r}, which may be another one on each machine; give the name of a place, such as "
            "zone='Europe/Berlin', or zone='UTC'"
        )
    try:
        return ZoneInfo(name)
    except (KeyError, OSError, TypeError, ValueError) as error:
        raise TimeZoneError(
            f"zone is {name!r}, and the database of time zones of this machine has none of that name; give the name of "
            "a place, such as zone='Europe/Berlin', or zone='UTC', or install the package tzdata there"
        ) from error


@lru_cache(maxsize=1 << 16)
def starts_on(calendar: Calendar, bucket: int) -> tuple[int, ...]:
    """Return the starts of the windows with times of a bucket, ascending; buckets are counted from 1970."""
    earliest = bucket * calendar.bucket
    found = [calendar._found(earliest + calendar.bucket - 1)]
    while found[-1] > earliest:
        found.append(calendar._found(found[-1] - 1))
    return tuple(reversed(found))


@lru_cache(maxsize=1 << 16)
def end_of(calendar: Calendar, start: int) -> int:
    """Return the end of the window that begins at ``start``."""
    return calendar._found_end(start)


@lru_cache(maxsize=1 << 12)
def _begin_of(day: date, zone: tzinfo) -> int:
    """Return the time at which a clock first shows a day, or, if it never does, a later one, in microseconds."""
    midnight = datetime.combine(day, time(), zone)
    begin = (midnight - _EPOCH) // _MICROSECOND
    if _date_at(begin - 1, zone) < day and (_EPOCH + begin * _MICROSECOND).astimezone(zone).time() == time():
        return begin
    # There is no such midnight: the clock was put forward from before it, at some second that has to be found.
    earlier = (midnight.replace(fold=1) - _EPOCH) // _MICROSECOND
    seconds = range(earlier, begin, 1_000_000)
    place = bisect_right(seconds, False, key=lambda second: _date_at(second, zone) >= day)
    return seconds[place] if place < len(seconds) else begin


def _date_at(micros: int, zone: tzinfo) -> date:
    return (_EPOCH + micros * _MICROSECOND).astimezone(zone).date()


def _within(micros: int) -> tuple[int, int]:
    """Return a time at which ``datetime`` and zones have the same days, and by how much it is earlier."""
    eras = 0
    if micros < _EARLIEST:
        eras = (micros - _EARLIEST) // _ERA * _ERA
    elif micros >= _LATEST:
        eras = ((micros - _LATEST) // _ERA + 1) * _ERA
    return micros - eras, eras


@lru_cache(maxsize=1 << 8)
def _put_back(zone: str | None, days: int) -> int:
    """Return the most by which clocks of a zone are put back within so many days, in microseconds."""
    if zone is None:
        return 0
    changes, most = _changes(zone), timedelta()
    for number, (before, first) in enumerate(pairwise(changes)):
        for day, offset in changes[number + 1 : number + _MOST_CHANGES]:
            if day - first[0] <= days:
                most = max(most, before[1] - offset)
    return most // _MICROSECOND


@lru_cache(maxsize=1 << 8)
def _changes(zone: str) -> list[tuple[int, timedelta]]:
    """Return the days from which a zone has another difference to UTC, as numbers, with that difference."""
    tz, day, found = zone_of(zone), _CHANGES_FROM, list[tuple[int, timedelta]]()
    for number in range(_CHANGES_DAYS):
        offset = tz.utcoffset(day.replace(tzinfo=tz)) or timedelta()
        if not found or found[-1][1] != offset:
            found.append((number, offset))
        day += timedelta(days=1)
    return found
