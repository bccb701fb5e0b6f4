"""``Selection``: the rows of a store that are asked for."""

from dataclasses import dataclass
from typing import Any, Final

from millpond.stores.encoding.times import Instant


@dataclass(frozen=True)
class Selection:
    """The rows of a store that are asked for. Can be pickled if its keys can.

    Attributes:
        key_from: the first key, included; None for all from the beginning. Keys are in the order of their bytes, which
            is that of text, of a verb's columns, and of integers that are not negative.
        key_to: the key before which to end; None for all to the end.
        as_of: of a versioned store, the time whose versions are wanted, as milliseconds since 1970 or a datetime; None
            for all versions that there are.
    """

    key_from: Any = None
    key_to: Any = None
    as_of: Instant | None = None


EVERYTHING: Final = Selection()
