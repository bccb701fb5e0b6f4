"""How time is cut into windows: tumbling, hopping, sliding, and sessions.

Rule of this module: configuration and arithmetic only, in int milliseconds. Stream time is the greatest timestamp that
an aggregation has seen; a window is closed, and takes no more records, once stream time is past its end by its grace.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum

from millpond.errors import TopologyError
from millpond.stores.times import Duration, to_millis


class EmitStrategy(Enum):
    """When a windowed aggregation emits: with each record, or once, when a window is closed (KIP-825)."""

    ON_WINDOW_UPDATE = "on-window-update"
    ON_WINDOW_CLOSE = "on-window-close"


@dataclass(frozen=True)
class Windows(ABC):
    """What all window definitions answer.

    Attributes:
        grace: how long after its end a window still takes late records, in milliseconds.
    """

    grace: int

    @property
    @abstractmethod
    def retention(self) -> int:
        """How long a store has to keep a window, counted from its start (a session: from its end); not 0."""

    @property
    @abstractmethod
    def delay(self) -> int:
        """How far stream time has to be past the end that is in a window's key for the result to be final."""

    def _set(self, what: str, duration: Duration, least: int) -> None:
        millis = to_millis(duration, what)
        if millis < least:
            raise TopologyError(f"{type(self).__name__}: {what} is {millis} ms; give at least {least} ms")
        object.__setattr__(self, what, millis)


@dataclass(frozen=True, init=False)
class TimeWindows(Windows):
    """Windows of a fixed size, ``[start, start + size)``: tumbling, or hopping if they overlap.

    Windows start at multiples of their advance since 1970. Records from then on are in no window that starts before.

    Args:
        size: the length of a window.
        advance: the distance between the starts of two windows; ``size`` unless given, and never more.
        grace: how long after its end a window still takes late records.

    >>> from datetime import timedelta
    >>> TimeWindows(timedelta(minutes=1), advance=timedelta(seconds=30)).starts(70_000)
    [30000, 60000]
    """

    size: int
    advance: int

    def __init__(self, size: Duration, *, advance: Duration | None = None, grace: Duration = 0) -> None:
        self._set("size", size, 1)
        self._set("advance", size if advance is None else advance, 1)
        self._set("grace", grace, 0)
        if self.advance > self.size:
            raise TopologyError(
                f"TimeWindows: an advance of {self.advance} ms leaves gaps between windows of {self.size} ms; give at "
                f"most the size"
            )

    @property
    def retention(self) -> int:
        return self.size + self.grace

    @property
    def delay(self) -> int:
        return self.grace

    def starts(self, timestamp: int) -> list[int]:
        """The starts of the windows that hold ``timestamp``, ascending."""
        last = timestamp - timestamp % self.advance
        first = last - (self.size - 1 - timestamp % self.advance) // self.advance * self.advance
        return list(range(max(first, 0) if timestamp >= 0 else first, last + 1, self.advance))


@dataclass(frozen=True, init=False)
class SlidingWindows(Windows):
    """``[start, start + difference]`` for each different set of records at most that far apart (KIP-450).

    Args:
        difference: the greatest distance between two records of a window.
        grace: how long after its end a window still takes late records.
    """

    difference: int

    def __init__(self, difference: Duration, *, grace: Duration = 0) -> None:
        self._set("difference", difference, 0)
        self._set("grace", grace, 0)

    @property
    def retention(self) -> int:
        return max(2 * self.difference + self.grace, 1)

    @property
    def delay(self) -> int:
        # The end is inside: a record exactly there is still taken while stream time stands at end + grace.
        return self.grace + 1


@dataclass(frozen=True, init=False)
class SessionWindows(Windows):
    """Sessions ``[first, last]`` of records, none further than ``gap`` from the next.

    Args:
        gap: the greatest distance between neighbours in a session.
        grace: how long a session still takes late records once the gap after it is over.
    """

    gap: int

    def __init__(self, gap: Duration, *, grace: Duration = 0) -> None:
        self._set("gap", gap, 0)
        self._set("grace", grace, 0)

    @property
    def retention(self) -> int:
        return max(self.gap + self.grace, 1)

    @property
    def delay(self) -> int:
        return self.gap + self.grace
