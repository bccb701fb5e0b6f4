"""How much of a new format a micro-batch prepares beside its own work: a share of the time that this takes.

Rule of this module: it knows time, no rows and no files. All that is done for new formats counts, whatever it is. What
cannot be divided may take more than the share; that is a debt, and later micro-batches do nothing until it is paid.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

LEAST_COPYING: Final = 1 / 4
"""Which part of the share copying may take although what has to be written takes all of it, so that it ends."""

LEAST_WORK: Final = 1 / 2
"""What is done in a directory takes at least that part of the time that it took to open it."""


class MigrationThrottle:
    """What one task spends on new formats, in one micro-batch after the other.

    Args:
        share: how much longer a micro-batch may take for new formats, of what it takes itself.
        clock: the time in seconds, from any beginning.
    """

    def __init__(self, share: float, clock: Callable[[], float] = time.perf_counter) -> None:
        self._share = share
        self._clock = clock
        self._spent = self._opening = self._stepping = self._copying = 0.0
        self._debt = self._closing = 0.0
        self._began = clock()

    def begin(self) -> None:
        """A micro-batch begins. What has been spent since the one before ended counts in it."""
        self._began = self._clock() - self._spent

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Count the time within as spent on a new format. None of these are to be nested."""
        start = self._clock()
        try:
            yield
        finally:
            self._spent += self._clock() - start

    @contextmanager
    def opening(self) -> Iterator[None]:
        """Count the time within as spent, and have it be worth it."""
        before = self._spent
        with self.aside():
            yield
        self._opening += self._spent - before

    @contextmanager
    def closing(self) -> Iterator[None]:
        """Count the time within as spent. As much is set aside for the next time."""
        before = self._spent
        with self.aside():
            yield
        self._closing = self._spent - before

    @contextmanager
    def step(self, *, copying: bool = False) -> Iterator[None]:
        """Count the time within as spent on a step, which may copy rows that the job itself has not touched."""
        before = self._spent
        with self.aside():
            yield
        self._stepping += self._spent - before
        if copying:
            self._copying += self._spent - before

    @property
    def in_debt(self) -> bool:
        """Whether more has been spent than the share of the time since."""
        return self._debt + self._spent > self._share * self._own

    @property
    def allows_more(self) -> bool:
        """Whether there is time for one more step, and for closing what is open."""
        if self._stepping < LEAST_WORK * self._opening:
            return True
        return self._debt + self._spent + self._closing < self._share * self._own

    @property
    def allows_copying(self) -> bool:
        """Whether there is time to copy, whatever else has been done."""
        return self._copying < LEAST_COPYING * self._share * self._own

    def end(self) -> None:
        """The micro-batch ends. No debt is greater than what it has taken itself, so that the next ones can pay it."""
        own = self._own
        self._debt = min(max(0.0, self._debt + self._spent - self._share * own), own)
        self._spent = self._opening = self._stepping = self._copying = 0.0

    @property
    def _own(self) -> float:
        """What the micro-batch has taken so far for itself."""
        return self._clock() - self._began - self._spent
