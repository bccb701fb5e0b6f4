"""``Warming``: the local copies of a running query, warmed in another ``local_dir``: KIP-258's roll over.

Rule of this module: it reads what the query commits, and says how far the copies are. It runs beside the query and
tells it nothing; how a copy gets where it should be is up to ``millpond.stores.durability.copies.warming``.
"""

import logging
import signal
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Any, Final, TypeAlias, TypeVar

import pyarrow as pa
from pyspark.sql import SparkSession

from millpond.adapters.spark.copies.warm_query import (
    Outcome,
    TaskCopies,
    WarmCopy,
    WarmQuery,
    check_copies_at_rest,
)
from millpond.adapters.spark.session.checkpoint import Checkpoint
from millpond.adapters.spark.session.sent import in_workers
from millpond.adapters.spark.session.session import check_workers
from millpond.errors import MissingFileError

_log = logging.getLogger(__name__)

T = TypeVar("T")

_OUTCOMES_DDL: Final = "number long, outcome string"


@dataclass(frozen=True)
class Warmth:
    """The state of a query's local copies.

    Attributes:
        batch: the micro-batch that all of them stand at.
        behind: how many the query has committed since.
        copies: the copies.
    """

    batch: int
    behind: int
    copies: tuple[WarmCopy, ...]

    @property
    def tasks(self) -> int:
        """The number of tasks that the copies belong to."""
        return len({(copy.application, copy.task) for copy in self.copies})

    def __str__(self) -> str:
        return f"ready: all {self.tasks} tasks stand at micro-batch {self.batch}, {self.behind} behind"

    def lines(self) -> Iterator[str]:
        """Yield lines that tell what was done, and how far the copies are."""
        yield from (str(copy) for copy in self.copies if copy.restored or copy.rows)
        yield str(self)

    def to_dict(self) -> dict[str, Any]:
        """Return the same as JSON has it."""
        copies = [asdict(copy) for copy in self.copies]
        return {"batch": self.batch, "behind": self.behind, "tasks": self.tasks, "copies": copies}


RunTasks: TypeAlias = Callable[[Sequence[TaskCopies]], Iterable[Outcome]]
"""Warms tasks, several at the same time."""


@dataclass(frozen=True)
class Warming:
    """Local copies that are warmed beside a running query.

    Attributes:
        checkpoint: the query's.
        queries: what shares the checkpoint: a topology, or verbs.
        run: warms tasks.
    """

    checkpoint: Checkpoint
    queries: Collection[WarmQuery]
    run: RunTasks

    def advance(self) -> Warmth:
        """Bring all copies to the micro-batch that was committed last.

        Raises:
            ConfigurationError: no store has copies at rest, the checkpoint has no commit yet or is that of another
                query, or the directory is that of a running job.
            BackendInUseError: another process has a task open in the directory.
            MissingFileError, CorruptFileError, DurabilityError: the durable state is incomplete or damaged, or the
                storage failed.
            StoreFullError: there is no room for a copy.
        """
        check_copies_at_rest(self.queries)
        batch, tasks = self._newest()
        outcomes = list(self.run(tasks))
        while any(outcome.missing for outcome in outcomes):
            missed = {task.manifest: outcome.missing for task, outcome in zip(tasks, outcomes, strict=True)}
            batch, tasks = self._newest()
            for task in tasks:
                if missing := missed.get(task.manifest):
                    raise MissingFileError(missing)
            outcomes = list(self.run(tasks))
        copies = tuple(copy for outcome in outcomes for copy in outcome.copies)
        warmth = Warmth(batch, self.checkpoint.batches()[-1] - batch, copies)
        _log.info("%s", warmth)
        return warmth

    def follow(self, interval: float) -> Iterator[Warmth]:
        """Advance again and again until the user interrupts (Ctrl-C), which waits for the end of a pass.

        Args:
            interval: how many seconds to wait in between.

        Raises what ``advance`` raises.
        """
        return repeated(self.advance, interval)

    def _newest(self) -> tuple[int, list[TaskCopies]]:
        """Return the micro-batch that was committed last, and all tasks as they are after it."""
        batch, found = self.checkpoint.newest()
        if batch is None:
            found, batch = self.checkpoint.after(None)
        tasks = [task for query in self.queries for task in query.tasks(found, batch)]
        if not tasks:
            names = sorted({manifest.application_id for manifest in found})
            raise self.checkpoint.of_another_query(f"it holds state of the applications {names}")
        return batch, tasks


def repeated(advance: Callable[[], T], interval: float) -> Iterator[T]:
    """Yield what ``advance`` returns, again and again, until the user interrupts (Ctrl-C), which waits for its end.

    Args:
        advance: one pass.
        interval: how many seconds to wait in between.
    """
    with suppress(KeyboardInterrupt):
        while True:
            with _interrupts_noted() as interrupts:
                done = advance()
            yield done
            if interrupts:
                return
            time.sleep(interval)


@contextmanager
def _interrupts_noted() -> Iterator[list[int]]:
    """Interrupts are noted here, and do nothing else: what talks to Spark cannot be interrupted halfway."""
    noted: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: noted.append(number))
    try:
        yield noted
    finally:
        signal.signal(signal.SIGINT, before)


def warm_beside(session: SparkSession, checkpoint: str, queries: Collection[WarmQuery]) -> Warmth:
    """Bring all local copies of what shares a checkpoint to its last micro-batch, by a Spark job.

    Raises what ``Warming.advance`` raises.
    """
    check_workers(session)
    return Warming(Checkpoint(session, checkpoint), queries, tasks_on_spark(session)).advance()


@dataclass(frozen=True)
class WarmTasks:
    """The function of ``mapInArrow`` that takes numbers of tasks, and gives their outcomes."""

    tasks: Sequence[TaskCopies]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0):
                text = self.tasks[int(number.as_py())].warm().to_json()
                yield pa.record_batch([pa.array([int(number.as_py())]), pa.array([text])], ["number", "outcome"])


def tasks_on_spark(session: SparkSession) -> RunTasks:
    """Return a function that warms tasks as tasks of a Spark job, each on the executor that Spark chooses."""

    def run(tasks: Sequence[TaskCopies]) -> Iterable[Outcome]:
        numbers = session.range(0, len(tasks), 1, len(tasks))
        rows = in_workers(numbers, WarmTasks(tasks), _OUTCOMES_DDL).collect()
        return [Outcome.from_json(row.outcome) for row in sorted(rows)]

    return run


def tasks_in_threads(workers: int) -> RunTasks:
    """Return a function that warms tasks in threads of this process."""

    def run(tasks: Sequence[TaskCopies]) -> Iterable[Outcome]:
        with ThreadPoolExecutor(workers) as pool:
            return list(pool.map(TaskCopies.warm, tasks))

    return run
