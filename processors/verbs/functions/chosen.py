"""``Chosen``: a function of some of the rows; ``Since``: of those from a time on.

Rule of this module: a row that is not chosen leaves a state as it is; all else is the function's own.
"""

from abc import abstractmethod
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as _compute

from millpond.processors.verbs.functions.columns import Array, Integers
from millpond.processors.verbs.functions.function import AggregateFunction
from millpond.stores.encoding.column_keys import pack_times

pc: Any = _compute


class Chosen(AggregateFunction):
    """Passes over rows.

    Attributes:
        function: takes the other rows.
    """

    def __init__(self, function: AggregateFunction) -> None:
        self.type, self.state_type = function.type, function.state_type
        self.nullable, self.initial = function.nullable, function.initial
        self.function = function

    @abstractmethod
    def chosen(self, values: Array, times: Array) -> Array:
        """Return a boolean for each row: whether it is chosen."""

    def given(self, values: Array) -> Array:
        """Return the function's input from the values of chosen rows."""
        return values

    def add_columns(self, states: Array, values: Array, times: Array, groups: Integers) -> Array:
        chosen = self.chosen(values, times)
        if self.initial is not None:
            # A group of which no row counts has this state.
            states = pc.fill_null(states, pa.scalar(self.initial, states.type))
        numbers = groups[chosen.to_numpy(zero_copy_only=False)]
        return self.function.add_columns(states, self.given(values.filter(chosen)), times.filter(chosen), numbers)

    def merge(self, left: Any, right: Any) -> Any:
        return self.function.merge(left, right)

    def merge_columns(self, states: Array, groups: Integers, size: int) -> Array:
        return self.function.merge_columns(states, groups, size)

    def results(self, states: Array) -> Array:
        return self.function.results(states)

    def state_of(self, result: Any) -> Any:
        return self.function.state_of(result)


class Unwrapped(Chosen):
    """Passes over rows that bring null; of others, it takes the only field of a struct, which may be null."""

    def add(self, state: Any, value: Any, time: Any) -> Any:
        return state if value is None else self.function.add(state, value[0], time)

    def chosen(self, values: Array, times: Array) -> Array:
        return values.is_valid()

    def given(self, values: Array) -> Array:
        return values.flatten()[0]


class Since(Chosen):
    """Passes over rows before a time.

    Args:
        function: takes the others.
        since: the time, in microseconds since 1970.
        times: the type of the times of rows: int64, or binary where they are bytes that compare as time and order do.
    """

    def __init__(self, function: AggregateFunction, since: int, times: pa.DataType) -> None:
        super().__init__(function)
        # The bytes of a time come before those of the same time and an order.
        self._since: Any = since if times == pa.int64() else pack_times(np.array([since], np.int64))[0].as_py()

    def add(self, state: Any, value: Any, time: Any) -> Any:
        return state if time < self._since else self.function.add(state, value, time)

    def chosen(self, values: Array, times: Array) -> Array:
        return pc.greater_equal(times, pa.scalar(self._since, times.type))
