"""The rows of a versioned store as columns: ``millpond.stores.typed.versions.version_rows`` for many rows at once.

``VersionRun`` has the rows after puts of many versions, each newer than its key's version before it: those that
``millpond.stores.typed.versions.version_history`` makes version by version.

Rule of this module: no Python object is made of a row, and nothing is read or written.
"""

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as _compute

from millpond.stores.backend.column_changes import ColumnChanges
from millpond.stores.encoding.column_keys import TO_THE_END, escaped_column, pack_times, timed_rows
from millpond.stores.encoding.column_serdes import from_big_endian
from millpond.stores.encoding.keys import DATA, INDEX, LATEST_END, TERMINATOR, TIME_SIZE
from millpond.stores.encoding.times import MAX_TIME, MIN_TIME
from millpond.stores.typed.versions.earlier_versions import RecentVersions
from millpond.stores.typed.versions.version_rows import (
    ALONE,
    HEAD_SIZE,
    LIVE,
    OLDER,
    TOMBSTONE,
    VALUE_START,
    damaged_latest,
)

pc: Any = _compute
Array = Any
"""An Arrow array."""
Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]

_END: Final = len(LATEST_END)
_NOTHING: Final = b""


def stems_of(keys: Array) -> Array:
    """Return the beginnings of the rows of keys, given their bytes: all but the end of the key, and the time."""
    return pc.binary_join_element_wise(DATA, escaped_column(keys), _NOTHING)


def keys_of(stems: Array) -> Array:
    """Return the keys of the rows that begin with ``stems``, escaped."""
    return pc.binary_slice(stems, len(DATA), TO_THE_END)


def latest_rows(stems: Array) -> Array:
    """Return the rows of the latest versions of the keys whose rows begin with ``stems``."""
    return pc.binary_join_element_wise(stems, LATEST_END, _NOTHING)


def since_of(latest: Array) -> Integers:
    """Return the times from which latest versions are valid, given their rows' values; the least time for none.

    Raises:
        pyarrow.ArrowInvalid: one is too short.
    """
    packed = from_big_endian(pc.binary_slice(latest, 0, TIME_SIZE), pa.int64()).fill_null(0)
    since: Integers = packed.to_numpy() ^ MIN_TIME
    return since


def bucket_ends(times: Integers, bucket: int) -> Integers:
    """Return the end of the bucket of the index that each time lies in, for buckets of that width."""
    starts = times - times % bucket
    return np.where(starts > MAX_TIME - bucket, MAX_TIME, starts + bucket)


def equal_to(column: Array, data: bytes) -> Booleans:
    """Return a mask of the values of a column that are these bytes; null is not."""
    equal: Booleans = pc.equal(column, data).fill_null(False).to_numpy(zero_copy_only=False)
    return equal


def plain_columns(changes: ColumnChanges) -> ColumnChanges | None:
    """Return the changes of a store with every version as a plain row; None if there are none left.

    Raises:
        CorruptStoreError: a latest version is too short.
    """
    keys, values = changes.keys_column, changes.values_column
    latest = _are_latest(keys)
    removed = pc.and_(latest, values.is_null())
    if pc.any(removed).as_py():
        left = pc.invert(removed)
        keys, values, latest = keys.filter(left), values.filter(left), latest.filter(left)
    short = pc.and_(latest, pc.less_equal(pc.binary_length(values), HEAD_SIZE))
    if pc.any(short).as_py():
        raise damaged_latest(values.filter(short)[0].as_py())
    stems, times = pc.binary_slice(keys, 0, -_END), pc.binary_slice(values, 0, TIME_SIZE)
    plain = pc.binary_join_element_wise(stems, TERMINATOR, times, _NOTHING)
    keys = pc.if_else(latest, plain, keys)
    values = pc.if_else(latest, pc.binary_slice(values, HEAD_SIZE, TO_THE_END), values)
    # A version that became the latest was taken out of the older ones, whose row comes before.
    return ColumnChanges.of(keys, values) if len(keys) else None


def _are_latest(rows: Array) -> Array:
    """Return a mask of the rows that are data rows of latest versions."""
    end = pc.binary_slice(rows, -TIME_SIZE - _END, -TIME_SIZE)
    ends = pc.and_not(pc.ends_with(rows, LATEST_END), pc.equal(end, TERMINATOR))
    return pc.and_(pc.starts_with(rows, DATA), ends)


class Replaced(NamedTuple):
    """Versions that have become older ones, each key's in their order.

    Attributes:
        stems: the beginnings of the rows of their keys.
        starts: their packed times.
        versions: their bytes.
        alone: whether there was no version before.
    """

    stems: Array
    starts: Array
    versions: Array
    alone: Booleans

    @property
    def rows(self) -> Array:
        """The rows at which they lie now."""
        return pc.binary_join_element_wise(self.stems, TERMINATOR, self.starts, _NOTHING)


