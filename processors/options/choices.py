"""Choices that a user makes by name: members of enumerations of text."""

from enum import StrEnum
from typing import TypeVar

from millpond.errors import InvalidArgumentError

E = TypeVar("E", bound=StrEnum)


def choice(argument: str, value: str, kind: type[E]) -> E:
    """Return the member of that name, or the member itself.

    Args:
        argument: its name for the user.
        value: the argument.
        kind: the enumeration.

    Raises:
        ConfigurationError: there is no such member.
    """
    try:
        return kind(value)
    except ValueError:
        known = ", ".join(repr(one.value) for one in kind)
        raise InvalidArgumentError(f"{argument} is {value!r}; give one of {known}") from None
