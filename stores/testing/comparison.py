"""The kit's comparison of contents that may be large.

Rule of this module: it looks for the first difference and no further. pytest explains an ``assert`` by all differences,
to the last line in continuous integration, which takes hours for some ten thousand entries, or for one value of a
megabyte.
"""

from collections.abc import Iterable
from itertools import zip_longest
from reprlib import Repr
from typing import Final

_SHORT: Final = Repr()
_SHORT.maxother = 60
_END: Final = object()


def check_same(found: Iterable[object], expected: Iterable[object]) -> None:
    """Check that both have the same items in the same order.

    Raises:
        AssertionError: they do not; the message names the first place where they differ, and the items there, cut to a
            line.
    """
    __tracebackhide__ = True
    for place, (one, other) in enumerate(zip_longest(found, expected, fillvalue=_END)):
        if one != other:
            raise AssertionError(f"number {place}, counted from 0, is {_told(one)}, and should be {_told(other)}")


def _told(item: object) -> str:
    return "missing" if item is _END else _SHORT.repr(item)
