"""``WindowColumns`` and ``SessionColumns``: whole Arrow columns out of and into window and session stores.

Rule of this module: no Python object is made of a value or a time, and of a key only its row. Times are numpy arrays of
int64, keys and values Arrow arrays without nulls. ``pyarrow.ArrowInvalid`` tells that a row is damaged; reading the
rows one by one then says which and why.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as _compute

from millpond.stores.columns.column_changes import get_column, put_column
from millpond.stores.columns.column_serdes import ColumnSerde, from_big_endian, to_big_endian
from millpond.stores.keys import DATA, TERMINATOR, TIME_SIZE
from millpond.stores.times import MIN_TIME
from millpond.stores.typed.segments import Segments
from millpond.stores.typed.session import WritableSessionStore
from millpond.stores.typed.timestamped_keyvalue import TIMESTAMP_SIZE
from millpond.stores.typed.timestamped_window import TimestampedWindowStore

pc: Any = _compute
Times = npt.NDArray[np.int64]

_KEY_FROM: Final = len(DATA) + TIME_SIZE
_TO_THE_END: Final = 2**31 - 1
_ZERO: Final = b"\x00"
_ESCAPED: Final = b"\x00\xff"


class Windows(NamedTuple):
    """Windows of a store, column by column.

    Attributes:
        keys: as the key serde writes them.
        starts: when they start.
        values: their values.
        timestamps: those of the values.
    """

    keys: Any
    starts: Times
    values: Any
    timestamps: Times


class Sessions(NamedTuple):
    """Sessions of a store, column by column.

    Attributes:
        keys: as the key serde writes them.
        starts, ends: their first and last moments.
        values: their values.
    """

    keys: Any
    starts: Times
    ends: Times
    values: Any


class WindowColumns:
    """Reads and writes many windows at once; keys are the bytes that the key serde writes.

    Args:
        store: the store.
        values: what its value serde does, for whole columns.
    """

    def __init__(self, store: TimestampedWindowStore[Any, Any], values: ColumnSerde) -> None:
        self._segments = store.segments
        self._values = values

    def get(self, keys: Any, starts: Times) -> tuple[Any, Any]:
        """The values and timestamps of many windows, null where there is none, as Arrow arrays.

        Raises:
            pyarrow.ArrowInvalid: a row is damaged.
        """
        if not self._segments.holds_any(np.unique(starts).tolist()):
            nothing: Any = pa.nulls(len(keys), pa.int64())
            return nothing.cast(self._values.type), nothing
        return self._read(get_column(self._segments.transaction, _rows(self._segments, keys, starts)))

    def put(self, windows: Windows) -> None:
        """Set windows, no two of them the same, without those that have expired once all are put."""
        data = pc.binary_join_element_wise(
            to_big_endian(pa.array(windows.timestamps)), self._values.write(windows.values), b""
        )
        rows = _rows(self._segments, windows.keys, windows.starts)
        _put(self._segments, rows, data, windows.starts)

    def between(self, earliest: int, latest: int) -> Windows:
        """The windows that start from ``earliest`` to ``latest``, both included, and have not expired.

        Raises:
            pyarrow.ArrowInvalid: a row is damaged.
        """
        keys, (starts,), data = _entries(self._segments, earliest, latest, 1)
        values, timestamps = self._read(data)
        return Windows(keys, starts, values, timestamps.to_numpy())

    def _read(self, data: Any) -> tuple[Any, Any]:
        timestamps = from_big_endian(pc.binary_slice(data, 0, TIMESTAMP_SIZE), pa.int64())
        return self._values.read(pc.binary_slice(data, TIMESTAMP_SIZE, _TO_THE_END)), timestamps


class SessionColumns:
    """Reads and writes many sessions at once; keys are the bytes that the key serde writes.

    Args:
        store: the store.
        values: what its value serde does, for whole columns.
    """

    def __init__(self, store: WritableSessionStore[Any, Any], values: ColumnSerde) -> None:
        self._segments = store.segments
        self._values = values

    def change(self, removed: Sessions, put: Sessions) -> None:
        """Remove some sessions and then put others, without those that have expired once all are put."""
        rows = [_rows(self._segments, some.keys, some.ends, some.starts) for some in (removed, put)]
        data = [pa.array([None] * len(removed.ends), pa.binary()), self._values.write(put.values)]
        ends = np.concatenate([removed.ends, put.ends])
        _put(self._segments, pa.concat_arrays(rows), pa.concat_arrays(data), ends)

    def ended_between(self, earliest: int, latest: int) -> Sessions:
        """The sessions that end from ``earliest`` to ``latest``, both included, and have not expired.

        Raises:
            pyarrow.ArrowInvalid: a row is damaged.
        """
        keys, (ends, starts), data = _entries(self._segments, earliest, latest, 2)
        return Sessions(keys, starts, ends, self._values.read(data))


def _rows(segments: Segments, keys: Any, times: Times, *rest: Times) -> Any:
    """The rows of windows or sessions, as an Arrow array."""
    interval = segments.interval
    distinct, places = np.unique(times - times % interval, return_inverse=True)
    prefixes = pc.binary_join_element_wise(DATA, _packed(distinct), b"").take(pa.array(places))
    escaped = pc.replace_substring(keys, pattern=_ZERO, replacement=_ESCAPED)
    return pc.binary_join_element_wise(prefixes, escaped, TERMINATOR, *map(_packed, (times, *rest)), b"")


def _put(segments: Segments, rows: Any, data: Any, times: Times) -> None:
    """Put rows, each of one of the times, without those that have expired by the last, and delete what that expires.

    Args:
        segments: those of the store.
        rows: an Arrow array; a repeated one's last value counts.
        data: their values; null deletes.
        times: as many times.
    """
    expired = pa.array(segments.observe(int(times.max())), pa.binary())
    kept = times > segments.horizon()
    if not kept.all():
        mask: Any = pa.array(kept)
        rows, data, times = rows.filter(mask), data.filter(mask), times[kept]
    segments.begin_writing((np.unique(times // segments.interval) * segments.interval).tolist())
    nothing = pa.array([None] * len(expired), pa.binary())
    put_column(segments.transaction, pa.concat_arrays([expired, rows]), pa.concat_arrays([nothing, data]))


def _entries(segments: Segments, earliest: int, latest: int, times: int) -> tuple[Any, Sequence[Times], Any]:
    """Keys, times and data of the entries whose first time lies between two; each row ends in so many times."""
    found = segments.entries(earliest, latest)
    rows, data = (pa.array(column, pa.binary()) for column in (zip(*found, strict=True) if found else ((), ())))
    ends_at = times * TIME_SIZE
    first = _unpacked(pc.binary_slice(rows, -ends_at, _end(ends_at - TIME_SIZE)))
    wanted = (first >= max(earliest, segments.horizon() + 1)) & (first <= latest)
    if not wanted.all():
        mask: Any = pa.array(wanted)
        rows, data, first = rows.filter(mask), data.filter(mask), first[wanted]
    rest = [_unpacked(pc.binary_slice(rows, -at, _end(at - TIME_SIZE))) for at in range(ends_at - TIME_SIZE, 0, -8)]
    return _keys(pc.binary_slice(rows, _KEY_FROM, -ends_at)), [first, *rest], data


def _end(from_end: int) -> int:
    return -from_end if from_end else _TO_THE_END


def _keys(encoded: Any) -> Any:
    """The keys that were terminated.

    Raises:
        pyarrow.ArrowInvalid: one was not.
    """
    escaped = pc.binary_slice(encoded, 0, -len(TERMINATOR))
    keys = pc.replace_substring(escaped, pattern=_ESCAPED, replacement=_ZERO)
    sound = pc.and_(
        pc.ends_with(encoded, pattern=TERMINATOR),
        pc.equal(pc.count_substring(escaped, pattern=_ZERO), pc.count_substring(escaped, pattern=_ESCAPED)),
    )
    if not pc.all(sound, min_count=0).as_py():
        raise pa.ArrowInvalid("a key does not end in its terminator")
    return keys


def _packed(times: Times) -> Any:
    """``pack_time`` for a column."""
    return to_big_endian(pa.array(times ^ MIN_TIME))


def _unpacked(data: Any) -> Times:
    """``unpack_time`` for a column.

    Raises:
        pyarrow.ArrowInvalid: one is too short.
    """
    times: Times = from_big_endian(data, pa.int64()).to_numpy() ^ MIN_TIME
    return times
