"""Carrying state over without the job, for ``millpond state evolve`` and ``millpond state repartition``.

Rule of this module: it finds the queries behind a checkpoint and says what was done to each. Units of work run in
threads of this process; the query must not be running.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from millpond.adapters.spark.evolution.evolution import in_threads
from millpond.adapters.spark.session.checkpoint import Checkpoint
from millpond.errors import AmbiguousError, NoCheckpointError, UnrecordedStateError
from millpond.processors.distribution.plan import make_plan
from millpond.processors.distribution.shape_of import shape_of
from millpond.processors.runtime.topology import Topology
from millpond.processors.verbs.rekeying.carriages import CARRIAGES
from millpond.stores.durability.manifests.claim import GENERATION_MARK
from millpond.stores.durability.storage.storage import Storage
from millpond.stores.evolution.current_manifests import without_left_behind
from millpond.stores.evolution.evolving import Committed, Target, evolve, preview
from millpond.stores.evolution.history import History, sinks_of
from millpond.stores.evolution.matching import Declared
from millpond.stores.evolution.previewing import Preview
from millpond.stores.evolution.record import commits_of
from millpond.stores.specs.directory import plain_name


@dataclass(frozen=True)
class Reshaped:
    """The result of reshaping the state of one query.

    Attributes:
        application: whose state it is.
        sink: what the query writes.
        changed: whether anything was done.
        generation: the number of the generation that counts now.
        partitions: how many it has.
        batch: the micro-batch after which it begins; None if the checkpoint had none.
        tasks_with_state: how many tasks begin with state.
    """

    application: str
    sink: str
    changed: bool
    generation: int
    partitions: int
    batch: int | None
    tasks_with_state: int

    def lines(self) -> Iterator[str]:
        """Yield the same for a reader."""
        what = f"{self.application}, {self.sink}"
        if not self.changed:
            yield f"{what}: {self.partitions} partitions, nothing to do"
            return
        yield (
            f"{what}: generation {self.generation}, {self.partitions} partitions, after micro-batch {self.batch}; "
            f"{self.tasks_with_state} tasks have state"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the same as JSON has it."""
        return asdict(self)


@dataclass(frozen=True)
class Reshaping:
    """The state behind a checkpoint, to be carried over.

    Attributes:
        checkpoint: the query's.
        storage: where its durable files are.
        sink: what the query writes; None where its application has one sink only, as verbs have.
        workers: how many units of work run at the same time.
    """

    checkpoint: Checkpoint
    storage: Storage
    sink: str | None
    workers: int

    def repartition(self, partitions: int) -> Iterator[Reshaped]:
        """Give all applications of the checkpoint another number of partitions; says of each what was done.

        Raises:
            ConfigurationError: the checkpoint has no state, or nothing tells what it looks like.
            StateConflictError: the checkpoint is that of another query.
            DurabilityError: the state could not be read or written.
        """
        for application_id, committed in self._committed().items():
            history = only_history(self.storage, application_id, self.sink)
            if history.newest is None:
                raise UnrecordedStateError(
                    f"nothing tells what the state of application {application_id!r} looks like; start the job once "
                    "with this release, which notes it, or run millpond state evolve with its topology: --topology"
                )
            topology = history.newest.fingerprint.partition(GENERATION_MARK)[0].rpartition("/")[0]
            shape = replace(history.newest.shape, partitions=partitions)
            yield self._evolved(history, committed, Target(f"{topology}/{partitions}", shape, Declared()))

    def evolve(
        self, topology: Topology, partitions: int | None, declared: Declared, *, dry_run: bool = False
    ) -> Reshaped | Preview:
        """Carry the state of the checkpoint's only application over to a topology; return what was done.

        Args:
            topology: what is to run.
            partitions: in how many partitions; None for as many as the state has.
            declared: what has changed.
            dry_run: only say what would be done.

        Raises:
            TopologyError: the topology has no such sink, or several and none was named.
            ConfigurationError: the checkpoint has no state, or that of several applications, or a declaration makes no
                sense.
            StateConflictError: what is declared does not lead to the topology, or would lose what is not accepted.
            DurabilityError: the state could not be read or written.
        """
        found = self._committed()
        if len(found) > 1:
            raise AmbiguousError(
                f"the checkpoint {self.checkpoint.location} has the state of the applications {sorted(found)}, and a "
                "topology is that of one; evolve them in the job, with "
                f"evolution=Evolution({self.checkpoint.location!r})"
            )
        ((application_id, committed),) = found.items()
        plan = make_plan(topology, self.sink, partitions or 1)
        history = History.of(self.storage, application_id, plain_name(plan.sink))
        plan = replace(plan, partitions=partitions or history.partitions or 1)
        target = Target(plan.fingerprint, shape_of(plan), declared)
        if dry_run:
            return preview(history.begun(*target[:2], keep=False), committed, target, in_threads(self.workers))
        return self._evolved(history.begun(*target[:2]), committed, target)

    def _evolved(self, history: History, committed: Committed, target: Target) -> Reshaped:
        before = history.newest
        after = evolve(history, committed, target, CARRIAGES, in_threads(self.workers))
        return Reshaped(
            application=history.application_id,
            sink=history.sink,
            changed=after is not before,
            generation=after.generation,
            partitions=after.shape.partitions,
            batch=after.batch,
            tasks_with_state=len(after.bases),
        )

    def _committed(self) -> dict[str, Committed]:
        """Return what the checkpoint has of each application."""
        batch, found = self.checkpoint.newest()
        if not found:
            raise NoCheckpointError(f"there is no state of Millpond's at {self.checkpoint.location}")
        current, others = without_left_behind(self.storage, found, batch), commits_of(found)
        names = sorted({one.application_id for one in current})
        mine = {name: [one for one in current if one.application_id == name] for name in names}
        return {name: Committed(batch, manifests, self.checkpoint.last, others) for name, manifests in mine.items()}


def only_history(storage: Storage, application_id: str, sink: str | None) -> History:
    """Return the history of an application's query for a sink; None where it has one sink only, as verbs have.

    A sink is called as in the topology, or as ``millpond state list`` shows it: plainly.

    Raises:
        ConfigurationError: it has several, and none was named.
        FormatError: a record is damaged, or of a later release.
        DurabilityError: the storage failed.
    """
    known = sinks_of(storage, application_id)
    if sink is None and len(known) > 1:
        raise AmbiguousError(f"application {application_id!r} has the sinks {known}; say which: --sink")
    if sink is not None and sink not in known:
        sink = plain_name(sink)
    return History.of(storage, application_id, "".join(known) if sink is None else sink)
