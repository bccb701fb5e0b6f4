"""``Standby``: warm copies of a running query on a machine whose executors may get its tasks at any time.

Rule of this module: it reads what the query commits, without Spark, and says how far the copies are behind. It runs
beside the query and tells it nothing, so a standby that has died costs what there being none costs. How a copy gets
where it should be, and whose it is, is up to ``millpond.stores.durability.copies.standby``.
"""

import logging
import re
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, Self, TypeAlias

from millpond.adapters.inspect.checkpoint.spark_checkpoint import SparkCheckpoint
from millpond.adapters.spark.copies.warm_query import (
    TaskCopies,
    WarmCopy,
    WarmQuery,
    check_copies_at_rest,
    subtopology_of,
)
from millpond.adapters.spark.copies.warming import repeated
from millpond.adapters.spark.worker.local_directories import beside
from millpond.errors import (
    BackendInUseError,
    BackendUnavailableError,
    DurabilityError,
    InvalidArgumentError,
    StoreFullError,
    WrongCheckpointError,
)
from millpond.stores.durability.copies.standby import StandbyTask
from millpond.stores.durability.manifests.bridge import BRIDGED
from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.durability.storage.uris import shown

_log = logging.getLogger(__name__)

_LONGEST_LAG: Final = BRIDGED - 1
"""Micro-batches: with the next one, a copy still follows across its snapshot."""

_SHARE: Final = re.compile(r"(\d{1,6})/(\d{1,6})")

Queries: TypeAlias = Callable[[Collection[Manifest]], Sequence[WarmQuery]]
"""The queries whose manifests a checkpoint has."""


class Share(NamedTuple):
    """One of ``of`` equal parts of the tasks; the first one has number 1."""

    number: int
    of: int

    @classmethod
    def parsed(cls, text: str) -> Self:
        """Return the share ``"1/3"``.

        Raises:
            ConfigurationError: it is none.
        """
        found = _SHARE.fullmatch(text)
        if found is None or not 1 <= int(found[1]) <= int(found[2]):
            raise InvalidArgumentError(f"the share {text!r} makes no sense; give I/N with I from 1 to N, as in 1/3")
        return cls(int(found[1]), int(found[2]))

    def has(self, manifest: Manifest) -> bool:
        """Return whether the task of a manifest is in it."""
        return (subtopology_of(manifest) + int(manifest.task_id.partition("_")[2])) % self.of == self.number - 1


@dataclass(frozen=True)
class Round:
    """The state of a machine's standby copies after a round.

    Attributes:
        batch: the micro-batch that was followed.
        behind: how many micro-batches the copy that is furthest behind may lack of those that are committed now.
        lag_s: for how many seconds a copy has been without something that was committed, at most, since the round
            before.
        tasks: how many tasks have warm copies.
        in_use: how many tasks of the share the workers of this machine have themselves.
        copies: the copies that were brought on, or are where they should be.
        faults: why tasks were not brought on. The next round tries again.
    """

    batch: int
    behind: int
    lag_s: float
    tasks: int
    in_use: int
    copies: tuple[WarmCopy, ...]
    faults: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"standby: {self.tasks} tasks warm, {self.in_use} in use here, {len(self.faults)} failed; at micro-batch "
            f"{self.batch}, at most {self.behind} behind, and {self.lag_s:.1f} s since the last round"
        )

    def lines(self) -> Iterator[str]:
        """Yield lines that tell what was done, what failed, and how far the copies are."""
        yield from (str(copy) for copy in self.copies if copy.restored or copy.rows)
        yield from (f"failed: {fault}" for fault in self.faults)
        yield str(self)

    def to_dict(self) -> dict[str, Any]:
        """Return the same as JSON has it."""
        return asdict(self)


@dataclass
class _Kept:
    """A task of the share, as it was in the last round.

    Attributes:
        query: whose task it is.
        task: its copies.
        fresh: when the manifest was read at which the copies stood last, on the monotonic clock; None if they never
            did, or are a worker's.
    """

    query: WarmQuery
    task: StandbyTask
    fresh: float | None = None


class _Outcome(NamedTuple):
    """The outcome of a round for a task: its copies; nothing if it is in use here; or why it was not brought on."""

    copies: Sequence[WarmCopy] | None
    fault: str | None


_Key: TypeAlias = tuple[str, str, str]
"""Application, sink and task."""


