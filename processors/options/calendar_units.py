"""The recognition of windows of the calendar among what a user writes."""

from collections.abc import Mapping
from typing import Final

from millpond.errors import ConfigurationError, InvalidWindowError
from millpond.processors.options.known_names import choice
from millpond.stores.encoding.times import Duration, to_millis
from millpond.stores.typed.windows.calendar import CalendarUnit, Weekday

_DAY: Final = 86_400_000

_UNITS: Final[Mapping[str, CalendarUnit]] = {
    **{unit.value: unit for unit in CalendarUnit},
    "1 quarter": CalendarUnit.QUARTER,
    "12 months": CalendarUnit.YEAR,
}
"""The units as users write them."""

_NOT_EVEN: Final = ("month", "quarter", "year")


def calendar_unit(size: Duration, zone: str | None, week_start: str | None) -> CalendarUnit | None:
    """Return the unit of windows of the calendar; None for windows of a fixed length.

    Args:
        size, zone, week_start: as in ``TimeWindows``.

    Raises:
        TopologyError: the calendar has no windows of that size, or they are no weeks.
        ConfigurationError: ``week_start`` is no day.
    """
    text = " ".join(size.split()).lower().removeprefix("interval ") if isinstance(size, str) else ""
    unit = _UNITS.get(text)
    if zone is None and week_start is None and not any(one in text for one in _NOT_EVEN):
        return None
    if unit is None:
        unit = {_DAY: CalendarUnit.DAY, 7 * _DAY: CalendarUnit.WEEK}.get(_length(size))
    if unit is None:
        units = ", ".join(repr(one.value) for one in CalendarUnit)
        raise InvalidWindowError(
            f"TimeWindows: the size {size!r} is no window of the calendar; give one of {units}, or a size such as "
            "'12 hours' without zone and week_start"
        )
    if week_start is not None:
        _check_week_start(week_start, unit)
    return unit


def _check_week_start(week_start: str, unit: CalendarUnit) -> None:
    if unit is not CalendarUnit.WEEK:
        raise InvalidWindowError(
            f"TimeWindows: week_start is {week_start!r}, but windows of {unit.value!r} are no weeks; leave it out, or "
            "give the size '1 week'"
        )
    choice("week_start", week_start, Weekday)


def _length(size: Duration) -> int:
    """Return a fixed length in milliseconds; 0 if it is none."""
    try:
        return to_millis(size)
    except ConfigurationError:
        return 0
