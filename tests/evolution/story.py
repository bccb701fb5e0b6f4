"""The parts that the lives of jobs share: a directory that is gone in the end, steps by name, and what has happened."""

import shutil
import tempfile
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from tests.evolution.process import Process
from tests.metamorphic.keeping import MEMORY

MOST = 5
"""So many partitions, and so many stores, a job has at most."""
BACKENDS = ["memory", "lmdb", "lmdb", "lmdb", "rocksdb"]


class Story(ABC):
    """The life of one job.

    Attributes:
        seen: what has happened, and how often.
        directory: where all its files are.
        job: what lives.
    """

    job: Process

    def __init__(self) -> None:
        self.seen = Counter[str]()
        self.directory = Path(tempfile.mkdtemp(dir=MEMORY))

    def step(self, name: str, how: Mapping[str, Any]) -> None:
        """Take the next step, and look at all that the job holds if it was a restart."""
        runs = self.job.runs
        getattr(self, name)(**how)
        self.note(name)
        if self.job.runs > runs and name != "batch":
            self.look()

    def look(self) -> None:
        self.check()

    @abstractmethod
    def check(self) -> None:
        """Check what the tasks find in their stores."""

    def note(self, what: str) -> None:
        self.seen[what] += 1

    def lose_the_machine(self) -> None:
        self.job.lose_local_copies()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.job.stop()
        shutil.rmtree(self.directory, ignore_errors=True)


def other(options: Sequence[str], than: str, which: int) -> str:
    """Return one of the options."""
    left = [one for one in options if one != than]
    return left[which % len(left)]
