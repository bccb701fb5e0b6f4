"""Records of a stream-stream join that wait for a partner, for whole columns: those that a run reads and changes.

Rule of this module: it knows which records wait and when their time is over, but not which of them meet. The bytes are
as in ``millpond.processors.streams.unpaired_rows``.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as _compute

from millpond.processors.options.joins import Side
from millpond.processors.runtime.batches.column_tuples import chosen, laid_end_to_end
from millpond.processors.streams.arrivals import ranked
from millpond.processors.streams.unpaired_rows import (
    KEY_FROM,
    SIDE_AT,
    SIDES,
    UnpairedRows,
    data_of,
    head_of,
    number_of,
    records_of,
    values_of,
)
from millpond.stores.encoding.column_keys import TO_THE_END, pack_times, time_at
from millpond.stores.encoding.keys import TIME_SIZE

pc: Any = _compute
Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]

_NONE: Final[frozenset[bytes]] = frozenset()


class Unpaired(NamedTuple):
    """Records that wait.

    Attributes:
        sides: the number of each one's side.
        closes, times: the time at which each is over, and its own time.
        keys, data: the bytes of keys and values.
        at: their positions among the records of their side.
    """

    sides: Integers
    closes: Integers
    times: Integers
    keys: Any
    data: Any
    at: Integers

    def rows(self) -> list[bytes]:
        """Return the row of each in the store."""
        return _rows(self.closes, self.times, self.sides, self.keys)


class Due(NamedTuple):
    """Records whose time is over within a run, in the order in which they come out.

    Attributes:
        places: the place of the record before whose results each comes out.
        fresh: a mask of those that have come within the run.
        lefts: a mask of those of the left side.
        at: their positions among the records of their side, in the run or in ``UnpairedRun.over``.
        rows: for those that are not fresh, their positions in ``UnpairedRun.over``.
        times: their own times.
    """

    places: Integers
    fresh: Booleans
    lefts: Booleans
    at: Integers
    rows: Integers
    times: Integers


class UnpairedRun:
    """The records that wait, as a run of ``times`` changes them.

    Attributes:
        reached: stream time at each place.
        over: the records of the store whose time is over within the run, in the order of rows.

    Raises:
        CorruptStoreError: a row of the store is damaged.
        pyarrow.ArrowInvalid: the same.
    """

    def __init__(self, store: UnpairedRows, times: Integers) -> None:
        self._store = store
        self._stream_time = store.stream_time
        self.reached: Integers = np.maximum(np.maximum.accumulate(times), self._stream_time)
        closing = store.closing(int(self.reached[-1]))
        self._taken = [row for row, _ in closing]
        found = records_of(closing)
        self._rows = [row for row, _ in found]
        self.over = _read(found)
        self._added = [chosen(self.over, np.zeros(len(found), np.bool_))]
        self._removed: dict[bytes, set[bytes] | None] = {}

    def over_of(self, side: Side) -> Unpaired:
        """Return the records in ``over`` that are of a side."""
        return chosen(self.over, self.over.sides == number_of(side))

    def remove(self, side: Side, closes: Integers, times: Integers, keys: Any, data: Any = None) -> None:
        """Forget records in the store of these keys and times, if any: they have found a partner.

        Args:
            side: their side.
            closes, times, keys: one of each for a record.
            data: the bytes of their values; None for all records of a row.
        """
        rows = _rows(closes, times, np.full(len(times), number_of(side)), keys)
        if data is None:
            self._removed.update(dict.fromkeys(rows))
            return
        for row, value in zip(rows, data.to_pylist(), strict=True):
            values = self._removed.setdefault(row, set())
            if values is not None:
                values.add(value)

    def add(self, side: Side, at: Integers, closes: Integers, times: Integers, keys: Any, data: Any) -> None:
        """Let records wait that find no partner within the run."""
        self._added.append(Unpaired(np.full(len(at), number_of(side)), closes, times, keys, data, at))

    def due(self) -> Due:
        """Return the records whose time is over."""
        records = zip(self._rows, self.over.data.to_pylist() if self._removed else self._rows, strict=True)
        kept = np.fromiter((not self._is_gone(*one) for one in records), np.bool_, len(self._rows))
        waited = chosen(self.over, kept)
        fresh = laid_end_to_end(self._added)
        fresh = chosen(fresh, fresh.closes < self.reached[-1])
        whole = laid_end_to_end([waited, fresh])
        places = np.searchsorted(self.reached, whole.closes, side="right")
        _, keys = ranked(whole.keys)
        order = np.lexsort((keys, whole.sides, whole.times, places))
        rows = np.concatenate([np.flatnonzero(kept), np.full(len(fresh.at), -1)])[order]
        lefts = whole.sides[order] == number_of(Side.LEFT)
        return Due(places[order], order >= len(waited.at), lefts, whole.at[order], rows, whole.times[order])

    def write(self) -> None:
        """Write the changes: records, their counts, and stream time."""
        added = laid_end_to_end(self._added)
        added = chosen(added, added.closes >= self.reached[-1])
        written: dict[bytes, bytes | None] = dict.fromkeys(self._taken)
        changes = np.bincount(added.sides, minlength=len(SIDES)) - np.bincount(self.over.sides, minlength=len(SIDES))
        gone = [row for row in self._removed if row not in written]
        for row, data in zip(gone, self._store.store.get_many(gone), strict=True):
            if data is not None:
                values = list(values_of(data))
                left = [value for value in values if not self._is_gone(row, value)]
                written[row] = data_of(left) or None
                changes[head_of(row)[2]] -= len(values) - len(left)
        rows = added.rows()
        # No record of a later time has been there before.
        may = (added.times <= self._stream_time).tolist()
        met = [row for row, known in zip(rows, may, strict=True) if known and row not in written]
        written.update(zip(met, self._store.store.get_many(met), strict=True))
        for row, data in zip(rows, _with_lengths(added.data), strict=True):
            written[row] = (written.get(row) or b"") + data
        self._store.store.put_many(written, list(written.values()))
        self._store.note(int(self.reached[-1]), changes.tolist())

    def _is_gone(self, row: bytes, value: bytes) -> bool:
        """Return whether a record of the store has found a partner."""
        gone = self._removed.get(row, _NONE)
        return gone is None or value in gone


def _with_lengths(values: Any) -> list[bytes]:
    """Return ``data_of`` of rows of one record each."""
    lengths = pc.binary_length(values).to_numpy().astype(">u4")
    fixed: Any = pa.Array.from_buffers(pa.binary(4), len(lengths), [None, pa.py_buffer(lengths.tobytes())])
    data: list[bytes] = pc.binary_join_element_wise(fixed.cast(pa.binary()), values, b"").to_pylist()
    return data


def _read(found: Sequence[tuple[bytes, bytes]]) -> Unpaired:
    """Return records of the store; each is a row and one of the values in it."""
    rows: Any = pa.array([row for row, _ in found], pa.binary())
    places = pc.binary_slice(rows, SIDE_AT, KEY_FROM).cast(pa.binary(1)).buffers()[1]
    sides = np.frombuffer(places, np.uint8, len(found)).astype(np.int64) if found else np.empty(0, np.int64)
    if (sides >= len(SIDES)).any():
        raise pa.ArrowInvalid("a row of records that wait has no side")
    at = np.empty(len(found), np.int64)
    for number in range(len(SIDES)):
        mine = sides == number
        at[mine] = np.arange(np.count_nonzero(mine))
    keys, data = pc.binary_slice(rows, KEY_FROM, TO_THE_END), pa.array([value for _, value in found], pa.binary())
    return Unpaired(sides, time_at(rows, 0), time_at(rows, TIME_SIZE), keys, data, at)


def _rows(closes: Integers, times: Integers, sides: Integers, keys: Any) -> list[bytes]:
    places: Any = pa.array(sides)
    numbers = pa.array([b"\x00", b"\x01"], pa.binary()).take(places)
    rows: list[bytes] = pc.binary_join_element_wise(
        pack_times(closes), pack_times(times), numbers, keys, b""
    ).to_pylist()
    return rows
