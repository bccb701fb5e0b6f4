"""Evolving: the state of a query is carried over to another shape, and one record makes that count.

Rule of this module: the order of things. Files are written first, then the record; until it exists nobody knows of
them, and whoever starts again begins anew. Where units of work run is the caller's choice.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

from millpond.stores.durability.manifest import Manifest
from millpond.stores.durability.parquet.reading import stores_in
from millpond.stores.durability.storage import Storage
from millpond.stores.evolution.carriage import LayoutCarriage
from millpond.stores.evolution.carrying import Origin, carry_unit, units
from millpond.stores.evolution.history import History, Standing
from millpond.stores.evolution.matching import Declared, kept_subtopologies, origins_of, same_state
from millpond.stores.evolution.record import EvolutionRecord, Previous, commits_of, generation_fingerprint
from millpond.stores.evolution.seeding import Seeds, Sowing, still_seeded
from millpond.stores.evolution.shape import Shape, StoreShape
from millpond.stores.specs import StoreKind

TaskPlace: TypeAlias = tuple[int, int]
"""Sub-topology and partition."""


class Committed(NamedTuple):
    """What a checkpoint has of one application.

    Attributes:
        batch: its last micro-batch; None if it has none.
        manifests: those of the application, of whatever generation.
    """

    batch: int | None
    manifests: Collection[Manifest]


class Target(NamedTuple):
    """What state is to become.

    Attributes:
        fingerprint: that of the plan that is to run.
        shape: that of the plan.
        declared: what the user says of stores that are not what they were.
    """

    fingerprint: str
    shape: Shape
    declared: Declared


@dataclass(frozen=True)
class Carriage:
    """What is carried over, in units that do not depend on each other. Travels to the workers.

    Attributes:
        storage: where the durable files are.
        before, after: what the state looks like, and what of it is to be written anew.
        origins: the old store of each new one that has one.
        manifests: of the old tasks that have state.
        application_id: the application.
        fingerprint: what the new manifests call their topology.
        layouts: how rows are carried, by the name of their layout.
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
        """How many there are."""
        return units(self.before.partitions, self.after.partitions)

    def run(self, unit: int) -> dict[str, Manifest]:
        """Write the new tasks' files of one unit, and give their manifests by task id.

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
        return {f"{index}_{partition}": one for (index, partition), one in written.items() if one.files}


RunUnits: TypeAlias = Callable[[Carriage], Iterable[Mapping[str, Manifest]]]
"""Runs all units of a carriage, wherever, and gives what each of them has written."""


def evolve(
    history: History,
    committed: Committed,
    target: Target,
    layouts: Mapping[str, LayoutCarriage],
    run: RunUnits,
    *,
    anew: bool = False,
    seeds: Seeds | None = None,
) -> EvolutionRecord:
    """Carry the state over from where the checkpoint stands, unless it stands in the newest generation, in that shape.

    Args:
        history: the generations so far.
        committed: what the checkpoint has.
        target: what the state is to become.
        layouts: how rows are carried, by the name of their layout.
        run: runs the units.
        anew: whether there is a new generation even if the state has that shape, because the checkpoint that goes on
            will hold no manifests.
        seeds: with what new stores begin; None for nothing.

    Returns:
        The record of the generation with which the query goes on; it is kept.

    Raises:
        StateConflictError: what is declared does not lead to the new shape, a store that is to be seeded has begun, or
            the checkpoint is that of another query.
        ConfigurationError: two queries of the application share the checkpoint.
        MissingFileError, CorruptFileError: a file of the state is gone or damaged.
        DurabilityError: the storage failed.
    """
    standing = history.standing(committed.manifests, committed.batch)
    stays = standing.record is history.newest and same_state(standing.record.shape, target.shape)
    if anew or not stays:
        standing = _with_shape(history.storage, standing, target)
        history = history.keep(_carried(history, committed, target, standing, layouts, run, seeds))
    elif seeds is not None:
        seeds.check_sown(standing.record)
    history.keep_out_older_releases()
    return history.records[-1]


def _carried(
    history: History,
    committed: Committed,
    target: Target,
    standing: Standing,
    layouts: Mapping[str, LayoutCarriage],
    run: RunUnits,
    seeds: Seeds | None,
) -> EvolutionRecord:
    """The next generation, whose files are written."""
    before, after = standing.record.shape, target.shape
    origins = origins_of(before, after, target.declared)
    new = frozenset[str]() if seeds is None else seeds.to_sow(standing.record, origins)
    kept = kept_subtopologies(before, after, origins)
    record = _next(history, committed, target, standing.record)
    places = {_place(task): manifest for task, manifest in standing.manifests.items()}
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
            bases |= written
    if seeds is not None and new:
        bases |= seeds.sow(Sowing(history.storage, new, after, bases, history.application_id, record.fingerprint))
    return replace(record, bases=bases, seeded=new | still_seeded(standing.record, origins))


def _next(history: History, committed: Committed, target: Target, before: EvolutionRecord) -> EvolutionRecord:
    """The record of the next generation, without what its tasks begin with."""
    generation = history.next_generation
    return EvolutionRecord(
        generation,
        generation_fingerprint(target.fingerprint, generation, history.sink),
        target.shape,
        committed.batch,
        Previous(before.generation, before.fingerprint, before.shape),
        commits_of(committed.manifests),
    )


def _with_shape(storage: Storage, standing: Standing, target: Target) -> Standing:
    """The standing with what is known of a shape that was never kept: the stores that durable files have.

    What they do not tell is taken from the stores that continue them.
    """
    record = standing.record
    if record.shape.stores or not standing.manifests:
        return standing
    names: dict[int, set[str]] = {}
    for task, manifest in standing.manifests.items():
        found = (stores_in(storage, manifest, file) for file in manifest.files)
        names.setdefault(_place(task)[0], set()).update(*found)
    stores = [_likely(target, index, name) for index in sorted(names) for name in sorted(names[index])]
    return standing._replace(record=replace(record, shape=replace(record.shape, stores=tuple(stores))))


def _likely(target: Target, index: int, name: str) -> StoreShape:
    """What a store is taken for of which only the name is known."""
    continuing = target.shape.named(target.declared.renamed.get(name, name))
    if continuing:
        return replace(continuing[0], subtopology=index, name=name)
    return StoreShape(index, name, StoreKind.KEY_VALUE, "unknown", "unknown", None, "unknown")


def _place(task_id: str) -> TaskPlace:
    index, _, partition = task_id.partition("_")
    return int(index), int(partition)
