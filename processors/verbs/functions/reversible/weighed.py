"""Exact sums of whole columns of numbers that are added and taken out.

Rule of this module: nothing is rounded. A float is a whole number of units, a power of two of which are one; digits of
32 bits are added up apart from each other, with room for carries.
"""

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.processors.verbs.functions.columns import Array, Integers, halves_of
from millpond.processors.verbs.functions.exact_sums import checked_bits, from_bytes, to_bytes

_DIGIT: Final = 32
_LOW: Final = 2**_DIGIT - 1
_MANTISSA: Final = 53


class Units(NamedTuple):
    """Numbers as so many units, 2 ** bits of which are one.

    Attributes:
        bits: the bits.
        sums: the sum of each group.
    """

    bits: int
    sums: list[int]


def weighed_sums(values: Array, groups: Integers, signs: Integers, size: int) -> Units:
    """Return each group's sum of numbers, each as often as its sign says.

    Args:
        values: finite floats, integers, times or decimals, without nulls.
        groups: the number of each value's group.
        signs: the sign of each value.
        size: how many groups there are.
    """
    if not len(values):
        return Units(0, [0] * size)
    if pa.types.is_floating(values.type):
        wholes, shifts, bits = _floats(values.to_numpy().astype(np.float64))
        return Units(bits, _added(_shifted(wholes, shifts), shifts // _DIGIT, groups, signs, size))
    halves = halves_of(values)
    low, high = halves.T
    digits = [low & _LOW, low >> _DIGIT & _LOW, high & _LOW, high >> _DIGIT]
    return Units(0, _added(digits, np.zeros(len(values), np.int64), groups, signs, size))


def without_idle_bits(bits: int, number: int) -> tuple[int, int]:
    """Return the same number in units that are as great as can be."""
    if not number:
        return 0, 0
    idle = min(bits, (number & -number).bit_length() - 1)
    return bits - idle, number >> idle


def summed(bits: int, data: bytes, more_bits: int, more: int) -> tuple[int, bytes]:
    """Return the bits and the bytes of the sum of what a state has and of more units."""
    if not bits and not more_bits:
        return 0, to_bytes(from_bytes(data) + more)
    most = max(checked_bits(bits), more_bits)
    bits, number = without_idle_bits(most, (from_bytes(data) << most - bits) + (more << most - more_bits))
    return bits, to_bytes(number)


def _floats(numbers: npt.NDArray[np.float64]) -> tuple[Integers, Integers, int]:
    """Return odd whole numbers, the powers of two by which they exceed the unit, and the bits of the unit."""
    mantissas, exponents = np.frexp(numbers)
    wholes = np.ldexp(mantissas, _MANTISSA).astype(np.int64)
    zeros = np.frexp((wholes & -wholes).astype(np.float64))[1].astype(np.int64) - 1
    there = wholes != 0
    zeros[~there] = 0
    powers = np.where(there, exponents.astype(np.int64) - _MANTISSA + zeros, 0)
    bits = max(0, -int(powers.min()))
    return wholes >> zeros, np.where(there, powers + bits, 0), bits


def _shifted(wholes: Integers, shifts: Integers) -> list[Integers]:
    """Return three digits of each number, all with its sign, from the digit on that its shift reaches."""
    sizes, within = np.abs(wholes), shifts % _DIGIT
    low, high = (sizes & _LOW) << within, (sizes >> _DIGIT) << within
    signs = np.sign(wholes)
    return [signs * (low & _LOW), signs * ((low >> _DIGIT & _LOW) + (high & _LOW)), signs * (high >> _DIGIT)]


def _added(digits: list[Integers], firsts: Integers, groups: Integers, signs: Integers, size: int) -> list[int]:
    """Return each group's sum of numbers of digits; the first digit has its place in ``firsts``."""
    width = int(firsts.max()) + len(digits)
    totals: Any = np.zeros(size * width, np.int64)
    for place, digit in enumerate(digits):
        np.add.at(totals, groups * width + firsts + place, digit * signs)
    columns = totals.reshape(size, width)
    written = np.empty((size, width + 1), "<i8")
    carried = np.zeros(size, np.int64)
    for place in range(width):
        whole = columns[:, place] + carried
        written[:, place], carried = whole & _LOW, whole >> _DIGIT
    written[:, width] = carried
    data = written.astype("<u4").tobytes()
    step = 4 * (width + 1)
    return [int.from_bytes(data[start : start + step], "little", signed=True) for start in range(0, size * step, step)]
