"""Times as the stores hold them: integers, in milliseconds since 1970-01-01 UTC, 64 bits with a sign.

``datetime``, ``timedelta`` and Spark's text for intervals are accepted only at the public edge, and become integers
here. A point in time is never read as a length of time, nor the other way around.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from enum import IntEnum
from typing import Final, NoReturn, TypeAlias

from millpond.errors import InvalidTimeError, TimeZoneError

Instant: TypeAlias = int | datetime
"""A point in time: milliseconds since the epoch, or a datetime that knows its time zone."""

Duration: TypeAlias = int | timedelta | str
"""A length of time: milliseconds, a timedelta, or text as Spark takes it, such as ``"1 hour 30 minutes"``."""

MIN_TIME: Final = -(2**63)
MAX_TIME: Final = 2**63 - 1
FARTHEST: Final = 2**61
"""Times and lengths of time within this can be added and subtracted without leaving 64 bits."""

NO_TIME: Final = 1 - FARTHEST
"""The time of a record that has none. It is before all others, so it moves no clock."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_MILLISECOND = timedelta(milliseconds=1)
_NANOSECONDS: Final = {
    "microsecond": 1_000,
    "millisecond": 1_000_000,
    "second": 1_000_000_000,
    "minute": 60_000_000_000,
    "hour": 3_600_000_000_000,
    "day": 86_400_000_000_000,
    "week": 604_800_000_000_000,
}
_ABBREVIATIONS: Final = {
    "us": "microsecond",
    "ms": "millisecond",
    "s": "second",
    "m": "minute",
    "h": "hour",
    "d": "day",
}
_SHOWN: Final = ("day", "hour", "minute", "second", "millisecond", "microsecond")
_PREFIX = re.compile(r"^interval\s+")
_TERM = re.compile(
    r"(?P<sign>[-+]?)\s*(?P<number>\d{1,20}(?:\.\d{0,9})?|\.\d{1,9})(?P<space>\s*)(?P<unit>[a-z]+)(?:\s+|$)", re.ASCII
)
_EXAMPLE: Final = "write it as Spark does, e.g. '5 minutes' or '1 hour 30 minutes'"