@dataclass
class Standby:
    """The standby copies of a query's tasks on this machine.

    Args:
        checkpoint: the query's.
        queries: tells what shares the checkpoint; asked after each micro-batch, because a restart may change it.
        shares: the shares whose tasks are kept; none for all tasks.
        lag: how many micro-batches a copy may be behind before it is brought on.
        workers: how many tasks are brought on at the same time.

    Raises:
        ConfigurationError: copies that are so far behind could not follow.
    """

    checkpoint: SparkCheckpoint
    queries: Queries
    shares: Sequence[Share] = ()
    lag: int = 0
    workers: int = 4
    _kept: dict[_Key, _Kept] = field(default_factory=dict, init=False)
    _read: tuple[tuple[int, int | None], Sequence[TaskCopies]] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if not 0 <= self.lag <= _LONGEST_LAG:
            raise InvalidArgumentError(
                f"the lag is {self.lag}; give 0 to {_LONGEST_LAG} micro-batches, because a copy that is further behind "
                "cannot follow across a snapshot"
            )

    def follow(self, interval: float) -> Iterator[Round]:
        """Advance again and again until the user interrupts (Ctrl-C), which waits for the end of a round.

        What the storage cannot give now is tried again in the next round.

        Args:
            interval: how many seconds to wait in between.

        Raises what ``advance`` raises, but for ``DurabilityError``.
        """
        return (one for one in repeated(self._tried, interval) if one is not None)

    def _tried(self) -> Round | None:
        try:
            return self.advance()
        except DurabilityError as error:
            _log.warning("the standby tries again: %s", error)
            return None

    def advance(self) -> Round:
        """Bring the copies of all tasks of the share to the micro-batch that was committed last.

        Raises:
            ConfigurationError: no store has copies at rest, the checkpoint has no commit yet, or has no state of these
                queries; or a copy is in another format than the one to keep.
            FormatError: the checkpoint, or the state, is in a form that this release does not know.
            DurabilityError: the checkpoint, or what tells which stores there are, cannot be read.
            StoreError: the local directory cannot be used.
        """
        for kept in self._kept.values():
            kept.task.note()
        read = time.monotonic()
        batch = self.checkpoint.chosen(None)
        wanted = {_key(one): one for one in self._tasks(batch) if self._is_mine(one.manifest)}
        self._kept = {key: self._kept_for(key, one) for key, one in wanted.items()}
        with ThreadPoolExecutor(self.workers, "millpond-standby") as pool:
            outcomes = list(pool.map(_followed, self._kept.values(), wanted.values()))
        for directory in {beside(one.query.directory) for one in wanted.values()}:
            _remove_if_empty(directory)
        done = self._round(batch, read, [one.manifest for one in wanted.values()], outcomes)
        _log.info("%s", done)
        return done

    def _tasks(self, batch: int) -> Sequence[TaskCopies]:
        """Return all tasks after a micro-batch, which are read once, unless it was committed anew."""
        commit = batch, self.checkpoint.committed().get(batch)
        if self._read is None or self._read[0] != commit:
            self._read = commit, self._found(batch)
        return self._read[1]

    def _found(self, batch: int) -> list[TaskCopies]:
        found = self.checkpoint.manifests(batch)
        queries = self.queries(found)
        tasks = [task for query in queries for task in query.tasks(found, batch)]
        if not tasks:
            names = sorted({manifest.application_id for manifest in found})
            raise WrongCheckpointError(
                f"the checkpoint {shown(self.checkpoint.storage.uri)} has no state of the job whose copies are to be "
                f"kept, only of the applications {names}; give the checkpointLocation of its query, and --topology as "
                "it runs now"
            )
        check_copies_at_rest(queries)
        return [task for task in tasks if task.query.keeps_copies(subtopology_of(task.manifest))]

    def _is_mine(self, manifest: Manifest) -> bool:
        return not self.shares or any(share.has(manifest) for share in self.shares)

    def _kept_for(self, key: _Key, copies: TaskCopies) -> _Kept:
        known = self._kept.get(key)
        if known is not None and known.query == copies.query:
            return known
        query, manifest = copies.query, copies.manifest
        task = StandbyTask(
            query.specs[subtopology_of(manifest)],
            query.supplier,
            application_id=manifest.application_id,
            task_id=manifest.task_id,
            local_dir=query.directory,
            beside=beside(query.directory),
            storage=query.storage,
            policy=query.policy,
            lag=self.lag,
            as_recorded=query.as_recorded,
        )
        return _Kept(query, task)

    def _round(self, batch: int, read: float, manifests: Sequence[Manifest], outcomes: Sequence[_Outcome]) -> Round:
        committed_since = self.checkpoint.batches()[-1] - batch
        end = time.monotonic()
        behind, lag = 0, 0.0
        for kept, manifest in zip(self._kept.values(), manifests, strict=True):
            stood = kept.task.stood
            if stood is None:
                kept.fresh = None
                continue
            behind = max(behind, manifest.sequence - stood.sequence)
            lag = max(lag, end - (read if kept.fresh is None else kept.fresh))
            if stood.commit == manifest.commit:
                kept.fresh = read
        return Round(
            batch,
            behind + committed_since,
            round(lag, 3),
            sum(kept.task.stood is not None for kept in self._kept.values()),
            sum(outcome.copies is None and outcome.fault is None for outcome in outcomes),
            tuple(copy for outcome in outcomes for copy in outcome.copies or ()),
            tuple(outcome.fault for outcome in outcomes if outcome.fault is not None),
        )


def _key(copies: TaskCopies) -> _Key:
    return copies.manifest.application_id, copies.query.sink, copies.manifest.task_id


def _followed(kept: _Kept, copies: TaskCopies) -> _Outcome:
    """Bring the copies of a task on, and return the outcome."""
    manifest = copies.manifest
    try:
        warmed = kept.task.follow(manifest)
    except (DurabilityError, BackendInUseError, BackendUnavailableError, StoreFullError) as error:
        return _Outcome(None, f"task {manifest.task_id} of {manifest.application_id}: {error}")
    if warmed is None:
        return _Outcome(None, None)
    return _Outcome([WarmCopy(manifest.application_id, manifest.task_id, *copy) for copy in warmed], None)


def _remove_if_empty(directory: Path) -> None:
    """Remove the directory of what was restored, once all of it has been moved in."""
    if directory.is_dir():
        for path in (*directory.iterdir(), directory):
            with suppress(OSError):
                path.rmdir()
