"""Whole columns of values in forms in which they can be compared: for their order, and for being equal.

Rule of this module: it says of columns what ``millpond.processors.verbs.functions.forms`` says of single values, and no
Python object is made of one.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as _compute

from millpond.processors.verbs.functions.columns import Array, Integers, integers, listed, present
from millpond.stores.encoding.rows.byte_columns import binary_of
from millpond.stores.encoding.rows.msgpack_columns import pack_values
from millpond.stores.encoding.rows.nested import with_leaves
from millpond.stores.encoding.rows.physical import SHORT_DECIMAL, big_endian, null_mask, unscaled

pc: Any = _compute
Ranks = Callable[[Array], Integers]

_LEAST: Final = np.iinfo(np.int64).min


def ranks_of(values: Array) -> Integers:
    """Return numbers that are ordered, and equal, as values are that are not null; -0.0 is less than 0.0."""
    if not pa.types.is_nested(values.type):
        return _scalar_ranks(values)
    # Zeros count once all else is equal.
    return _dense([_ranks(values, _order_of_leaves), _ranks(values, _signs)])


def canonical_values(values: Array) -> Array:
    """Return the ``canonical_form`` of each value; none is null."""
    nested = pa.types.is_nested(values.type)
    return with_leaves(values, values.type, _canonical) if nested or pa.types.is_floating(values.type) else values


def equal_type(type_: Any) -> pa.DataType:
    """Return the type of ``equal_forms`` of values of a type."""
    plain = not (pa.types.is_nested(type_) or pa.types.is_floating(type_) or pa.types.is_null(type_))
    return type_ if plain and not _is_wide(type_) else pa.binary()


def equal_forms(values: Array) -> Array:
    """Return the ``equality_form`` of each value; none is null, and their type has such a form."""
    type_ = values.type
    if pa.types.is_nested(type_) or pa.types.is_floating(type_):
        return pack_values(canonical_values(values))
    if _is_wide(type_):
        return binary_of(big_endian(unscaled(values)).reshape(-1, 16))
    return values.cast(equal_type(type_))


def _is_wide(type_: Any) -> bool:
    return bool(pa.types.is_decimal(type_) and type_.precision > SHORT_DECIMAL)


def _scalar_ranks(values: Array) -> Integers:
    type_ = values.type
    if pa.types.is_floating(type_):
        return _float_ranks(values.to_numpy().astype(np.float64))
    if pa.types.is_boolean(type_):
        return np.asarray(values.to_numpy(zero_copy_only=False), np.int64)
    if pa.types.is_null(type_):
        return np.zeros(len(values), np.int64)
    if type_ in (pa.string(), pa.binary()):
        encoded = values.dictionary_encode()
        ranks = np.empty(len(encoded.dictionary), np.int64)
        ranks[pc.sort_indices(encoded.dictionary).to_numpy()] = np.arange(len(ranks))
        return np.asarray(ranks[encoded.indices.to_numpy()])
    if _is_wide(type_):
        halves = unscaled(values)
        return _dense([halves[:, 1].astype(np.int64), halves[:, 0]])
    return integers(values)


def _float_ranks(numbers: npt.NDArray[np.float64]) -> Integers:
    bits = numbers.view(np.int64)
    ranks = np.where(bits < 0, _LEAST - bits - 1, bits)
    ranks[np.isnan(numbers)] = np.iinfo(np.int64).max
    return ranks


def _order_of_leaves(values: Array) -> Integers:
    if pa.types.is_floating(values.type):
        return _float_ranks(values.to_numpy().astype(np.float64) + 0.0)
    return _scalar_ranks(values)


def _signs(values: Array) -> Integers:
    """Return the signs of floats, in which values that are equal may differ."""
    if not pa.types.is_floating(values.type):
        return np.zeros(len(values), np.int64)
    numbers = values.to_numpy()
    return np.asarray(np.isnan(numbers) | ~np.signbit(numbers), np.int64)


def _ranks(values: Array, leaves: Ranks) -> Integers:
    """Return the ranks of values, from 0 on, by the ranks of their parts that are not nested; null comes first."""
    there = present(values)
    ranks = np.zeros(len(values), np.int64)
    ranks[there] = _present_ranks(values.drop_null(), leaves) + 1
    return ranks


def _present_ranks(values: Array, leaves: Ranks) -> Integers:
    if isinstance(values.type, pa.StructType):
        return _dense([_ranks(values.field(number), leaves) for number in range(values.type.num_fields)], len(values))
    if pa.types.is_list(values.type):
        elements, lengths = listed(values)
        return _list_ranks(_ranks(elements, leaves), lengths)
    return _dense([leaves(values)])


def _dense(columns: Sequence[npt.NDArray[Any]], size: int = 0) -> Integers:
    """Return numbers from 0 on in the order of rows of columns, of which the first ones decide first."""
    if not columns:
        return np.zeros(size, np.int64)
    order = np.lexsort(columns[::-1])
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.cumsum(_begins([column[order] for column in columns])) - 1
    return ranks


def _begins(columns: Sequence[npt.NDArray[Any]]) -> npt.NDArray[np.bool_]:
    """Return a mask of rows that differ from the one before."""
    begins = np.ones(len(columns[0]), np.bool_)
    begins[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
    return begins


def _list_ranks(elements: Integers, lengths: Integers) -> Integers:
    """Return the ranks of lists: by their first elements, then the next ones; a list comes after its own beginnings.

    A rank is the number of lists that are less. Each step compares one place of the lists that were equal so far.
    """
    starts = np.cumsum(lengths) - lengths
    ranks, equal, place = np.zeros(len(lengths), np.int64), np.arange(len(lengths)), 0
    while len(equal):
        longer = lengths[equal] > place
        now = np.zeros(len(equal), np.int64)
        now[longer] = elements[starts[equal[longer]] + place] + 1
        order = np.lexsort((now, ranks[equal]))
        equal, now = equal[order], now[order]
        groups = ranks[equal]
        begins = _begins([groups, now])
        places = np.arange(len(equal))
        first, group_first = (np.maximum.accumulate(np.where(some, places, 0)) for some in (begins, _begins([groups])))
        ranks[equal] = groups + first - group_first
        numbers = np.cumsum(begins) - 1
        equal = equal[(np.bincount(numbers)[numbers] > 1) & (now > 0)]
        place += 1
    return ranks


def _canonical(values: Array) -> Array:
    """Return each value in the one form that stands for all that are equal to it."""
    if not pa.types.is_floating(values.type):
        return values
    given = values.to_numpy(zero_copy_only=False)
    numbers = given + given.dtype.type(0)
    numbers[np.isnan(numbers)] = np.nan
    return pa.array(numbers, values.type, mask=null_mask(values), from_pandas=False)
