"""``VersionPuts``: many versions put into a ``VersionedKeyValueStore``, as columns if that gives the same.

Rule of this module: it decides which versions are put in one run (``millpond.stores.typed.versions.version_run``) and
which one by one: versions of keys that do not come in the order of time, versions after which something may expire, and
versions that are put although they are late.
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as _compute

from millpond.stores.backend.column_changes import get_column, put_column
from millpond.stores.encoding.column_keys import pack_times
from millpond.stores.encoding.times import MAX_TIME, MIN_TIME
from millpond.stores.typed.expiry import Expiry
from millpond.stores.typed.expiry_columns import timer_rows
from millpond.stores.typed.versions.late_puts import LatePuts
from millpond.stores.typed.versions.version_row_columns import (
    Array,
    Booleans,
    Integers,
    bucket_ends,
    equal_to,
    keys_of,
    latest_rows,
    since_of,
)
from millpond.stores.typed.versions.version_rows import HEAD_SIZE, TOMBSTONE, damaged_latest
from millpond.stores.typed.versions.version_run import VersionRun
from millpond.stores.typed.versions.versioned import NOT_PUT, VALID_TO_UNDEFINED, VersionedKeyValueStore

pc: Any = _compute

_SHORTEST: Final = 128
"""The number of versions below which a call for a whole column costs more than it saves."""

_FAR: Final = 1 << 61
"""The distance from 1970 from which times are compared one by one, where no sum overflows."""


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
