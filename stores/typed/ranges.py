"""Many ranges of rows read at once: by one walk if they lie close together, else one by one.

Rule of this module: it asks a backend for nothing but scans, and knows neither keys nor times. The reach of a walk
follows from its rows: a walk that passes many rows outside of the ranges is given up, and the next is shorter.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from millpond.stores.backend.contract import Entries

Range = tuple[bytes, bytes]
"""The first row of a range, and the row before which to stop."""

_PATIENCE: Final = 24
"""About how many rows a walk passes in the time that it takes to begin another one."""

_FIRST_REACH: Final = 16
_FURTHEST_REACH: Final = 4096
_STEP: Final = 4


def entries_of_ranges(
    scan: Callable[[bytes, bytes], Entries], ranges: Sequence[Range]
) -> Iterator[tuple[int, tuple[bytes, bytes]]]:
    """Yield the entries within any of some ranges, in their order.

    Args:
        scan: the entries between two rows, in ascending order.
        ranges: ascending; none overlaps another, and none is empty.

    Yields:
        The position of a range in ``ranges``, and an entry within it.
    """
    place, reach = 0, _FIRST_REACH
    while place < len(ranges):
        past = min(place + reach, len(ranges))
        passed = 0
        low, high = ranges[place]
        for entry in scan(low, ranges[past - 1][1]):
            row = entry[0]
            while row >= high:
                place += 1
                low, high = ranges[place]
            if row >= low:
                passed = 0
                yield place, entry
            elif passed == _PATIENCE:
                reach = max(reach // _STEP, 1)
                break
            else:
                passed += 1
        else:
            place, reach = past, min(reach * _STEP, _FURTHEST_REACH)
