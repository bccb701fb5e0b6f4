"""In which windows of time whole columns of times are, and where sessions are cut."""

from typing import Any

import numpy as np
import numpy.typing as npt

from millpond.processors.options.windows import GridWindows, SessionWindows, Span
from millpond.stores.encoding.times import MAX_TIME
from millpond.stores.typed.windows.calendar import Calendar, starts_on

Integers = npt.NDArray[np.int64]


def last_starts(windows: GridWindows, times: Integers) -> Integers:
    """Return the place of the last window that holds each of these times."""
    grid = windows.grid
    return _begun(grid, times) if isinstance(grid, Calendar) else _even(windows).latest(times)


def first_starts(windows: GridWindows, times: Integers, span: Span) -> Integers:
    """Return the place of the first window within the span that holds each of these times."""
    grid = windows.grid
    if isinstance(grid, Calendar):
        return np.maximum(_begun(grid, times), span.first)
    firsts: Integers = _even(windows).first(times)
    firsts = np.where(times >= 0, np.maximum(firsts, 0), firsts) if windows.is_bounded else firsts
    return np.maximum(firsts, span.first)


def begins_of(windows: GridWindows, places: Integers) -> Integers:
    """Return the starts of the windows with these places."""
    begins: Integers = _even(windows).begin(places)
    return begins


def ends_of(windows: GridWindows, starts: Integers) -> Integers:
    """Return the ends of the windows with these places."""
    grid = windows.grid
    if not isinstance(grid, Calendar):
        ends: Integers = _even(windows).end(starts)
        return ends
    distinct, places = _met(grid, starts)
    return np.array([grid.end(start) for start in distinct.tolist()], np.int64)[places]


def session_ends(windows: SessionWindows, lasts: Integers) -> Integers:
    """Return the ends of sessions as users see them, from those in stores: the gap later, or where sessions are cut."""
    ends: Integers = lasts + windows.apart
    if windows.within is None:
        return ends
    return np.minimum(ends, ends_of(windows.within, last_starts(windows.within, lasts)))


def lasting(windows: SessionWindows, times: Integers, gaps: Integers) -> Integers:
    """Return the times until which records with their own gaps last: a gap later, or where sessions are cut."""
    ends: Integers = np.minimum(times, MAX_TIME - gaps) + gaps
    if windows.within is None:
        return ends
    return np.minimum(ends, ends_of(windows.within, last_starts(windows.within, times)))


def _even(windows: GridWindows) -> Any:
    """Return the grid, which takes arrays."""
    return windows.grid


def _begun(calendar: Calendar, times: Integers) -> Integers:
    """Return the starts of the windows of a calendar that hold each of these times."""
    starts, places = _met(calendar, times)
    return starts[places]


def _met(calendar: Calendar, times: Integers) -> tuple[Integers, Integers]:
    """Return the starts of some windows, ascending, and the number of the window that holds each of these times."""
    if not len(times):
        return times, times
    first, last = int(times.min()) // calendar.bucket, int(times.max()) // calendar.bucket
    within = range(first, last + 1)
    buckets = within if len(within) <= len(times) else np.unique(times // calendar.bucket).tolist()
    starts = np.unique(np.array([start for one in buckets for start in starts_on(calendar, one)], np.int64))
    return starts, np.searchsorted(starts, times, side="right") - 1
