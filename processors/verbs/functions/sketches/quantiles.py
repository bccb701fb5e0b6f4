"""KLL sketches, which tell the value at a rank.

The states: the bytes of a KLL sketch, of integers with 8 bytes each, of other numbers with doubles. Before they are
written, the newest values of a sketch are sorted: up to ``k`` values, bytes do not depend on the order of the rows.
"""

from abc import abstractmethod
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from millpond.processors.runtime.order.time_order import stable_order
from millpond.processors.verbs.functions.columns import Array, Integers, present
from millpond.processors.verbs.functions.function import AggregateFunction, refusal
from millpond.processors.verbs.functions.sketches.sketch import Shown, Sketched, library
from millpond.processors.verbs.functions.sums import whole
from millpond.stores.encoding.rows.physical import to_physical


class Kll(Sketched):
    """A KLL sketch.

    Args:
        function: its name in errors.
        k: decides its error and size.
    """

    def __init__(self, function: str, k: int) -> None:
        self._library = library(function)
        self._function = function
        self._k = k

    @abstractmethod
    def numbers(self, values: Array) -> Any:
        """Return values that are not null as an array or a list that a sketch takes."""

    @abstractmethod
    def extend(self, sketch: Any, items: Any) -> None:
        """Give a sketch items, each as often as it comes."""

    def items(self, values: Array) -> list[Any]:
        return list(self.numbers(values))

    def update(self, sketch: Any, items: Sequence[Any], counts: Sequence[int]) -> None:
        self.extend(sketch, [item for item, count in zip(items, counts, strict=True) for _ in range(count)])

    def add_columns(self, states: Array, values: Array, times: Array, groups: Integers) -> Array:
        owners = groups[present(values)]
        order = stable_order(owners)
        numbers = self.numbers(values.drop_null().take(pa.array(order)))
        owners = owners[order]
        made = states.to_pylist()
        for start, stop in pairwise(np.flatnonzero(np.diff(owners, prepend=-1, append=-1)).tolist()):
            opened = self._opened(made[int(owners[start])])
            self.extend(opened.sketch, numbers[start:stop])
            made[int(owners[start])] = self.stored(opened.sketch)
        return pa.array(made, pa.binary())

    def united(self, left: Any, right: Any) -> Any:
        left.merge(right)
        return left


class Doubles(Kll):
    """A KLL sketch of doubles.

    Args:
        function: its name in errors.
        k: decides its error and size.
        unit: how many units of a decimal one is, or else 1.
    """

    def __init__(self, function: str, k: int, unit: int = 1) -> None:
        super().__init__(function, k)
        self._unit = unit

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._function, self._k, self._unit)

    def empty(self) -> Any:
        return self._library.kll_doubles_sketch(self._k)

    def read(self, data: bytes) -> Any:
        return self._library.kll_doubles_sketch.deserialize(data)

    def packed(self, sketch: Any) -> bytes:
        if not sketch.is_empty():
            sketch.get_rank(0.0)  # sorts what came last
        data: bytes = sketch.serialize()
        return data

    def item(self, value: Any) -> float:
        return value if isinstance(value, float) else whole(value) / self._unit

    def numbers(self, values: Array) -> Any:
        return np.array([self.item(value) for value in to_physical(values)], np.float64)

    def extend(self, sketch: Any, items: Any) -> None:
        numbers = np.asarray(items, np.float64)
        sketch.update(numbers[~np.isnan(numbers)])


class ShownDoubles(Shown, Doubles):
    """The sketch of floats itself."""

    def numbers(self, values: Array) -> Any:
        return values.to_numpy().astype(np.float64)


class ShownIntegers(Shown, Kll):
    """The sketch of integers itself."""

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._function, self._k)

    def empty(self) -> Any:
        return self._library.kll_items_sketch(self._k)

    def read(self, data: bytes) -> Any:
        return self._library.kll_items_sketch.deserialize(data, self._library.PyLongsSerDe())

    def packed(self, sketch: Any) -> bytes:
        if not sketch.is_empty():
            sketch.get_rank(0)  # sorts what came last
        data: bytes = sketch.serialize(self._library.PyLongsSerDe())
        return data

    def item(self, value: Any) -> Any:
        return value

    def numbers(self, values: Array) -> Any:
        return values.to_pylist()

    def extend(self, sketch: Any, items: Any) -> None:
        for item in items:
            sketch.update(item)


class ApproxPercentile(Doubles):
    """The approximate value at a rank.

    Args:
        k: decides its error and size.
        unit: how many units of a decimal one is, or else 1.
        percentage: the rank, from 0 to 1.
    """

    type = pa.float64()

    def __init__(self, k: int, unit: int, percentage: float) -> None:
        super().__init__("approx_percentile", k, unit)
        self._percentage = percentage

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._k, self._unit, self._percentage)

    def results(self, states: Array) -> Array:
        found = [None if one.is_empty() else one.get_quantile(self._percentage, True) for one in self.sketches(states)]
        return pa.array(found, self.type)


def bind_kll_sketch(path: str, type_: pa.DataType, *, k: int) -> AggregateFunction:
    """Return the KLL sketch of a column of that type.

    Raises:
        ConfigurationError: Spark makes none of such values, or datasketches is not installed.
    """
    if pa.types.is_integer(type_):
        return ShownIntegers("kll_sketch_agg", k)
    if pa.types.is_floating(type_):
        return ShownDoubles("kll_sketch_agg", k)
    raise refusal(path, type_, "only integers and floats have a KLL sketch")


def bind_approx_percentile(path: str, type_: Any, *, percentage: float, k: int) -> ApproxPercentile:
    """Return the function that estimates a percentile of a column of that type.

    Raises:
        ConfigurationError: such values have none, or datasketches is not installed.
    """
    decimal = pa.types.is_decimal(type_)
    if not (decimal or pa.types.is_integer(type_) or pa.types.is_floating(type_)):
        raise refusal(path, type_, "only numbers have percentiles")
    return ApproxPercentile(k, 10**type_.scale if decimal else 1, percentage)
