"""``Reversible``: the contract of a function of rows that come and go.

Rule of this module: rows are columns, each with a sign, 1 where it comes and -1 where it goes.
"""

from abc import abstractmethod

from millpond.processors.verbs.functions.columns import Array, Integers
from millpond.processors.verbs.functions.function import StatefulFunction


class Reversible(StatefulFunction):
    """A function of rows that come and go, whose state tells all of them."""

    @abstractmethod
    def changed(self, states: Array, values: Array, times: Array, groups: Integers, signs: Integers) -> Array:
        """Return the states of many groups after rows have come and gone.

        Args:
            states: the state of each group; null where there is none yet.
            values: the values of the rows.
            times: the event times of the rows, in microseconds since 1970, or bytes that compare as times and orders.
            groups: the number of each row's group.
            signs: 1 for a row that comes, -1 for one that goes, which has come before.

        Raises:
            ValueError, TypeError, LookupError, pyarrow.ArrowInvalid: a state is not one of this function.
        """
