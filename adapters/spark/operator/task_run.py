"""``TaskRun``: the run of one task in one micro-batch, from the blobs that it gets to its commit.

Rule of this module: it opens the task's state at a manifest and commits it to another one; where manifests are kept,
and what becomes of the output, is up to the operator. Hot keys are told as texts of a bounded length, without secrets.
"""

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final

import pyarrow as pa

from millpond.adapters.inspect.text import shown_text
from millpond.adapters.spark.operator.held_manifests import explained
from millpond.adapters.spark.operator.stage import Stage
from millpond.adapters.spark.rows.late_rows import LateBox, as_json
from millpond.adapters.spark.worker.attempt import Attempt
from millpond.errors import MissingFileError, StateConflictError
from millpond.masking import masked
from millpond.metrics import StoreMetric
from millpond.processors.distribution.exchange import Blob
from millpond.processors.distribution.execution import Decoder, Outputs, run_blobs
from millpond.processors.distribution.hot_keys import HotKeys
from millpond.processors.runtime.subtopology import Subtopology
from millpond.processors.runtime.tasks.task import Task
from millpond.processors.verbs.record_words import VerbWords
from millpond.processors.verbs.verb import Input
from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.durability.state import TaskState

_LONGEST: Final = 80


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


def key_texts(
    keys: Mapping[tuple[str, Any], int], decoders: Mapping[str, Decoder], inputs: Mapping[str, Input]
) -> dict[str, int]:
    """Return the texts of keys, with what stands at them.

    Args:
        keys: by topic and key, as records travel.
        decoders: how keys are read, by topic.
        inputs: of a verb, by topic: reads packed keys.
    """
    found: dict[str, int] = {}
    for (topic, key), amount in keys.items():
        text = masked(_text(topic, key, decoders, inputs))[:_LONGEST]
        found[text] = found.get(text, 0) + amount
    return found


def _text(topic: str, key: Any, decoders: Mapping[str, Decoder], inputs: Mapping[str, Input]) -> str:
    try:
        text = _read(topic, key, decoders, inputs)
    except Exception:  # a serde of a user's may raise anything, and what is only looked at fails no task
        text = None
    return text or shown_text(key) or "null"


def _read(topic: str, key: Any, decoders: Mapping[str, Decoder], inputs: Mapping[str, Input]) -> str | None:
    if topic in inputs:
        (text,) = as_json(inputs[topic].key_columns, [key])
        return text
    reader = decoders[topic].key_serde if topic in decoders else None
    return shown_text(key if reader is None or key is None else reader.deserialize(key))
