"""The pairing of partners of two streams, for whole columns.

Rule of this module: it sees numbers only, and knows neither stores nor what becomes of a pair. Records have places: the
order in which they came. Of two partners the later one finds the earlier one.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from millpond.processors.runtime.batches.columns import spread
from millpond.processors.runtime.order.time_order import reached_by_key

Integers = npt.NDArray[np.int64]


class BuildSide(NamedTuple):
    """Records of one side that records of the other may meet.

    Attributes:
        keys: the number of each one's key; -1 for a record that meets nobody.
        times: their timestamps.
        places: the places in which they came; -1 for earlier runs. They ascend among equal keys and times.
    """

    keys: Integers
    times: Integers
    places: Integers


class ProbeSide(NamedTuple):
    """Records of the other side, and the bounds of their partners.

    Attributes:
        keys: the number of each one's key.
        earliest, latest: the bounds of a partner's time, both included; none if they cross.
        places: the places in which they came.
    """

    keys: Integers
    earliest: Integers
    latest: Integers
    places: Integers


def partners(seekers: ProbeSide, candidates: BuildSide) -> tuple[Integers, Integers]:
    """Return all pairs, by seeker, then by the candidate's time, then as the candidates came.

    Returns:
        The positions of seeker and candidate of each pair.

    >>> candidates = BuildSide(np.array([0, 0, 1, 0]), np.array([7, 5, 5, 6]), np.array([-1, 0, 1, 3]))
    >>> seekers = ProbeSide(np.array([0]), np.array([5]), np.array([7]), np.array([2]))
    >>> [found.tolist() for found in partners(seekers, candidates)]
    [[0, 0], [1, 0]]
    """
    times = np.unique(candidates.times)
    # As a digit before which the key's number stands, the rank of a time fits into 64 bits whatever the times are.
    base = len(times) + 1
    codes = candidates.keys * base + np.searchsorted(times, candidates.times)
    order = codes.argsort(kind="stable")
    codes = codes[order]
    first = np.searchsorted(codes, seekers.keys * base + np.searchsorted(times, seekers.earliest))
    past = np.searchsorted(codes, seekers.keys * base + np.searchsorted(times, seekers.latest, side="right"))
    found, at = spread(np.maximum(past - first, 0))
    met = order[first[found] + at]
    earlier = candidates.places[met] < seekers.places[found]
    return found[earlier], met[earlier]


def spans_of_each(keys: Integers, earliest: Integers, latest: Integers) -> tuple[Integers, Integers, Integers]:
    """Return the times that are between some bounds, both included: as spans that do not overlap, by key, then time.

    Args:
        keys: the number of each bound's key.
        earliest, latest: the bounds; there is nothing between them if they cross.

    >>> columns = np.array([1, 1, 0, 1, 0]), np.array([3, 9, 0, 2, 5]), np.array([5, 9, 4, 4, 4])
    >>> [column.tolist() for column in spans_of_each(*columns)]
    [[0, 1, 1], [0, 2, 9], [4, 5, 9]]
    """
    crossed = earliest > latest
    keys, earliest, latest = keys[~crossed], earliest[~crossed], latest[~crossed]
    order = np.lexsort((earliest, keys))
    keys, earliest, latest = keys[order], earliest[order], latest[order]
    begins = np.ones(len(keys), np.bool_)
    begins[1:] = (keys[1:] != keys[:-1]) | (earliest[1:] > reached_by_key(latest, keys)[:-1])
    firsts = np.flatnonzero(begins)
    return keys[firsts], earliest[firsts], np.maximum.reduceat(latest, firsts) if len(firsts) else latest
