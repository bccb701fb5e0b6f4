"""``WindowColumns``: whole Arrow columns out of and into a window store with timestamps.

Rule of this module: the same as for ``millpond.stores.typed.windows.segment_columns``.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as _compute

from millpond.stores.backend.column_changes import get_column
from millpond.stores.encoding.column_keys import TO_THE_END
from millpond.stores.encoding.column_serdes import from_big_endian, to_big_endian
from millpond.stores.typed.timestamped_keyvalue import TIMESTAMP_SIZE
from millpond.stores.typed.windows.segment_columns import SegmentColumns, Times

pc: Any = _compute


class Windows(NamedTuple):
    """Windows of a store, column by column.

    Attributes:
        keys: their keys, as the key serde writes them.
        starts: their starts.
        values: their values.
        timestamps: the timestamps of the values.
    """

    keys: Any
    starts: Times
    values: Any
    timestamps: Times


class WindowColumns(SegmentColumns):
    """Reads and puts of many windows at once."""

    def get(self, keys: Any, starts: Times) -> tuple[Any, Any]:
        """Return the values and timestamps of many windows, null where there is none, as Arrow arrays.

        Raises:
            pyarrow.ArrowInvalid: a row is damaged.
        """
        if not self._segments.holds_any(np.unique(starts).tolist()):
            nothing: Any = pa.nulls(len(keys), cast(Any, self._values.type))
            return nothing, pa.nulls(len(keys), pa.int64())
        return self._read(get_column(self._segments.transaction, self._rows(keys, starts)))

    def put(self, windows: Windows) -> None:
        """Set windows, no two of them the same, without those that have expired once all are put."""
        data = pc.binary_join_element_wise(
            to_big_endian(pa.array(windows.timestamps)), self._values.write(windows.values), b""
        )
        self._put(self._rows(windows.keys, windows.starts), data, windows.starts)

    def between(self, earliest: int, latest: int) -> Windows:
        """Return the windows that start from ``earliest`` to ``latest``, both included, and have not expired.

        Raises:
            pyarrow.ArrowInvalid: a row is damaged.
        """
        return self._windows(*self._entries(earliest, latest, 1))

    def of_keys(self, keys: Any, owners: Times, earliest: Times, latest: Times) -> Windows:
        """Return the windows of some keys, no two of them the same, that start within some spans and have not expired.

        Args:
            keys: an Arrow array.
            owners: for each span, the place of the key whose windows are wanted.
            earliest, latest: the spans, both ends included.

        Raises:
            pyarrow.ArrowInvalid: a row is damaged.
        """
        return self._windows(*self._entries_of_keys(keys, owners, earliest, latest, 1))

    def _windows(self, keys: Any, times: Sequence[Times], data: Any) -> Windows:
        values, timestamps = self._read(data)
        return Windows(keys, times[0], values, timestamps.to_numpy())

    def _read(self, data: Any) -> tuple[Any, Any]:
        timestamps = from_big_endian(pc.binary_slice(data, 0, TIMESTAMP_SIZE), pa.int64())
        return self._values.read(pc.binary_slice(data, TIMESTAMP_SIZE, TO_THE_END)), timestamps
