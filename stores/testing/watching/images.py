"""Copies of a directory as a kill or a loss of power would leave it, taken while other work goes on in it.

Rule of this module: it knows how many changes were begun and flushed, but not the changes.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from millpond.stores.testing.watching.disk import Disk
from millpond.stores.testing.watching.system_calls import Announced
from millpond.stores.testing.watching.watched_work import Watcher

_PICKED: Final = (2, 3, 8, 64, 512)
"""The calls of each step before which a copy is taken; work that a step does in parts has begun by then."""


class Loss(StrEnum):
    """The end of a process."""

    KILL = "a kill"
    POWER = "a loss of power"


class Moment(StrEnum):
    """A mark of the work."""

    BEGUN = "begun"
    """A change is about to be made."""
    DONE = "done"
    FLUSHED = "flushed"
    CLOSED = "closed"


@dataclass(frozen=True)
class Image:
    """An image of a directory that a process left.

    Attributes:
        place: the path of the copy.
        loss: the end of the process.
        least, most: the bounds of the number of changes, from the first on, whose result the copy shows.
        when: the time of the end, in words.
    """

    place: str
    loss: Loss
    least: int
    most: int
    when: str


class ImageTaker(Watcher):
    """The taker of copies of ``root`` below ``target``, each of which it tells."""

    def __init__(self, disk: Disk, root: Path, target: Path, tell: Callable[[Image], None]) -> None:
        self._disk = disk
        self._root = root
        self._target = target
        self._tell = tell
        self._begun = self._flushed = self._calls = self._images = 0
        self._step = "at the opening"

    def called(self, call: Announced) -> None:
        if not self._disk.has(call):
            return
        self._disk.shown(call)
        self._calls += 1
        if self._calls in _PICKED and self._step:
            self._killed(f"{self._step}, before call {self._calls} of the system in it, {call.name}")

    def marked(self, text: str) -> None:
        moment, _, what = text.partition(" ")
        self._calls = 0
        if moment == Moment.BEGUN:
            self._begun += 1
            self._step = what and f"in the middle of {what}"
            return
        self._step = what and f"after {what}"
        if what:
            self._killed(self._step)
        if moment == Moment.FLUSHED:
            self._flushed = self._begun
        if moment in (Moment.FLUSHED, Moment.CLOSED) and self._flushed == self._begun:
            for names_of_now in (True, False):
                names = "its file names of then" if names_of_now else "the file names that were synced"
                place = self._next()
                self._disk.after_power_cut(place, names_of_now=names_of_now)
                self._say(place, Loss.POWER, f"{self._step}, which leaves {names}, and of each file what was synced")

    def _killed(self, when: str) -> None:
        if self._root.is_dir():
            place = self._next()
            self._disk.copy(place)
            self._say(place, Loss.KILL, when)

    def _next(self) -> Path:
        self._images += 1
        return self._target / str(self._images)

    def _say(self, place: Path, loss: Loss, when: str) -> None:
        self._tell(Image(os.fspath(place), loss, self._flushed, self._begun, when))
