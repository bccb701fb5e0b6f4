"""``VersionedColumns``: whole Arrow columns into a ``VersionedKeyValueStore``, and out of it as of many times at once.

Rule of this module: no Python object is made of a value or a timestamp that is read, and of a key only its bytes. A
look-up reads once for each distinct key, and once more for each version before its latest; for a key with many such
look-ups, the versions between the first and the last of these are read as one range.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as _compute

from millpond.stores.backend.column_changes import get_column
from millpond.stores.encoding.column_keys import TO_THE_END
from millpond.stores.encoding.column_serdes import ColumnSerde
from millpond.stores.encoding.keys import TIME_SIZE
from millpond.stores.encoding.times import MIN_TIME
from millpond.stores.typed.expiry_columns import without_gone
from millpond.stores.typed.versions.version_puts import VersionPuts
from millpond.stores.typed.versions.version_row_columns import latest_rows, since_of, stems_of
from millpond.stores.typed.versions.version_rows import ALONE, HEAD_SIZE, LIVE, TOMBSTONE, Entry
from millpond.stores.typed.versions.version_walk import VersionWalk
from millpond.stores.typed.versions.versioned import VersionedKeyValueStore

pc: Any = _compute
Array = Any
"""An Arrow array."""
Integers = npt.NDArray[np.int64]

_MANY: Final = 16
"""The number of look-ups of one key below which they cost less one by one."""

_READ_PER_LOOK_UP: Final = 8
"""The number of versions whose reading costs less than finding one; with more between look-ups, each is found alone."""

_SIGN: Final = np.uint64(1 << 63)
"""The difference of packed times and times."""


class VersionedColumns:
    """Look-ups and puts of many keys at once.

    Args:
        store: the store.
        keys, values: its serdes for whole columns; equal keys have equal bytes.
    """

    def __init__(self, store: VersionedKeyValueStore[Any, Any], keys: ColumnSerde, values: ColumnSerde) -> None:
        self._store = store
        self._keys = keys
        self._values = values

    def takes(self, keys: pa.DataType, values: pa.DataType | None = None) -> bool:
        """Return whether keys, and values that are put, may be columns of these types."""
        return self._keys.takes(keys) and (values is None or self._values.takes(values))

    def get_as_of(self, keys: Array, timestamps: Integers) -> tuple[Array, Array]:
        """Return, for each key, the value that was valid at the timestamp at the same position, and since when.

        Args:
            keys: an Arrow array without nulls, of a type that ``takes`` knows; a key may come many times.
            timestamps: as many, in milliseconds.

        Returns:
            Two Arrow arrays, null where there was no value.

        Raises:
            CorruptStoreError: a row is damaged.
        """
        try:
            values, since = self._as_of(keys, timestamps)
            return self._present(values, since, timestamps)
        except pa.ArrowInvalid:
            # One of the rows is damaged, and reading them one by one says which and why.
            found = self._store.get_many_as_of(keys.to_pylist(), timestamps.tolist())
            values = pa.array([None if one is None else one.value for one in found], self._values.type)
            return values, pa.array([None if one is None else one.timestamp for one in found], pa.int64())

    def get(self, keys: Array, reached: Integers | None = None) -> tuple[Array, Array]:
        """Return the latest value of each key and its timestamp, null where there is none, as Arrow arrays.

        Args:
            keys: an Arrow array without nulls, of a type that ``takes`` knows.
            reached: for each key the time that its reader has reached, if that may be beyond the puts so far.

        Raises:
            CorruptStoreError: a row is damaged.
        """
        latest = self._latest(latest_rows(self._stems(keys)))
        try:
            values = self._read(pc.binary_slice(latest, HEAD_SIZE, TO_THE_END))
            times = pa.array(since_of(latest), mask=~values.is_valid().to_numpy(zero_copy_only=False))
        except pa.ArrowInvalid:
            # If one of the rows is damaged, reading them one by one says which and why.
            self._store.get_many(keys.to_pylist())
            raise
        expiry = self._store.expiry
        return (values, times) if expiry is None else without_gone(expiry, values, times, reached)

    def own(self, values: Array) -> Array:
        """Return values, of a type that ``takes`` knows, in the type of ``get``."""
        return self._values.own(values)

    def put(self, keys: Array, values: Array, timestamps: Integers) -> Integers:
        """Put a version for each of ``keys``, in this order; a null value is a tombstone.

        Args:
            keys: an Arrow array without nulls, of a type that ``takes`` knows.
            values: as many, of a type that ``takes`` knows.
            timestamps: as many, in milliseconds.

        Returns:
            The result of ``VersionedKeyValueStore.put`` for each.
        """
        versions = pc.binary_join_element_wise(LIVE, self._values.write(values), b"").fill_null(TOMBSTONE)
        return VersionPuts(self._store, self._stems(keys), versions, timestamps).put()

    def _as_of(self, keys: Array, timestamps: Integers) -> tuple[Array, Array]:
        encoded = keys.dictionary_encode()
        numbers = encoded.indices.to_numpy().astype(np.int64)
        rows = latest_rows(self._stems(encoded.dictionary))
        latest = self._latest(rows)
        since = since_of(latest)
        places, hidden = numbers, timestamps < since[numbers]
        versions = pc.binary_slice(latest, HEAD_SIZE, TO_THE_END)
        if hidden.any():
            # A time before its key's latest finds an older version, if there is one within the history.
            alone = pc.equal(pc.binary_slice(latest, TIME_SIZE, HEAD_SIZE), ALONE).fill_null(True)
            seen = hidden & ~alone.to_numpy(zero_copy_only=False)[numbers] & ~self._forgotten(timestamps)
            older, found = self._older(rows.to_pylist(), numbers[seen], timestamps[seen])
            places[seen] = found + len(latest)
            hidden[seen] = found < 0
            versions = pa.concat_arrays([versions, pa.array([version for _, version in older], pa.binary())])
            since = np.concatenate([since, _times([row for row, _ in older])])
        values = self._read(versions).take(pa.array(places, mask=hidden))
        return values, pa.array(since[places], mask=~values.is_valid().to_numpy(zero_copy_only=False))

    def _present(self, values: Array, since: Array, timestamps: Integers) -> tuple[Array, Array]:
        """Return the values that have not expired as of each time, and the times since when they are valid."""
        expiry, observed = self._store.expiry, self._store.observed_stream_time
        if expiry is None or observed is None:
            return values, since
        if expiry.ttl is not None:
            values, since = without_gone(expiry, values, since, np.maximum(timestamps, MIN_TIME), as_of=True)
        now = timestamps >= observed
        there, begun = without_gone(expiry, values, since, None)
        mask: Any = pa.array(now)
        return pc.if_else(mask, there, values), pc.if_else(mask, begun, since)

    def _forgotten(self, timestamps: Integers) -> npt.NDArray[np.bool_]:
        horizon = self._store.horizon
        return np.zeros(len(timestamps), np.bool_) if horizon is None else timestamps < horizon

    def _older(self, rows: Sequence[bytes], numbers: Integers, timestamps: Integers) -> tuple[list[Entry], Integers]:
        """Return the versions that were valid before the latest, and the place of each look-up among them; -1 for none.

        Each comes behind bytes that end with the time from which it was valid.
        """
        newest_first = np.lexsort((-1 - timestamps, numbers))
        numbers, timestamps = numbers[newest_first], timestamps[newest_first]
        versions: list[Entry] = []
        found = np.empty(len(numbers), np.int64)
        many = np.bincount(numbers)[numbers] >= _MANY
        found[~many] = self._walked(rows, numbers[~many], timestamps[~many], versions)
        for number in np.unique(numbers[many]).tolist():
            start, stop = np.searchsorted(numbers, [number, number + 1])
            found[start:stop] = self._merged(rows[number], timestamps[start:stop], versions)
        places = np.empty_like(found)
        places[newest_first] = found
        return versions, places

    def _walked(
        self, rows: Sequence[bytes], numbers: Integers, timestamps: Integers, versions: list[Entry]
    ) -> list[int]:
        """Look up times of many keys, newest first for each key; add the versions, and return the place of each."""
        found = []
        walked = -1
        entry: Entry | None = None
        for number, time in zip(numbers.tolist(), timestamps.tolist(), strict=True):
            if number != walked:
                walked, entry, walk = number, None, self._store.walk_back(rows[number])
            before, entry = entry, walk.back_to(time)
            if entry is not None and entry is not before:
                versions.append(entry)
            found.append(-1 if entry is None else len(versions) - 1)
        return found

    def _merged(self, row: bytes, timestamps: Integers, versions: list[Entry]) -> Integers:
        """Look up many times of one key, as ``_walked`` does, by merging them with its versions."""
        walk: VersionWalk = self._store.walk_back(row)
        most = _READ_PER_LOOK_UP * len(timestamps)
        entries, all_of_them = walk.between(int(timestamps[-1]), int(timestamps[0]), most)
        starts = np.frombuffer(b"".join([start for start, _ in reversed(entries)]), ">u8").astype(np.uint64)
        before = len(starts) - np.searchsorted(starts, timestamps.view(np.uint64) ^ _SIGN, "right")
        found = np.where(before < len(starts), before + len(versions), -1)
        versions += entries
        if not all_of_them:
            left = before == len(starts)
            found[left] = self._walked([row], np.zeros(np.count_nonzero(left), np.int64), timestamps[left], versions)
        return found

    def _read(self, versions: Array) -> Array:
        """Return the values of versions; null for tombstones, and where there is no version."""
        live = pc.equal(pc.binary_slice(versions, 0, 1), LIVE)
        if pc.all(pc.or_(live, pc.equal(versions, TOMBSTONE))).as_py() is False:
            raise pa.ArrowInvalid("neither a version nor a tombstone")
        return self._values.read(pc.if_else(live, pc.binary_slice(versions, 1, TO_THE_END), None))

    def _latest(self, rows: Array) -> Array:
        """Return the values at the rows of latest versions."""
        return get_column(self._store.transaction, rows)

    def _stems(self, keys: Array) -> Array:
        """Return the beginnings of the rows of keys."""
        return stems_of(self._keys.write(keys))


def _times(rows: Sequence[bytes]) -> Integers:
    """Return the packed times at the ends of rows."""
    times = (row[-TIME_SIZE:].rjust(TIME_SIZE, b"\0") for row in rows)  # It is empty where nothing was valid.
    packed = np.frombuffer(b"".join(times), ">u8").astype(np.uint64)
    return (packed ^ _SIGN).view(np.int64)
