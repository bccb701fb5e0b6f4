"""``WarmQuery``: a query whose local copies are warmed, as a plan has it or as its newest record does.

Rule of this module: it knows which stores a query has, which tasks are its own, and where their copies are; and it
brings those of one task to one manifest. When, and to which, is up to ``warming``.
"""

import json
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

from millpond.adapters.spark.reading.inspection import manifests_of
from millpond.adapters.spark.worker.local_directories import recorded_directory
from millpond.adapters.spark.worker.worker import specs_of
from millpond.errors import MissingFileError, StoreKindError, UnrecordedStateError
from millpond.processors.distribution.plan import Plan
from millpond.processors.distribution.shape_of import shape_of
from millpond.stores.backend.contract import BackendSupplier
from millpond.stores.backend.registry import supplier
from millpond.stores.durability.copies.warming import warm
from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.durability.manifests.policy import DurabilityPolicy
from millpond.stores.durability.storage.storage import Storage
from millpond.stores.encoding.serdes import BYTES
from millpond.stores.evolution.current_manifests import current_manifests
from millpond.stores.evolution.history import History
from millpond.stores.evolution.shape import Shape, StoreShape
from millpond.stores.specs.directory import plain_name
from millpond.stores.specs.store_spec import StoreSpec


@dataclass(frozen=True)
class WarmCopy:
    """The local copy of one store of one task, which is warm.

    Attributes:
        application: the application's id.
        task: the task's.
        store: the store's name.
        restored: whether it was filled anew this time, and did not only catch up.
        rows: how many rows came from durable files for that; 0 if it was there already.
    """

    application: str
    task: str
    store: str
    restored: bool
    rows: int

    def __str__(self) -> str:
        done = "restored" if self.restored else "caught up" if self.rows else "there already"
        return f"task {self.task} of {self.application}, store {self.store}: {done}, {self.rows} rows read"


