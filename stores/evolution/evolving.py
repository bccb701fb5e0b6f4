"""Evolving: the state of a query is carried over to another shape, and one record makes that count.

Rule of this module: the order of things. Files are written first, then the record; until it exists nobody knows of
them, and another start begins anew. The caller chooses where units of work run.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol, TypeAlias

from millpond.errors import ConcurrentJobError, StateConflictError, StoresChangedError, UnrecordedStateError
from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.durability.parquet.reading import stores_in
from millpond.stores.durability.storage.storage import Storage
from millpond.stores.evolution.carriage import LayoutCarriage
from millpond.stores.evolution.carrying import Origin, carry_unit, units
from millpond.stores.evolution.history import History, Standing
from millpond.stores.evolution.losses import Counting, Loss, with_observed
from millpond.stores.evolution.matching import (
    Declared,
    kept_subtopologies,
    origins_of,
    same_state,
)
from millpond.stores.evolution.previewing import Preview
from millpond.stores.evolution.record import EvolutionRecord, Previous, commits_of, generation_fingerprint
from millpond.stores.evolution.seeding import Seeds, Sowing, still_seeded
from millpond.stores.evolution.shape import Shape, StoreShape
from millpond.stores.specs.store_spec import StoreKind

_log = logging.getLogger(__name__)

TaskPlace: TypeAlias = tuple[int, int]
"""A sub-topology and a partition."""


class Committed(NamedTuple):
    """The part of a checkpoint that belongs to one application.

    Attributes:
        batch: its last micro-batch; None if it has none.
        manifests: the manifests of the application, of any generation.
        by_now: looks again for its last micro-batch; None if it cannot have gone on.
        others: all commits in the checkpoint, also those of other applications. Tasks that go on may find any of them
            in their places.
    """

    batch: int | None
    manifests: Collection[Manifest]
    by_now: Callable[[], int | None] | None = None
    others: frozenset[str] = frozenset()

    def check_stands(self) -> None:
        """Refuse to count state that was carried over if another job has committed a micro-batch meanwhile.

        Raises:
            StateConflictError: one has.
        """
        now = self.batch if self.by_now is None else self.by_now()
        if now != self.batch:
            raise ConcurrentJobError(
                f"while the state was carried over after micro-batch {self.batch}, another job committed micro-batch "
                f"{now} in the same checkpoint, so nothing has been changed; stop that job, and start this one again"
            )


class Target(NamedTuple):
    """The plan for which state is carried over.

    Attributes:
        fingerprint: the fingerprint of the plan that is to run.
        shape: the shape of the plan.
        declared: the user's declaration of stores that have changed.
    """

    fingerprint: str
    shape: Shape
    declared: Declared


@dataclass(frozen=True)
class Carriage:
    """The carriage of state, in units that do not depend on each other. Travels to the workers.

    Attributes:
        storage: the place of the durable files.
        before, after: the shape of the state, and the part of the new shape that is to be written anew.
        origins: the old store of each new one that has one.
        manifests: the manifests of the old tasks that have state.
        application_id: the application.
        fingerprint: the fingerprint of the topology in the new manifests.
        layouts: the carriage of rows, by the name of their layout.
    """

    storage: Storage
    before: Shape
    after: Shape
    origins: Mapping[str, Origin]
    manifests: Mapping[TaskPlace, Manifest]
    application_id: str
    fingerprint: str
    layouts: Mapping[str, LayoutCarriage]

    @property
    def units(self) -> int:
        """The number of units."""
        return units(self.before.partitions, self.after.partitions)

    def run(self, unit: int) -> dict[str, str]:
        """Write the new tasks' files of one unit, and return their manifests as text by task id.

        Raises:
            MissingFileError, CorruptFileError: a file of an old task is gone or damaged.
            DurabilityError: the storage failed.
        """
        written = carry_unit(
            self.storage,
            unit,
            self.before,
            self.after,
            self.origins,
            self.manifests,
            application_id=self.application_id,
            fingerprint=self.fingerprint,
            layouts=self.layouts,
        )
        return {f"{index}_{partition}": one.to_json() for (index, partition), one in written.items() if one.files}


class Work(Protocol):
    """Work in units that do not depend on each other. Travels to the workers."""

    @property
    def units(self) -> int:
        """The number of units."""

    def run(self, unit: int) -> Mapping[str, str]:
        """Do one of them, and return its results as texts by name."""


RunUnits: TypeAlias = Callable[[Work], Iterable[Mapping[str, str]]]
"""A function that runs all units of some work, anywhere, and returns the results of each."""


def evolve(
    history: History,
    committed: Committed,
    target: Target,
    layouts: Mapping[str, LayoutCarriage],
    run: RunUnits,
    *,
    anew: bool = False,
    seeds: Seeds | None = None,
    source: History | None = None,
) -> EvolutionRecord:
    """Carry the state over from where the checkpoint stands, unless that is the newest generation, in that shape.

    Args:
        history: the generations so far.
        committed: the content of the checkpoint.
        target: the plan to evolve to.
        layouts: the carriage of rows, by the name of their layout.
        run: runs the units.
        anew: whether there is a new generation even if the state has that shape, because the checkpoint that goes on
            will hold no manifests.
        seeds: the rows with which new stores begin; None for none.
        source: the generations of the application whose state is carried over to that of ``history``, and whose
            manifests ``committed`` has; None if it is the same.

    Returns:
        The record, which is kept, of the generation with which the query goes on.

    Raises:
        StateConflictError: the declaration does not lead to the new shape, a loss on the way is not accepted, a store
            that is to be seeded has begun, or the checkpoint belongs to another query, or to one that has committed
            meanwhile.
        ConfigurationError: two queries of the application share the checkpoint.
        MissingFileError, CorruptFileError: a file of the state is gone or damaged.
        DurabilityError: the storage failed.
    """
    standing = (source or history).standing(committed.manifests, committed.batch)
    stays = standing.record is history.newest and _fits(standing, target)
    if anew or not stays:
        standing = _with_shape(history.storage, standing, target)
        record = _carried(history, committed, target, standing, layouts, run, seeds)
        committed.check_stands()
        history = history.keep(record)
    elif seeds is not None:
        seeds.check_sown(standing.record)
    history.keep_out_older_releases()
    return history.records[-1]


def begin_with(
    history: History,
    committed: Committed,
    target: Target,
    make: Callable[[str], Mapping[str, Manifest]],
) -> EvolutionRecord:
    """Begin with state that is made from others': the next generation, all of whose stores count as seeded.

    Args:
        history: the generations so far. Their beginning, too, is kept only once all else is written.
        committed: the content of the checkpoint.
        target: the plan of the state.
        make: takes the fingerprint for new manifests, writes the state with which tasks begin, and returns their
            manifests by task id.

    Returns:
        The record, which is kept.

    Raises:
        StateConflictError: another job has committed in the checkpoint meanwhile, or another process has begun.
        DurabilityError: the storage failed.
    """
    begun = history.begun(target.fingerprint, target.shape, keep=False)
    record = next_record(begun, committed, target, begun.records[-1])
    seeded = frozenset(store.name for store in target.shape.stores)
    record = replace(record, bases=make(record.fingerprint), seeded=seeded)
    committed.check_stands()
    history.begun(target.fingerprint, target.shape).keep(record).keep_out_older_releases()
    return record


def _carried(
    history: History,
    committed: Committed,
    target: Target,
    standing: Standing,
    layouts: Mapping[str, LayoutCarriage],
    run: RunUnits,
    seeds: Seeds | None,
) -> EvolutionRecord:
    """Return the next generation, whose files are written."""
    before, after = standing.record.shape, target.shape
    origins, losses = _counted(history.storage, standing, target, run)
    _check_losses(losses, target.declared, origins)
    new = frozenset[str]() if seeds is None else seeds.to_sow(standing.record, origins)
    record, places = next_record(history, committed, target, standing.record), _places(standing)
    elsewhere = any(manifest.application_id != history.application_id for manifest in places.values())
    kept = frozenset[int]() if elsewhere else kept_subtopologies(before, after, origins)
    bases = {
        f"{index}_{partition}": replace(manifest, fingerprint=record.fingerprint)
        for (index, partition), manifest in places.items()
        if index in kept
    }
    moved = {store.subtopology for store in after.stores if store.name in origins} - kept
    if places and moved:
        wanted = replace(after, stores=tuple(store for store in after.stores if store.subtopology in moved))
        carriage = Carriage(
            history.storage, before, wanted, origins, places, history.application_id, record.fingerprint, layouts
        )
        for written in run(carriage):
            bases |= {task: Manifest.from_json(text) for task, text in written.items()}
    if seeds is not None and new:
        bases |= seeds.sow(Sowing(history.storage, new, after, bases, history.application_id, record.fingerprint))
    return replace(record, bases=bases, seeded=new | still_seeded(standing.record, origins))


def preview(history: History, committed: Committed, target: Target, run: RunUnits) -> Preview:
    """Return what ``evolve`` would do, and write nothing.

    Args:
        history: the generations so far.
        committed: the content of the checkpoint.
        target: the plan to evolve to.
        run: runs the units of reading that this takes.

    Raises as ``evolve``, but returns losses instead of refusing them.
    """
    standing = history.standing(committed.manifests, committed.batch)
    if standing.record is history.newest and _fits(standing, target):
        return Preview()
    standing = _with_shape(history.storage, standing, target)
    before, after = standing.record.shape, target.shape
    origins, losses = _counted(history.storage, standing, target, run)
    kept = kept_subtopologies(before, after, origins)
    refused = None
    try:
        _check_losses(losses, target.declared, origins)
    except StateConflictError as error:
        refused = str(error)
    return Preview(
        (before.partitions, after.partitions),
        {name: origins.get(name) for name in sorted({store.name for store in after.stores})},
        losses,
        tuple(sorted({store.name for store in before.stores} - {origin.name for origin in origins.values()})),
        tuple(sorted(kept)),
        tuple(sorted({store.subtopology for store in after.stores if store.name in origins} - kept)),
        refused,
    )


def _counted(
    storage: Storage, standing: Standing, target: Target, run: RunUnits
) -> tuple[dict[str, Origin], dict[str, Loss]]:
    """Return the origin of each store, and the losses of those that become another kind, whose rows are read for it."""
    before = standing.record.shape
    origins = origins_of(before, target.shape, target.declared)
    converted = {name: origin for name, origin in origins.items() if origin.conversion is not None}
    if not converted:
        return origins, {}
    counting = Counting(storage, before.partitions, converted, _places(standing))
    copied = {store.name for store in target.shape.stores if store.is_global}
    known, losses = with_observed(converted, run(counting), copied)
    return origins | known, losses


def _check_losses(losses: Mapping[str, Loss], declared: Declared, origins: Mapping[str, Origin]) -> None:
    """Refuse to convert values without a time into versions, and to lose what may not be lost."""
    for name, loss in sorted(losses.items()):
        if loss.undated and name not in declared.valid_from:
            raise StoresChangedError(
                f"{loss.undated} values of the store {origins[name].name!r} have no known timestamp, and a version is "
                f"valid from a time on; say from when they are: Evolution(..., valid_from={{{name!r}: time}}), or "
                f"--valid-from {name}=TIME"
            )
    told = "; ".join(f"{name!r} {loss}" for name, loss in sorted(losses.items()) if loss.any)
    if told and not declared.accept_loss:
        raise StoresChangedError(
            f"stores that become another kind would lose what that does not keep: {told}. Nothing has been done; "
            "to go on without it, declare Evolution(..., accept_loss=True), or --accept-loss"
        )
    if told:
        _log.warning("stores become another kind, which is declared and accepted: %s", told)


def _fits(standing: Standing, target: Target) -> bool:
    return same_state(standing.record.shape, target.shape, target.declared.converted)


def _places(standing: Standing) -> dict[TaskPlace, Manifest]:
    """Return the manifests by sub-topology and partition."""
    return {_place(task): manifest for task, manifest in standing.manifests.items()}


def next_record(history: History, committed: Committed, target: Target, before: EvolutionRecord) -> EvolutionRecord:
    """Return the record of the next generation, without the manifests with which its tasks begin.

    Args:
        history: the generations so far.
        committed: the content of the checkpoint.
        target: the plan to evolve to.
        before: the generation that it is made from.
    """
    generation = max(history.next_generation, before.generation + 1)
    return EvolutionRecord(
        generation,
        generation_fingerprint(target.fingerprint, generation, history.sink),
        target.shape,
        committed.batch,
        Previous(before.generation, before.fingerprint, before.shape),
        commits_of(committed.manifests) | committed.others,
    )


def _with_shape(storage: Storage, standing: Standing, target: Target) -> Standing:
    """Return the standing with the known part of a shape that was never kept: the stores that durable files have.

    The rest is taken from the stores that continue them.

    Raises:
        StateConflictError: a store is to become another kind, and the files do not tell its old one.
    """
    record = standing.record
    if record.shape.stores or not standing.manifests:
        return standing
    if target.declared.converted:
        raise UnrecordedStateError(
            f"nothing tells of which kinds the stores were, and {sorted(target.declared.converted)} are declared to "
            "become others; start the job once as it was, with this release, which notes it"
        )
    names: dict[int, set[str]] = {}
    for task, manifest in standing.manifests.items():
        found = (stores_in(storage, manifest, file) for file in manifest.files)
        names.setdefault(_place(task)[0], set()).update(*found)
    stores = [_likely(target, index, name) for index in sorted(names) for name in sorted(names[index])]
    return standing._replace(record=replace(record, shape=replace(record.shape, stores=tuple(stores))))


def _likely(target: Target, index: int, name: str) -> StoreShape:
    """Return the likely shape of a store of which only the name is known."""
    continuing = target.shape.named(target.declared.renamed.get(name, name))
    if continuing:
        return replace(continuing[0], subtopology=index, name=name)
    return StoreShape(index, name, StoreKind.KEY_VALUE, "unknown", "unknown", None, "unknown")


def _place(task_id: str) -> TaskPlace:
    index, _, partition = task_id.partition("_")
    return int(index), int(partition)
