"""How time is cut into windows: tumbling, hopping, sliding, and sessions.

Rule of this module: configuration and arithmetic only, in int milliseconds. Stream time is the greatest timestamp that
an aggregation has seen; a window closes, and accepts no more records, once stream time is past its end plus its grace.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, Final, NamedTuple

from millpond.errors import TopologyError
from millpond.stores.encoding.times import MAX_TIME, MIN_TIME, Duration, to_millis


class EmitStrategy(Enum):
    """When a windowed aggregation emits: with each record, or once, when a window closes (KIP-825)."""

    ON_WINDOW_UPDATE = "on-window-update"
    ON_WINDOW_CLOSE = "on-window-close"


@dataclass(frozen=True)
class Windows(ABC):
    """What every definition of windows provides.

    Attributes:
        grace: how long after its end a window still accepts late records, in milliseconds.
        from_epoch: whether a record from 1970 on is in no window that starts earlier, as in Kafka Streams.
    """

    grace: int
    from_epoch: ClassVar[bool] = True

    @property
    @abstractmethod
    def retention(self) -> int:
        """How long a store must keep a window, in milliseconds after its start (a session's: its end); at least 1."""

    @property
    @abstractmethod
    def delay(self) -> int:
        """How far past the end in a window's key stream time must be for its result to be final, in milliseconds."""

    def _set(self, what: str, duration: Duration, least: int) -> None:
        millis = to_millis(duration, f"{what} of {type(self).__name__}")
        if millis < least:
            raise TopologyError(f"{type(self).__name__}: {what} is {millis} ms; give at least {least} ms")
        object.__setattr__(self, what, millis)


@dataclass(frozen=True, init=False)
class TimeWindows(Windows):
    """Windows of a fixed size, ``[start, start + size)``: tumbling, or hopping if they overlap.

    Windows start at multiples of their advance since 1970; a record from then on is in no window that starts earlier.

    Args:
        size: the length of a window.
        advance: the distance between the starts of consecutive windows; at most ``size``, which is the default.
        grace: how long after its end a window still accepts late records.

    Raises:
        TopologyError: the size or the advance is not positive, the advance exceeds the size, or the grace is negative.

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
        return list(range(max(first, 0) if self.from_epoch and timestamp >= 0 else first, last + 1, self.advance))


@dataclass(frozen=True, init=False)
class SlidingWindows(Windows):
    """Windows ``[start, start + difference]``, one per distinct set of records at most that far apart (KIP-450).

    Args:
        difference: the largest time between two records of a window.
        grace: how long after its end a window still accepts late records.

    Raises:
        TopologyError: the difference or the grace is negative.
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
        # The end is inclusive: a record exactly there is still accepted while stream time is end + grace.
        return self.grace + 1


@dataclass(frozen=True, init=False)
class SessionWindows(Windows):
    """Sessions ``[first, last]`` of records, none further than ``gap`` from the next (KIP-94).

    Args:
        gap: the largest time between consecutive records of a session.
        grace: how long a session still accepts late records once the gap after it has passed.

    Raises:
        TopologyError: the gap or the grace is negative.
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


class Span(NamedTuple):
    """Windows that begin within some time.

    Attributes:
        first, last: the first and the last time at which they may begin.
    """

    first: int = MIN_TIME
    last: int = MAX_TIME

    def cut(self, first: int, last: int) -> "Span":
        """The part from ``first`` to ``last``, both included; empty where it ends before it begins."""
        return Span(max(first, self.first), min(last, self.last))


ALL_TIMES: Final = Span()


@dataclass(frozen=True, init=False)
class ChangedWindows(Windows):
    """Windows that are others from some time on: one that begins before that time ends as it began.

    Args:
        eras: windows of one kind, of time or sessions, the earliest first.
        since: of each but the first, when they begin, ascending; those of time have a boundary then.
    """

    eras: tuple[TimeWindows | SessionWindows, ...]
    since: tuple[int, ...]

    def __init__(self, eras: Sequence[TimeWindows | SessionWindows], since: Sequence[int]) -> None:
        object.__setattr__(self, "grace", max(windows.grace for windows in eras))
        object.__setattr__(self, "eras", tuple(eras))
        object.__setattr__(self, "since", tuple(since))

    @property
    def retention(self) -> int:
        return max(windows.retention for windows in self.eras)

    @property
    def delay(self) -> int:
        return max(windows.delay for windows in self.eras)

    @property
    def spans(self) -> list[Span]:
        """When windows of each era begin."""
        lasts = [time - 1 for time in self.since]
        return [Span(*ends) for ends in zip((MIN_TIME, *self.since), (*lasts, MAX_TIME), strict=True)]

    @property
    def taken(self) -> list[Span]:
        """From when to when records are in windows of each era."""
        return [
            Span(span.first, min(_last_in(windows, span.last), MAX_TIME))
            for windows, span in zip(self.eras, self.spans, strict=True)
        ]


def _last_in(windows: TimeWindows | SessionWindows, latest: int) -> int:
    """The last time that is in a window which begins up to ``latest``; sessions are cut there."""
    if isinstance(windows, SessionWindows):
        return latest
    return latest - latest % windows.advance + windows.size - 1
