"""How much of a new format a micro-batch prepares beside its own work: a share of the time that this takes.

Rule of this module: it knows time, no rows and no files. A micro-batch that takes long has room for a long step, a
short one for a short step, whatever the engine and the machine.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

SHARE: Final = 1 / 4
"""How much longer a micro-batch may take for new formats, of what it takes itself."""

LEAST_COPYING: Final = 1 / 20
"""What copying may take although all else that is done for new formats takes that share already: the sooner all rows
are there, the fewer micro-batches are held up."""


class Pace:
    """What one task spends on new formats, in one micro-batch after the other.

    Args:
        clock: the time in seconds, from any beginning.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._spent = self._copying = 0.0
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

    @contextmanager
    def copying(self) -> Iterator[None]:
        """Count the time within as spent on a new format, for rows that the micro-batch itself has not touched."""
        before = self._spent
        with self.aside():
            yield
        self._copying += self._spent - before

    @property
    def allows_more(self) -> bool:
        """Whether more may be copied in this micro-batch."""
        own = self._clock() - self._began - self._spent
        return self._spent < SHARE * own or self._copying < LEAST_COPYING * own

    def end(self) -> None:
        """The micro-batch ends."""
        self._spent = self._copying = 0.0
