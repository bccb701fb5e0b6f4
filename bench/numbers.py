"""Numbers as a person reads them."""

import math

_LEAST_PLAIN = 1e-5
_SIZES = ("B", "KiB", "MiB", "GiB")


def shown(value: float) -> str:
    """Return a number with three digits at least, and with all of those before the point.

    >>> shown(1234567.8), shown(93.27), shown(0.4562), shown(0.00317), shown(3.17e-8), shown(0)
    ('1,234,568', '93.3', '0.456', '0.00317', '3.17e-08', '0')
    """
    if value == 0:
        return "0"
    if value < _LEAST_PLAIN:
        return f"{value:.3g}"
    return f"{value:,.{max(0, 2 - math.floor(math.log10(value)))}f}"


def counted(count: int, what: str) -> str:
    """Return how many there are of something.

    >>> counted(1, "run"), counted(2000, "run")
    ('1 run', '2,000 runs')
    """
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def size(count: float) -> str:
    """Return bytes as text, with the unit that suits them.

    >>> size(100), size(5 * 2**20), size(3 * 2**40)
    ('100 B', '5.00 MiB', '3,072 GiB')
    """
    unit, each = size_unit(count)
    return f"{count:.0f} B" if each == 1 else f"{shown(count / each)} {unit}"


def size_unit(count: float) -> tuple[str, int]:
    """Return the unit that suits as many bytes, and how many bytes it has.

    >>> size_unit(100), size_unit(5 * 2**20)
    (('B', 1), ('MiB', 1048576))
    """
    place = next((place for place in range(len(_SIZES)) if count < 1024 ** (place + 1)), len(_SIZES) - 1)
    return _SIZES[place], 1024**place
