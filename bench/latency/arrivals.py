"""The moments at which rows come into being, at a fixed rate, whoever lags behind.

Rule of this module: times are integers, microseconds since 1970, and nothing is rounded twice: how many rows there are
at a moment and at which moment a row is there agree to the row.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

SECOND: Final = 1_000_000
"""The microseconds of a second."""


@dataclass(frozen=True)
class Arrivals:
    """The rows of a topic, numbered from 0 on.

    Attributes:
        begin: when the clock starts; the first row is there a period later.
        pace: rows per second.

    >>> three = Arrivals(begin=0, pace=Fraction(3))
    >>> [three.moment(row) for row in range(3)], three.count(999_999), three.count(1_000_000)
    ([333334, 666667, 1000000], 2, 3)
    """

    begin: int
    pace: Fraction

    def count(self, moment: Any) -> Any:
        """Return how many rows there are at a moment, or at each of an array of them."""
        return (moment - self.begin) * self.pace.numerator // (SECOND * self.pace.denominator)

    def moment(self, row: Any) -> Any:
        """Return the moment at which a row comes into being, or at which each of an array of them does."""
        return self.begin - (-(row + 1) * SECOND * self.pace.denominator // self.pace.numerator)


def pace_of(rate: int, share: float) -> Fraction:
    """Return the rows per second of a topic that has a share of all rows.

    >>> pace_of(1_000, 0.9), pace_of(1_000, 1 / 3)
    (Fraction(900, 1), Fraction(1000, 3))
    """
    return rate * Fraction(share).limit_denominator(1_000)
