"""``Since``: a function of the rows from a time on."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as _compute

from millpond.processors.verbs.functions.chosen import Chosen
from millpond.processors.verbs.functions.columns import Array
from millpond.processors.verbs.functions.function import AggregateFunction
from millpond.stores.encoding.column_keys import pack_times

pc: Any = _compute


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
