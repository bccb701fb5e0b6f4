"""``TaskRun``: the run of one task in one micro-batch, from the blobs that it gets to its commit.

Rule of this module: it opens the task's state at a manifest and commits it to another one; where manifests are kept,
and what becomes of the output, is up to the operator.
"""

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import pyarrow as pa

from millpond.adapters.spark.operator.held_manifests import explained
from millpond.adapters.spark.operator.stage import Stage
from millpond.adapters.spark.rows.key_texts import key_texts
from millpond.adapters.spark.rows.late_rows import LateBox
from millpond.adapters.spark.worker.attempt import Attempt
from millpond.errors import MissingFileError, StateConflictError
from millpond.metrics import StoreMetric
from millpond.processors.distribution.exchange import Blob
from millpond.processors.distribution.execution import Outputs, run_blobs
from millpond.processors.distribution.hot_keys import HotKeys
from millpond.processors.runtime.subtopology import Subtopology
from millpond.processors.runtime.tasks.task import Task
from millpond.processors.verbs.record_words import VerbWords
from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.durability.state import TaskState


@dataclass
class TaskRun:
    """One micro-batch of a task.

    Attributes:
        stage: the stage of the task.
        part: its sub-topology.
        partition: its partition.
        wall_clock: the time of the micro-batch, in milliseconds.
        attempt: to run it.
        counts: what it has counted, once all its output is taken.
        metrics: what it has measured, likewise.
        hot_keys: its hottest keys as texts, with about how many records there were of each, likewise.
        manifest: what it has committed, likewise; None for a task whose state, if it has any, ends with it.
    """

    stage: Stage
    part: Subtopology
    partition: int
    wall_clock: int
    attempt: Attempt
    counts: Counter[str] = field(default_factory=Counter)
    metrics: dict[str, int] = field(default_factory=dict)
    hot_keys: dict[str, int] = field(default_factory=dict)
    manifest: Manifest | None = None

    @property
    def task_id(self) -> str:
        """The task's."""
        return f"{self.part.index}_{self.partition}"

    @property
    def keeps_state(self) -> bool:
        """True if the task begins with what it has committed before."""
        return bool(self.part.stores) and self.stage.settings.generation is not None

    def tables(
        self, blobs: Collection[Blob], found: Manifest | None, tables_of: Callable[[Outputs], Iterable[pa.Table]]
    ) -> Iterator[pa.Table]:
        """Yield all that comes out of the task, as tables; at the end its state is committed.

        Args:
            blobs: all that the micro-batch brings to it.
            found: what it has committed before, as the checkpoint has it; None for nothing.
            tables_of: makes the tables. If a row of the state that it meets is damaged, so is the task's state.
        """
        settings, attempt = self.stage.settings, self.attempt
        if not self.part.stores:
            yield from chain.from_iterable(map(tables_of, self._outputs(blobs, {})))
            return
        before = self._start(found)
        attempt.begin(settings, lambda: found)
        with attempt.worker.task_state(settings, self.part, self.partition) as state:
            yield from chain.from_iterable(map(tables_of, self._outputs(blobs, self._opened(state, before))))
            if self.keeps_state:
                self.manifest = state.commit()
            self.metrics |= state.metrics.figures
            if settings.memory_budget is not None:
                self.metrics[StoreMetric.MEMORY_BUDGET] = settings.memory_budget

    def _start(self, found: Manifest | None) -> Manifest | None:
        """Return the manifest from which the task starts."""
        settings = self.stage.settings
        try:
            return settings.start_of(self.task_id, found, self.attempt.batch)
        except StateConflictError as error:
            raise explained(error, settings, found) from error

    def _opened(self, state: TaskState, before: Manifest | None) -> Mapping[str, Any]:
        """Return the stores of the task, opened."""
        try:
            return state.open(before)
        except MissingFileError as error:
            raise explained(error, self.stage.settings, before) from error

    def _outputs(self, blobs: Collection[Blob], stores: Mapping[str, Any]) -> Iterator[Outputs]:
        stage = self.stage
        words = VerbWords(stage.handling.name, stage.rows) if stage.rows else None
        box = stage.handling.box(f"task-{self.task_id}", self.attempt, words)
        late = LateBox(stage.handling, self.part, self.task_id, stage.rows, self.attempt)
        task = Task(
            self.part,
            stores,
            self.partition,
            wall_clock=self.wall_clock,
            policy=box.policy,
            reset=stage.settings.reset,
            keep_late=late.keep,
        )
        hot = HotKeys()
        yield from run_blobs(task, blobs, stage.decoders, self.wall_clock, settle_ties=bool(stage.rows), hot=hot)
        box.write()
        late.write()
        task.measure_time(time.time_ns() // 1_000, stage.handling.unit)
        self.hot_keys = key_texts(hot.hottest(), stage.decoders, stage.rows)
        self.counts.update(task.counters)
        self.metrics |= task.metrics.figures
