"""Rows of a window or session store in segments of another length (``millpond.stores.typed.windows.segments``).

Rule of this module: a store has one length of segments, chosen at its first commit, so only partitions that began under
different retentions differ. Rows come by segment, so it holds the rows of one segment, of the longer kind.
"""

from collections.abc import Iterator

from millpond.stores.durability.parquet.sorted_runs import Rows
from millpond.stores.encoding.keys import DATA, TIME_SIZE, pack_time, unpack_time
from millpond.stores.encoding.times import MIN_TIME

_HEAD = len(DATA) + TIME_SIZE


def relaid(rows: Iterator[Rows], interval: int, rest: int) -> Iterator[Rows]:
    """Yield rows in key order, laid into segments of ``interval`` milliseconds.

    Args:
        rows: all rows of one store but metadata, in key order.
        interval: the length of the new segments.
        rest: the number of bytes after a row's key, the first eight of which are its time.
    """
    held: dict[bytes, bytes | None] = {}
    for keys, values in rows:
        bound = DATA + _segment(unpack_time(keys[0], len(DATA)), interval)
        over = sorted(row for row in held if row < bound)
        if over:
            yield over, [held.pop(row) for row in over]
        for key, value in zip(keys, values, strict=True):
            time = unpack_time(key, len(key) - rest)
            held[DATA + _segment(time, interval) + key[_HEAD:]] = value
    if held:
        last = sorted(held)
        yield last, list(map(held.__getitem__, last))


def _segment(time: int, interval: int) -> bytes:
    """Return the beginning of the segment that ``time`` lies in."""
    return pack_time(max(time - time % interval, MIN_TIME))
