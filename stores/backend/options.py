"""Options as text, as in a backend's URL, and the one place that turns them into values.

Rule of this module: it knows the forms of values and no backend. A backend gives a parser for each of its options.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from millpond.errors import InvalidOptionError
from millpond.masking import masked

Parser: TypeAlias = Callable[[str], Any]
"""Turns the text of one option into its value, or raises ValueError with the forms that it takes."""

_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_UNITS |= {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}
_TOO_LARGE = 2**63
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([a-z]*)", re.IGNORECASE)
_INT = re.compile(r"[+-]?[0-9]{1,1000}")
_LONGEST_SHOWN = 200
_TRUE = {"true", "on", "yes", "1"}
_FALSE = {"false", "off", "no", "0"}


def parse_size(text: str) -> int:
    """Return bytes, from a number with or without a unit.

    >>> parse_size("256MiB"), parse_size("1.5 kB"), parse_size("4096")
    (268435456, 1500, 4096)
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None or match[2].lower() not in _UNITS:
        raise ValueError("a size such as 4096, 256MiB or 1GB")
    size = float(match[1]) * _UNITS[match[2].lower()]
    if size >= _TOO_LARGE:
        raise ValueError("a size such as 4096, 256MiB or 1GB, below 8388608 TiB")
    if 0 < size < 1:
        raise ValueError("a size such as 4096, 256MiB or 1GB, of at least one byte, or 0")
    return int(size)


def parse_bool(text: str) -> bool:
    """Return a truth value.

    >>> parse_bool("true"), parse_bool("off")
    (True, False)
    """
    word = text.strip().lower()
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise ValueError("true or false (also on, off, yes, no, 1, 0)")


def parse_int(text: str) -> int:
    """Return a whole number, with an optional sign.

    >>> parse_int("-1")
    -1
    """
    if _INT.fullmatch(text.strip()) is None:
        raise ValueError("a whole number")
    return int(text)


def parse_choice(*choices: str) -> Parser:
    """Return a parser for one of a few words.

    >>> parse_choice("lz4", "none")("lz4")
    'lz4'
    """

    def parse(text: str) -> str:
        word = text.strip().lower()
        if word not in choices:
            raise ValueError(f"one of {', '.join(choices)}")
        return word

    return parse


def parse_options(backend: str, options: Mapping[str, str], parsers: Mapping[str, Parser]) -> dict[str, Any]:
    """Return the values of ``options``, each by the parser of its name.

    >>> parse_options("lmdb", {"sync": "true"}, {"sync": parse_bool, "map_size": parse_size})
    {'sync': True}

    Raises:
        ConfigurationError: an option is not among ``parsers``, or its parser refuses the value.
    """
    values = {}
    for name, text in options.items():
        if name not in parsers:
            known = f"its options are {', '.join(sorted(parsers))}" if parsers else "it has no options"
            raise InvalidOptionError(f"the backend {backend!r} has no option {name!r}; {known}")
        try:
            values[name] = parsers[name](text)
        except ValueError as error:
            check_option(backend, name, text, False, str(error))
    return values


def check_option(backend: str, option: str, value: object, allowed: bool, form: str) -> None:
    """Refuse a value that a supplier was created with, in the words of ``parse_options``.

    Raises:
        ConfigurationError: it is not ``allowed``.
    """
    if not allowed:
        text = masked(f"{option}={value}").partition("=")[2]
        text = text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"
        shown = repr(text) if isinstance(value, str) else text
        raise InvalidOptionError(f"option {option!r} of the backend {backend!r} is {shown}, but must be {form}")


def check_least(backend: str, option: str, value: int, least: int) -> None:
    """Refuse a number that is too small, and a value that is no number.

    Raises:
        ConfigurationError: it is no whole number, or less than ``least``.
    """
    check_option(backend, option, value, type(value) is int, f"a whole number, at least {least}")
    check_option(backend, option, value, value >= least, f"at least {least}")
