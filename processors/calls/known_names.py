"""Names that were misspelled."""

from collections.abc import Collection
from difflib import get_close_matches


def did_you_mean(name: str, known: Collection[str]) -> str:
    """A hint to end a message with: the name most like an unknown one, ``; did you mean 'amount'?``, or nothing."""
    nearest = get_close_matches(name, sorted(known), 1)
    return f"; did you mean {nearest[0]!r}?" if nearest else ""
