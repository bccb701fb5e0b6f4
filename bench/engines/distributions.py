"""The distributions of the rows that a workload touches: Zipfian, latest and uniform numbers, and scattered keys.

Rule of this module: a draw follows the distribution exactly, and a generator of numpy that is given by the caller is
the only source of chance. Rank 0 is the one that is drawn most often.
"""

from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

Numbers: TypeAlias = npt.NDArray[np.int64]

THETA: Final = 0.99
"""The exponent of YCSB's Zipfian distribution."""


class Zipfian:
    """Ranks below a number that may grow from draw to draw; rank ``r`` weighs ``(r + 1) ** -theta``.

    Draws are exact, by the inverse of the sums of weights, where YCSB approximates them by a formula.

    Args:
        most: ranks stay below it at every draw.
        theta: how uneven it is; 0 is uniform.
    """

    def __init__(self, most: int, theta: float = THETA) -> None:
        self._sums = np.cumsum(np.arange(1, most + 1, dtype=np.float64) ** -theta)

    def draw(self, chance: np.random.Generator, below: Numbers) -> Numbers:
        """Draw a rank below each element of ``below``."""
        points = chance.random(len(below)) * self._sums[below - 1]
        ranks: Numbers = np.minimum(np.searchsorted(self._sums, points, side="right"), below - 1)
        return ranks

    def latest(self, chance: np.random.Generator, below: Numbers) -> Numbers:
        """Draw a number below each element of ``below``, the greatest ones the most often: YCSB's latest."""
        return below - 1 - self.draw(chance, below)


def uniform(chance: np.random.Generator, below: Numbers) -> Numbers:
    """Draw a number below each element of ``below``, all equally often."""
    return chance.integers(0, below)


def scattered(numbers: Numbers, bits: int) -> npt.NDArray[np.uint64]:
    """Return another number of so many bits for each, one for one, so that neighbors lie far apart.

    Both steps of a round can be undone: a shift that is xored, and a product with an odd number modulo ``2**bits``.
    """
    mask, shift = np.uint64(2**bits - 1), np.uint64(bits // 2)
    mixed = numbers.astype(np.uint64) & mask
    for odd in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB):
        mixed ^= mixed >> shift
        mixed = (mixed * np.uint64(odd)) & mask
    return mixed ^ (mixed >> shift)
