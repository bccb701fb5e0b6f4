"""Options that are a length of time: their form in help, and their parser."""

from millpond.errors import InvalidTimeError

DURATION = "DURATION"
"""The metavar: a number and a unit, as Spark has it."""


def millis(option: str, text: str) -> int:
    """Return the milliseconds of ``text``, as in ``"5 minutes"`` or ``"1 hour 30 minutes"``.

    Raises:
        ConfigurationError: it has no unit, is negative, or is no length of time.
    """
    from millpond.stores.encoding.times import to_length

    if text.strip().isdecimal():
        raise InvalidTimeError(
            f"{option} is {text!r}; give a unit: '{text.strip()} milliseconds', or '{text.strip()} seconds'"
        )
    return to_length(text, option)


def seconds(option: str, text: str) -> float:
    """Return the same in seconds, more than none.

    Raises:
        ConfigurationError: as ``millis``, or it is zero.
    """
    length = millis(option, text) / 1000
    if length <= 0:
        raise InvalidTimeError(f"{option} is {text!r}; give a length above zero, as in '2 seconds'")
    return length
