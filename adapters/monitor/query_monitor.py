"""``QueryMonitor``: a query, watched by its files: checkpoint, durable state, and kept progress.

Rule of this module: it only reads, and needs nothing of the process that runs the query. What cannot be read becomes a
note; only a checkpoint that is not there is an error.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import time
from typing import Final, NamedTuple

from millpond.adapters.inspect.checkpoint.spark_checkpoint import SparkCheckpoint
from millpond.adapters.inspect.sizes import task_size
from millpond.adapters.inspect.state_inspector import StateInspector
from millpond.adapters.inspect.store_view import StoreView
from millpond.adapters.monitor.diagnosis.figures import Figures, OpenBatch, StandbyCopy
from millpond.adapters.monitor.diagnosis.rules import diagnose
from millpond.adapters.monitor.drawing import drawn
from millpond.adapters.monitor.flow import (
    batches_seen,
    hot_keys_seen,
    operators_seen,
    reasons_seen,
    sources_seen,
    work_seen,
)
from millpond.adapters.monitor.kept.history import History
from millpond.adapters.monitor.kept.kept_progress import ProgressReader
from millpond.adapters.monitor.kept.micro_batch import MicroBatch
from millpond.adapters.monitor.kept.runs import Runs
from millpond.adapters.monitor.overview import Overview, Series, StoreSeen, TaskSeen
from millpond.errors import MillpondError
from millpond.processors.runtime.topology import Topology
from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.durability.storage.storage import Storage


def standby_copies(directory: Path) -> list[StandbyCopy]:
    """Return the tasks that have copies in a local directory, each with when its copies were brought on last.

    No engine is opened and no lease taken: the seal beside a copy is made anew whenever it has been brought on.

    Raises:
        OSError: the directory cannot be read.
    """
    used: dict[str, int] = {}
    for seal in directory.glob("*/**/.*.seal"):
        *_, application, task, _backend, _name = seal.parts
        at = seal.stat().st_mtime_ns // 1_000_000
        used[f"{application} {task}"] = max(at, used.get(f"{application} {task}", 0))
    return [StandbyCopy(task, at) for task, at in sorted(used.items())]


_NO_PROGRESS: Final = (
    "no progress of this query is kept, so there are no rates, no lag and no parts of micro-batches: run it with "
    "watch(spark, keep=DIRECTORY), and give that as --progress DIRECTORY"
)
_NO_STATE: Final = "give the job's state directory as --state-dir to see its stores"


class _State(NamedTuple):
    stores: tuple[StoreSeen, ...]
    tasks: tuple[TaskSeen, ...]
    notes: tuple[str, ...]


@dataclass
class QueryMonitor:
    """A query that is watched. Each ``look`` reads only what is new.

    Attributes:
        checkpoint: the query's ``checkpointLocation``, a path or URI.
        state_dir: the job's ``state_dir``; None if its stores are of no interest.
        progress: the directory that ``watch(spark, keep=...)`` was given; None if there is none.
        topology: what the query runs, to be drawn; None if only what is recorded is to be drawn.
        count: how many micro-batches are shown.
        workers: how many files are read at the same time.
        standby: the local directory that a standby on this machine keeps warm; None if there is none.
    """

    checkpoint: str
    state_dir: str | None = None
    progress: str | None = None
    topology: Topology | None = None
    count: int = 200
    workers: int = 4
    standby: Path | None = None
    _first: str | None = None
    _reader: ProgressReader | None = None
    _state: tuple[tuple[str, int, int], _State] | None = None
    _sizes: dict[str, Counter[str]] = field(default_factory=dict)

    def exists(self) -> bool:
        """Return whether there is a checkpoint; before there is, nothing can be looked at.

        Raises:
            ConfigurationError: no file system is known for its place.
            DurabilityError: the storage failed.
        """
        return SparkCheckpoint.exists(self.checkpoint)

    def look(self) -> Overview:
        """Return an overview of the query as it is now.

        Raises:
            ConfigurationError: there is no checkpoint, or no file system is known for a place.
            DurabilityError: the checkpoint cannot be read.
        """
        found = SparkCheckpoint.at(self.checkpoint, self.workers)
        query, begun, committed = found.query_id(), found.begun(), found.committed()
        notes = self._anew(query)
        kept, runs, history = self._kept(query, notes)
        batch = max(committed, default=None)
        state = _State((), (), ()) if batch is None else self._state_after(found, query, batch, committed[batch])
        later = max((number for number in begun if batch is None or number > batch), default=None)
        operators, reasons = operators_seen(kept), reasons_seen(kept)
        at = round(time() * 1000)
        open_batch = None if later is None else self._open(found, later, begun[later], notes)
        figures = Figures(at, kept, runs, history, committed, open_batch, self._standby(notes))
        return Overview(
            checkpoint=found.storage.describe("").rstrip("/"),
            query=query,
            name=kept[-1].name if kept else None,
            at=at,
            batch=batch,
            committed=None if batch is None else committed[batch],
            open_batch=later,
            open_since=None if later is None else begun[later],
            commit_age=None if batch is None else at - committed[batch],
            run=figures.run,
            restarts=runs.restarts if runs.begun else None,
            findings=tuple(diagnose(figures)),
            batches=tuple(batches_seen(kept, begun, committed, self.count)),
            sources=tuple(sources_seen(kept)),
            operators=tuple(operators),
            reasons=tuple(reasons),
            stores=state.stores,
            tasks=state.tasks,
            work=tuple(work_seen(kept)),
            hot_keys=tuple(hot_keys_seen(kept)),
            limits=next((one.limits for one in reversed(kept) if one.limits), ()),
            series=Series(history.minutes, history.hours, history.days),
            drawing=drawn(self.topology, operators, reasons, state.stores),
            notes=(*notes, *state.notes),
        )

    def _anew(self, query: str) -> list[str]:
        self._first = self._first or query
        if query == self._first:
            return []
        return [f"the checkpoint was begun anew: this is query {query}, and no longer {self._first}"]

    def _kept(self, query: str, notes: list[str]) -> tuple[list[MicroBatch], Runs, History]:
        kept: list[MicroBatch] = []
        runs, history = Runs(query), History(query)
        try:
            if self.progress is not None:
                if self._reader is None or self._reader.query != query:
                    self._reader = ProgressReader(Storage.from_uri(self.progress), query)
                kept = self._reader.newest(self.count)
                runs, history = self._reader.runs(), self._reader.history()
        except MillpondError as error:
            notes.append(str(error))
        else:
            if not kept and not runs.begun:
                notes.append(_NO_PROGRESS)
        return kept, runs, history

    def _open(self, found: SparkCheckpoint, number: int, since: int, notes: list[str]) -> OpenBatch:
        """Return a micro-batch that is not committed, and how many of its tasks are done."""
        try:
            done, partitions, done_at = found.progress_of(number)
        except MillpondError as error:
            notes.append(str(error))
            return OpenBatch(number, since)
        return OpenBatch(number, since, done, partitions, done_at)

    def _standby(self, notes: list[str]) -> list[StandbyCopy]:
        if self.standby is None:
            return []
        try:
            copies = standby_copies(self.standby)
        except OSError as error:
            notes.append(f"{self.standby} cannot be read: {error}")
            return []
        if not copies:
            notes.append(f"{self.standby} has no local copies")
        return copies

    def _state_after(self, found: SparkCheckpoint, query: str, batch: int, committed: int) -> _State:
        version = query, batch, committed
        if self._state is None or self._state[0] != version:
            try:
                self._state = version, self._read_state(found, batch)
            except MillpondError as error:  # not remembered: files may be gone because the query has gone on
                return _State((), (), (f"its state cannot be shown: {error}",))
        return self._state[1]

    def _read_state(self, found: SparkCheckpoint, batch: int) -> _State:
        manifests = found.manifests(batch)
        if not manifests:
            return _State((), (), ("the query has no state of Millpond",))
        if self.state_dir is None:
            return _State((), tuple(_tasks([_task(one, {}) for one in manifests])), (_NO_STATE,))
        inspector = StateInspector(found, Storage.from_uri(self.state_dir))
        views = inspector.stores(batch)
        current = {part.manifest.directory: part.manifest for view in views for part in view.parts}
        known = {one.path(file) for one in current.values() for file in one.files}
        self._sizes = {path: sizes for path, sizes in self._sizes.items() if path in known}
        sizes = {place: task_size(inspector.storage, one, self._sizes).stores for place, one in current.items()}
        tasks = [_task(one, sizes[place]) for place, one in current.items()]
        return _State(tuple(_store(view, sizes) for view in views), tuple(_tasks(tasks)), ())


def _tasks(tasks: Sequence[TaskSeen]) -> list[TaskSeen]:
    return sorted(tasks, key=lambda one: (one.application, *map(int, one.task.split("_"))))


def _task(manifest: Manifest, stores: dict[str, int]) -> TaskSeen:
    return TaskSeen(
        manifest.application_id,
        manifest.task_id,
        manifest.sequence,
        len(manifest.stored),
        len(manifest.deltas),
        sum(file.own_rows for file in manifest.files),
        sum(file.size for file in manifest.stored),
        stores,
    )


def _store(view: StoreView, sizes: dict[str, dict[str, int]]) -> StoreSeen:
    total = sum(sizes[part.manifest.directory].get(view.name, 0) for part in view.parts)
    subtopology = view.shape.subtopology
    return StoreSeen(view.application_id, view.sink, view.name, view.kind, subtopology, len(view.parts), total)
