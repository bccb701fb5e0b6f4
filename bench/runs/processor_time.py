"""The processor time of a process and of all that it has started, read from ``/proc``, which only Linux has.

Spark's daemon does not wait for workers that end, so what they have spent is in no figure of their parents, and goes
with them. So each process is looked at on its own, and what it had spent when it was seen last goes on counting.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Final, NamedTuple

import numpy as np

PAUSE_SECONDS: Final = 0.5
"""The seconds from a look at processes to the next."""

_PROCESSES: Final = Path("/proc")
_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")


class Process(NamedTuple):
    """A process: its number, its parent's number, its begin and its processor time, both in ticks."""

    number: int
    parent: int
    began: int
    spent: int


class ProcessorTime:
    """The processor time that processes have spent, as of the last look.

    Args:
        processes: returns the processes of the moment.
    """

    def __init__(self, processes: Callable[[], Iterable[Process]]) -> None:
        self._processes = processes
        self._spent: dict[tuple[int, int], int] = {}

    @classmethod
    def of_family(cls, root: int) -> "ProcessorTime":
        """Return the processor time of the process with this number and of all processes that came from it."""
        return cls(lambda: _family(root))

    def look(self) -> float:
        """Return the seconds that the processes have spent up to now, on all cores together.

        What a process spends between the last look at it and its end is lost, so look more often than they end.
        """
        for process in self._processes():
            self._spent[process.number, process.began] = process.spent
        return sum(self._spent.values()) / _TICKS_PER_SECOND


class Spent:
    """Processor time at some moments.

    Args:
        time: the time of some processes; by default of this one and of all that came from it.
    """

    def __init__(self, time: ProcessorTime | None = None) -> None:
        self._time = time or ProcessorTime.of_family(os.getpid())
        self._moments: list[float] = []
        self._seconds: list[float] = []

    def look(self, moment: float) -> None:
        """Note down what it is now; ``moment`` is later than the one before."""
        self._moments.append(moment)
        self._seconds.append(self._time.look())

    def between(self, start: float, end: float) -> float:
        """Return the seconds spent from one moment to another, as if evenly between two looks."""
        before, after = np.interp([start, end], self._moments, self._seconds)
        return float(after - before)


@contextmanager
def looked_at(spent: Spent) -> Iterator[None]:
    """Note down processor time every ``PAUSE_SECONDS`` while this lasts, at its beginning and at its end."""
    over = Event()

    def look() -> None:
        while not over.wait(PAUSE_SECONDS):
            spent.look(time.time())

    spent.look(time.time())
    thread = Thread(target=look, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        spent.look(time.time())


def _family(root: int) -> Iterator[Process]:
    """Yield the process, if there is one, and all that came from it."""
    by_parent: dict[int, list[Process]] = {}
    left: list[Process] = []
    for process in all_processes():
        by_parent.setdefault(process.parent, []).append(process)
        if process.number == root:
            left.append(process)
    while left:
        process = left.pop()
        yield process
        left += by_parent.get(process.number, ())


def all_processes() -> Iterator[Process]:
    """Yield the processes of this machine."""
    for directory in _PROCESSES.glob("[0-9]*"):
        try:
            _, _, fields = (directory / "stat").read_text(errors="replace").rpartition(")")
        except OSError:
            continue  # it is gone
        _, parent, *others = fields.split()
        in_user, in_system, began = (int(others[place]) for place in (9, 10, 17))
        yield Process(int(directory.name), int(parent), began, in_user + in_system)
