"""How much of a new format a micro-batch prepares beside its own work: a share of the time that this takes.

Rule of this module: it knows time, no rows and no files. A micro-batch that takes long has room for a long step, a
short one for a short step, whatever the engine and the machine.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

SHARE: Final = 0.25
"""How much longer a micro-batch may take for what is copied in it."""


class Pace:
    """What one task spends on new formats, over one micro-batch after the other.

    Args:
        clock: the time in seconds, from any beginning.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._spent = 0.0
        self._began = clock()

    def begin(self) -> None:
        """A micro-batch begins. What has been spent since the one before ended, such as on closing, counts in it."""
        self._began = self._clock() - self._spent

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Count the time within as spent on a new format. Not to be nested."""
        start = self._clock()
        try:
            yield
        finally:
            self._spent += self._clock() - start

    @property
    def allows_more(self) -> bool:
        """Whether less than the share of the micro-batch's own time has been spent."""
        own = self._clock() - self._began - self._spent
        return self._spent < SHARE * own

    def end(self) -> None:
        """The micro-batch ends."""
        self._spent = 0.0
