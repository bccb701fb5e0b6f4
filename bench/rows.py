"""Keys and values of the rows that benchmarks write."""

from typing import Final

VALUE_SIZE: Final = 100
"""Bytes of a value."""


def key_of(number: int) -> str:
    """Return key number ``number``: keys sort as their numbers do.

    >>> key_of(7)
    'key-000000000007'
    """
    return f"key-{number:012d}"
