"""Grids: the places at which windows of time begin and end.

Rule of this module: a window's key has a single time, its place, and the grid tells its end. Its place is its start,
but where several windows start together, they are placed by their ends. Times are integers of one unit; whole columns
of them are placed by ``millpond.processors.options.placing``.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Final

from millpond.stores.encoding.times import TimeUnit


class Grid(ABC):
    """A grid of windows, which knows where they begin and end."""

    def begin(self, place: int) -> int:
        """Return the start of the window with a place; for a start, the start itself."""
        return place

    def place(self, start: int, end: int) -> int:
        """Return the place of the window with these bounds."""
        return start

    def latest(self, time: int) -> int:
        """Return the place of the last window that holds ``time``."""
        return self.last(time)

    @abstractmethod
    def last(self, time: int) -> int:
        """Return the last place up to ``time`` whose window holds that time."""

    @abstractmethod
    def first(self, time: int) -> int:
        """Return the place of the first window that holds ``time``, as it ends after it."""

    @abstractmethod
    def next(self, time: int) -> int:
        """Return the first place after ``time``."""

    @abstractmethod
    def end(self, place: int) -> int:
        """Return the end of the window with a place, which is the first time that is not in it."""

    @abstractmethod
    def told(self, unit: TimeUnit) -> str:
        """Return the distance of places, as text; ``unit`` is the unit of times."""


@dataclass(frozen=True)
class EvenGrid(Grid):
    """Windows of one length, at even distances. Takes arrays of integers as well.

    Attributes:
        size: the length from a window's start to its end.
        advance: the length from a window's start to the start of the next.
        offset: a time at which a window begins.
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

    def end(self, place: int) -> int:
        return place + self.size

    def told(self, unit: TimeUnit) -> str:
        return f"every {unit.length(self.advance)}"


EVERYWHERE: Final = EvenGrid(0)
"""The grid of windows that may begin at any time."""


@dataclass(frozen=True)
class CumulativeGrid(Grid):
    """Windows that start together and end step by step. Takes arrays of integers as well.

    The place of a window is the start of its last step, so that the windows are placed one after the other, a step
    apart.

    Attributes:
        size: the length from a window's start to the end of the longest that starts with it.
        step: the length from a window's end to the end of the next.
        offset: a time at which some windows begin.
    """

    size: int
    step: int
    offset: int = 0

    def begin(self, place: int) -> int:
        return place - (place - self.offset) % self.size

    def place(self, start: int, end: int) -> int:
        return self.last(end - 1)

    def latest(self, time: int) -> int:
        return self.begin(time) + self.size - self.step

    def last(self, time: int) -> int:
        return time - (time - self.offset) % self.step

    def first(self, time: int) -> int:
        return self.last(time)

    def next(self, time: int) -> int:
        return self.last(time) + self.step

    def end(self, place: int) -> int:
        return place + self.step

    def told(self, unit: TimeUnit) -> str:
        return f"every {unit.length(self.step)}"