class Outcome(NamedTuple):
    """The outcome for a task: copies that are warm, or a durable file that is gone."""

    copies: Sequence[WarmCopy]
    missing: str | None

    def to_json(self) -> str:
        return json.dumps([[asdict(copy) for copy in self.copies], self.missing])

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the outcome that ``to_json`` wrote."""
        copies, missing = json.loads(text)
        return cls([WarmCopy(**copy) for copy in copies], missing)


@dataclass(frozen=True)
class TaskCopies:
    """The local copies of one task. Travels to the workers.

    Attributes:
        manifest: where they are to stand.
        query: whose task it is.
    """

    manifest: Manifest
    query: "WarmQuery"

    def warm(self) -> Outcome:
        """Bring them there.

        Raises what ``millpond.stores.durability.copies.warming.warm`` raises, but for ``MissingFileError``.
        """
        query, one = self.query, self.manifest
        try:
            warmed = warm(
                query.specs[subtopology_of(one)],
                query.supplier,
                one,
                local_dir=query.directory,
                storage=query.storage,
                policy=query.policy,
                as_recorded=query.as_recorded,
            )
        except MissingFileError as error:
            return Outcome((), str(error))
        return Outcome([WarmCopy(one.application_id, one.task_id, *copy) for copy in warmed], None)


@dataclass(frozen=True)
class WarmQuery:
    """A query as it will be restarted.

    Attributes:
        application_id: the application's name.
        sink: the plain name of what it writes.
        fingerprint: the fingerprint of its plan, with any number of partitions.
        shape: what its state looks like, with any number of partitions.
        specs: the stores of each sub-topology, by its number.
        storage: where the durable state is.
        local_dir: where its copies are warmed.
        supplier: the backend of stores that do not name one.
        policy: of the job; None for the default.
        as_recorded: whether the stores are what the query's record says, which knows no backends of single stores.
    """

    application_id: str
    sink: str
    fingerprint: str
    shape: Shape
    specs: Mapping[int, Sequence[StoreSpec]]
    storage: Storage
    local_dir: str
    supplier: BackendSupplier
    policy: DurabilityPolicy | None = None
    as_recorded: bool = False

    @classmethod
    def of_plan(
        cls,
        plan: Plan,
        application_id: str,
        storage: Storage,
        local_dir: str,
        supplier: BackendSupplier,
        *,
        checksums: bool = False,
        policy: DurabilityPolicy | None = None,
    ) -> Self:
        """Return the query of a plan with any number of partitions; ``checksums`` is for stores that do not say."""
        specs = {part.index: specs_of(part, checksums) for part in plan.parts}
        sink, shape = plain_name(plan.sink), shape_of(plan)
        return cls(application_id, sink, plan.fingerprint, shape, specs, storage, local_dir, supplier, policy=policy)

    @classmethod
    def recorded(cls, history: History, local_dir: str, supplier: BackendSupplier, *, checksums: bool) -> Self:
        """Return a query as its newest record has it, with all stores on one backend, with checksums or without.

        Raises:
            ConfigurationError: no record tells which stores it has.
        """
        newest = history.newest
        if newest is None or not newest.shape.stores:
            raise UnrecordedStateError(
                f"nothing tells what the state of application {history.application_id!r} looks like; start the job "
                "once with this release, which notes it, or give the topology of the restart: --topology"
            )
        specs: dict[int, list[StoreSpec]] = defaultdict(list)
        for store in newest.shape.stores:
            specs[store.subtopology].append(_copied(store, checksums))
        return cls(
            history.application_id,
            history.sink,
            newest.fingerprint,
            newest.shape,
            dict(specs),
            history.storage,
            local_dir,
            supplier,
            as_recorded=True,
        )

    @property
    def directory(self) -> Path:
        """The directory of the query's copies."""
        return recorded_directory(self.local_dir, self.sink, self.storage)

    @property
    def persistent(self) -> bool:
        """True if a store of the query keeps local copies on disk."""
        return any(map(self.keeps_copies, self.specs))

    def keeps_copies(self, subtopology: int) -> bool:
        """Return whether a store of the tasks of a sub-topology has local copies at rest."""
        backends = {spec.backend for spec in self.specs[subtopology]}
        return any(supplier(backend or self.supplier).persistent for backend in backends)

    def tasks(self, found: Collection[Manifest], batch: int) -> list[TaskCopies]:
        """Return the query's tasks as they go on after a micro-batch.

        Args:
            found: all manifests that the checkpoint has, of one or several applications.
            batch: after which micro-batch.

        Raises:
            StateConflictError: the checkpoint does not belong to the state.
            FormatError: a record is damaged, or of a later release.
            DurabilityError: the storage failed.
        """
        own = [one for one in found if one.application_id == self.application_id]
        history = History.of(self.storage, self.application_id, self.sink)
        mine = manifests_of(history, self.fingerprint, self.shape, current_manifests(self.storage, own, batch))
        return [TaskCopies(one, self) for one in mine if subtopology_of(one) in self.specs]


def check_copies_at_rest(queries: Collection[WarmQuery]) -> None:
    """Refuse queries that have nothing to warm.

    Raises:
        ConfigurationError: none of their stores has a backend that keeps local copies on disk.
    """
    if not any(query.persistent for query in queries):
        raise StoreKindError(
            "no store of the query has a backend that keeps local copies on disk, so there is nothing to warm: the "
            "memory backend is filled when a task is first opened; warm copies take the backend rocksdb or lmdb"
        )


def subtopology_of(manifest: Manifest) -> int:
    """Return the number of the sub-topology that a manifest's task runs."""
    return int(manifest.task_id.partition("_")[0])


def _copied(store: StoreShape, checksums: bool) -> StoreSpec:
    """Return a store as far as its copies go: these are bytes, and none of its limits shows in them."""
    limits: dict[str, Any] = dict.fromkeys(store.kind.traits.needed, 0)
    return StoreSpec(store.name, store.kind, BYTES, BYTES, layout=store.layout, checksums=checksums, **limits)
