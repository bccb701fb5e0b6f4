"""Times as the stores hold them: integers, in milliseconds since 1970-01-01 UTC, 64 bits with a sign.

``datetime`` and ``timedelta`` are accepted only at the public edge, and become integers here.
"""

from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias

from millpond.errors import ConfigurationError

Instant: TypeAlias = int | datetime
"""A point in time: milliseconds since the epoch, or a datetime that knows its time zone."""

Duration: TypeAlias = int | timedelta
"""A length of time: milliseconds, or a timedelta."""

MIN_TIME: Final = -(2**63)
MAX_TIME: Final = 2**63 - 1

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def to_millis(time: Instant | Duration, what: str = "time") -> int:
    """A point in time or a length of time in milliseconds, rounded down; ``what`` names it in errors.

    Raises:
        ConfigurationError: neither an integer of 64 bits, nor a datetime with a time zone, nor a timedelta.

    >>> from datetime import UTC, datetime, timedelta
    >>> to_millis(timedelta(minutes=1))
    60000
    >>> to_millis(datetime(1970, 1, 2, tzinfo=UTC))
    86400000
    """
    if time.__class__ is int and MIN_TIME <= time <= MAX_TIME:
        return time
    if isinstance(time, datetime):
        if time.tzinfo is None:
            raise ConfigurationError(f"{what} {time!r} has no time zone; give it one, e.g. tzinfo=datetime.UTC")
        return (time - _EPOCH) // _MILLISECOND
    if isinstance(time, timedelta):
        return time // _MILLISECOND
    if isinstance(time, bool) or not hasattr(time, "__index__"):
        raise ConfigurationError(f"{what} is {time!r}; give milliseconds as an int, a timedelta or a datetime")
    number = time.__index__()
    if not MIN_TIME <= number <= MAX_TIME:
        raise ConfigurationError(f"{what} {time!r} does not fit into 64 bits; are these milliseconds?")
    return number


def to_length(duration: Duration, what: str) -> int:
    """A length of time in milliseconds that is not negative; ``what`` names it in errors.

    Raises:
        ConfigurationError: it is negative, or not what ``to_millis`` takes.
    """
    length = to_millis(duration, what)
    if length < 0:
        raise ConfigurationError(f"{what} is {length} ms; it must not be negative")
    return length
