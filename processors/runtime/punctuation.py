"""Punctuations: callbacks on a grid of stream time or of wall-clock time.

Rule of this module: it reads no clock. The task tells it the time, and due punctuations fire then. The next point of a
punctuation is a ``KeptTime``, ``punctuation-<node>-<n>``, in the first store of its processor.
"""

from collections.abc import Callable
from enum import Enum
from typing import Final, TypeAlias

from millpond.errors import ProcessorUseError
from millpond.processors.runtime.kept_time import KeptTime

PUNCTUATION: Final = "punctuation"
"""The beginning of the names of kept times of punctuations."""


class PunctuationType(Enum):
    """The clock that drives a scheduled callback: the records' time, or the wall clock."""

    STREAM_TIME = "stream-time"
    WALL_CLOCK_TIME = "wall-clock-time"


Punctuator: TypeAlias = Callable[[int], None]
"""Called with the time at which it fires, int milliseconds."""


class Punctuation:
    """A scheduled callback; ``cancel`` ends it.

    It fires on a grid of its interval, once however many points of the grid have passed. If its processor has a store,
    the next point is kept in that store's metadata, so that a restarted task continues where the old one stopped.

    Args:
        interval: milliseconds between points of the grid.
        kind: the clock that drives it.
        punctuator: the function to call.
        first: the first point, if no earlier task has left one.
        memory: keeps the next point; None if the processor has no store.

    Attributes:
        active: whether it has not been canceled.
        due: the time at which it fires next, int milliseconds.
    """

    def __init__(
        self, interval: int, kind: PunctuationType, punctuator: Punctuator, first: int, memory: KeptTime | None
    ) -> None:
        self.interval = interval
        self.kind = kind
        self._punctuator: Punctuator | None = punctuator
        self._memory = memory
        kept = None if memory is None else memory.get()
        self._left = kept is not None
        self.due = first if kept is None else kept

    @property
    def active(self) -> bool:
        return self._punctuator is not None

    def cancel(self) -> None:
        self._punctuator = None

    def plan(self, due: int) -> None:
        """Fire next at ``due``."""
        self.due = due
        if self._memory is not None:
            self._memory.put(due)

    def plan_by(self, latest: int) -> None:
        """Fire next at ``latest``, unless an earlier task has left a point that is not later, which stays as it is."""
        if self.due > latest or not self._left:
            self.plan(latest)

    def set_back(self, limit: int) -> bool:
        """Fire next at the first point after ``limit``, of the grid that starts at 0; False if that is not earlier."""
        first = (limit // self.interval + 1) * self.interval
        beyond = self.due > first
        if beyond:
            self.plan(first)
        return beyond

    def advance(self, now: int) -> None:
        """Fire once if the time has come, and plan the next firing on the grid of the interval."""
        if self._punctuator is None or now < self.due:
            return
        self.plan(self.due + self.interval * ((now - self.due) // self.interval + 1))
        self._punctuator(now)


class Scheduler:
    """The punctuations of one task.

    Args:
        wall_clock: the wall-clock time as the task begins, int milliseconds.
        set_back_to: the moment to which stream time was set back as the task began; None if it was not.

    Attributes:
        wall_clock: the wall-clock time that the task was told last.
        set_back_to: as given.
    """

    def __init__(self, wall_clock: int, set_back_to: int | None = None) -> None:
        self.wall_clock = wall_clock
        self.set_back_to = set_back_to
        self._punctuations: list[Punctuation] = []
        self._listeners: list[Punctuator] = []
        self._started = False

    @property
    def follows_stream_time(self) -> bool:
        """True if a punctuation waits for stream time, so that records must be processed one by one."""
        return any(p.active and p.kind is PunctuationType.STREAM_TIME for p in self._punctuations)

    def start(self) -> None:
        """Note that all processors are initialized: from now on records may arrive."""
        self._started = True

    def schedule(
        self, node: str, interval: int, kind: PunctuationType, punctuator: Punctuator, memory: KeptTime | None
    ) -> Punctuation:
        """See ``ProcessorContext.schedule``."""
        by_records = kind is PunctuationType.STREAM_TIME
        if by_records and self._started:
            raise ProcessorUseError(f"processor {node!r} schedules by stream time after init; do it in init")
        first = 0 if by_records else self.wall_clock + interval
        punctuation = Punctuation(interval, kind, punctuator, first, memory)
        if not by_records:
            punctuation.plan_by(first)
        self._punctuations.append(punctuation)
        return punctuation

    def listen(self, listener: Punctuator) -> None:
        """See ``ProcessorContext.at_wall_clock``."""
        self._listeners.append(listener)

    def advance(self, kind: PunctuationType, now: int) -> None:
        """Fire what is due by the clock ``kind``, the most overdue first, and tell the listeners to the wall clock."""
        if kind is PunctuationType.WALL_CLOCK_TIME:
            self.wall_clock = now
        for punctuation in sorted(self._punctuations, key=lambda p: p.due):
            if punctuation.kind is kind:
                punctuation.advance(now)
        if kind is PunctuationType.WALL_CLOCK_TIME:
            for listener in self._listeners:
                listener(now)
