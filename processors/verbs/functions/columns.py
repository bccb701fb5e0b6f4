"""Columns of values and states: what the aggregate functions do with whole columns is made of these.

Rule of this module: it knows numbers of groups and Arrow arrays, and no function. Where a whole column cannot be folded
exactly, it raises ``pyarrow.ArrowInvalid``; then the same has to be done value by value.
"""

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as _compute

from millpond.stores.rows.physical import SHORT_DECIMAL, is_word, unscaled, words

pc: Any = _compute
Array: TypeAlias = Any
"""An Arrow array."""

Integers: TypeAlias = npt.NDArray[np.int64]
Longer: TypeAlias = Callable[[list[float] | None, list[float]], list[float]]
_LEAST: Final = np.iinfo(np.int64).min


def present(values: Array) -> npt.NDArray[np.bool_]:
    """Where a value is not null."""
    valid: npt.NDArray[np.bool_] = values.is_valid().to_numpy(zero_copy_only=False)
    return valid


def is_scalar(type_: Any) -> bool:
    """Whether the physical values of a type are numbers of 64 bits, truth values, texts or bytes."""
    if pa.types.is_decimal(type_):
        return bool(type_.precision <= SHORT_DECIMAL)
    return is_word(type_) or type_ in (pa.bool_(), pa.string(), pa.binary())


def integers(values: Array) -> Integers:
    """The physical values of a column of integers, times or short decimals; 0 where it is null."""
    numbers = unscaled(values)[:, 0] if pa.types.is_decimal(values.type) else words(values)
    whole = numbers.astype(np.int64)
    if values.null_count:
        whole[~present(values)] = 0
    return whole


def counted(values: Array, groups: Integers, size: int) -> Integers:
    """How many values of each group are not null."""
    return np.bincount(groups[present(values)] if values.null_count else groups, minlength=size)


def added(states: Array, values: Array, groups: Integers, lowest: int, highest: int) -> Array:
    """Each group's sum of integers, with all values in between; null if there is no value.

    Args:
        states: int64, the sum before for each group, or null.
        values: integers, times or short decimals.
        groups: the number of each value's group.
        lowest, highest: what no sum may leave, not even for a while; within 64 bits.

    Raises:
        pyarrow.ArrowInvalid: one might.
    """
    numbers, totals = integers(values), integers(states)
    most = int(np.bincount(groups, minlength=1).max())
    if _size(totals) + most * _size(numbers) > min(-lowest, highest):
        raise pa.ArrowInvalid("a sum may leave its type")
    np.add.at(totals, groups, numbers)
    seen = present(states) | (counted(values, groups, len(states)) > 0)
    return pa.array(totals, mask=~seen)


def totals(numbers: Array, groups: Integers, size: int) -> Array:
    """Each group's sum of counts, int64; 0 where there is none."""
    sums = np.zeros(size, np.int64)
    np.add.at(sums, groups, integers(numbers))
    return pa.array(sums)


def chained(states: Array, values: Array, groups: Integers) -> tuple[Array, Integers]:
    """States, as the first values of their groups, and then the values that are not null, with their groups."""
    before, after = present(states), present(values)
    numbers = np.concatenate([np.flatnonzero(before), groups[after]])
    return pa.concat_arrays([states.filter(pa.array(before)), values.filter(pa.array(after))]), numbers


def picked(values: Array, ranks: Integers, groups: Integers, size: int, *, greatest: bool, last: bool) -> Array:
    """One value of each group; null where there is none.

    Args:
        values: the values.
        ranks: what decides.
        groups: the number of each value's group.
        size: how many groups there are.
        greatest: whether the greatest rank is picked, or else the least.
        last: whether the last of those that have that rank is picked, or else the first.
    """
    decisive = ranks if greatest else ~ranks
    best = np.full(size, _LEAST)
    np.maximum.at(best, groups, decisive)
    candidates = np.flatnonzero(decisive == best[groups])
    places = np.full(size, -1)
    # Of several assignments to one place, the last one counts.
    ordered = candidates if last else candidates[::-1]
    places[groups[ordered]] = ordered
    return values.take(pa.array(places, mask=places < 0))


def ranks_of(values: Array) -> Integers:
    """Numbers that are ordered as the values are; equal for those that are equal, but for zeros: -0.0 is less.

    Args:
        values: such that ``is_scalar`` holds, without nulls.
    """
    type_ = values.type
    if pa.types.is_floating(type_):
        return _float_ranks(values.to_numpy().astype(np.float64))
    if pa.types.is_boolean(type_):
        return np.asarray(values.to_numpy(zero_copy_only=False), np.int64)
    if type_ in (pa.string(), pa.binary()):
        encoded = values.dictionary_encode()
        ranks = np.empty(len(encoded.dictionary), np.int64)
        ranks[pc.sort_indices(encoded.dictionary).to_numpy()] = np.arange(len(ranks))
        return np.asarray(ranks[encoded.indices.to_numpy()])
    return integers(values)


def joined_lists(
    states: Array,
    values: Array,
    groups: Integers,
    most: int,
    longer: Longer,
) -> Array:
    """Lists of floats with the floats of their groups behind them, in their order; null where there is nothing.

    Args:
        states: a list of float64 for each group, or null.
        values: floats.
        groups: the number of each value's group.
        most: from how many floats on ``longer`` makes a list of the one before and those that are put behind.
        longer: does so.
    """
    before = pc.list_value_length(states).fill_null(0).to_numpy()
    after = present(values)
    owners = np.concatenate([np.repeat(np.arange(len(states)), before), groups[after]])
    order = owners.argsort(kind="stable")
    old, new = states.flatten(), values.filter(pa.array(after))
    floats = np.concatenate([old.to_numpy(), new.to_numpy().astype(np.float64)])[order]
    lengths = np.bincount(owners, minlength=len(states))
    if len(lengths) and int(lengths.max()) >= most:
        return _lists(_rebuilt(floats, before, lengths, most, longer))
    return _lists((floats, lengths))


def _rebuilt(
    floats: npt.NDArray[np.float64],
    before: Integers,
    lengths: Integers,
    most: int,
    longer: Longer,
) -> tuple[npt.NDArray[np.float64], Integers]:
    """Floats of lists, and their lengths, with those lists replaced that would be too long."""
    ends = np.cumsum(lengths)
    pieces, done = [], 0
    lengths = lengths.copy()
    for row in np.flatnonzero((lengths >= most) & (lengths > before)).tolist():
        start, middle, stop = ends[row] - lengths[row], ends[row] - lengths[row] + before[row], ends[row]
        made = longer(floats[start:middle].tolist() or None, floats[middle:stop].tolist())
        pieces += [floats[done:start], np.array(made)]
        done, lengths[row] = stop, len(made)
    return np.concatenate([*pieces, floats[done:]]), lengths


def _lists(parts: tuple[npt.NDArray[np.float64], Integers]) -> Array:
    """Lists of float64 of such lengths; null instead of an empty one."""
    floats, lengths = parts
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    nulls = np.append(lengths == 0, False)
    bounds: Any = pa.array(offsets, mask=nulls if nulls.any() else None)
    return pa.ListArray.from_arrays(bounds, pa.array(floats))


def _size(numbers: Integers) -> int:
    return max(-int(numbers.min()), int(numbers.max())) if len(numbers) else 0


def _float_ranks(numbers: npt.NDArray[np.float64]) -> Integers:
    bits = numbers.view(np.int64)
    ranks = np.where(bits < 0, _LEAST - bits - 1, bits)
    ranks[np.isnan(numbers)] = np.iinfo(np.int64).max
    return ranks
