"""Names of columns: corrections of misspelled ones, and free ones."""

from collections.abc import Collection
from difflib import get_close_matches


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
