"""``CumulativeWindows``: windows that start together and end step by step.

Rule of this module: as in ``millpond.processors.options.windows``.
"""

from dataclasses import dataclass

from millpond.errors import InvalidWindowError
from millpond.processors.options.given import fitted
from millpond.processors.options.windows import GridWindows
from millpond.stores.encoding.times import Duration, TimeUnit, to_millis
from millpond.stores.typed.windows.grids import CumulativeGrid


@dataclass(frozen=True, init=False)
class CumulativeWindows(GridWindows):
    """Windows ``[start, start + step)``, ``[start, start + 2 * step)``, and so on up to ``[start, start + size)``.

    Each has all records since its start, as the ``CUMULATE`` of Flink SQL does: with ``CumulativeWindows("1 day",
    "1 hour")`` the last one of a day has the whole day, and the others what it had by each hour. They start at
    multiples of their size since 1970, moved by the offset. A window has a result once it has a record, so of a record
    come as many results as there are steps until the end of its size.

    In a store of a topology a window goes by its last step alone: from the end of the window before it to its own.

    Args:
        size: the length of the longest window, a multiple of the step.
        step: how much longer each window is than the one before it.
        grace: how long after its end a window still accepts late records.
        offset: how much later than 1970 a window starts; less than the size.

    Raises:
        TopologyError: the step is not positive, the size is no multiple of it, the offset is not less than the size,
            or the grace is negative.

    >>> CumulativeWindows("1 minute", "20 seconds").bounds(70_000)
    [(60000, 80000), (60000, 100000), (60000, 120000)]
    """

    size: int
    step: int
    offset: int = 0

    @fitted
    def __init__(self, size: Duration, step: Duration, *, grace: Duration = 0, offset: Duration = 0) -> None:
        self._set("size", size, 1)
        self._set("step", step, 1)
        self._set("grace", grace, 0)
        if self.size % self.step:
            shown = TimeUnit.MILLISECOND.length
            longer = shown(self.size + self.step - self.size % self.step)
            raise InvalidWindowError(
                f"CumulativeWindows: windows that grow by {shown(self.step)} never have a size of {shown(self.size)}; "
                f"give a multiple of the step as the size, such as {longer!r}"
            )
        moved = to_millis(offset, "offset of CumulativeWindows")
        if not 0 <= moved < self.size:
            same = TimeUnit.MILLISECOND.length(moved % self.size)
            raise InvalidWindowError(
                f"CumulativeWindows: an offset of {offset!r} is not within the size, {size!r}; windows start at the "
                f"same times with offset={same!r}"
            )
        object.__setattr__(self, "offset", moved)

    @property
    def retention(self) -> int:
        # The window with the latest place may be a size less a step ahead of the record that it came with.
        return self.size + self.grace

    @property
    def distance(self) -> int:
        return self.step

    @property
    def length(self) -> int:
        return self.step

    @property
    def is_tumbling(self) -> bool:
        return self.step == self.size

    @property
    def grid(self) -> CumulativeGrid:
        return CumulativeGrid(self.size, self.step, self.offset)

    def bounds(self, timestamp: int) -> list[tuple[int, int]]:
        """Return the starts and ends of the windows that hold ``timestamp``, the shortest first."""
        return [(self.grid.begin(place), self.grid.end(place)) for place in self.starts(timestamp)]
