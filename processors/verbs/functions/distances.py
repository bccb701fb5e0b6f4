"""The choice of rows of each key that are far enough from the one that was taken before them.

Rule of this module: it knows numbers of keys and times, and no rows.
"""

import numpy as np
import numpy.typing as npt

from millpond.stores.encoding.times import MAX_TIME

Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]


def far_apart(numbers: Integers, times: Integers, within: int) -> Booleans:
    """Return a mask of taken rows: the first of each key, and each later by more than ``within`` than the last taken.

    Args:
        numbers: the numbers of the keys, from 0 on, in ascending order.
        times: their times, in ascending order within each key.
        within: not negative.

    >>> far_apart(np.array([0, 0, 0, 0, 1]), np.array([0, 5, 11, 20, 1]), 10).tolist()
    [True, False, True, False, True]
    """
    first = np.append(True, numbers[1:] != numbers[:-1])[: len(numbers)]
    distinct, ranks = np.unique(times, return_inverse=True)
    beyond = np.searchsorted(distinct, np.minimum(times, MAX_TIME - within) + within, "right")
    width = len(distinct) + 1
    # The next one far enough; behind the last of a key that is the first of another key, which is taken anyway.
    following = np.searchsorted(numbers * width + ranks, numbers * width + beyond, "left")
    return _reached(first, following)


def _reached(first: Booleans, following: Integers) -> Booleans:
    """Return a mask of places that are reached from the first ones in any number of steps, which double each round."""
    reached, steps = np.append(first, True), np.append(following, len(following))
    while True:
        more = reached.copy()
        more[steps[reached]] = True
        if (more == reached).all():
            return reached[:-1]
        reached, steps = more, steps[steps]
