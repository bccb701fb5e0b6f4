"""Makes a function of rows that come and go of one for rows that stay.

Rule of this module: it knows which form each function has, and no values.
"""

from collections.abc import Callable

import pyarrow as pa

from millpond.processors.verbs.functions.chosen import Chosen, Unwrapped
from millpond.processors.verbs.functions.columns import Array, Integers
from millpond.processors.verbs.functions.counts import Count, CountDistinct
from millpond.processors.verbs.functions.function import AggregateFunction
from millpond.processors.verbs.functions.moments import Moments
from millpond.processors.verbs.functions.pairs import Complete, Products
from millpond.processors.verbs.functions.picks import Extreme, First
from millpond.processors.verbs.functions.reversible.counted import (
    Counted,
    CountedByTime,
    CountedDistinct,
    CountedExtreme,
    Following,
    Values,
)
from millpond.processors.verbs.functions.reversible.kept_rows import ReversibleRows
from millpond.processors.verbs.functions.reversible.reversible import Reversible
from millpond.processors.verbs.functions.reversible.sums import ReversibleCount, ReversibleSum, ReversibleSums
from millpond.processors.verbs.functions.sums import Average, Sum
from millpond.stores.encoding.nulls import spread


class _ChosenReversible(Reversible):
    """A function of some of the rows.

    Args:
        chosen: chooses rows.
        function: takes the others.
    """

    def __init__(self, chosen: Chosen, function: Reversible) -> None:
        self.type, self.state_type = function.type, function.state_type
        self.nullable, self.initial = function.nullable, function.initial
        self._chosen = chosen
        self._function = function

    def changed(self, states: Array, values: Array, times: Array, groups: Integers, signs: Integers) -> Array:
        chosen = self._chosen.chosen(values, times)
        there = chosen.to_numpy(zero_copy_only=False)
        given = self._chosen.given(values.filter(chosen))
        return self._function.changed(states, given, times.filter(chosen), groups[there], signs[there])

    def results(self, states: Array) -> Array:
        return self._function.results(states)


class _ChosenCounted(Counted):
    """The same of a function whose values a store counts."""

    def __init__(self, chosen: Chosen, function: Counted) -> None:
        self.type, self.state_type = function.type, function.state_type
        self.nullable, self.initial = function.nullable, function.initial
        self.greatest, self.row_type = function.greatest, function.row_type
        self._chosen = chosen
        self._function = function

    def keys(self, values: Array, times: Array) -> Array:
        return self._of_chosen(self._function.keys, values, times)

    def rows(self, values: Array, times: Array) -> Array:
        return self._of_chosen(self._function.rows, values, times)

    def _of_chosen(self, make: Callable[[Array, Array], Array], values: Array, times: Array) -> Array:
        """Return what ``make`` makes of chosen rows; null for the others."""
        chosen = self._chosen.chosen(values, times)
        made = make(self._chosen.given(values.filter(chosen)), times.filter(chosen))
        return spread(made, chosen.to_numpy(zero_copy_only=False))

    def after(self, states: Array, came: Values, went: Values, following: Following) -> Array:
        return self._function.after(states, came, went, following)

    def results(self, states: Array) -> Array:
        return self._function.results(states)


def made_reversible(function: AggregateFunction, *, by_time: bool) -> Reversible | Counted:
    """Return a function for rows that come and go, with the results of a function for rows that stay.

    Args:
        function: the function for rows that stay.
        by_time: whether it goes by their times.
    """
    if isinstance(function, Unwrapped | Complete):
        made = made_reversible(function.function, by_time=by_time)
        return _ChosenCounted(function, made) if isinstance(made, Counted) else _ChosenReversible(function, made)
    if isinstance(function, Extreme) and not pa.types.is_null(function.type):
        return CountedExtreme(function)
    if isinstance(function, First):
        return CountedByTime(function)
    if isinstance(function, CountDistinct):
        return CountedDistinct(function)
    if isinstance(function, Count):
        return ReversibleCount()
    if isinstance(function, Sum | Average):
        return ReversibleSum(function)
    if isinstance(function, Moments | Products):
        return ReversibleSums(function)
    return ReversibleRows(function, by_time=by_time)
