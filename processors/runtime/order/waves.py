"""Waves: an order of records in which each input is a few long runs, and each key's records keep their order.

What concerns different keys commutes. So only inputs that meet in the state of a key must alternate, and only for that
key: a wave takes, of each key, the records up to the next one that must come after another input's. Within a wave the
inputs follow each other, each as one run.

Rule of this module: it sees numbers only. Inputs have ranks: their order within a wave.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from millpond.processors.runtime.order.time_order import reached_by_key, stable_order

Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]

_NEVER: Final = np.iinfo(np.int64).min


def returns(first: Booleans, second: Booleans, keys: Integers, late: Booleans | None = None) -> Booleans:
    """Return where a wave must end for a key, since an input would come too early in it.

    Args:
        first, second: the records of two inputs; the first goes first in a wave.
        keys: a number for each record that tells its key.
        late: the records of the first input that must not come before an earlier record of the second; None for all.

    >>> first = np.array([True, False, True, False, True])
    >>> returns(first, ~first, np.array([0, 0, 0, 1, 0])).tolist()
    [False, False, True, False, False]
    """
    found = np.zeros(len(keys), np.bool_)
    rows = (second | (first if late is None else first & late)).nonzero()[0]
    rows = rows[stable_order(keys[rows])]
    after, before = rows[1:], rows[:-1]
    found[after] = first[after] & second[before] & (keys[after] == keys[before])
    return found


def seen_too_early(writes: Booleans, reads: Booleans, keys: Integers, times: Integers) -> Booleans:
    """Return the writes that an earlier lookup of their key, as of its own time, would have found had it come later.

    Args:
        writes, reads: the records of two inputs.
        keys: a number for each record that tells its key.
        times: their timestamps.
    """
    found = np.zeros(len(keys), np.bool_)
    rows = (writes | reads).nonzero()[0]
    never = max(int(times.min(initial=0)) - 1, _NEVER)
    reached = reached_by_key(np.where(reads[rows], times[rows], never), keys[rows])
    found[rows] = writes[rows] & (reached >= times[rows])
    return found


def wave_order(ends: Booleans, keys: Integers, ranks: Integers) -> Integers:
    """Return the records wave by wave, in each wave input by input.

    Args:
        ends: a mask of the records at which a wave ends for a key, and the next begins.
        keys: a number for each record that tells its key.
        ranks: the place of each record's input in a wave.

    Returns:
        The positions of the records.

    >>> ranks, keys = np.array([0, 1, 0, 1, 0]), np.array([0, 0, 0, 1, 0])
    >>> wave_order(np.array([False, False, True, False, False]), keys, ranks).tolist()
    [0, 1, 3, 2, 4]
    """
    order = stable_order(keys)
    counted = ends[order].cumsum()
    begins = np.flatnonzero(np.diff(keys[order], prepend=-1))
    before = counted[begins] - ends[order][begins]
    waves = np.empty(len(keys), np.int64)
    waves[order] = counted - before.repeat(np.diff(begins, append=len(keys)))
    return stable_order(waves * (int(ranks.max()) + 1) + ranks)
