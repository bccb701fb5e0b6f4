"""``DuplicateColumns``: whole Arrow columns out of and into a window store that keeps every put.

Rule of this module: the same as for ``millpond.stores.typed.windows.segment_columns``.
"""

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as _compute

from millpond.stores.backend.column_changes import put_column
from millpond.stores.encoding.column_keys import pack_times, terminated_column, time_at
from millpond.stores.encoding.column_serdes import ColumnSerde
from millpond.stores.encoding.keys import DATA, TIME_SIZE, pack_time
from millpond.stores.encoding.times import MIN_TIME
from millpond.stores.typed.ranges import Range, entries_of_ranges
from millpond.stores.typed.windows.segment_columns import SegmentColumns, Times
from millpond.stores.typed.windows.segments import ABOVE_TIME
from millpond.stores.typed.windows.window import WindowStore

pc: Any = _compute

NEVER: Final = -(2**62)
"""A time before any in columns, but not so far that a retention before it leaves 64 bits."""


class Puts(NamedTuple):
    """The puts that a store keeps, column by column.

    Attributes:
        keys: the position of each one's key among the keys that were asked for.
        times: their times.
        values: their values.
        data: the bytes of the values.
        rows: their rows.
    """

    keys: Times
    times: Times
    values: Any
    data: Any
    rows: Any


class DuplicateColumns(SegmentColumns):
    """Reads and puts of many entries at once.

    Args:
        store: the store.
        values: its value serde for whole columns.
    """

    def __init__(self, store: WindowStore[Any, Any], values: ColumnSerde) -> None:
        super().__init__(store, values)
        self._number = store.number_puts

    def between(self, keys: Any, earliest: Times, latest: Times) -> Puts:
        """Return the puts of some keys, each within bounds of its own, both included.

        Args:
            keys: the keys in ascending order, as the key serde writes them; one may come again with later bounds.
            earliest, latest: the bounds, as many as keys.

        Returns:
            The puts of a key in the order of time, then of putting.

        Raises:
            pyarrow.ArrowInvalid: a row is damaged.
        """
        segments, encoded = self._segments, terminated_column(keys)
        earliest = np.maximum(earliest, max(segments.horizon() + 1, MIN_TIME))
        places: list[npt.NDArray[np.int64]] = []
        entries: list[tuple[bytes, bytes]] = []
        for start in segments.live():
            mine = np.flatnonzero((earliest < start + segments.interval) & (start <= latest) & (earliest <= latest))
            ranges = _ranges(start, encoded.take(pa.array(mine)), earliest[mine], latest[mine])
            found = list(entries_of_ranges(segments.transaction.scan, ranges))
            places.append(mine[np.fromiter((place for place, _ in found), np.int64, len(found))])
            entries += [entry for _, entry in found]
        numbers = np.concatenate([np.empty(0, np.int64), *places])
        rows, data = (pa.array([entry[part] for entry in entries], pa.binary()) for part in (0, 1))
        return Puts(numbers, time_at(rows, -2 * TIME_SIZE), self._values.read(data), data, rows)

    def put(self, keys: Any, data: Any, times: Times) -> None:
        """Put values one after another, without those that have expired when their turn comes.

        Args:
            keys: an Arrow array of bytes.
            data: the values as the value serde writes them; null for one that has been removed since.
            times: as many times.
        """
        kept = times > self.horizons(times)[:-1]
        numbers = self._number(int(np.count_nonzero(kept))) + np.cumsum(kept)
        if data.null_count:
            kept &= data.is_valid().to_numpy(zero_copy_only=False)
        if not kept.all():
            mask: Any = pa.array(kept)
            keys, data, times, numbers = keys.filter(mask), data.filter(mask), times[kept], numbers[kept]
        if len(times):
            self._put(self._rows(keys, times, numbers ^ MIN_TIME), data, times)

    def remove(self, rows: Any) -> None:
        """Remove puts, by their rows."""
        put_column(self._segments.transaction, rows, pa.nulls(len(rows), pa.binary()))

    def observe(self, times: Times) -> None:
        """Move the observed stream time to the greatest of these times, if that is later."""
        if len(times):
            self._segments.advance(int(times.max()))

    def horizons(self, times: Times) -> Times:
        """Return the latest time that has expired before the first of some puts, and after each of them.

        Args:
            times: the times of the puts; ``NEVER`` where nothing is put.
        """
        observed = self._segments.observed.time
        reached = np.maximum.accumulate(np.append(NEVER if observed is None else observed, times))
        return reached - self._segments.retention


def _ranges(start: int, encoded: Any, earliest: Times, latest: Times) -> list[Range]:
    """Return the ranges of terminated keys in the segment that begins at ``start``, between bounds both included."""
    segment: Any = pa.scalar(DATA + pack_time(start), pa.binary())
    lows = pc.binary_join_element_wise(segment, encoded, pack_times(earliest), b"")
    highs = pc.binary_join_element_wise(segment, encoded, pack_times(latest), ABOVE_TIME, b"")
    return list(zip(lows.to_pylist(), highs.to_pylist(), strict=True))
