"""Columns of values and states: the tools with which aggregate functions handle whole columns.

Rule of this module: it knows numbers of groups and Arrow arrays, and no function. Where a whole column cannot be folded
exactly, it raises ``pyarrow.ArrowInvalid``; then the same has to be done value by value.
"""

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as _compute

from millpond.processors.runtime.order.time_order import stable_order
from millpond.stores.encoding.rows.byte_columns import buffer
from millpond.stores.encoding.rows.physical import WHOLE, around, of_halves, unscaled, validity, words

pc: Any = _compute
Array: TypeAlias = Any
"""An Arrow array."""

Integers: TypeAlias = npt.NDArray[np.int64]
Longer: TypeAlias = Callable[[list[float] | None, list[float]], list[float]]
Floats: TypeAlias = npt.NDArray[np.float64]
_LEAST: Final = int(np.iinfo(np.int64).min)
_LOW: Final = 2**32 - 1
"""The bits of a digit."""
_MOST_ADDED: Final = 64
"""Lists of more floats are added up one by one: a step of all lists is made for each place."""


def present(values: Array) -> npt.NDArray[np.bool_]:
    """Return a mask of the values that are not null."""
    valid: npt.NDArray[np.bool_] = values.is_valid().to_numpy(zero_copy_only=False)
    return valid


def integers(values: Array) -> Integers:
    """Return the physical values of a column of integers, times or short decimals; 0 where it is null."""
    numbers = unscaled(values)[:, 0] if pa.types.is_decimal(values.type) else words(values)
    whole = numbers.astype(np.int64)
    if values.null_count:
        whole[~present(values)] = 0
    return whole


def counted(values: Array, groups: Integers, size: int) -> Integers:
    """Return how many values of each group are not null."""
    return np.bincount(groups[present(values)] if values.null_count else groups, minlength=size)


def added(states: Array, values: Array, groups: Integers, lowest: int, highest: int) -> Array:
    """Return each group's sum of integers, with all values in between; null if there is no value.

    Args:
        states: int64, the sum before for each group, or null.
        values: integers, times or short decimals.
        groups: the number of each value's group.
        lowest, highest: the bounds that no sum may leave, not even for a while; within 64 bits.

    Raises:
        pyarrow.ArrowInvalid: a sum might leave them.
    """
    numbers, totals = integers(values), integers(states)
    most = int(np.bincount(groups, minlength=1).max())
    if _size(totals) + most * _size(numbers) > min(-lowest, highest):
        raise pa.ArrowInvalid("a sum may leave its type")
    np.add.at(totals, groups, numbers)
    seen = present(states) | (counted(values, groups, len(states)) > 0)
    return pa.array(totals, mask=~seen)


def added_wide(states: Array, values: Array, groups: Integers, highest: int) -> Array:
    """Return each group's sum of integers of up to 128 bits; null if there is no value.

    Args:
        states: ``WHOLE``, the sum before for each group, or null.
        values: integers, times, decimals or ``WHOLE``.
        groups: the number of each value's group.
        highest: the greatest absolute value that a sum may have, with all values in between.

    Raises:
        pyarrow.ArrowInvalid: one might be greater.
    """
    numbers, sums = halves_of(values), halves_of(states)
    most = int(np.bincount(groups, minlength=1).max())
    bound = _wide_size(sums) + most * _wide_size(numbers)
    if bound > highest:
        raise pa.ArrowInvalid("a sum may leave its type")
    nothing = ~(present(states) | (counted(values, groups, len(states)) > 0))
    if bound < -_LEAST:
        np.add.at(sums[:, 0], groups, numbers[:, 0])
        sums[:, 1] = sums[:, 0] >> 63
    else:
        sums = _with_carries(sums, numbers, groups)
    return of_halves(sums, nothing, WHOLE)


def halves_of(values: Array) -> Integers:
    """Return the lower and the upper half of each integer; 0 where it is null."""
    if values.type == WHOLE or pa.types.is_decimal(values.type):
        halves = unscaled(values).astype(np.int64)
    else:
        whole = integers(values)
        halves = np.stack([whole, whole >> 63], axis=1)
    if values.null_count:
        halves[~present(values)] = 0
    return halves


def _with_carries(sums: Integers, numbers: Integers, groups: Integers) -> Integers:
    """Return halves with the halves of other integers added: by 32 bits, which have room for what is carried."""
    digits, more = _digits(sums), _digits(numbers)
    carried = np.zeros(len(sums), np.int64)
    for place, (digit, added_to_it) in enumerate(zip(digits, more, strict=True)):
        np.add.at(digit, groups, added_to_it)
        digit += carried
        carried = digit >> 32
        if place < len(digits) - 1:
            digit &= _LOW
    low, second, third, high = digits
    return np.stack([low | second << 32, third | high << 32], axis=1)


def _digits(halves: Integers) -> list[Integers]:
    """Return the four digits of 32 bits of each integer, of which the last one has the sign."""
    low, high = halves.T
    return [low & _LOW, low >> 32 & _LOW, high & _LOW, high >> 32]


def _wide_size(halves: Integers) -> int:
    """Return a number that no absolute value of these integers exceeds."""
    if (halves[:, 1] == halves[:, 0] >> 63).all():
        return _size(halves[:, 0])
    return max(int(halves[:, 1].max()) + 1, -int(halves[:, 1].min())) << 64


