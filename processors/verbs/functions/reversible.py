"""Functions of rows that come and go: each takes a value out again, as if it had never come.

Rule of this module: a result is that of the values that are there, whatever there was before, and in whichever order
they have come. Sums are whole numbers until a result is made of them, so taking out is exact. What cannot be taken out
of a state, such as a maximum, is made anew of the values, which are kept with how often each is there.

The states, where a *row* is the MessagePack array of the time, nil where the function does not go by it, and the
value::

    count                      int
    sum, average               nil, or [count, bits, sum of as many units, counts of NaN, infinity and -infinity]
    sums of powers, products   nil, or [nil or the state without rows that are not finite, kept rows of those]
    any other                  nil, or kept rows: [array of rows, ascending, array of how often each is there]
"""

from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from math import inf, isfinite, isnan, nan
from typing import Any, Final

import msgpack
import pyarrow as pa

from millpond.processors.verbs.functions.chosen import Chosen, Unwrapped
from millpond.processors.verbs.functions.columns import Array, Integers
from millpond.processors.verbs.functions.counts import Count
from millpond.processors.verbs.functions.exact_sums import ExactSums, checked_bits, from_bytes, quotient, to_bytes
from millpond.processors.verbs.functions.function import AggregateFunction
from millpond.processors.verbs.functions.moments import Moments
from millpond.processors.verbs.functions.pairs import Complete, Products
from millpond.processors.verbs.functions.sums import Average, FloatSum, Sum, whole
from millpond.stores.encoding.rows.physical import from_physical, to_physical

_KEPT: Final = pa.struct([("rows", pa.list_(pa.binary())), ("counts", pa.list_(pa.int64()))])
_ODD: Final = (nan, inf, -inf)


class Reversible(AggregateFunction):
    """A function that can take out what it has added.

    It takes rows one by one: a change takes one out and adds another, and both are of one group.
    """

    @abstractmethod
    def subtract(self, state: Any, value: Any, time: Any) -> Any:
        """The state without a value that was added before, with this time."""

    def merge(self, left: Any, right: Any) -> Any:
        raise TypeError("groups of rows that come and go are never merged")

    def add_columns(self, states: Array, values: Array, times: Array, groups: Integers) -> Array:
        raise pa.ArrowInvalid("rows that come and go are taken one by one")

    def merge_columns(self, states: Array, groups: Integers, size: int) -> Array:
        raise pa.ArrowInvalid("groups of rows that come and go are never merged")


class ReversibleCount(Reversible):
    """How many values are not null."""

    type = pa.int64()
    nullable = False
    initial = 0
    state_type = pa.int64()

    def add(self, state: Any, value: Any, time: Any) -> Any:
        return state if value is None else state + 1

    def subtract(self, state: Any, value: Any, time: Any) -> Any:
        return state if value is None else state - 1

    def results(self, states: Array) -> Array:
        return states


class ReversibleSum(Reversible):
    """A sum or an average, kept as a whole number of units, of which 2 ** bits are one.

    Args:
        function: what makes the result.
    """

    state_type = pa.struct(
        [("count", pa.int64()), ("bits", pa.int64()), ("sum", pa.binary()), ("odd", pa.list_(pa.int64()))]
    )

    def __init__(self, function: Sum | Average) -> None:
        self.type = function.type
        self._function = function
        self._sum = function.of if isinstance(function, Average) else function

    def add(self, state: Any, value: Any, time: Any) -> Any:
        return state if value is None else self._changed(state, value, 1)

    def subtract(self, state: Any, value: Any, time: Any) -> Any:
        return state if value is None else self._changed(state, value, -1)

    def _changed(self, state: Any, value: Any, sign: int) -> Any:
        """The state with a value once more, or once less; None if there is none any more."""
        before: Any = [0, 0, b"\x00", [0] * len(_ODD)] if state is None else state
        count, bits, total, odd = before
        count += sign
        if not count:
            return None
        if isinstance(value, float) and not isfinite(value):
            odd[0 if isnan(value) else _ODD.index(value)] += sign
            return [count, bits, total, odd]
        number, finer = _as_units(value)
        most = max(checked_bits(bits), finer)
        summed = (from_bytes(total) << most - bits) + sign * (number << most - finer)
        return [count, most, to_bytes(summed), odd]

    def results(self, states: Array) -> Array:
        made = [None if state is None else self._finished(*state) for state in to_physical(states)]
        return self._function.results(from_physical(made, self._function.state_type))

    def _finished(self, count: int, bits: int, total: bytes, odd: Sequence[int]) -> Any:
        """The state of the function for the values that are there."""
        number = from_bytes(total)
        if isinstance(self._sum, FloatSum):
            # Finite values are nothing beside those that are not, even where their sum is beyond the greatest float.
            parts = [value for value, times in zip(_ODD, odd, strict=True) if times]
            summed: Any = parts or [quotient(number, 1 << checked_bits(bits))]
        else:
            summed = self._sum.add(None, number, 0)
        return [count, summed] if isinstance(self._function, Average) else summed


def _as_units(value: Any) -> tuple[int, int]:
    """A number as so many units, of which 2 ** bits are one, and these bits."""
    if not isinstance(value, float):
        return whole(value), 0
    number, denominator = value.as_integer_ratio()
    return number, denominator.bit_length() - 1


