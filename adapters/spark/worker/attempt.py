"""``Attempt``: what runs here for Spark, as its context tells it, and the process that runs it.

Rule of this module: nobody else asks Spark's context in a worker; others are given the attempt.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Self

from pyspark.taskcontext import TaskContext

from millpond.adapters.spark.worker.worker import THIS_WORKER, StateSettings, Worker
from millpond.stores.durability.manifests.manifest import Manifest

_BATCH_ID: Final = "streaming.sql.batchId"
"""The property of Spark's tasks that holds the number of their micro-batch."""

_QUERY_ID: Final = "sql.streaming.queryId"
"""The one that holds the id of their query, which its checkpoint keeps in the file ``metadata``."""


@dataclass(frozen=True)
class Attempt:
    """One attempt of Spark's to run a part of a query.

    Attributes:
        batch: the number of the micro-batch; None for static DataFrames.
        query: the id of the query; None for static DataFrames.
        split: the number of Spark's partition.
        worker: the process.
    """

    batch: int | None
    query: str | None
    split: int
    worker: Worker

    @classmethod
    def here(cls) -> Self:
        """Return the one for which this process is called."""
        context = TaskContext.get()
        if context is None:
            return cls(None, None, 0, THIS_WORKER)
        number = context.getLocalProperty(_BATCH_ID)
        batch = None if number is None else int(number)
        return cls(batch, context.getLocalProperty(_QUERY_ID), int(context.partitionId()), THIS_WORKER)

    def begin(self, settings: StateSettings, found: Callable[[], Manifest | None]) -> None:
        """Keep what a query keeps beside its state, once in each run and process.

        Args:
            settings: the query's.
            found: tells what its checkpoint has for the task that begins.

        Raises:
            StateConflictError: another query has begun or changed the state since this one was built, or has the state
                with which this one would go on.
        """
        beginning = settings.beginning
        if beginning is not None and settings.run not in self.worker.begun:
            beginning.keep(self.query, may_be_empty=not self.batch or found() is not None)
            self.worker.begun.add(settings.run)