def totals(numbers: Array, groups: Integers, size: int) -> Array:
    """Return each group's sum of counts, int64; 0 where there is none."""
    sums = np.zeros(size, np.int64)
    np.add.at(sums, groups, integers(numbers))
    return pa.array(sums)


def chained(states: Array, values: Array, groups: Integers) -> tuple[Array, Integers]:
    """Return states, as first values of their groups, then the values that are not null, and the groups of all."""
    before, after = present(states), present(values)
    numbers = np.concatenate([np.flatnonzero(before), groups[after]])
    return pa.concat_arrays([states.filter(pa.array(before)), values.filter(pa.array(after))]), numbers


def picked(values: Array, ranks: Integers, groups: Integers, size: int, *, greatest: bool, last: bool) -> Array:
    """Return one value of each group; null where there is none.

    Args:
        values: the values.
        ranks: the ranks that decide.
        groups: the number of each value's group.
        size: how many groups there are.
        greatest: whether the greatest rank is picked, or else the least.
        last: whether the last value of that rank is picked, or else the first.
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


def listed(lists: Array) -> tuple[Array, Integers]:
    """Return the elements of lists, and how many each of them has: none where it is null."""
    return lists.flatten(), pc.list_value_length(lists).fill_null(0).to_numpy().astype(np.int64)


def lists_of(elements: Array, lengths: Integers, type_: pa.DataType, *, nullable: bool = True) -> Array:
    """Return lists of so many elements; null instead of an empty one, where that may be."""
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return around(elements, type_, len(lengths), [validity(lengths == 0) if nullable else None, buffer(offsets)])


def joined_lists(
    states: Array,
    values: Array,
    groups: Integers,
    most: int,
    longer: Longer,
) -> Array:
    """Return lists of floats with the floats of their groups behind them, in their order; null where there is nothing.

    Args:
        states: a list of float64 for each group, or null.
        values: floats.
        groups: the number of each value's group.
        most: the number of floats from which on ``longer`` makes the list.
        longer: makes a list of the one before and the floats behind it.
    """
    old, before = listed(states)
    after = present(values)
    owners = np.concatenate([np.repeat(np.arange(len(states)), before), groups[after]])
    order = stable_order(owners)
    new = values.filter(pa.array(after))
    floats = np.concatenate([old.to_numpy(), new.to_numpy().astype(np.float64)])[order]
    lengths = np.bincount(owners, minlength=len(states))
    if len(lengths) and int(lengths.max()) >= most:
        floats, lengths = _rebuilt(floats, before, lengths, most, longer)
    return lists_of(pa.array(floats), lengths, states.type)


def _rebuilt(
    floats: npt.NDArray[np.float64],
    before: Integers,
    lengths: Integers,
    most: int,
    longer: Longer,
) -> tuple[npt.NDArray[np.float64], Integers]:
    """Return floats of lists, and their lengths, with those lists replaced that would be too long."""
    ends = np.cumsum(lengths)
    pieces, done = [], 0
    lengths = lengths.copy()
    for row in np.flatnonzero((lengths >= most) & (lengths > before)).tolist():
        start, middle, stop = ends[row] - lengths[row], ends[row] - lengths[row] + before[row], ends[row]
        made = longer(floats[start:middle].tolist() or None, floats[middle:stop].tolist())
        pieces += [floats[done:start], np.array(made)]
        done, lengths[row] = stop, len(made)
    return np.concatenate([*pieces, floats[done:]]), lengths


def _size(numbers: Integers) -> int:
    return max(-int(numbers.min()), int(numbers.max())) if len(numbers) else 0


def exact_sums(lists: Array, one_by_one: Callable[[list[float]], float]) -> Floats:
    """Return the exact sum of each list of floats, rounded once; 0.0 where there is no list.

    Of each list two floats are kept, and what adding to the first one rounds off is added to the second one. Where that
    rounds nothing off, the two are the exact sum, and their own sum is that, rounded once.

    Args:
        lists: lists of float64.
        one_by_one: the sum of a list for which two floats are too few.
    """
    elements, lengths = listed(lists)
    floats, starts = elements.to_numpy(), np.cumsum(lengths) - lengths
    high, low, exact = np.zeros(len(lengths)), np.zeros(len(lengths)), lengths <= _MOST_ADDED
    rows = np.flatnonzero(exact & (lengths > 0))
    with np.errstate(all="ignore"):
        for place in range(int(lengths[rows].max(initial=0))):
            rows = rows[lengths[rows] > place]
            high[rows], lost = _with_loss(high[rows], floats[starts[rows] + place])
            low[rows], lost = _with_loss(low[rows], lost)
            exact[rows] &= lost == 0
        sums = high + low
    for row in np.flatnonzero(~(exact & np.isfinite(sums))).tolist():
        sums[row] = one_by_one(floats[starts[row] : starts[row] + lengths[row]].tolist())
    return sums


def _with_loss(left: Floats, right: Floats) -> tuple[Floats, Floats]:
    """Return the rounded sums, and what they lack of the exact ones (Knuth): not a number beyond floats."""
    sums = left + right
    of_right = sums - left
    return sums, (left - (sums - of_right)) + (right - of_right)
