"""``ChangedWindows``: windows that change at some times.

Rule of this module: as in ``millpond.processors.options.windows``.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from millpond.processors.options.windows import SessionWindows, Span, TimeWindows, Windows
from millpond.stores.encoding.times import MAX_TIME, MIN_TIME


@dataclass(frozen=True, init=False)
class ChangedWindows(Windows):
    """Windows that change at some times; a window that begins before such a time ends as it began.

    Args:
        eras: windows of one kind, of time or sessions, the earliest first.
        since: the time at which each era but the first begins, ascending; windows of time have a boundary then.
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
        """The times at which windows of each era begin."""
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
    """Return the last time that is in a window which begins up to ``latest``; sessions are cut there."""
    if isinstance(windows, SessionWindows):
        return latest
    return windows.grid.end(windows.grid.last(latest)) - 1
