"""The Python worker: the task states that it serves, kept from micro-batch to micro-batch, and its tuning.

Rule of this module: a worker trusts nothing that it remembers. Several workers serve the same tasks in turn, so a local
copy is checked against the manifest each time it is opened.
"""

import gc
import logging
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final
from zipimport import zipimporter

from millpond.adapters.spark.worker.kept_states import KeptStates, Owner
from millpond.adapters.spark.worker.local_directories import query_directory, take_over
from millpond.errors import MillpondError
from millpond.processors.runtime.subtopology import Subtopology
from millpond.processors.runtime.tasks.stream_time_reset import StreamTimeReset
from millpond.releases import Release
from millpond.stores.backend.contract import BackendSupplier
from millpond.stores.durability.copies.upgrade_mode import UpgradeMode
from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.durability.manifests.policy import DurabilityPolicy
from millpond.stores.durability.state import TaskState
from millpond.stores.durability.storage.storage import Storage
from millpond.stores.evolution.beginning import Beginning
from millpond.stores.evolution.record import EvolutionRecord
from millpond.stores.evolution.verbs.declarations import EditedAs
from millpond.stores.specs.store_spec import StoreSpec

_log = logging.getLogger(__name__)

COLLECT_AFTER: Final = (100_000, 50, 100)
"""The thresholds of Python's search for cyclic garbage. The default, every 700 new objects, takes a quarter of the time
of a task that makes a million short-lived ones."""

_FREEZES: Final = (2, 16)
"""The tasks of a process, by number, at whose beginning all present objects are taken for permanent: by the second one
the engine's modules are loaded, by the sixteenth also the modules of Spark that only some tasks take."""

_begun: Final = count(1)
"""Numbers the tasks that this process begins."""


@dataclass(frozen=True)
class StateSettings:
    """The settings of the state of one query's tasks. Travels to the workers.

    Attributes:
        application_id: the job's name.
        sink: the sink that the query writes; queries for other sinks have local copies of their own.
        run: a new id each time the query is built; what was remembered of another run is dropped.
        generation: of the state; tells what manifests call the topology, and with which ones tasks begin. None for
            state that ends with its tasks.
        storage: where the durable files are.
        local_dir: where local copies are; None for a directory of the executor's own.
        supplier: the backend of stores that do not name one.
        policy: when to write snapshots and what to retain.
        reset: the moment to which the tasks' times are set back; None for none.
        checksums: whether the rows of stores that do not say it themselves have checksums.
        upgrade: how local copies get a new format while they stay in theirs; None if they get it when they are opened.
        upgrade_from: the release that must be able to read what is written; None for this one.
        memory_budget: bytes for all stores of a worker; None for no limit.
        beginning: what is kept beside the state before the first row is put; None if that has been done, or never is.
        owner: of a verb, the application that it is a verb of; None for a topology.
        edited: the edits of a verb under other names that are not declared.
        formerly: of a clone, the application ids under which Spark's state may have its manifests.
    """

    application_id: str
    sink: str
    run: str
    generation: EvolutionRecord | None
    storage: Storage
    local_dir: str | None
    supplier: BackendSupplier
    policy: DurabilityPolicy
    reset: StreamTimeReset | None
    checksums: bool
    upgrade: UpgradeMode | None
    upgrade_from: Release | None
    memory_budget: int | None
    beginning: Beginning | None = None
    owner: str | None = None
    edited: tuple[EditedAs, ...] = ()
    formerly: frozenset[str] = frozenset()

    def start_of(self, task_id: str, found: Manifest | None, next_batch: int | None) -> Manifest | None:
        """Return the manifest with which a task starts a micro-batch; None for empty state.

        Args:
            task_id: the task.
            found: what Spark's state has for it, or for a task of an earlier generation in its place.
            next_batch: the number of the micro-batch; None if it has none.

        Raises:
            StateConflictError: the checkpoint does not stand where this generation began, or later, or there is an edit
                under another name.
        """
        if self.generation is None:
            return None
        for one in self.edited:
            one.check(task_id, found, next_batch)
        return self.generation.start_of(task_id, found, next_batch)


def tune_worker() -> None:
    """Tune this process for many records at a time; called at the beginning of each task.

    Spark invalidates Python's import caches before each task. With Spark's own packages imported from zip archives,
    dozens of cached finders then each read a whole archive's directory again: 50 ms per task. Finders that are not
    cached have nothing to invalidate, and are made again when something is imported.

    Spark also looks for cyclic garbage after each task, and so at all that was ever imported: 60 ms per task. What
    stays is taken out of that.
    """
    gc.set_threshold(*COLLECT_AFTER)
    if next(_begun) in _FREEZES:
        gc.freeze()
    for place, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter):
            del sys.path_importer_cache[place]


class Worker:
    """A process that runs tasks, and what it keeps from one to the next.

    Attributes:
        begun: the runs of queries whose beginnings it has kept, or found: these files are never changed.
    """

    def __init__(self) -> None:
        self._states = KeptStates()
        self.begun: set[str] = set()

    @contextmanager
    def task_state(self, settings: StateSettings, part: Subtopology, partition: int) -> Iterator[TaskState]:
        """The state of one task, for one micro-batch. What is not committed at the end is rolled back."""
        task_id = f"{part.index}_{partition}"
        query = settings.storage.place, settings.application_id, settings.sink
        owner, make = Owner(query, settings.run, settings.memory_budget), partial(_make, settings, part, task_id)
        with self._states.at_work(owner, task_id, make, time.monotonic()) as state:
            try:
                yield state
            except BaseException as error:
                try:
                    state.rollback(error)
                except MillpondError as another:  # the user has to see the first
                    _log.warning("task %s did not roll back as it should: %s", task_id, another)
                raise
            state.rollback()


THIS_WORKER: Final = Worker()
"""This process."""


def _make(settings: StateSettings, part: Subtopology, task_id: str) -> TaskState:
    return TaskState(
        specs_of(part, settings.checksums),
        settings.supplier,
        application_id=settings.application_id,
        task_id=task_id,
        local_dir=local_directory(settings, task_id),
        storage=settings.storage,
        fingerprint="" if settings.generation is None else settings.generation.fingerprint,
        policy=settings.policy,
        run=settings.run,
        upgrade_mode=settings.upgrade,
        upgrade_from=settings.upgrade_from,
        memory_budget=settings.memory_budget,
    )


def specs_of(part: Subtopology, checksums: bool) -> list[StoreSpec]:
    """Return the stores of a sub-topology's tasks, with the job's choice of checksums where they have none."""
    specs = part.stores.values()
    return [replace(spec, checksums=checksums) if spec.checksums is None else spec for spec in specs]


def local_directory(settings: StateSettings, task_id: str) -> Path:
    """Return the directory of a query's local copies: below the user's, or one that Spark deletes with the executor."""
    if settings.local_dir is not None:
        take_over(settings.local_dir, settings.sink, settings.storage, settings.application_id, task_id)
        return query_directory(settings.local_dir, settings.sink, settings.storage)
    spark_dirs = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")
    own = Path(spark_dirs[0] or tempfile.gettempdir()) / "millpond"
    return query_directory(own, settings.sink, settings.storage)
