"""Names that a user gives: of columns, corrected if misspelled, or free; of members of enumerations of text."""

from collections.abc import Collection
from difflib import get_close_matches
from enum import StrEnum
from typing import TypeVar

from millpond.errors import InvalidArgumentError

E = TypeVar("E", bound=StrEnum)


def did_you_mean(name: str, known: Collection[str]) -> str:
    """Return a hint to end a message with: the name most like an unknown one, ``; did you mean 'amount'?``, or nothing.

    Upper and lower case make no difference between names.
    """
    folded = {one.casefold(): one for one in sorted(known)}
    nearest = get_close_matches(name.casefold(), folded, 1)
    return f"; did you mean {folded[nearest[0]]!r}?" if nearest else ""


def unused_name(name: str, taken: Collection[str]) -> str:
    """Return the name, with as many underscores behind it as it takes to be free."""
    while name in taken:
        name += "_"
    return name


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
