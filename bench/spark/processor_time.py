"""The processor time of a process and of all that it has started, read from ``/proc``, which only Linux has.

What a process has spent that is gone is in the figures of the one that has waited for it, so nothing gets lost when a
worker ends between two looks.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np

_PROCESSES: Final = Path("/proc")
_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
_PARENT: Final = 1
_TIMES: Final = slice(11, 15)
"""Where the fields are, counted from the one behind the name: user and system time, and those of ended children."""


def processor_seconds(root: int) -> float:
    """What the process ``root`` and all that came from it have spent up to now, on all cores together.

    Args:
        root: the number of a process; zero seconds if there is none.
    """
    parents: dict[int, list[int]] = {}
    spent: dict[int, int] = {}
    for process, parent, ticks in _processes():
        parents.setdefault(parent, []).append(process)
        spent[process] = ticks
    total, left = 0, [root]
    while left:
        process = left.pop()
        total += spent.get(process, 0)
        left += parents.get(process, ())
    return total / _TICKS_PER_SECOND


class Spent:
    """Processor time of this process, and of all that came from it, at some moments."""

    def __init__(self) -> None:
        self._moments: list[float] = []
        self._seconds: list[float] = []

    def look(self, moment: float) -> None:
        """Note down what it is now; ``moment`` is later than the one before."""
        self._moments.append(moment)
        self._seconds.append(processor_seconds(os.getpid()))

    def between(self, start: float, end: float) -> float:
        """Seconds that were spent from one moment to another; evenly, it is supposed, between two looks."""
        before, after = np.interp([start, end], self._moments, self._seconds)
        return float(after - before)


def _processes() -> Iterator[tuple[int, int, int]]:
    """Each process, its parent, and the ticks that it and the children that it has waited for have spent."""
    for process in _PROCESSES.glob("[0-9]*"):
        try:
            _, _, fields = (process / "stat").read_text(errors="replace").rpartition(")")
        except OSError:
            continue  # it is gone
        values = fields.split()
        yield int(process.name), int(values[_PARENT]), sum(map(int, values[_TIMES]))
