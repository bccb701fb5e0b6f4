"""``SortedVersions``: the rows of a table that lies elsewhere, sorted in memory, and looked up as of times.

Rule of this module: it has all rows as columns and makes objects of them only on demand. Keys are
told apart by a hash of their bytes, and compared where they are found.
"""

from collections.abc import Iterable, Sequence
from itertools import count
from typing import Any, Final, NamedTuple, Protocol, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as _compute

from millpond.processors.runtime.batches.columns import Array, valid
from millpond.processors.tables.table_view import Found, TableView
from millpond.stores.encoding.rows.byte_columns import offsets_of
from millpond.stores.encoding.times import MAX_TIME
from millpond.stores.typed.timestamped_keyvalue import ValueAndTimestamp

pc: Any = _compute

Integers = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]

_PRIME: Final = np.uint64(0x100000001B3)
_SEED: Final = 0xCBF29CE484222325
"""The constants of FNV-1a with 64 bits."""

_BLOCK: Final = 1 << 15
"""The number of keys that take a step together."""


class ViewAt(Protocol):
    """A table that is read at one of its versions. Travels to the workers."""

    @property
    def shown(self) -> pa.Schema:
        """The columns of its rows."""

    def newest(self) -> str:
        """Return the newest version."""

    def at(self, version: str) -> "SortedVersions":
        """Return the object that looks up rows of a version."""

    def told(self, version: str) -> str:
        """Return a version, for sentences."""


class VersionRows(NamedTuple):
    """Rows of a table, each valid from its time until that of the next one with its key.

    Attributes:
        keys: their bytes, without nulls.
        values: their bytes; null for a delete.
        times: the time since which each is valid.
        orders: bytes that decide among rows of one key and time; None where the values do.
        parts: the number of each one's part.
    """

    keys: Array
    values: Array
    times: Integers
    orders: Array | None
    parts: Integers

    @classmethod
    def joined(cls, several: Sequence["VersionRows"]) -> Self:
        """Return the rows of all; there is at least one."""
        orders = [one.orders for one in several if one.orders is not None]
        return cls(
            pa.concat_arrays([one.keys for one in several]),
            pa.concat_arrays([one.values for one in several]),
            np.concatenate([one.times for one in several]),
            pa.concat_arrays(orders) if len(orders) == len(several) else None,
            np.concatenate([one.parts for one in several]),
        )

    def taken(self, places: Any) -> Self:
        """Return the rows at some places."""
        rows: Any = pa.array(places)
        orders = None if self.orders is None else self.orders.take(rows)
        return type(self)(self.keys.take(rows), self.values.take(rows), self.times[places], orders, self.parts[places])

    @property
    def size(self) -> int:
        """The size of the rows, in bytes."""
        columns = (self.keys, self.values, self.orders, self.times, self.parts)
        return sum(int(one.nbytes) for one in columns if one is not None)


