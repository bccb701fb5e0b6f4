"""Numbers as a person reads them."""


def shown(value: float) -> str:
    """A number with three digits at least, and with all of those before the point.

    >>> shown(1234567.8), shown(93.27), shown(0.4562), shown(0)
    ('1,234,568', '93.3', '0.456', '0')
    """
    if value == 0:
        return "0"
    decimals = next((places for limit, places in ((1, 3), (10, 2), (100, 1)) if value < limit), 0)
    return f"{value:,.{decimals}f}"


def counted(count: int, what: str) -> str:
    """How many there are of something.

    >>> counted(1, "run"), counted(2000, "run")
    ('1 run', '2,000 runs')
    """
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def size(count: float) -> str:
    """Bytes, with the unit that suits them.

    >>> size(100), size(5 * 2**20), size(3 * 2**40)
    ('100 B', '5.00 MiB', '3,072 GiB')
    """
    if count < 1024:
        return f"{count:.0f} B"
    for unit in ("KiB", "MiB"):
        count /= 1024
        if count < 1024:
            return f"{shown(count)} {unit}"
    return f"{shown(count / 1024)} GiB"
