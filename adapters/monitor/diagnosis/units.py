"""Numbers, sizes and times as people read them.

Rule of this module: what is unknown is a dash.
"""

from typing import Final

UNKNOWN: Final = "-"

_MINUTE: Final = 60
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR


def number(amount: float | None) -> str:
    """Return a number with its thousands apart.

    >>> number(1234567), number(0.25), number(None)
    ('1,234,567', '0.2', '-')
    """
    if amount is None:
        return UNKNOWN
    return f"{amount:,.1f}" if isinstance(amount, float) and amount < 10 else f"{amount:,.0f}"


def times(count: int) -> str:
    """Return how often.

    >>> times(1), times(1200)
    ('once', '1,200 times')
    """
    return "once" if count == 1 else f"{number(count)} times"


def size(count: int | None) -> str:
    """Return a number of bytes.

    >>> size(999), size(20_431), size(5_000_000_000), size(None)
    ('999 B', '20.4 kB', '5.0 GB', '-')
    """
    if count is None:
        return UNKNOWN
    if count < 1000:
        return f"{count} B"
    amount = float(count)
    for unit in ("kB", "MB", "GB", "TB"):
        amount /= 1000
        if amount < 999.95 or unit == "TB":
            break
    return f"{amount:,.1f} {unit}"


def duration(millis: float | None) -> str:
    """Return a length of time.

    >>> [duration(one) for one in (0.4, 14.2, 3_200, 75_000, 7_500_000, 200_000_000, -1_500, None)]
    ['0.4 ms', '14 ms', '3.2 s', '1 min 15 s', '2 h 5 min', '2 d 7 h', '-1.5 s', '-']
    """
    if millis is None:
        return UNKNOWN
    if millis < 0:
        return f"-{duration(-millis)}"
    if millis < 1000:
        return f"{millis:.1f} ms" if millis < 10 else f"{millis:.0f} ms"
    if millis < 60_000:
        return f"{millis / 1000:.1f} s"
    seconds = int(millis / 1000)
    if seconds < _HOUR:
        return f"{seconds // _MINUTE} min {seconds % _MINUTE} s"
    if seconds < _DAY:
        return f"{seconds // _HOUR} h {seconds % _HOUR // _MINUTE} min"
    return f"{seconds // _DAY:,} d {seconds % _DAY // _HOUR} h"
