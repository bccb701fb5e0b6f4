"""Columns of integers as numbers of the different ones among them.

Rule of this module: it costs as much as sorting the different ones, and one step for each of the others.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Integers = npt.NDArray[np.int64]


def numbered(column: Integers) -> tuple[Integers, Integers]:
    """Return the different integers, ascending, and the place of each one of the column among them.

    It returns what ``np.unique`` returns with ``return_inverse``, which sorts all of them.

    >>> [column.tolist() for column in numbered(np.array([7, 3, 7, 5]))]
    [[3, 5, 7], [2, 0, 2, 1]]
    """
    encoded: Any = pa.array(column).dictionary_encode()
    distinct: Integers = encoded.dictionary.to_numpy()
    order = distinct.argsort()
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    return distinct[order], places[encoded.indices.to_numpy()]