class TimeUnit(IntEnum):
    """The unit of the integers of a topology's times; the value is its length in microseconds."""

    MICROSECOND = 1
    """The unit of verbs."""

    MILLISECOND = 1_000
    """The unit of topologies."""

    def length(self, count: int) -> str:
        """Return a length of time as text, such as ``to_millis`` and ``to_micros`` take.

        >>> TimeUnit.MILLISECOND.length(5_400_000), TimeUnit.MICROSECOND.length(-1), TimeUnit.MICROSECOND.length(0)
        ('1 hour 30 minutes', '-1 microsecond', '0 seconds')
        """
        rest, parts, sign = abs(count) * int(self), [], "-" if count < 0 else ""
        for name in _SHOWN:
            number, rest = divmod(rest, _NANOSECONDS[name] // 1_000)
            if number:
                parts.append(f"{sign}{number} {name}{'s' if number > 1 else ''}")
        return " ".join(parts) or "0 seconds"

    def shown(self, time: int) -> str:
        """Return a point in time as text, in UTC; the bare number if no calendar has it.

        >>> TimeUnit.MILLISECOND.shown(4102444800000), TimeUnit.MILLISECOND.shown(MAX_TIME)
        ('2100-01-01T00:00:00+00:00', '9223372036854775807')
        """
        try:
            return (_EPOCH + time * int(self) * _MICROSECOND).isoformat()
        except OverflowError:
            return str(time)


def time_in(text: str, option: str) -> Instant:
    """Return milliseconds, or a time in the form of ISO 8601, from a text.

    Args:
        text: the user's text.
        option: the option that it was given with.

    Raises:
        ConfigurationError: it is neither, or has no time zone.

    >>> time_in("1970-01-01T00:00:01+00:00", "--as-of").timestamp(), time_in("-5", "--as-of")
    (1.0, -5)
    """
    try:
        if text.removeprefix("-").isdecimal():
            return int(text)
        if (time := datetime.fromisoformat(text)).tzinfo is None:
            raise ValueError(f"{text!r} has no time zone")
        return time
    except ValueError as error:
        raise TimeZoneError(
            f"{option} has the time {text!r}; give one with its time zone, such as 2026-01-31T00:00:00+00:00, or "
            "milliseconds"
        ) from error


def to_instant(time: Instant, what: str = "time") -> int:
    """Return a point in time in milliseconds since 1970, rounded down; ``what`` names it in errors.

    Raises:
        ConfigurationError: neither an integer of 64 bits nor a datetime with a time zone.

    >>> from datetime import UTC, datetime
    >>> to_instant(datetime(1970, 1, 2, tzinfo=UTC))
    86400000
    """
    if time.__class__ is int and MIN_TIME <= time <= MAX_TIME:
        return time
    if isinstance(time, datetime):
        if time.tzinfo is None:
            raise TimeZoneError(
                f"{what} {time!r} has no time zone; write {time.replace(tzinfo=UTC)!r} if it is in UTC, or "
                f"{time!r}.astimezone() if it is in this machine's"
            )
        return (time - _EPOCH) // _MILLISECOND
    return _integer(time, what, "milliseconds since 1970 as an int, or a datetime")


def to_instant_micros(time: Instant, what: str = "time") -> int:
    """Return a point in time in microseconds since 1970, exact; an int is milliseconds. ``what`` names it in errors.

    Raises:
        ConfigurationError: it does not fit into 64 bits, or is not what ``to_instant`` takes.
    """
    millis = to_instant(time, what)
    if isinstance(time, datetime):
        return (time - _EPOCH) // _MICROSECOND
    return _fitting(millis * 1000, what, f"{time!r} ms, in microseconds")


def to_millis(duration: Duration, what: str = "duration") -> int:
    """Return a length of time in milliseconds; ``what`` names it in errors.

    A timedelta is rounded down. Text must be a whole number of milliseconds.

    Raises:
        ConfigurationError: neither an integer of 64 bits, nor a timedelta, nor text of a fixed length.

    >>> from datetime import timedelta
    >>> to_millis(timedelta(minutes=1)), to_millis("1 minute 500 milliseconds")
    (60000, 60500)
    """
    if duration.__class__ is int and MIN_TIME <= duration <= MAX_TIME:
        return duration
    if isinstance(duration, timedelta):
        return duration // _MILLISECOND
    if isinstance(duration, str):
        return _parsed(duration, what, "millisecond")
    return _integer(duration, what, "milliseconds as an int, a timedelta, or text such as '5 minutes'")


def to_micros(duration: Duration, what: str = "duration") -> int:
    """Return a length of time in microseconds, exact; an int is milliseconds. ``what`` names it in errors.

    Raises:
        ConfigurationError: it does not fit into 64 bits, or is not what ``to_millis`` takes.

    >>> to_micros(5), to_micros("5 microseconds")
    (5000, 5)
    """
    if isinstance(duration, timedelta):
        return _fitting(duration // _MICROSECOND, what, repr(duration))
    if isinstance(duration, str):
        return _parsed(duration, what, "microsecond")
    return _fitting(to_millis(duration, what) * 1000, what, f"{duration!r} ms, in microseconds")


def to_length(duration: Duration, what: str) -> int:
    """Return a length of time in milliseconds that is not negative; ``what`` names it in errors.

    Raises:
        ConfigurationError: it is negative, or not what ``to_millis`` takes.
    """
    length = to_millis(duration, what)
    if length < 0:
        raise InvalidTimeError(f"{what} is {length} ms; it must not be negative")
    return length


def _integer(time: object, what: str, wanted: str) -> int:
    if isinstance(time, bool) or not hasattr(time, "__index__"):
        raise InvalidTimeError(f"{what} is {time!r}, which is no time; give {wanted}")
    return _fitting(time.__index__(), what, f"{time!r}; are these milliseconds?")


def _fitting(number: int, what: str, given: str) -> int:
    if not MIN_TIME <= number <= MAX_TIME:
        raise InvalidTimeError(f"{what} does not fit into 64 bits: {given}")
    return number


def _parsed(text: str, what: str, resolution: str) -> int:
    """Return the sum of the terms of Spark's text for an interval, in units of ``resolution``."""
    total, rest = divmod(sum(_terms(text, what)), _NANOSECONDS[resolution])
    if rest:
        _refuse(text, what, f"that is not a whole number of {resolution}s")
    return _fitting(total, what, repr(text))


def _terms(text: str, what: str) -> Iterator[int]:
    """Yield the lengths of the terms in nanoseconds, at least one."""
    terms = _PREFIX.sub("", text.strip().lower(), count=1)
    position = 0
    while position < len(terms) or not terms:
        term = _TERM.match(terms, position)
        if term is None:
            _refuse(text, what, "that is not a length of time")
        position = term.end()
        yield _nanoseconds(term, text, what)


def _nanoseconds(term: re.Match[str], text: str, what: str) -> int:
    unit = term["unit"].removesuffix("s")
    whole, point, fraction = term["number"].partition(".")
    if unit not in _NANOSECONDS:
        _refuse(text, what, _of_unknown(term["unit"]))
    if not term["space"]:
        _refuse(text, what, f"a space is missing before {term['unit']!r}")
    if point and unit != "second":
        _refuse(text, what, "only seconds can have a fraction")
    length = int(whole or 0) * _NANOSECONDS[unit] + int(fraction.ljust(9, "0"))
    return -length if term["sign"] == "-" else length


def _of_unknown(unit: str) -> str:
    one = unit.removesuffix("s")
    if one in ("month", "year"):
        return "months and years have no fixed length; give days"
    near = [_ABBREVIATIONS[unit]] if unit in _ABBREVIATIONS else get_close_matches(one, _NANOSECONDS, 1)
    hint = "".join(f"; did you mean '{match}s'?" for match in near)
    return f"{unit!r} is not a unit of time{hint}"


def _refuse(text: str, what: str, reason: str) -> NoReturn:
    raise InvalidTimeError(f"{what} is {text!r}: {reason} ({_EXAMPLE})")
