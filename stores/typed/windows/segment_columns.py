"""``SegmentColumns``: the base of whole Arrow columns out of and into stores with segments.

Rule of this module: no Python object is made of a value or a time, and of a key only its row. Times are numpy arrays of
int64, keys and values Arrow arrays without nulls. ``pyarrow.ArrowInvalid`` means that a row is damaged; reading the
rows one by one then tells which and why.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as _compute

from millpond.stores.backend.column_changes import put_column
from millpond.stores.encoding.column_keys import pack_times, terminated_column, time_at, unterminated_column
from millpond.stores.encoding.column_serdes import ColumnSerde
from millpond.stores.encoding.keys import DATA, TIME_SIZE
from millpond.stores.encoding.numbering import numbered
from millpond.stores.typed.windows.segments import SegmentedStore, Span

pc: Any = _compute
Times = npt.NDArray[np.int64]

_KEY_FROM: Final = len(DATA) + TIME_SIZE


class SegmentColumns:
    """Reads and puts of many entries at once; keys are bytes from the key serde.

    Args:
        store: the store.
        values: its value serde for whole columns.
    """

    def __init__(self, store: SegmentedStore[Any, Any], values: ColumnSerde) -> None:
        self._segments = store.segments
        self._values = values

    def _rows(self, keys: Any, times: Times, *rest: Times) -> Any:
        """Return the rows of entries with one or several times, as an Arrow array."""
        interval = self._segments.interval
        distinct, places = numbered(times - times % interval)
        prefixes = pc.binary_join_element_wise(DATA, pack_times(distinct), b"").take(pa.array(places))
        return pc.binary_join_element_wise(prefixes, terminated_column(keys), *map(pack_times, (times, *rest)), b"")

    def _put(self, rows: Any, data: Any, times: Times) -> None:
        """Put rows without those that have expired by the last of them, and delete rows that expire by it.

        Args:
            rows: an Arrow array; a repeated one's last value counts.
            data: their values; null deletes.
            times: as many times.
        """
        segments = self._segments
        expired = pa.array(segments.observe(int(times.max())), pa.binary())
        kept = times > segments.horizon()
        if not kept.all():
            mask: Any = pa.array(kept)
            rows, data, times = rows.filter(mask), data.filter(mask), times[kept]
        segments.begin_writing((np.unique(times // segments.interval) * segments.interval).tolist())
        nothing = pa.array([None] * len(expired), pa.binary())
        put_column(segments.transaction, pa.concat_arrays([expired, rows]), pa.concat_arrays([nothing, data]))

    def _entries(self, earliest: int, latest: int, times: int) -> tuple[Any, Sequence[Times], Any]:
        """Return keys, times and data of entries with a first time between two; each row ends in so many times."""
        rows, data = _columns(self._segments.entries(earliest, latest))
        first = time_at(rows, -times * TIME_SIZE)
        wanted = (first >= max(earliest, self._segments.horizon() + 1)) & (first <= latest)
        if not wanted.all():
            mask: Any = pa.array(wanted)
            rows, data = rows.filter(mask), data.filter(mask)
        return _parts(rows, data, times)

    def _entries_of_keys(
        self, keys: Any, owners: Times, earliest: Times, latest: Times, times: int
    ) -> tuple[Any, Sequence[Times], Any]:
        """Return the ``_entries`` of some keys, no two of them the same, sought one by one.

        Args:
            keys: the keys.
            owners: for each span of time, the place of the key whose entries within it are wanted.
            earliest, latest: the spans, both ends included.
            times: as for ``_entries``.
        """
        encoded = terminated_column(keys).to_pylist()
        spans: dict[bytes, list[Span]] = {key: [] for key in encoded}
        for owner, *span in zip(owners.tolist(), earliest.tolist(), latest.tolist(), strict=True):
            spans[encoded[owner]].append((span[0], span[1]))
        return _parts(*_columns([entry for _, entry in self._segments.rows_between(spans)]), times)


def _columns(entries: Sequence[tuple[bytes, bytes]]) -> tuple[Any, Any]:
    """Return the rows and the data of entries."""
    rows, data = zip(*entries, strict=True) if entries else ((), ())
    return pa.array(rows, pa.binary()), pa.array(data, pa.binary())


def _parts(rows: Any, data: Any, times: int) -> tuple[Any, Sequence[Times], Any]:
    """Return the keys of rows that end in so many times, these times, and the rows' data."""
    ends_at = times * TIME_SIZE
    at_end = [time_at(rows, -at) for at in range(ends_at, 0, -TIME_SIZE)]
    return unterminated_column(pc.binary_slice(rows, _KEY_FROM, -ends_at)), at_end, data
