"""The use of the machine by a running query: the memory of its Python workers, the processor time of all processes.

Both are read from ``/proc``, which only Linux has.

A query whose functions are made under ``workers_of_its_own`` gets fresh workers, marked by a variable of their
environment. So nothing that an earlier query has left in a worker counts, and its processes are found without asking
whose children they are.
"""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Final
from uuid import uuid4

from pyspark.sql import SparkSession

from millpond.bench.runs.processor_time import PAUSE_SECONDS, Process, ProcessorTime, Spent, all_processes

MARK: Final = "MILLPOND_BENCH_QUERY"
_PROCESSES: Final = Path("/proc")


@dataclass(frozen=True)
class WorkerMemory:
    """The most bytes that one worker had.

    Attributes:
        resident: in memory, with what it shares with others and what is mapped from files, such as LMDB's pages, which
            the system takes back when it needs them.
        own: of that, what is its own and no file's, as seen every half second.
    """

    resident: int = 0
    own: int = 0

    def at_most(self, other: "WorkerMemory") -> "WorkerMemory":
        """Return the greater of each."""
        return WorkerMemory(max(self.resident, other.resident), max(self.own, other.own))


class WorkerWatch:
    """Looks at the processes that carry ``mark``, and at the processor time of all, until it is stopped.

    Args:
        mark: the value of ``MARK`` in the environment of the processes.

    Attributes:
        spent: processor time of this process, Spark's JVM and its workers, by seconds since 1970.
        spent_by_workers: processor time of the processes that carry ``mark``.
    """

    def __init__(self, mark: str) -> None:
        self._mark = f"{MARK}={mark}".encode()
        self._stop = Event()
        self._thread = Thread(target=self._watch, daemon=True)
        self._most = WorkerMemory()
        self.spent = Spent()
        self.spent_by_workers = Spent(ProcessorTime(self._workers))

    def start(self) -> None:
        """Begin to look at the processes."""
        self._look()
        self._thread.start()

    def stop(self) -> WorkerMemory:
        """Look once more and end; all zeros if no such process was seen."""
        self._stop.set()
        self._thread.join()
        return self._most

    def _watch(self) -> None:
        """Look again and again; between two looks, the kernel keeps the peak of resident memory."""
        while not self._stop.wait(PAUSE_SECONDS):
            self._look()
        self._look()

    def _look(self) -> None:
        now = time.time()
        self.spent.look(now)
        self.spent_by_workers.look(now)

    def _workers(self) -> Iterator[Process]:
        """Yield the processes that carry the mark, and note their memory."""
        for process in all_processes():
            found = _memory(_PROCESSES / str(process.number), self._mark)
            if found is not None:
                self._most = self._most.at_most(found)
                yield process


@contextmanager
def workers_of_its_own(spark: SparkSession) -> Iterator[WorkerWatch]:
    """The queries that are made in here run in fresh workers, which the watch knows; it has to be started."""
    mark = uuid4().hex
    environment = spark.sparkContext.environment
    environment[MARK] = mark
    try:
        yield WorkerWatch(mark)
    finally:
        del environment[MARK]


def _memory(process: Path, mark: bytes) -> WorkerMemory | None:
    """Return the process's memory of now and at most; None if it is not marked, not ours, or gone."""
    try:
        if mark not in (process / "environ").read_bytes().split(b"\0"):
            return None
        sizes = dict(re.findall(r"^(VmHWM|RssAnon):\s+(\d+) kB$", (process / "status").read_text(), re.MULTILINE))
    except OSError:
        return None
    return WorkerMemory(int(sizes.get("VmHWM", 0)) << 10, int(sizes.get("RssAnon", 0)) << 10)
