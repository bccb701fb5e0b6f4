"""``VersionedColumns``: whole Arrow columns into a ``VersionedKeyValueStore``, and out of it as of many times at once.

Rule of this module: no Python object is made of a value or a timestamp that is read, and of a key only its bytes. A
look-up reads once for each distinct key, and once more for each version before its latest; for a key with many such
look-ups, the versions between the first and the last of these are read as one range. Puts are made in runs
(``VersionRun``) where that leaves the rows that puts one by one leave. One by one go versions of keys that do not come
in the order of time, versions after which something may expire, and versions that are put although they are late.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as _compute

from millpond.stores.backend.column_changes import get_column, put_column
from millpond.stores.encoding.column_keys import TO_THE_END, pack_times
from millpond.stores.encoding.column_serdes import ColumnSerde
from millpond.stores.encoding.keys import TIME_SIZE
from millpond.stores.encoding.times import MAX_TIME, MIN_TIME
from millpond.stores.typed.expiry import Expiry
from millpond.stores.typed.expiry_columns import timer_rows, without_gone
from millpond.stores.typed.versions.earlier_versions import VersionWalk
from millpond.stores.typed.versions.late_puts import LatePuts
from millpond.stores.typed.versions.version_row_columns import (
    Array,
    Booleans,
    Integers,
    VersionRun,
    bucket_ends,
    equal_to,
    keys_of,
    latest_rows,
    since_of,
    stems_of,
)
from millpond.stores.typed.versions.version_rows import ALONE, HEAD_SIZE, LIVE, TOMBSTONE, Entry, damaged_latest
from millpond.stores.typed.versions.versioned import NOT_PUT, VALID_TO_UNDEFINED, VersionedKeyValueStore

pc: Any = _compute

_MANY: Final = 16
"""The number of look-ups of one key below which they cost less one by one."""

_READ_PER_LOOK_UP: Final = 8
"""The number of versions whose reading costs less than finding one; with more between look-ups, each is found alone."""

_SIGN: Final = np.uint64(1 << 63)
"""The difference of packed times and times."""

_SHORTEST: Final = 128
"""The number of versions below which a call for a whole column costs more than it saves."""

_FAR: Final = 1 << 61
"""The distance from 1970 from which times are compared one by one, where no sum overflows."""


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
        latest = get_column(self._store.transaction, latest_rows(self._stems(keys)))
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
        latest = get_column(self._store.transaction, rows)
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
        # The older versions lie behind the latest ones, both in ``versions`` and in ``since``.
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

    def _forgotten(self, timestamps: Integers) -> Booleans:
        horizon = self._store.horizon
        return np.zeros(len(timestamps), np.bool_) if horizon is None else timestamps < horizon

    def _older(self, rows: Sequence[bytes], numbers: Integers, timestamps: Integers) -> tuple[list[Entry], Integers]:
        """Return the versions that were valid before the latest, and the place of each look-up among them; -1 for none.

        Each comes behind bytes that end with the time from which it was valid.
        """
        # The look-ups of a key lie side by side, the newest first, as a walk goes; ``-1 - time`` cannot overflow.
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
        # ``entries`` come newest first, so as many are before the one that was valid at a time as began after it.
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

    def _stems(self, keys: Array) -> Array:
        """Return the beginnings of the rows of keys."""
        return stems_of(self._keys.write(keys))


class VersionPuts:
    """The put of many versions.

    Args:
        store: the store.
        stems: the beginnings of the rows of their keys, an Arrow array.
        versions: their bytes, an Arrow array.
        times: the times from which they are valid, in milliseconds.
    """

    def __init__(self, store: VersionedKeyValueStore[Any, Any], stems: Array, versions: Array, times: Integers) -> None:
        self._store = store
        self._stems = stems
        self._versions = versions
        self._times = times
        self._ends = np.full(len(times), VALID_TO_UNDEFINED)

    def put(self) -> Integers:
        """Put them in their order; return for each what ``VersionedKeyValueStore.put`` returns."""
        if self._store.expiry is not None and len(self._times):
            self._store.expiry.observe(int(self._times.max()))
        start, size = 0, len(self._times)
        reached = self._reached()
        late = self._taken_late(reached)
        while start < size:
            calm = self._calm(start, reached, late)
            if calm < _SHORTEST:
                stop = min(start + max(_SHORTEST, _first(~late[start:])), size)
                self._put_each(np.arange(start, stop))
            else:
                stop = start + calm
                self._put_run(start, stop, reached[start:stop])
            start = stop
        return self._ends

    def _reached(self) -> Integers:
        """Return the observed stream time after each version."""
        observed = self._store.observed_stream_time
        reached = np.maximum.accumulate(self._times)
        return reached if observed is None else np.maximum(reached, observed)

    def _taken_late(self, reached: Integers) -> Booleans:
        """Return a mask of the versions that are late, but may be put all the same."""
        if self._store.late_puts is LatePuts.REFUSED:
            return np.zeros(len(reached), np.bool_)
        times, reached = (np.clip(column, -_FAR, _FAR) for column in (self._times, reached))
        late: Booleans = times < self._after(reached, self._store.grace)
        return late

    def _calm(self, start: int, reached: Integers, late: Booleans) -> int:
        """Return the number of versions from ``start`` on before something may expire, or a late one is put."""
        index, times, reached = self._store.rows.index, self._times[start:], reached[start:]
        if max(abs(int(reached[-1])), abs(int(times.min()))) > _FAR:
            return 0
        # ``first`` never rises, so from the first place on where it is reached, something may expire.
        first = np.minimum(np.minimum.accumulate(bucket_ends(times, index.bucket)), index.first)
        return _first((first <= self._after(reached, self._store.history_retention) + 1) | late[start:])

    def _after(self, reached: Integers, length: int) -> Integers:
        """Return the times so long before those that the store has reached, but not before its history."""
        begin = self._store.horizon
        return np.maximum(reached - min(length, _FAR), -_FAR if begin is None else min(max(begin, -_FAR), _FAR))

    def _put_each(self, places: Integers) -> None:
        """Put some versions one by one."""
        chosen: Any = pa.array(places)
        times = self._times[places]
        rows, versions = latest_rows(self._stems.take(chosen)), self._versions.take(chosen)
        self._ends[places] = self._store.put_rows(
            rows.to_pylist(), versions.to_pylist(), pack_times(times).to_pylist(), times.tolist()
        )

    def _put_run(self, start: int, stop: int, reached: Integers) -> None:
        """Put the versions of a range, during which nothing expires."""
        admitted = self._times[start:stop] >= self._after(reached, self._store.grace)
        self._ends[start:stop][~admitted] = NOT_PUT
        places = admitted.nonzero()[0] + start
        stems, numbers = _in_order(self._stems.take(pa.array(places)))
        latest = self._latest(stems)
        # From here on the versions of a key lie side by side, in the order in which they are put.
        order = numbers.argsort(kind="stable")
        places, numbers = places[order], numbers[order]
        again = _same_version(numbers, self._times[places])
        behind = self._behind(numbers, places, latest, again)
        if behind.any():
            # The versions of their keys are put before those of other keys, which makes no difference.
            self._put_each(np.sort(places[behind]))
        kept = ~behind & ~again
        places, numbers = places[kept], numbers[kept]
        if len(places):
            chosen: Any = pa.array(places)
            self._write(VersionRun(stems, latest, numbers, self._versions.take(chosen), self._times[places]))
        self._store.observe(int(reached[-1]))

    def _latest(self, stems: Array) -> Array:
        """Return the values at the rows of the latest versions of keys."""
        latest = get_column(self._store.transaction, latest_rows(stems))
        short = pc.less_equal(pc.binary_length(latest), HEAD_SIZE)
        if pc.any(short).as_py():
            raise damaged_latest(latest.filter(short)[0].as_py())
        return latest

    def _behind(self, numbers: Integers, places: Integers, latest: Array, again: Booleans) -> Booleans:
        """Return a mask of the versions, sorted by key, whose key has a version that cannot be put in the run.

        Such a version is older than the one before it, or no newer than the key's latest until now, or a tombstone that
        another version of its time replaces, which leaves a row in the index.
        """
        times, since = self._times[places], since_of(latest)[numbers]
        known = latest.is_valid().to_numpy(zero_copy_only=False)[numbers]
        first = np.concatenate([[True], numbers[1:] != numbers[:-1]])
        before = np.concatenate([[0], times[:-1]])
        late = np.where(first, known & (times <= since), times < before)
        late[again] |= equal_to(self._versions.take(pa.array(places[again])), TOMBSTONE)
        keys = np.zeros(len(latest), np.bool_)
        keys[numbers[late]] = True
        return keys[numbers]

    def _write(self, run: VersionRun) -> None:
        history = self._store.rows
        rows, values = run.rows()
        index, ends = run.index_rows(history.index.bucket)
        if self._store.expiry is not None:
            index = pa.concat_arrays([index, timers_of(self._store.expiry, run)])
        nothing = pa.repeat(pa.scalar(b"", pa.binary()), len(index))
        put_column(self._store.transaction, pa.concat_arrays([rows, index]), pa.concat_arrays([values, nothing]))
        history.index.first = min(history.index.first, int(ends.min(initial=MAX_TIME)))
        history.recent.later(run.note)


def _same_version(numbers: Integers, times: Integers) -> Booleans:
    """Return a mask of the versions, sorted by key, that the next one replaces, as it has the same key and time.

    >>> _same_version(np.array([0, 0, 0, 1]), np.array([5, 5, 6, 6])).tolist()
    [True, False, False, False]
    """
    return np.append((numbers[1:] == numbers[:-1]) & (times[1:] == times[:-1]), False)[: len(numbers)]


def timers_of(expiry: Expiry, run: VersionRun) -> Array:
    """Return the rows of the timers that the keys of a run need."""
    stems, times = run.begun(max(expiry.gone_at(MIN_TIME), MIN_TIME))
    return timer_rows(expiry, keys_of(stems), times, len(times))


def _first(where: Booleans) -> int:
    """Return the first place where it is true; the length if there is none."""
    return int(where.argmax()) if where.any() else len(where)


def _in_order(stems: Array) -> tuple[Array, Integers]:
    """Return the distinct stems in the order of bytes, and for each stem its place among them."""
    encoded = stems.dictionary_encode()
    order = pc.sort_indices(encoded.dictionary)
    places = np.empty(len(order), np.int64)
    places[order.to_numpy()] = np.arange(len(order))
    return encoded.dictionary.take(order), places[encoded.indices.to_numpy()]


def _times(rows: Sequence[bytes]) -> Integers:
    """Return the packed times at the ends of rows."""
    times = [row[-TIME_SIZE:].rjust(TIME_SIZE, b"\0") for row in rows]  # It is empty where nothing was valid.
    packed = np.frombuffer(b"".join(times), ">u8").astype(np.uint64)
    return (packed ^ _SIGN).view(np.int64)
