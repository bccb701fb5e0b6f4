"""Where windows of time begin and end.

Rule of this module: a window's key has its start alone, and whoever needs its end asks the grid. Times are integers of
one unit; whole columns of them are placed by ``millpond.processors.options.placing``.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from millpond.stores.encoding.times import TimeUnit


class Grid(ABC):
    """Where windows begin and end."""

    @abstractmethod
    def last(self, time: int) -> int:
        """The start of the last window that begins up to ``time``; a window that begins then holds it."""

    @abstractmethod
    def first(self, time: int) -> int:
        """The start of the first window that ends after ``time``; it holds it."""

    @abstractmethod
    def next(self, time: int) -> int:
        """The start of the first window that begins after ``time``."""

    @abstractmethod
    def end(self, start: int) -> int:
        """The end of the window that begins at ``start``, which is the first time that is not in it."""

    @abstractmethod
    def told(self, unit: TimeUnit) -> str:
        """When windows start, as text; ``unit`` is what times count."""


@dataclass(frozen=True)
class EvenGrid(Grid):
    """Windows that are all as long, at even distances. Takes arrays of integers as well.

    Attributes:
        size: from a window's start to its end.
        advance: from a window's start to that of the next.
        offset: a time at which one begins.
    """

    size: int
    advance: int = 1
    offset: int = 0

    def last(self, time: int) -> int:
        return time - (time - self.offset) % self.advance

    def first(self, time: int) -> int:
        beyond = (time - self.offset) % self.advance
        return time - beyond - (self.size - 1 - beyond) // self.advance * self.advance

    def next(self, time: int) -> int:
        return self.last(time) + self.advance

    def end(self, start: int) -> int:
        return start + self.size

    def told(self, unit: TimeUnit) -> str:
        return f"every {unit.length(self.advance)}"
