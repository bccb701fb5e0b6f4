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
        self.stored: dict[tuple[Any, int, int], Any] = {}
        self._seen: set[tuple[Any, int, int]] = set()
        self._times: list[tuple[int, int]] = []
        self._waiting: dict[tuple[int, int], list[tuple[bytes, Window]]] = {}

    def add(self, time: int, raw_key: bytes, window: Window) -> None:
        """Hold ``window`` until ``time`` is due; ties go by start, then by the key's bytes."""
        place = window[:3]
        if time <= self.last and place not in self._seen:
            self._seen.add(place)
            moment = (time, window[1])
            together = self._waiting.get(moment)
            if together is None:
                self._waiting[moment] = [(raw_key, window)]
                heappush(self._times, moment)
            else:
                together.append((raw_key, window))

    @property
    def first(self) -> int | None:
        """The earliest time of a window that is held; None if there is no window."""
        return self._times[0][0] if self._times else None

    def due(self, time: int) -> list[Window]:
        """Remove and return the windows whose time is ``time`` or earlier, in order."""
        found: list[Window] = []
        times = self._times
        while times and times[0][0] <= time:
            together = self._waiting.pop(heappop(times))
            together.sort()
            found.extend([window for _, window in together])
        return found
