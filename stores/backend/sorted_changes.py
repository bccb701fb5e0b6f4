"""Changes in key order that are no objects yet.

Rule of this module: it declares what a transaction and a backend need to know of such changes, but not their form, so
that importing it loads nothing.
"""

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Self


class SortedChanges(Mapping[bytes, bytes | None]):
    """The new value of each key, ``None`` to delete it; iterating gives the keys in ascending order.

    As a mapping, any backend takes it as it takes a dictionary. ``items`` makes objects part by part, so one pass over
    it costs little memory.
    """

    @abstractmethod
    def split(self) -> tuple[Iterable[tuple[bytes, bytes]], Sequence[bytes]]:
        """Return the entries to put, and the keys to delete, both in key order."""

    @property
    @abstractmethod
    def longest_key(self) -> int:
        """The length of the longest key in bytes."""

    @property
    @abstractmethod
    def bounds(self) -> tuple[bytes, bytes]:
        """The first and the last key."""

    def spans(self, key: bytes) -> bool:
        """Return whether ``key`` lies between the first and the last key, or is one of these."""
        first, last = self.bounds
        return first <= key <= last

    @abstractmethod
    def overlaid(self, later: Self) -> Self | None:
        """Return these changes and then the later ones; None if a dictionary is the better form for the two."""

    @abstractmethod
    def beside(self, others: Mapping[bytes, bytes | None]) -> Self:
        """Return these changes and a few others, which are at keys that these do not span."""