class VersionRun:
    """Versions that are put, and those that they replace.

    Args:
        stems: the beginnings of the rows of different keys, in the order of bytes.
        latest: the rows' values of the keys' latest versions, null where there is none.
        numbers: the place of each version's key among the keys, in ascending order.
        versions: the bytes of the versions.
        times: the time from which each is valid: in ascending order for each key, and after its latest version until
            now.
    """

    def __init__(self, stems: Array, latest: Array, numbers: Integers, versions: Array, times: Integers) -> None:
        # The versions of a key lie side by side: ``first`` and ``last`` are masks of where they begin and end.
        changes = numbers[1:] != numbers[:-1]
        first, last = np.concatenate([[True], changes]), np.concatenate([changes, [True]])
        keys = numbers[first]
        self._stems = stems.take(pa.array(keys))
        self._before = latest.take(pa.array(keys))
        self._known = self._before.is_valid().to_numpy(zero_copy_only=False)
        self._begins, self._last = first.nonzero()[0], last
        self._single = last[first]
        self._numbers = first.cumsum() - 1
        self._versions, self._times, self._starts = versions, times, pack_times(times)
        self.replaced = self._replaced()
        """The versions that have become older ones."""

    def note(self, recent: RecentVersions) -> None:
        """Note the replaced versions."""
        for row in latest_rows(self._stems.filter(pa.array(~self._known))).to_pylist():
            recent.forget(row)
        stems, starts, versions, alone = self.replaced
        entries = zip(starts.to_pylist(), versions.to_pylist(), strict=True)
        recent.replaced_many(latest_rows(stems).to_pylist(), entries, alone.tolist())

    def rows(self) -> tuple[Array, Array]:
        """Return the data rows in the order of bytes, and their new values."""
        keys = pa.concat_arrays([self.replaced.rows, latest_rows(self._stems)])
        values = pa.concat_arrays([self.replaced.versions, self._latest()])
        numbers = np.concatenate([self._replaced_numbers(), self._numbers[self._last]])
        order: Any = pa.array(numbers.argsort(kind="stable"))
        return keys.take(order), values.take(order)

    def index_rows(self, bucket: int) -> tuple[Array, Integers]:
        """Return the rows of the index for the keys that only now have a version that can be removed one day.

        Args:
            bucket: the width of the index's buckets.

        Returns:
            The rows in the order of bytes, and the ends of their buckets.
        """
        # A key is noted if one of its versions can be removed one day: one that is not the latest any more, or a
        # tombstone. One with a latest version that was alone and live, too, as it is not noted yet.
        tombstone = equal_to(self._versions.take(pa.array(self._begins)), TOMBSTONE)
        not_noted = equal_to(pc.binary_slice(self._before, TIME_SIZE, VALUE_START), ALONE + LIVE)
        noted = np.where(self._known, not_noted, tombstone | ~self._single)
        since = self._times[(self._begins + (~self._known & ~tombstone))[noted]]
        ends = bucket_ends(since, bucket)
        rows = timed_rows(INDEX, ends, keys_of(self._stems.filter(pa.array(noted))))
        return rows.take(pc.sort_indices(rows)), ends

    def begun(self, limit: int) -> tuple[Array, Integers]:
        """Return the stems of the keys that had no version after ``limit``, and the times of their first ones."""
        new = ~self._known | (since_of(self._before) <= limit)
        return self._stems.filter(pa.array(new)), self._times[self._begins[new]]

    def _replaced(self) -> Replaced:
        known, rest = pa.array(self._known), pa.array(~self._last)
        before = self._before.filter(known)
        was_alone = equal_to(pc.binary_slice(before, TIME_SIZE, HEAD_SIZE), ALONE)
        new = np.zeros(len(self._last), np.bool_)
        new[self._begins] = ~self._known
        starts = pc.binary_slice(before, 0, TIME_SIZE), self._starts.filter(rest)
        versions = pc.binary_slice(before, HEAD_SIZE, TO_THE_END), self._versions.filter(rest)
        return Replaced(
            self._stems.take(pa.array(self._replaced_numbers())),
            pa.concat_arrays(starts),
            pa.concat_arrays(versions),
            np.concatenate([was_alone, new[~self._last]]),
        )

    def _replaced_numbers(self) -> Integers:
        """Return the numbers of the keys of replaced versions: first of those before the run, then of its own."""
        return np.concatenate([self._known.nonzero()[0], self._numbers[~self._last]])

    def _latest(self) -> Array:
        """Return the rows' values of the keys' latest versions now."""
        older = self._known | ~self._single
        flags = pa.array([ALONE, OLDER], pa.binary()).take(pa.array(older.astype(np.int8)))
        last: Any = pa.array(self._last)
        return pc.binary_join_element_wise(self._starts.filter(last), flags, self._versions.filter(last), _NOTHING)
