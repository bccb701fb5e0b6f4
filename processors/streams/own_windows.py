"""Windows of single records: the distances of the partners of each left record of a join of two streams.

Rule of this module: it sees numbers only. The windows of the join are the greatest that a record may have, and stores
keep records by them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from millpond.stores.typed.terms import Term

Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]


class Reach(NamedTuple):
    """The distances back and ahead within which partners of each record lie; none, if the two cross.

    Attributes:
        back, ahead: one of each for a record; either may be negative.
    """

    back: Integers
    ahead: Integers

    def of(self, places: Any) -> "Reach":
        """Return the distances of some of the records."""
        return Reach(self.back[places], self.ahead[places])

    def followed_by(self, others: "Reach") -> "Reach":
        """Return the distances of these records and of others behind them."""
        return Reach(*(np.concatenate(both) for both in zip(self, others, strict=True)))

    def holds(self, times: Integers, others: Integers) -> Booleans:
        """Return whether records of these times have partners at others in their windows.

        >>> reach = Reach(np.array([2, 2, 0]), np.array([0, 0, -1]))
        >>> reach.holds(np.array([5, 5, 5]), np.array([3, 2, 5])).tolist()
        [True, False, False]
        """
        inside: Booleans = (times - self.back <= others) & (others <= times + self.ahead)
        return inside

    def closes(self, times: Integers, grace: int) -> Integers:
        """Return when window and grace of records of these times are over; for no window, a time before the record.

        >>> Reach(np.array([2, 0]), np.array([3, -9])).closes(np.array([5, 5]), 10).tolist()
        [18, 4]
        """
        closes: Integers = np.where(self.back + self.ahead < 0, times - 1, times + self.ahead + grace)
        return closes


@dataclass(frozen=True)
class OwnWindows:
    """The own windows of left records.

    Attributes:
        read: reads the reach of each record from the column of values; a null has none.
        terms: the terms of the stores' rows, in place of the join's windows where these are no parameters.
    """

    read: Callable[[Any], Reach]
    terms: Mapping[str, Term]
