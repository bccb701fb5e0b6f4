"""``VersionRun``: the rows after puts of many versions, each newer than its key's version before it; as columns.

Rule of this module: it makes the rows that ``millpond.stores.typed.versions.version_history`` makes version by version,
and tells which versions have been replaced. It reads and writes nothing itself.
"""

from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as _compute

from millpond.stores.encoding.column_keys import TO_THE_END, pack_times, timed_rows
from millpond.stores.encoding.keys import INDEX, TERMINATOR, TIME_SIZE
from millpond.stores.typed.versions.recent_versions import RecentVersions
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
from millpond.stores.typed.versions.version_rows import ALONE, HEAD_SIZE, LIVE, OLDER, TOMBSTONE, VALUE_START

pc: Any = _compute

_NOTHING: Final = b""


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
    """Versions that are put.

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
