"""The order in which the final results of windows go out: by the time at which they close, then start, then key."""

from heapq import heappop, heappush
from typing import Any, NamedTuple


class Window(NamedTuple):
    """A key and a window; ``id``, the key or its bytes, tells keys apart."""

    id: Any
    start: int
    end: int
    key: Any


class Closing:
    """The windows that close within a batch, in the order in which their final results go out.

    Args:
        last: the latest time that closes within the batch.

    Attributes:
        last: the latest time that closes within the batch.
        stored: their states in the store, by ``id``, start and end.
    """

    def __init__(self, last: int) -> None:
        self.last = last
        self._waiting: list[tuple[int, int, bytes, Window]] = []
        self._seen: set[tuple[Any, int, int]] = set()
        self.stored: dict[tuple[Any, int, int], Any] = {}

    def add(self, time: int, raw_key: bytes, window: Window) -> None:
        """Hold ``window`` until ``time`` is due; ties go by start, then by the key's bytes."""
        if time <= self.last and window[:3] not in self._seen:
            self._seen.add(window[:3])
            heappush(self._waiting, (time, window.start, raw_key, window))

    def is_due(self, time: int) -> bool:
        """Whether there is a window whose time is ``time`` or earlier."""
        return bool(self._waiting) and self._waiting[0][0] <= time

    def due(self, time: int) -> list[Window]:
        """Remove and return the windows whose time is ``time`` or earlier, in order."""
        found = []
        while self.is_due(time):
            found.append(heappop(self._waiting)[3])
        return found
