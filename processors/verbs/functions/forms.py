"""Forms of physical values in which they can be compared: for their order, and for being equal.

Rule of this module: NaN equals NaN and is greater than all other floats, -0.0 equals 0.0, and within a list or struct
null comes first, as in Spark SQL. Of values that are equal as wholes, one with -0.0 comes before one with 0.0, so that
it makes no difference which of them arrived first. Maps and variants have no order and are never equal.
"""

from collections.abc import Callable, Sequence
from functools import partial
from math import copysign, isnan
from typing import Any, Final

import msgpack
import pyarrow as pa

from millpond.processors.verbs.functions.function import refusal
from millpond.stores.encoding.rows.physical import SHORT_DECIMAL

Form = Callable[[Any], Any]
"""Makes of a physical value, which is not None, what can be compared. Can be pickled."""

_NAN: Final = float("nan")
_VARIANT: Final = b"variant"


def order_form(path: str, type_: pa.DataType) -> Form | None:
    """Return a form that ``<`` orders as the values are ordered; None if the values are that form.

    Raises:
        ConfigurationError: such values have no order.
    """
    form = _order_form(path, type_)
    return partial(_zeros_apart, form) if form is not None and holds_floats(type_) else form


def _order_form(path: str, type_: pa.DataType) -> Form | None:
    """Return the form of values, and of those within others, where -0.0 equals 0.0."""
    if pa.types.is_floating(type_):
        return _float_order
    if pa.types.is_decimal(type_) and type_.precision > SHORT_DECIMAL:
        return _wide_order
    if pa.types.is_list(type_):
        return partial(_list_order, _order_form(f"{path}.element", type_.value_type) or same)
    if pa.types.is_struct(type_):
        return partial(_struct_order, [_order_form(name, of) or same for name, of in _fields(path, type_)])
    _check_scalar(path, type_)
    return None


def equality_form(path: str, type_: pa.DataType) -> Form | None:
    """Return an int, string or bytes, equal where the values are; None if the values are that form.

    Raises:
        ConfigurationError: such values are never equal.
    """
    if pa.types.is_nested(type_) or pa.types.is_floating(type_):
        return partial(_packed, canonical_form(path, type_) or same)
    _check_scalar(path, type_)
    return None


def canonical_form(path: str, type_: pa.DataType) -> Form | None:
    """Return the one value that stands for all that are equal to it; None if that is every value itself.

    Raises:
        ConfigurationError: such values are never equal.
    """
    if pa.types.is_floating(type_):
        return _canonical_float
    if pa.types.is_list(type_):
        inner = canonical_form(f"{path}.element", type_.value_type)
        return None if inner is None else partial(_canonical_list, inner)
    if pa.types.is_struct(type_):
        forms = [canonical_form(name, of) for name, of in _fields(path, type_)]
        return partial(_canonical_struct, [form or same for form in forms]) if any(forms) else None
    _check_scalar(path, type_)
    return None


def _check_scalar(path: str, type_: pa.DataType) -> None:
    if pa.types.is_nested(type_):
        raise refusal(path, type_, "only values that are not maps can be compared")


def _fields(path: str, type_: pa.StructType) -> list[tuple[str, pa.DataType]]:
    """Return path and type of each field."""
    if any(field.metadata and _VARIANT in field.metadata for field in type_):
        raise refusal(path, type_, "variants cannot be compared")
    return [(f"{path}.{field.name}", field.type) for field in type_]


def same(value: Any) -> Any:
    """Return the value as it is, where it needs no other form."""
    return value


def _float_order(value: float) -> tuple[bool, float]:
    return (True, 0.0) if isnan(value) else (False, value)


def holds_floats(type_: pa.DataType) -> bool:
    """Return whether there are floats in values of a type."""
    if pa.types.is_list(type_):
        return holds_floats(type_.value_type)
    if pa.types.is_struct(type_):
        return any(holds_floats(field.type) for field in type_)
    return pa.types.is_floating(type_)


def _zeros_apart(form: Form, value: Any) -> tuple[Any, Any]:
    return form(value), _signs(value)


def _signs(value: Any) -> Any:
    """Return the signs of the floats in a value, in which values that are equal may differ."""
    if isinstance(value, float):
        return 1.0 if isnan(value) else copysign(1, value)
    return tuple(map(_signs, value)) if isinstance(value, list | tuple) else None


def _wide_order(value: bytes) -> int:
    return int.from_bytes(value, "big", signed=True)


def _list_order(form: Form, values: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(_nothing_first(form, value) for value in values)


def _struct_order(forms: Sequence[Form], values: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(map(_nothing_first, forms, values))


def _nothing_first(form: Form, value: Any) -> tuple[Any, ...]:
    return () if value is None else (form(value),)


def _packed(form: Form, value: Any) -> bytes:
    packed: bytes = msgpack.packb(form(value))
    return packed


def _canonical_float(value: float) -> float:
    return _NAN if isnan(value) else value + 0.0


def _canonical_list(form: Form, values: Sequence[Any]) -> list[Any]:
    return [None if value is None else form(value) for value in values]


def _canonical_struct(forms: Sequence[Form], values: Sequence[Any]) -> list[Any]:
    return [None if value is None else form(value) for form, value in zip(forms, values, strict=True)]