class SortedVersions(TableView):
    """Looks the rows of a table up.

    Args:
        rows: the rows, in any order. Of those with one key and time, the last one counts by order and value, a delete
            first.

    Attributes:
        rows: the rows, sorted.

    >>> rows = VersionRows(pa.array([b"k", b"k"]), pa.array([b"b", b"a"]), np.array([7, 3]), None, np.array([0, 0]))
    >>> values, since = SortedVersions(rows).get_columns_as_of(pa.array([b"k", b"k", b"l"]), np.array([6, 9, 9]))
    >>> values.to_pylist(), since.to_pylist()
    ([b'a', b'b', None], [3, 7, None])
    """

    versioned = True
    value_type = pa.binary()

    def __init__(self, rows: VersionRows) -> None:
        hashes = self._hashed(rows.keys)
        # Rows of a key lie side by side, in the order of time. ``tied`` tells which rows have the time of the next one.
        order = np.lexsort((rows.times, hashes))
        hashes, times = hashes[order], rows.times[order]
        tied = (hashes[1:] == hashes[:-1]) & (times[1:] == times[:-1])
        if tied.any():
            _settle(order, tied, rows)
        self.rows = rows.taken(order)
        begins = np.flatnonzero(np.concatenate([[True], hashes[1:] != hashes[:-1]])[: len(hashes)])
        self._known = hashes[begins]
        self._begins, self._ends = begins, np.append(begins[1:], len(hashes))
        self._first_keys = self.rows.keys.take(pa.array(begins))
        self._following = self._next_live(~np.append(tied, False)[: len(hashes)] & valid(self.rows.values))

    def _hashed(self, keys: Array) -> Hashes:
        """Return the hashes of the table's keys, by a seed with which hashes of different keys differ."""
        unique = pc.unique(keys)
        self._seed = next(seed for seed in count(_SEED) if len(np.unique(_hashes(unique, seed))) == len(unique))
        return _hashes(keys, self._seed)

    @staticmethod
    def _next_live(live: npt.NDArray[np.bool_]) -> Integers:
        """Return, for each row and behind the last one, the first row from it on that is a version and no delete."""
        # Read from the end, the least place of a live row so far is the next one; ``size`` stands for none.
        size = len(live)
        own = np.append(np.where(live, np.arange(size), size), size)
        return np.minimum.accumulate(own[::-1])[::-1]

    def get(self, key: Any) -> Found:
        return self.get_as_of(key, MAX_TIME)

    def get_as_of(self, key: Any, timestamp: int) -> Found:
        return self.get_many_as_of([key], [timestamp])[0]

    def get_many_as_of(self, keys: Sequence[Any], timestamps: Sequence[int]) -> list[Found]:
        values, since = self.get_columns_as_of(pa.array(keys, pa.binary()), np.array(timestamps, np.int64))
        return _entries(values, since)

    def get_many_from(self, keys: Sequence[Any], earliest: Sequence[int], latest: Sequence[int]) -> list[Found]:
        groups = self._groups(pa.array(keys, pa.binary()))
        at = self._following[self._behind(groups, np.array(earliest, np.int64) - 1)]
        there = (groups >= 0) & (at < self._ends_of(groups))
        there[there] = self.rows.times[at[there]] <= np.array(latest, np.int64)[there]
        return _entries(*self._taken(at, there))

    def get_columns_as_of(self, keys: Array, timestamps: Integers) -> tuple[Array, Array]:
        groups = self._groups(keys)
        at = self._behind(groups, timestamps) - 1
        return self._taken(at, (groups >= 0) & (at >= self._begins_of(groups)))

    def of_key(self, key: bytes) -> VersionRows:
        """Return all rows of a key; one that does not count comes before the one of its time that does."""
        (group,) = self._groups(pa.array([key], pa.binary()))
        return self.rows.taken(np.arange(self._begins[group], self._ends[group]) if group >= 0 else np.arange(0))

    def _taken(self, at: Integers, there: npt.NDArray[np.bool_]) -> tuple[Array, Array]:
        """Return the values and times of the rows at some places, null where nothing is there."""
        places: Any = pa.array(np.where(there, at, 0), mask=~there)
        values = self.rows.values.take(places)
        times: Any = pa.array(self.rows.times).take(places)
        return values, pc.if_else(values.is_valid(), times, pa.scalar(None, pa.int64()))

    def _groups(self, keys: Array) -> Integers:
        """Return which of the known keys each of some keys is; -1 for none of them."""
        if not len(self._known):
            return np.full(len(keys), -1, np.int64)
        hashes = _hashes(keys, self._seed)
        places = np.minimum(np.searchsorted(self._known, hashes), len(self._known) - 1)
        same = pc.equal(self._first_keys.take(pa.array(places)), keys).to_numpy(zero_copy_only=False)
        return np.where(same, places, -1)

    def _begins_of(self, groups: Integers) -> Integers:
        return self._begins[groups] if len(self._begins) else np.zeros(len(groups), np.int64)

    def _ends_of(self, groups: Integers) -> Integers:
        return self._ends[groups] if len(self._begins) else np.zeros(len(groups), np.int64)

    def _behind(self, groups: Integers, timestamps: Integers) -> Integers:
        """Return, for each key and time, the first place of its rows with a later one, or the place behind them all."""
        # All searches step together: rows before ``low`` are not later than the time, those from ``high`` on are.
        low, high = self._begins_of(groups).copy(), self._ends_of(groups).copy()
        while (open_ := low < high).any():
            middle = (low + high) // 2
            up = np.zeros(len(low), np.bool_)
            up[open_] = self.rows.times[middle[open_]] <= timestamps[open_]
            low = np.where(up, middle + 1, low)
            high = np.where(open_ & ~up, middle, high)
        return low


def _settle(order: Integers, tied: npt.NDArray[np.bool_], rows: VersionRows) -> None:
    """Put rows of one key and time in the order in which they count; ``tied`` tells which has the next one's."""
    # A group is what has one key and time; its members are sorted among the places that they have together.
    among = np.append(tied, False) | np.append(False, tied)
    groups = np.append(0, np.cumsum(~tied))[among]
    members = order[among]
    some: Any = pa.array(members)
    values = rows.values.take(some)
    columns = {"group": pa.array(groups), "there": values.is_valid().cast(pa.int8()), "value": values}
    if rows.orders is not None:
        columns = {"group": columns["group"], "order": rows.orders.take(some), **columns}
    by_value = pc.sort_indices(pa.table(columns), sort_keys=[(name, "ascending") for name in columns])
    order[among] = members[by_value.to_numpy()]


def _entries(values: Array, since: Array) -> list[Found]:
    """Return the values that were found as objects."""
    found: Iterable[tuple[Any, Any]] = zip(values.to_pylist(), since.to_pylist(), strict=True)
    return [None if value is None else ValueAndTimestamp(value, time) for value, time in found]


def _hashes(keys: Array, seed: int) -> Hashes:
    """Return the FNV-1a hash of each key: one step for the next byte of all that have one."""
    hashes = np.empty(len(keys), np.uint64)
    for start in range(0, len(keys), _BLOCK):
        hashes[start : start + _BLOCK] = _hashed_block(keys.slice(start, _BLOCK), seed)
    return hashes


def _hashed_block(keys: Array, seed: int) -> Hashes:
    bounds = offsets_of(keys).astype(np.int64)
    octets = np.frombuffer(keys.buffers()[2] or b"", np.uint8)
    starts, lengths = bounds[:-1], np.diff(bounds)
    hashes = np.full(len(keys), seed, np.uint64)
    for step in range(int(lengths.max(initial=0))):
        longer = np.flatnonzero(lengths > step)
        hashes[longer] = (hashes[longer] ^ octets[starts[longer] + step]) * _PRIME
    return hashes
