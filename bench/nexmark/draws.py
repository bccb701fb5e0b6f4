"""Chance that depends on a seed and a number alone: the same event is drawn in the same way everywhere.

Rule of this module: it draws numbers and text for many events at once, and knows nothing of what they are for.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as _compute

pc: Any = _compute

Numbers = np.ndarray[Any, np.dtype[np.int64]]

_TEXT_LENGTH: Final = 1 << 20
"""Characters that all text is cut from."""

_SHORTEST: Final = 3
"""The least length of a name; the greatest is one below what is asked for."""

_LONGEST: Final = 1 << 10
"""The length of the longest text."""

_DRAWS: Final = 1 << 10
"""A number greater than the draws for an event."""

_WHOLE: Final = 1 << 64
_STEP: Final = 0x9E3779B97F4A7C15
_MIXERS: Final = (
    (np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)),
    (np.uint64(27), np.uint64(0x94D049BB133111EB)),
)
_LAST_SHIFT: Final = np.uint64(31)
"""SplitMix64 (Steele, Lea and Flood, 2014), whose n-th number can be had without those before it."""


class Draws:
    """Draws for events.

    Args:
        seed: of all chance.
        numbers: the numbers of the events; each draw has a value for each.
    """

    def __init__(self, seed: int, numbers: Numbers) -> None:
        self._seed = seed
        self._numbers = numbers.astype(np.uint64)
        self._drawn = 0

    def uniform(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Return numbers from 0 to below 1, one for each event."""
        self._drawn += 1
        own = self._seed * _DRAWS + self._drawn
        return _uniform(_mixed(_mixed(self._numbers + np.uint64(own * _STEP % _WHOLE)) + np.uint64(own % _WHOLE)))

    def below(self, most: int | Numbers) -> Numbers:
        """Return integers from 0 to below ``most``, of all events or of each."""
        return (self.uniform() * most).astype(np.int64)

    def one_of(self, values: Sequence[str]) -> Any:
        """Return one of the values for each event, as an Arrow array."""
        chosen: Any = self.below(len(values))
        return pa.array(values).take(chosen)

    def name(self, most: int) -> Any:
        """Return 3 to below ``most`` letters, one in 13 of which is a space except at the ends, as an Arrow array."""
        return pc.utf8_trim_whitespace(self._cut(_SHORTEST + self.below(most - _SHORTEST), spaces=True))

    def text(self, lengths: Numbers) -> Any:
        """Return letters, so many for each event, as an Arrow array."""
        return self._cut(lengths, spaces=False)

    def filling(self, size: Numbers, average: int) -> Any:
        """Return text that brings something of this ``size`` to the ``average`` size, give or take a fifth of it."""
        left = np.maximum(average - size, 0)
        spread = np.round(left * 0.2).astype(np.int64)
        return self.text(left - spread + self.below(2 * spread))

    def _cut(self, lengths: Numbers, *, spaces: bool) -> Any:
        starts = self.below(_TEXT_LENGTH - _LONGEST)
        ends = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        places = np.repeat(starts.astype(np.int32) - ends[:-1], lengths) + np.arange(ends[-1], dtype=np.int32)
        buffers: list[Any] = [ends, _text(self._seed, spaces)[places]]
        return pa.Array.from_buffers(pa.string(), len(lengths), [None, *map(pa.py_buffer, buffers)])


@cache
def _text(seed: int, spaces: bool) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return random letters, one in 13 of which is a space if ``spaces`` are wanted."""
    rng = np.random.default_rng([seed, spaces])
    letters = rng.integers(ord("a"), ord("z") + 1, _TEXT_LENGTH, dtype=np.uint8)
    if spaces:
        letters[rng.integers(0, 13, _TEXT_LENGTH) == 0] = ord(" ")
    return letters


def _mixed(numbers: np.ndarray[Any, np.dtype[np.uint64]]) -> np.ndarray[Any, np.dtype[np.uint64]]:
    for shift, factor in _MIXERS:
        numbers = (numbers ^ (numbers >> shift)) * factor
    return numbers ^ (numbers >> _LAST_SHIFT)


def _uniform(numbers: np.ndarray[Any, np.dtype[np.uint64]]) -> np.ndarray[Any, np.dtype[np.float64]]:
    return (numbers >> np.uint64(11)).astype(np.float64) * 2.0**-53
