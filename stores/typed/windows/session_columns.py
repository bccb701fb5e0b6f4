"""``SessionColumns``: whole Arrow columns out of and into a session store.

Rule of this module: the same as for ``millpond.stores.typed.windows.segment_columns``.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from millpond.stores.encoding.times import MAX_TIME
from millpond.stores.typed.windows.segment_columns import SegmentColumns, Times


class Sessions(NamedTuple):
    """Sessions of a store, column by column.

    Attributes:
        keys: their keys, as the key serde writes them.
        starts, ends: their first and last moments.
        values: their values.
    """

    keys: Any
    starts: Times
    ends: Times
    values: Any


class SessionColumns(SegmentColumns):
    """Reads and puts of many sessions at once."""

    def change(self, removed: Sessions, put: Sessions) -> None:
        """Remove some sessions and then put others, without those that have expired once all are put."""
        rows = [self._rows(some.keys, some.ends, some.starts) for some in (removed, put)]
        data = [pa.array([None] * len(removed.ends), pa.binary()), self._values.write(put.values)]
        ends = np.concatenate([removed.ends, put.ends])
        self._put(pa.concat_arrays(rows), pa.concat_arrays(data), ends)

    def ended_between(self, earliest: int, latest: int) -> Sessions:
        """Return the sessions that end from ``earliest`` to ``latest``, both included, and have not expired.

        Raises:
            pyarrow.ArrowInvalid: a row is damaged.
        """
        return self._sessions(*self._entries(earliest, latest, 2))

    def of_keys_ended_from(self, keys: Any, earliest: Times) -> Sessions:
        """Return the sessions of some keys, no two of them the same, that end no earlier and have not expired.

        Args:
            keys: the keys, an Arrow array.
            earliest: the times, as many as keys.

        Raises:
            pyarrow.ArrowInvalid: a row is damaged.
        """
        owners, latest = np.arange(len(earliest)), np.full(len(earliest), MAX_TIME)
        return self._sessions(*self._entries_of_keys(keys, owners, earliest, latest, 2))

    def _sessions(self, keys: Any, times: Sequence[Times], data: Any) -> Sessions:
        ends, starts = times
        return Sessions(keys, starts, ends, self._values.read(data))
