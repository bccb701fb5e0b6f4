"""Carrying the rows of a query's state over to another shape.

Rule of this module: it reads old manifests' files and writes new ones; nothing that exists is changed, and until its
result is kept nobody knows what it wrote.
"""

from dataclasses import dataclass
from math import gcd


@dataclass(frozen=True)
class Origin:
    """The old store that a store of the new shape continues.

    Attributes:
        subtopology: the number of its sub-topology in the old shape.
        name: its name there.
    """

    subtopology: int
    name: str


def units(old_partitions: int, new_partitions: int) -> int:
    """How many units of work there are: rows go from partition p to q only where p and q are equal modulo this number.

    >>> units(4, 6)
    2
    """
    return gcd(old_partitions, new_partitions)
