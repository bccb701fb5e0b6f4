"""``Since``: a function of the rows from a time on.

Rule of this module: a row before the time leaves a state as it is; all else is the function's own.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as _compute

from millpond.processors.verbs.functions.columns import Array, Integers
from millpond.processors.verbs.functions.function import AggregateFunction
from millpond.stores.encoding.column_keys import pack_times

pc: Any = _compute


class Since(AggregateFunction):
    """Passes over rows before a time.

    Args:
        function: what the others are given.
        since: the time, in microseconds since 1970.
        times: the type of the times of rows: int64, or binary where they are bytes that compare as time and order do.
    """

    def __init__(self, function: AggregateFunction, since: int, times: pa.DataType) -> None:
        self.type, self.state_type = function.type, function.state_type
        self.nullable, self.initial = function.nullable, function.initial
        self._function = function
        # The bytes of a time come before those of the same time and an order.
        self._since: Any = since if times == pa.int64() else pack_times(np.array([since], np.int64))[0].as_py()

    def add(self, state: Any, value: Any, time: Any) -> Any:
        return state if time < self._since else self._function.add(state, value, time)

    def merge(self, left: Any, right: Any) -> Any:
        return self._function.merge(left, right)

    def add_columns(self, states: Array, values: Array, times: Array, groups: Integers) -> Array:
        counts = pc.greater_equal(times, pa.scalar(self._since, times.type))
        if self.initial is not None:
            # A group of which no row counts has this state.
            states = pc.fill_null(states, pa.scalar(self.initial, states.type))
        chosen = groups[counts.to_numpy(zero_copy_only=False)]
        return self._function.add_columns(states, values.filter(counts), times.filter(counts), chosen)

    def merge_columns(self, states: Array, groups: Integers, size: int) -> Array:
        return self._function.merge_columns(states, groups, size)

    def results(self, states: Array) -> Array:
        return self._function.results(states)

    def state_of(self, result: Any) -> Any:
        return self._function.state_of(result)
