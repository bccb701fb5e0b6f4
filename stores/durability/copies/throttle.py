"""The work that a micro-batch may spend on preparing a new format: a share of the time of its own work.

Rule of this module: it knows time, no rows and no files. All work for new formats counts. Work that cannot be divided
may take more than the share; that is a debt, and later micro-batches do no such work until it is paid.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

LEAST_COPYING: Final = 1 / 4
"""The part of the share that copying may take although due commits take all of it, so that copying ends."""

LEAST_WORK: Final = 1 / 2
"""The part of the time of opening a directory that work in it takes at least."""


class MigrationThrottle:
    """The time that one task spends on new formats, in one micro-batch after the other.

    Args:
        share: how much longer a micro-batch may take for new formats, as a share of its own time.
        clock: the time in seconds, from any beginning.
    """

    def __init__(self, share: float, clock: Callable[[], float] = time.perf_counter) -> None:
        self._share = share
        self._clock = clock
        self._spent = self._opening = self._stepping = self._copying = 0.0
        self._debt = self._closing = 0.0
        self._began = clock()

    def begin(self) -> None:
        """Begin a micro-batch. Time spent since the end of the one before counts in it."""
        self._began = self._clock() - self._spent

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Count the time within as spent on a new format. These contexts must not be nested."""
        start = self._clock()
        try:
            yield
        finally:
            self._spent += self._clock() - start

    @contextmanager
    def opening(self) -> Iterator[None]:
        """Count the time within as spent; work in the directory then takes at least a part of it."""
        before = self._spent
        with self.aside():
            yield
        self._opening += self._spent - before

    @contextmanager
    def closing(self) -> Iterator[None]:
        """Count the time within as spent, and set as much aside for the next time."""
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
        """True if more has been spent than the share of the time since."""
        return self._debt + self._spent > self._share * self._own

    @property
    def allows_more(self) -> bool:
        """True if there is time for one more step, and for closing what is open."""
        if self._stepping < LEAST_WORK * self._opening:
            return True
        return self._debt + self._spent + self._closing < self._share * self._own

    @property
    def allows_copying(self) -> bool:
        """True if there is time to copy, whatever else has been done."""
        return self._copying < LEAST_COPYING * self._share * self._own

    def end(self) -> None:
        """End the micro-batch. No debt is greater than its own time, so that the next ones can pay it."""
        own = self._own
        self._debt = min(max(0.0, self._debt + self._spent - self._share * own), own)
        self._spent = self._opening = self._stepping = self._copying = 0.0

    @property
    def _own(self) -> float:
        """The time, in seconds, that the micro-batch has taken so far for itself."""
        return self._clock() - self._began - self._spent
