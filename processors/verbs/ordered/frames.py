"""Frames: for each row of a key some rows up to it, and the state of what these bring, which merging makes.

Rule of this module: positions, lengths and columns of states; it knows neither functions nor what a row is.

The state of a frame of n rows is merged of the states of at most log n runs, whose lengths are the powers of two in n.
The runs of each length that end at each row are merged of two of half the length. So frames of any lengths, of any
function that merges, take n log n merges for n rows, in log n steps of whole columns.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Integers: TypeAlias = npt.NDArray[np.int64]

Merge: TypeAlias = Callable[[Any, Any], Any]
"""The states of what is older, and as many of what is newer; returns the state of both, for each."""


def framed(states: Any, places: Integers, ends: Integers, lengths: Integers, merge: Merge) -> Any:
    """Return the state of each frame.

    Args:
        states: the state that each row brings alone; rows that may share a frame lie together, in their order.
        places: how many rows that may share a frame with it lie before each row.
        ends: the position of the last row of each frame.
        lengths: how many rows each has, from 1 to one more than the place of its last row.
        merge: merges states.

    >>> sums = pa.array([1, 2, 3, 10, 20])
    >>> ends = np.arange(5)
    >>> places = np.array([0, 1, 2, 0, 1])
    >>> add = lambda older, newer: pa.array(older.to_numpy() + newer.to_numpy())
    >>> framed(sums, places, ends, places + 1, add).to_pylist()
    [1, 3, 6, 10, 30]
    """
    made, runs = states.take(pa.array(ends)), states
    remaining, ends, size = lengths.copy(), ends.copy(), 1
    while True:
        some = np.flatnonzero(remaining & 1)
        older = runs.take(pa.array(ends[some]))
        behind = np.flatnonzero(lengths[some] & (size - 1))
        if len(behind):
            older = _put(older, behind, merge(older.take(pa.array(behind)), made.take(pa.array(some[behind]))))
        made = _put(made, some, older)
        ends[some] -= size
        remaining >>= 1
        if not remaining.any():
            return made
        long = np.flatnonzero(places >= 2 * size - 1)
        runs = _put(runs, long, merge(runs.take(pa.array(long - size)), runs.take(pa.array(long))))
        size *= 2


def _put(column: Any, places: Integers, values: Any) -> Any:
    """Return the column with other values at some places."""
    positions = np.arange(len(column))
    positions[places] = len(column) + np.arange(len(places))
    return pa.concat_arrays([column, values]).take(pa.array(positions))


@dataclass(frozen=True)
class Layout:
    """The layout of kept rows and of the new rows behind them, key by key.

    Attributes:
        order: the positions in both, laid end to end: kept rows, then the new rows.
        keys: the number of the key at each place.
        new: the places of the new rows.
    """

    order: Integers
    keys: Integers
    new: Integers

    @classmethod
    def of(cls, known: Integers, keys: Integers) -> "Layout":
        """Return the layout.

        Args:
            known: how many kept rows each key has; they lie in the order of the keys.
            keys: the numbers of the keys of the new rows, in ascending order.
        """
        both = np.concatenate([np.arange(len(known)).repeat(known), keys])
        order = both.argsort(kind="stable")
        return cls(order, both[order], np.flatnonzero(order >= len(both) - len(keys)))

    def column(self, known: Any, new: Any) -> Any:
        """Return a column of both in this order."""
        return pa.concat_arrays([known, new]).take(pa.array(self.order))


def places_in(begins: npt.NDArray[np.bool_]) -> Integers:
    """Return how many rows are before each one since the last that begins."""
    numbers = np.arange(len(begins))
    return numbers - np.maximum.accumulate(np.where(begins, numbers, 0))
