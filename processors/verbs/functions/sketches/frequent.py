"""``ApproxTopK``: a sketch of frequent items.

The state: the bytes of a sketch of frequent items of the library: of strings with the number of their bytes in front,
of all else as integers of 8 bytes, which for a float are the bits of the double, with 0.0 for -0.0 and one NaN for all.
"""

from collections.abc import Mapping, Sequence
from math import ceil, log2
from struct import calcsize, pack
from typing import Any, Final

import numpy as np
import pyarrow as pa

from millpond.processors.verbs.functions.column_forms import canonical_values
from millpond.processors.verbs.functions.columns import Array, lists_of
from millpond.processors.verbs.functions.forms import Form, canonical_form, order_form, same
from millpond.processors.verbs.functions.function import refusal
from millpond.processors.verbs.functions.sketches.sketch import Sketched, library
from millpond.stores.encoding.rows.physical import from_physical, to_physical

_LOAD: Final = 0.75
"""As large a share of its slots has a sketch that is full."""

_SPARK: Final[Mapping[str, tuple[str, int | None, str]]] = {
    "int8": ("TINYINT NOT NULL", 2, "<b"),
    "int16": ("SMALLINT NOT NULL", 3, "<h"),
    "int32": ("INT NOT NULL", 9, "<i"),
    "int64": ("BIGINT NOT NULL", None, ""),
    "float": ("FLOAT NOT NULL", 6, "<f"),
    "double": ("DOUBLE NOT NULL", None, ""),
    "string": ("string not null", None, ""),
    "date32[day]": ("DATE NOT NULL", 9, "<i"),
    "timestamp[us, tz=UTC]": ("TIMESTAMP NOT NULL", None, ""),
    "timestamp[us]": ("TIMESTAMP_NTZ NOT NULL", None, ""),
}
"""By type: what Spark calls it; and of numbers that Spark writes behind a tag, the tag and how they are packed."""

_NO_NULLS: Final = bytes(8)
"""The number of nulls, as Spark has it behind a sketch."""

_SMALLEST: Final = 3
"""The binary logarithm of the number of slots that a sketch has at least."""


class ApproxTopK(Sketched):
    """The values that come most often, each with its number.

    Args:
        path: the name of the column in errors.
        type_: the type of the values.
        k: how many there are at most.
        tracked: how many are tracked.
    """

    nullable = False

    type: Any

    def __init__(self, path: str, type_: pa.DataType, k: int, tracked: int) -> None:
        self._made: tuple[Any, ...] = path, type_, k, tracked
        self._library = library("approx_top_k")
        self._values = type_
        self._k = k
        self._slots = max(_SMALLEST, ceil(log2(ceil(tracked / _LOAD))))
        self._canonical: Form = canonical_form(path, type_) or same
        self._order: Form = order_form(path, type_) or same
        fields = [pa.field("item", type_, nullable=False), pa.field("count", pa.int64(), nullable=False)]
        self.type = pa.list_(pa.field("element", pa.struct(fields), nullable=False))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._made

    @property
    def _serde(self) -> tuple[Any, ...]:
        """The serde of items, where the library needs one."""
        return () if pa.types.is_string(self._values) else (self._library.PyLongsSerDe(),)

    @property
    def _sketch(self) -> Any:
        strings = pa.types.is_string(self._values)
        return self._library.frequent_strings_sketch if strings else self._library.frequent_items_sketch

    def empty(self) -> Any:
        return self._sketch(self._slots)

    def read(self, data: bytes) -> Any:
        return self._sketch.deserialize(data, *self._serde)

    def packed(self, sketch: Any) -> bytes:
        data: bytes = sketch.serialize(*self._serde)
        return data

    def united(self, left: Any, right: Any) -> Any:
        left.merge(right)
        return left

    def item(self, value: Any) -> Any:
        if pa.types.is_floating(self._values):
            return _bits(np.float64(self._canonical(value)))
        return value

    def items(self, values: Array) -> list[Any]:
        if pa.types.is_floating(self._values):
            return list(_bits(values.to_numpy().astype(np.float64)))
        return to_physical(values)

    def comparable(self, values: Array) -> Array:
        return canonical_values(values)

    def update(self, sketch: Any, items: Sequence[Any], counts: Sequence[int]) -> None:
        for item, count in zip(items, counts, strict=True):
            sketch.update(item, count)

    def results(self, states: Array) -> Array:
        found = [self._most_frequent(sketch) for sketch in self.sketches(states)]
        items, counts = ([entry[place] for entries in found for entry in entries] for place in (0, 1))
        columns: list[Any] = [from_physical(items, self._values), pa.array(counts, pa.int64())]
        fields: Any = list(self.type.value_type)
        entries = pa.StructArray.from_arrays(columns, fields=fields)
        lengths = np.array([len(one) for one in found], np.int64)
        return lists_of(entries, lengths, self.type, nullable=False)

    def _most_frequent(self, sketch: Any) -> list[tuple[Any, int]]:
        exact = self._library.frequent_items_error_type.NO_FALSE_POSITIVES
        entries = [(self._value(item), count) for item, count, *_ in sketch.get_frequent_items(exact)]
        return sorted(entries, key=lambda entry: (-entry[1], self._order(entry[0])))[: self._k]

    def _value(self, item: Any) -> Any:
        """Return the physical value of an item."""
        if pa.types.is_floating(self._values):
            return float(np.int64(item).view(np.float64))
        return bool(item) if pa.types.is_boolean(self._values) else item