class ReversibleRows(Reversible):
    """Any function, made anew of the rows that are there: by their times if it goes by time, else by their values.

    Args:
        function: what is made of them.
        by_time: whether it goes by time.
    """

    state_type = _KEPT

    def __init__(self, function: AggregateFunction, *, by_time: bool) -> None:
        self.type, self.nullable = function.type, function.nullable
        self._function = function
        self._by_time = by_time

    def add(self, state: Any, value: Any, time: Any) -> Any:
        if value is None and not self._by_time:
            return state
        row = self._row(value, time)
        rows, counts = [[], []] if state is None else state
        place = bisect_left(rows, row)
        if place < len(rows) and rows[place] == row:
            counts[place] += 1
        else:
            rows.insert(place, row)
            counts.insert(place, 1)
        return [rows, counts]

    def subtract(self, state: Any, value: Any, time: Any) -> Any:
        if value is None and not self._by_time:
            return state
        rows, counts = state
        place = bisect_left(rows, self._row(value, time))
        counts[place] -= 1
        if not counts[place]:
            del rows[place], counts[place]
        return [rows, counts] if rows else None

    def _row(self, value: Any, time: Any) -> bytes:
        packed: bytes = msgpack.packb([time if self._by_time else None, value])
        return packed

    def results(self, states: Array) -> Array:
        made = [self._folded(state) for state in to_physical(states)]
        return self._function.results(from_physical(made, self._function.state_type))

    def _folded(self, state: Any) -> Any:
        """The state of the function for the rows that are there, each as often as it is."""
        folded = self._function.initial
        for time, value in _rows(state, by_time=self._by_time):
            folded = self._function.add(folded, value, time)
        compact = getattr(folded, "serialize_compact", None)
        return folded if compact is None else compact()


def _rows(state: Any, *, by_time: bool) -> Iterator[tuple[Any, Any]]:
    """The times and values of kept rows, each as often as it is there; in the order of time if they have times."""
    if state is None:
        return
    rows = [(msgpack.unpackb(row, use_list=False), row, times) for row, times in zip(*state, strict=True)]
    if by_time:
        rows.sort(key=lambda kept: (kept[0][0], kept[1]))
    for (time, value), _, times in rows:
        for _ in range(times):
            yield 0 if time is None else time, value


class ReversibleSums(Reversible):
    """Sums of powers, or of products; what is not finite is kept apart, with how often it is there.

    Args:
        function: what makes the result.
    """

    def __init__(self, function: Moments | Products) -> None:
        self.type = function.type
        self._function: ExactSums = function
        self._odd = ReversibleRows(function, by_time=False)
        self.state_type = pa.struct([("sums", function.state_type), ("odd", _KEPT)])

    def add(self, state: Any, value: Any, time: Any) -> Any:
        if value is None:
            return state
        sums, odd = [None, None] if state is None else state
        one = self._function.state_of_values([value])
        if one[1] is None:
            return [sums, self._odd.add(odd, value, time)]
        return [self._function.merge(sums, one), odd]

    def subtract(self, state: Any, value: Any, time: Any) -> Any:
        if value is None:
            return state
        sums, odd = state
        one = self._function.state_of_values([value])
        if one[1] is None:
            odd = self._odd.subtract(odd, value, time)
        else:
            merged = self._function.merged(sums, _negative(one))
            sums = merged if merged[0] else None
        return None if sums is None and odd is None else [sums, odd]

    def results(self, states: Array) -> Array:
        made = [None if state is None else self._whole(*state) for state in to_physical(states)]
        return self._function.results(from_physical(made, self._function.state_type))

    def _whole(self, sums: Any, odd: Any) -> Any:
        """The state of the function for all rows."""
        values = [value for _, value in _rows(odd, by_time=False)]
        return self._function.merge(sums, self._function.state_of_values(values) if values else None)


def _negative(state: Sequence[Any]) -> list[Any]:
    """The state of one row, once less: its count and its sums are negative, and its bits are what they were."""
    count, *others = state
    return [-count, *(to_bytes(-from_bytes(one)) if isinstance(one, bytes) else one for one in others)]


class _ReversibleChosen(Reversible):
    """A function of some of the rows.

    Args:
        chosen: says which.
        function: what the others are given.
    """

    def __init__(self, chosen: Chosen, function: Reversible) -> None:
        self.type, self.state_type = function.type, function.state_type
        self.nullable, self.initial = function.nullable, function.initial
        self._chosen = chosen
        self._function = function

    def add(self, state: Any, value: Any, time: Any) -> Any:
        given = self._given(value)
        return state if given is None else self._function.add(state, *given, time)

    def subtract(self, state: Any, value: Any, time: Any) -> Any:
        given = self._given(value)
        return state if given is None else self._function.subtract(state, *given, time)

    def _given(self, value: Any) -> tuple[Any] | None:
        """What the function is given of a row; None if it passes over it."""
        if isinstance(self._chosen, Unwrapped):
            return None if value is None else (value[0],)
        return None if value is None or None in value else (value,)

    def results(self, states: Array) -> Array:
        return self._function.results(states)


def made_reversible(function: AggregateFunction, *, by_time: bool) -> Reversible:
    """A function for rows that come and go, with the results of one for rows that stay.

    Args:
        function: the one for rows that stay.
        by_time: whether it goes by their times.
    """
    if isinstance(function, Unwrapped | Complete):
        return _ReversibleChosen(function, made_reversible(function.function, by_time=by_time))
    if isinstance(function, Count):
        return ReversibleCount()
    if isinstance(function, Sum | Average):
        return ReversibleSum(function)
    if isinstance(function, Moments | Products):
        return ReversibleSums(function)
    return ReversibleRows(function, by_time=by_time)
