"""Sketches that tell about how many different values there are: HLL and theta.

The states: an HLL_8 sketch in its compact form, or a compact theta sketch. For ``approx_count_distinct``, which takes
values of all types, a sketch is given the *form* of a value (``equality_form``); others are given what Spark gives.
"""

from collections.abc import Callable, Sequence
from math import ceil, log2
from typing import Any, Final

import pyarrow as pa

from millpond.processors.verbs.functions.column_forms import equal_forms
from millpond.processors.verbs.functions.columns import Array
from millpond.processors.verbs.functions.forms import Form, equality_form, same
from millpond.processors.verbs.functions.function import AggregateFunction, refusal
from millpond.processors.verbs.functions.sketches.sketch import Shown, Sketched, library
from millpond.stores.encoding.rows.physical import to_physical

_ERROR_OF_ONE: Final = 1.04
"""The relative error of a sketch is this, divided by the square root of the number of its registers."""

_FEWEST: Final = 7
"""The binary logarithm of the number of registers of the smallest sketch for a relative error."""


class Hll(Sketched):
    """An HLL sketch.

    Args:
        function: its name in errors.
        registers: the binary logarithm of the number of registers.
        instead: another function that does the same, if there is one.
    """

    nullable = False

    def __init__(self, function: str, registers: int, instead: str = "") -> None:
        self._made: tuple[Any, ...] = function, registers, instead
        self._registers = registers
        self._library = library(function, instead)
        self._hll_8 = self._library.tgt_hll_type.HLL_8

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._made

    def empty(self) -> Any:
        return self._library.hll_sketch(self._registers, self._hll_8)

    def read(self, data: bytes) -> Any:
        return self._library.hll_sketch.deserialize(data)

    def packed(self, sketch: Any) -> bytes:
        data: bytes = sketch.serialize_compact()
        return data

    def united(self, left: Any, right: Any) -> Any:
        union = self._library.hll_union(self._registers)
        union.update(left)
        union.update(right)
        return union.get_result(self._hll_8)

    def update(self, sketch: Any, items: Sequence[Any], counts: Sequence[int]) -> None:
        update: Callable[[Any], None] = sketch.update
        for item in items:
            update(item)


class ApproxCountDistinct(Hll):
    """The approximate number of different values besides null.

    Args:
        form: the form in which values are compared; None to compare them as they are.
        registers: the binary logarithm of the number of the sketch's registers.
    """

    type = pa.int64()
    sealed = False

    def __init__(self, form: Form | None, registers: int) -> None:
        super().__init__("approx_count_distinct", registers, "count_distinct")
        self._form: Form = form or same
        self._made = form, registers

    def item(self, value: Any) -> int | str:
        return _tagged(self._form(value))

    def items(self, values: Array) -> list[Any]:
        return list(map(_tagged, to_physical(values)))

    def comparable(self, values: Array) -> Array:
        return equal_forms(values)

    def results(self, states: Array) -> Array:
        return pa.array([round(sketch.get_estimate()) for sketch in self.sketches(states)], self.type)


class HllSketch(Shown, Hll):
    """An HLL sketch of integers or strings."""

    def item(self, value: Any) -> Any:
        return value

    def items(self, values: Array) -> list[Any]:
        return to_physical(values)


class Growing:
    """A theta sketch that takes items: a kept one, and one of later items.

    Args:
        kept: the kept one; None for none.
        since: the one of later items, which can be updated.
    """

    def __init__(self, kept: Any, since: Any) -> None:
        self.kept = kept
        self.since = since


class ThetaSketch(Shown):
    """A theta sketch of integers, floats or strings.

    Args:
        entries: the binary logarithm of the number of values from which on it estimates.
    """

    nullable = False

    def __init__(self, entries: int) -> None:
        self._entries = entries
        self._library = library("theta_sketch_agg")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._entries,)

    def empty(self) -> Growing:
        return Growing(None, self._library.update_theta_sketch(self._entries))

    def read(self, data: bytes) -> Growing:
        kept = self._library.compact_theta_sketch.deserialize(data)
        return Growing(kept, self._library.update_theta_sketch(self._entries))

    def packed(self, sketch: Growing) -> bytes:
        data: bytes = self._compact(sketch).serialize()
        return data

    def united(self, left: Growing, right: Growing) -> Growing:
        union = self._library.theta_union(self._entries)
        for sketch in (left, right):
            union.update(self._compact(sketch))
        return Growing(union.get_result(), self._library.update_theta_sketch(self._entries))

    def update(self, sketch: Growing, items: Sequence[Any], counts: Sequence[int]) -> None:
        update: Callable[[Any], None] = sketch.since.update
        for item in items:
            update(item)

    def item(self, value: Any) -> Any:
        return value

    def items(self, values: Array) -> list[Any]:
        return to_physical(values)

    def _compact(self, sketch: Growing) -> Any:
        if sketch.since.is_empty() and sketch.kept is not None:
            return sketch.kept
        if sketch.kept is None:
            sketch.since.trim()
            return sketch.since.compact()
        union = self._library.theta_union(self._entries)
        union.update(sketch.kept)
        union.update(sketch.since)
        return union.get_result()


def bind_approx_count_distinct(path: str, type_: pa.DataType, *, relative_error: float) -> ApproxCountDistinct:
    """Return the sketched count of different values in a column of that type.

    Raises:
        ConfigurationError: such values cannot be told to be equal, or datasketches is not installed.
    """
    registers = max(_FEWEST, ceil(2 * log2(_ERROR_OF_ONE / relative_error)))
    return ApproxCountDistinct(equality_form(path, type_), registers)


def bind_hll_sketch(path: str, type_: pa.DataType, *, lg_config_k: int) -> AggregateFunction:
    """Return the HLL sketch of a column of that type.

    Raises:
        ConfigurationError: Spark makes none of such values, or datasketches is not installed.
    """
    if not (pa.types.is_integer(type_) or pa.types.is_string(type_)):
        raise refusal(path, type_, "only integers and strings have an HLL sketch")
    return HllSketch("hll_sketch_agg", lg_config_k)


def bind_theta_sketch(path: str, type_: pa.DataType, *, lg_nom_entries: int) -> AggregateFunction:
    """Return the theta sketch of a column of that type.

    Raises:
        ConfigurationError: Spark makes none of such values, or datasketches is not installed.
    """
    if not (pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_string(type_)):
        raise refusal(path, type_, "only integers, floats and strings have a theta sketch")
    return ThetaSketch(lg_nom_entries)


def _tagged(form: Any) -> int | str:
    """Return a form as a sketch takes it: an int, or text that is not empty, which a sketch would pass over."""
    if isinstance(form, int):
        return int(form)
    return "=" + (form if isinstance(form, str) else form.decode("latin-1"))