class AccumulatedTopK(ApproxTopK):
    """The sketch, in the struct that Spark makes of it."""

    def __init__(self, path: str, type_: pa.DataType, tracked: int) -> None:
        super().__init__(path, type_, 1, tracked)
        self._made = path, type_, tracked
        self._tracked = tracked
        self.type = pa.struct(
            [
                pa.field("sketch", pa.binary(), nullable=False),
                pa.field("maxItemsTracked", pa.int32(), nullable=False),
                pa.field("itemDataType", type_),
                pa.field("itemDataTypeDDL", pa.string(), nullable=False),
            ]
        )

    def results(self, states: Array) -> Array:
        ddl, tag, form = _SPARK[str(self._values)]
        size, serde = len(states), self._serde if tag is None else (_tagging(self._library, tag, form),)
        columns: list[Any] = [
            pa.array([sketch.serialize(*serde) + _NO_NULLS for sketch in self.sketches(states)], pa.binary()),
            pa.array([self._tracked] * size, pa.int32()),
            from_physical([None] * size, self._values),
            pa.array([f"item {ddl}"] * size, pa.string()),
        ]
        return pa.StructArray.from_arrays(columns, fields=list(self.type))


def _tagging(library: Any, tag: int, form: str) -> Any:
    """Return a serde that writes items as Spark writes numbers below 8 bytes: behind a byte that tells their type."""

    class Tagging(library.PyObjectSerDe):  # type: ignore[misc]
        def get_size(self, item: Any) -> int:
            return 1 + calcsize(form)

        def to_bytes(self, item: Any) -> bytes:
            value = float(np.int64(item).view(np.float64)) if form == "<f" else item
            return bytes([tag]) + pack(form, value)

    return Tagging()


def _bits(numbers: Any) -> Any:
    """Return the bits of doubles, as integers."""
    return numbers.view(np.int64).tolist()


def bind_approx_top_k(path: str, type_: pa.DataType, *, k: int, max_items_tracked: int) -> ApproxTopK:
    """Return the most frequent values of a column of that type.

    Raises:
        ConfigurationError: a sketch takes no such values, or datasketches is not installed.
    """
    numbers = pa.types.is_integer(type_) or pa.types.is_floating(type_)
    times = pa.types.is_date32(type_) or pa.types.is_timestamp(type_)
    if not (numbers or times or pa.types.is_string(type_) or pa.types.is_boolean(type_)):
        raise refusal(path, type_, "only numbers that are no decimals, strings, booleans, dates and timestamps do")
    return ApproxTopK(path, type_, k, max_items_tracked)


def bind_accumulated_top_k(path: str, type_: pa.DataType, *, max_items_tracked: int) -> AccumulatedTopK:
    """Return the sketch of the most frequent values of a column of that type.

    Raises:
        ConfigurationError: a sketch takes no such values, or datasketches is not installed.
    """
    if str(type_) not in _SPARK:
        raise refusal(path, type_, "only numbers that are no decimals, strings, dates and timestamps do")
    return AccumulatedTopK(path, type_, max_items_tracked)
