"""``ReversibleRows``: any function, made anew of the rows that are there.

The state, where a *row* is the MessagePack array of the time, nil where the function does not go by it, and the
value::

    nil, or [array of rows, ascending, array of how often each is there]
"""

from bisect import bisect_left
from collections.abc import Iterator
from typing import Any, Final

import msgpack
import pyarrow as pa

from millpond.processors.verbs.functions.columns import Array, Integers
from millpond.processors.verbs.functions.function import AggregateFunction
from millpond.processors.verbs.functions.reversible.reversible import Reversible
from millpond.stores.encoding.rows.physical import from_physical, to_physical

KEPT: Final = pa.struct([("rows", pa.list_(pa.binary())), ("counts", pa.list_(pa.int64()))])
"""The type of kept rows."""


class ReversibleRows(Reversible):
    """Any function, made anew of the current rows: by their times if it goes by time, else by their values.

    Args:
        function: the function.
        by_time: whether it goes by time.
    """

    state_type = KEPT

    def __init__(self, function: AggregateFunction, *, by_time: bool) -> None:
        self.type, self.nullable = function.type, function.nullable
        self._function = function
        self._by_time = by_time

    def changed(self, states: Array, values: Array, times: Array, groups: Integers, signs: Integers) -> Array:
        made, given = to_physical(states), to_physical(values)
        moments = to_physical(times) if self._by_time else [None] * len(given)
        for group, sign, value, time in zip(groups.tolist(), signs.tolist(), given, moments, strict=True):
            if value is not None or self._by_time:
                made[group] = _counted(made[group], msgpack.packb([time, value]), sign)
        return from_physical([state if state and state[0] else None for state in made], self.state_type)

    def results(self, states: Array) -> Array:
        made = [self._folded(state) for state in to_physical(states)]
        return self._function.results(from_physical(made, self._function.state_type))

    def _folded(self, state: Any) -> Any:
        """Return the state of the function for the rows that are there, each as often as it is."""
        folded = self._function.initial
        for time, value in rows_of(state, by_time=self._by_time):
            folded = self._function.add(folded, value, time)
        compact = getattr(folded, "serialize_compact", None)
        return folded if compact is None else compact()


def _counted(state: Any, row: bytes, sign: int) -> Any:
    """Return kept rows with a row once more, or once less."""
    rows, counts = [[], []] if state is None else state
    place = bisect_left(rows, row)
    if place == len(rows) or rows[place] != row:
        rows.insert(place, row)
        counts.insert(place, 0)
    counts[place] += sign
    if not counts[place]:
        del rows[place], counts[place]
    return [rows, counts]


def rows_of(state: Any, *, by_time: bool) -> Iterator[tuple[Any, Any]]:
    """Yield the times and values of kept rows, each as often as it is there; by time if they have times."""
    if state is None:
        return
    rows = [(msgpack.unpackb(row, use_list=False), row, times) for row, times in zip(*state, strict=True)]
    if by_time:
        rows.sort(key=lambda kept: (kept[0][0], kept[1]))
    for (time, value), _, times in rows:
        for _ in range(times):
            yield 0 if time is None else time, value
