"""``DuplicateColumns``: whole Arrow columns out of and into a window store that keeps every put.

Rule of this module: that of ``millpond.stores.typed.segment_columns``.
"""

from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from millpond.stores.columns.column_serdes import ColumnSerde
from millpond.stores.keys import TIME_SIZE
from millpond.stores.times import MIN_TIME
from millpond.stores.typed.segment_columns import SegmentColumns, Times, terminated_column, time_at
from millpond.stores.typed.window import WindowStore

NEVER: Final = -(2**62)
"""Before any time that comes in columns, and not so far that a retention before it leaves 64 bits."""


class Puts(NamedTuple):
    """What a store keeps, column by column.

    Attributes:
        keys: of each, the position of its key among those that were asked for.
        times: their times.
        values: their values.
    """

    keys: Times
    times: Times
    values: Any


class DuplicateColumns(SegmentColumns):
    """Reads and writes many puts at once.

    Args:
        store: the store.
        values: what its value serde does, for whole columns.
    """

    def __init__(self, store: WindowStore[Any, Any], values: ColumnSerde) -> None:
        super().__init__(store, values)
        self._number = store.number_puts

    def between(self, keys: Any, earliest: Times, latest: Times) -> Puts:
        """What is kept of different keys, each within bounds of its own, both included.

        Returns:
            The puts of a key in the order of time, then of putting.

        Raises:
            pyarrow.ArrowInvalid: a row is damaged.
        """
        encoded = terminated_column(keys).to_pylist()
        bounds = zip(earliest.tolist(), latest.tolist(), strict=True)
        found = list(self._segments.rows_between(dict(zip(encoded, bounds, strict=True))))
        places = {key: place for place, key in enumerate(encoded)}
        numbers = np.fromiter((places[key] for key, _ in found), np.int64, len(found))
        rows, data = pa.array([row for _, (row, _) in found]), [data for _, (_, data) in found]
        times = time_at(rows.cast(pa.binary()), -2 * TIME_SIZE)
        return Puts(numbers, times, self._values.read(pa.array(data, pa.binary())))

    def put(self, keys: Any, data: Any, times: Times) -> None:
        """Put values one after another, without those that have expired by the time that it is their turn.

        Args:
            keys: an Arrow array of bytes.
            data: the values as the value serde writes them.
            times: as many times.
        """
        kept = times > self.horizons(times)[:-1]
        if not kept.all():
            mask: Any = pa.array(kept)
            keys, data, times = keys.filter(mask), data.filter(mask), times[kept]
        if len(times):
            numbers = self._number(len(times)) + np.arange(1, len(times) + 1)
            self._put(self._rows(keys, times, numbers ^ MIN_TIME), data, times)

    def horizons(self, times: Times) -> Times:
        """The latest time that has expired before the first of some puts, and after each of them.

        Args:
            times: those of the puts; ``NEVER`` where nothing is put.
        """
        observed = self._segments.observed.time
        reached = np.maximum.accumulate(np.append(NEVER if observed is None else observed, times))
        return reached - self._segments.retention
