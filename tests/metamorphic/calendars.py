"""Windows of the calendar as ``zoneinfo`` has them, and rows of some days about a change of clocks."""

from datetime import UTC, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from millpond.processors import CumulativeWindows, TimeWindows
from millpond.stores.typed.windows.calendar import Calendar
from tests.metamorphic.histories import SECOND, Event
from tests.metamorphic.oracle import cumulative

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_MILLI: Final = 1_000
STEP: Final = 5 * 3_600
"""So many seconds are one, where windows are of the calendar."""

CHANGES: Final = (datetime(2026, 10, 23, 1, 30, tzinfo=UTC) - _EPOCH) // _MICROSECOND
"""Some hours before clocks change in Europe, and some days before they do in America."""


def stretched(one: Event) -> Event:
    """Return the same, with hours for seconds, about the days on which the clocks change."""
    at = CHANGES + (one.at - 1_000 * SECOND) * STEP
    return Event(one.source, at, {**one.row, f"{one.source}t": at})


def held_by(windows: TimeWindows | CumulativeWindows, at: int) -> list[tuple[int, int]]:
    """Return the windows that hold a time."""
    if isinstance(windows, CumulativeWindows):
        size, step, offset = (length * _MILLI for length in (windows.size, windows.step, windows.offset))
        return sorted(cumulative(size, step, offset)([at]))
    if windows.calendar is not None:
        return [spanned(windows.calendar, at)]
    size, advance, offset = (length * _MILLI for length in (windows.size, windows.advance, windows.offset))
    starts = range((at - size - offset) // advance * advance + offset, at + 1, advance)
    return [(start, start + size) for start in starts if start + size > at]


def spanned(calendar: Calendar, at: int) -> tuple[int, int]:
    """Return the window of a calendar, in zones whose clocks never change at midnight."""
    zone = ZoneInfo(calendar.zone or "UTC")
    day = (_EPOCH + timedelta(microseconds=at)).astimezone(zone).date()
    months = {"1 month": 1, "3 months": 3, "1 year": 12}.get(calendar.unit.value)
    if months:
        first = day.replace(month=day.month - (day.month - 1) % months, day=1)
        month = first.month - 1 + months
        until = first.replace(year=first.year + month // 12, month=month % 12 + 1)
    else:
        days = 7 if calendar.unit.value == "1 week" else 1
        names = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
        first = day if days == 1 else day - timedelta((day.weekday() - names.index(calendar.week_start)) % 7)
        until = first + timedelta(days)
    start, stop = ((datetime(*one.timetuple()[:3], tzinfo=zone) - _EPOCH) // _MICROSECOND for one in (first, until))
    return start, stop
