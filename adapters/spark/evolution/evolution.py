"""``Evolution``: a user's declarations of a changed job, and the driver's part in carrying its state over.

Rule of this module: it decides with which generation of its state a query goes on, before the query starts. What a
generation is, and how rows get there, is up to ``millpond.stores.evolution``.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from millpond.adapters.spark.continuation.continuing import continue_checkpoint, is_continued
from millpond.adapters.spark.evolution.rekeyed import NewVerb
from millpond.adapters.spark.evolution.seeds import seeds_of
from millpond.adapters.spark.evolution.texts import TEXTS_DDL, collected, to_rows
from millpond.adapters.spark.evolution.verb_evolution import Committing, VerbEvolution
from millpond.adapters.spark.session.checkpoint import Checkpoint
from millpond.adapters.spark.session.sent import in_workers
from millpond.errors import InvalidEvolutionError, StateConflictError, StoresChangedError
from millpond.processors.distribution.plan import Plan
from millpond.processors.distribution.shape_of import shape_of
from millpond.processors.verbs.rekeying.carriages import CARRIAGES
from millpond.stores.durability.manifests.manifest import NO_COMMIT
from millpond.stores.durability.manifests.schema_log import keep_schemas
from millpond.stores.encoding.times import Instant
from millpond.stores.evolution.backfilling import check_ended
from millpond.stores.evolution.evolving import Committed, RunUnits, Target, Work, evolve
from millpond.stores.evolution.history import History
from millpond.stores.evolution.matching import (
    Declared,
    check_said,
    conversions_to_declare,
    origins_of,
    same_state,
    told_difference,
)
from millpond.stores.evolution.record import BEGINNING, EvolutionRecord, commits_of
from millpond.stores.evolution.seeding import Seeds
from millpond.stores.evolution.shape import Shape
from millpond.stores.evolution.verbs.declarations import SaidOfVerbs, VerbOf, application_of, declaration, holds_state
from millpond.stores.evolution.verbs.verb_kinds import check_kind


class Standpoint(NamedTuple):
    """The place at which a query stands.

    Attributes:
        checkpoint: the location of its checkpoint.
        into: where it is to go on; None if it stays.
        moved: whether it went on here, so that there is no state of tasks that have run nothing since.
    """

    checkpoint: str
    into: str | None = None
    moved: bool = False


@dataclass(frozen=True)
class Evolution:
    """Declared changes of a job since its state was written; the state is carried over when the query is built.

    It may stay in the code: where there is nothing to do, nothing is done.

    Attributes:
        checkpoint: the query's ``checkpointLocation``; for several queries a mapping to them, by sink or verb.
        renamed: the new name of each store that had another; of a ``Millpond``, of each verb.
        dropped: the names of stores that are gone, with all that they hold; of a ``Millpond``, of verbs. With ``into``,
            also the application ids whose state the query had and has no more.
        into: the ``checkpointLocation`` from now on, where there must be nothing, if the number of repartitions, or the
            number or order of sources has changed; for several queries a mapping. See ``location``.
        converted: the kind (``"key-value"``, ``"timestamped-key-value"`` or ``"versioned"``) of each store that was of
            another kind, by its new name.
        valid_from: for stores that become versioned, by their new names, the time from which values without a known
            timestamp are valid: a datetime, or milliseconds.
        accept_loss: whether to lose versions and timestamps that the new kinds do not keep, and rows that a verb lacks
            if it begins with the rows of another verb. Without it, the loss is refused, and the error tells what it is.
        rekeyed: for each verb of a ``Millpond`` that begins with the rows of another verb, the name of that verb, which
            is gone: the new verb has another key, or is of another kind. A side of a join is written behind its name,
            as ``{"priced.right": "prices"}``. docs/upgrading.md says which verbs can.
    """

    checkpoint: str | Mapping[str, str]
    renamed: Mapping[str, str] = field(default_factory=dict)
    dropped: Collection[str] = ()
    into: str | Mapping[str, str] | None = None
    converted: Mapping[str, str] = field(default_factory=dict)
    valid_from: Mapping[str, Instant] = field(default_factory=dict)
    accept_loss: bool = False
    rekeyed: Mapping[str, str] = field(default_factory=dict)
    _carried: dict[str, dict[str, int | None]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_said(self.renamed, self.dropped)

    def location(
        self, rows: DataFrame, *, name: str | None = None, sources: Mapping[int, int | None] | None = None
    ) -> str:
        """Return the query's ``checkpointLocation`` from now on; if it is a new one, it is made now.

        It goes on after the last micro-batch that was committed at the old one: with the numbers of micro-batches, and
        with the offsets of all sources that are still there. New sources start at their beginning. The old checkpoint
        is not changed.

        Args:
            rows: the DataFrame that is to be written, built with this evolution.
            name: of the sink or verb, if there are several checkpoints.
            sources: for the number of each source in the plan, the number of the old checkpoint's source that it
                continues, or None for a new one. May be left out where the checkpoint tells by files and topics.

        Raises:
            ConfigurationError: there is nothing to continue, the new place is taken, sources have to be declared, the
                DataFrame is static, or the session is one of Spark Connect.
            StateConflictError: the old checkpoint has state that would be lost, or a job has committed there since
                ``rows`` was built.
            DurabilityError: the file system failed.
        """
        old, new = _said_of(self.checkpoint, name), _said_of(self.into, name)
        if old is None:
            raise InvalidEvolutionError(
                f"the evolution has no checkpoint of {name!r}, only of {list(self.checkpoint)}; give location(..., "
                "name=...) one of these, or Evolution the checkpoint of that as well"
            )
        if new is None:
            return old
        carried = dict.fromkeys(self.dropped) | self._carried.get(new, {})
        return continue_checkpoint(rows, old, new, carried=carried, sources=sources)

    def standpoint(self, session: SparkSession, name: str) -> Standpoint | None:
        """Return the place at which the query for a sink or verb stands; None if nothing is said of it.

        Raises:
            ConfigurationError: at the place to go on there is the checkpoint of another query.
            DurabilityError: the file system failed.
        """
        old, new = _said_of(self.checkpoint, name), _said_of(self.into, name)
        if old is None or new is None:
            return None if old is None else Standpoint(old)
        return Standpoint(new, moved=True) if is_continued(session, old, new) else Standpoint(old, new)

    def tells_of(self, name: str) -> bool:
        """Return whether it says where the query for a sink or verb stands."""
        return _said_of(self.checkpoint, name) is not None

    def places(self, name: str) -> list[str]:
        """Return the places given for the query of a sink or verb: where it stands, and where it is to go on."""
        said = (_said_of(self.checkpoint, name), _said_of(self.into, name))
        return [one for one in said if one is not None]

    def note_carried(self, application_id: str, into: str, batch: int | None) -> None:
        """Keep in mind that the state of an application was carried over for going on at another checkpoint.

        Args:
            application_id: the application.
            into: the other checkpoint.
            batch: after which micro-batch.
        """
        self._carried.setdefault(into, {})[application_id] = batch

    @property
    def declared(self) -> Declared:
        """The declarations for the stores of a topology."""
        return Declared(self.renamed, self.dropped, self.converted, self.valid_from, self.accept_loss)

    @property
    def of_verbs(self) -> SaidOfVerbs:
        """The declarations for verbs.

        Raises:
            ConfigurationError: it contradicts itself.
        """
        return SaidOfVerbs(self.renamed, self.dropped, self.rekeyed)

    def declared_of_verb(self, verb: str, shape: Shape) -> Declared:
        """Return the declarations for the stores of a verb; other names belong to other verbs.

        Args:
            verb: the verb's name.
            shape: what its state is to be.
        """
        names = {store.name for store in shape.stores}
        converted = {name: kind for name, kind in self.converted.items() if name in names}
        valid_from = {name: time for name, time in self.valid_from.items() if name in names}
        return Declared(converted=converted, valid_from=valid_from, accept_loss=self.accept_loss, verb=verb)


class Whereabouts(NamedTuple):
    """The place at which a query stands, and the means to read it and to go on from there.

    Attributes:
        place: the place; None if it is not declared.
        checkpoint: reads what has been committed there; None without a place.
        run: runs units of work.
    """

    place: Standpoint | None
    checkpoint: Committing | None
    run: RunUnits


@dataclass(frozen=True)
class RunSome:
    """The function of ``mapInArrow`` that takes numbers of units, and gives their results."""

    work: Work

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for unit in batch.column(0):
                yield to_rows(self.work.run(int(unit.as_py())))


def generation_of(
    session: SparkSession,
    history: History,
    plan: Plan,
    evolution: Evolution | None,
    frames: Mapping[str, DataFrame],
    verb: VerbOf | None = None,
    asked: Collection[str] = (),
    inputs: NewVerb | None = None,
) -> EvolutionRecord:
    """Return the generation of its state with which a query goes on; carry state over now, if there is any to carry.

    Otherwise nothing is written: a query keeps its record with its first row (``Beginning``).

    Args:
        session: reads the checkpoint, and runs units of work.
        history: the history of the query.
        plan: what is to run.
        evolution: what the user declares; None for nothing.
        frames: the entries with which new stores begin.
        verb: which one it is; None if it is a topology.
        asked: the names of the verbs that were asked for so far.
        inputs: the inputs of a verb, if it may begin with rows of others.

    Raises:
        StateConflictError: the state has another shape, and what is declared does not lead to the new one, a store that
            is to be seeded has begun, a backfill has not come to its end, or a verb cannot begin with another one's
            rows, or would lack some.
        ConfigurationError: the checkpoint is that of another query.
        DurabilityError: the state could not be read or written.
    """
    place = None if evolution is None else evolution.standpoint(session, plan.sink)
    checkpoint = None if place is None else Checkpoint(session, place.checkpoint)
    whereabouts = Whereabouts(place, checkpoint, on_spark(session))
    return generation_at(whereabouts, history, plan, evolution, seeds_of(plan, frames), verb, asked, inputs)


def generation_at(
    whereabouts: Whereabouts,
    history: History,
    plan: Plan,
    evolution: Evolution | None,
    seeds: Seeds | None = None,
    verb: VerbOf | None = None,
    asked: Collection[str] = (),
    inputs: NewVerb | None = None,
) -> EvolutionRecord:
    """Return the generation with which a query at a given place goes on, by any reader of its checkpoint.

    Args:
        whereabouts: where the query stands, and what reads that and runs units of work.
        history, plan, evolution, verb, asked, inputs: as those of ``generation_of``.
        seeds: with what new stores begin; None for nothing.

    Raises as ``generation_of``.
    """
    generation = _generation_at(whereabouts, history, plan, evolution, seeds, verb, asked, inputs)
    if inputs is not None and inputs.fills:
        # A driver that dies between the record and this finds in the record the places that nobody else may have.
        keep_schemas(history.storage, history.application_id, inputs.schemas)
    return generation


def _generation_at(
    whereabouts: Whereabouts,
    history: History,
    plan: Plan,
    evolution: Evolution | None,
    seeds: Seeds | None,
    verb: VerbOf | None,
    asked: Collection[str],
    inputs: NewVerb | None,
) -> EvolutionRecord:
    shape, (place, checkpoint, run) = shape_of(plan), whereabouts
    beginning = plan.fingerprint, shape, frozenset() if seeds is None else seeds.stores
    begun = history.begun(*beginning, keep=False)
    newest = begun.newest
    check_ended(begun)
    declared = Declared()
    if evolution is not None:
        declared = evolution.declared if verb is None else evolution.declared_of_verb(verb.name, shape)
        if verb is None and evolution.rekeyed:
            raise InvalidEvolutionError(
                f"rekeyed={dict(evolution.rekeyed)} is of verbs of a Millpond, and this is a topology; leave it out, "
                "and give new stores seeds=..., or the job a backfill"
            )
    target = Target(plan.fingerprint, shape, declared)
    if verb is not None and newest is not None:
        check_kind(verb.name, newest.shape, verb.name, shape)
    if verb is not None and evolution is not None and place is not None:
        generation = _generation_of_verb(whereabouts, verb, history, plan, target, evolution, asked, inputs)
        if generation is not None:
            return generation
    if newest is not None and newest.awaits_seeds:
        return evolve(history.begun(*beginning), Committed(None, []), target, CARRIAGES, run, seeds=seeds)
    converted = declared.converted
    filling, fills = (None, False) if inputs is None else (inputs.filling, inputs.fills)
    fits = newest is not None and not fills and same_state(newest.shape, shape, converted)
    if newest is not None and fits and (place is None or (newest.generation == BEGINNING and place.into is None)):
        sown = seeds or filling
        if sown is not None:
            sown.check_sown(newest)
        return newest
    if newest is None or evolution is None or place is None or checkpoint is None:
        if verb is not None and newest is not None and newest.shape.stores:
            raise _conflict_of_verb(begun, verb, newest.shape, shape)
        raise _conflict(begun, plan, shape)
    history = history.begun(*beginning)
    committed = committed_of(history, checkpoint, moved=place.moved)
    if verb is not None and place.into is None:
        # What verbs hold that go on beside this one is not left behind. What is, has been declared before.
        committed = committed._replace(others=committed.others & history.origins)
    anew = fills or place.into is not None
    generation = evolve(history, committed, target, CARRIAGES, run, anew=anew, seeds=seeds or filling)
    if place.into is not None:
        evolution.note_carried(history.application_id, place.into, committed.batch)
    return generation


def _generation_of_verb(
    whereabouts: Whereabouts,
    verb: VerbOf,
    history: History,
    plan: Plan,
    target: Target,
    evolution: Evolution,
    asked: Collection[str],
    inputs: NewVerb | None,
) -> EvolutionRecord | None:
    """Return the generation with which a verb goes on; None if the names of verbs ask for nothing."""
    place, checkpoint, run = whereabouts
    assert place is not None
    assert checkpoint is not None
    said, into = evolution.of_verbs, place.into
    evolving = VerbEvolution(verb, history, plan, target, said, asked, into is not None, inputs)
    generation = evolving.generation(checkpoint, run)
    if generation is None and verb.before != verb.name:
        before = History.of(history.storage, verb.application_id, verb.before)
        if before.newest is None or before.newest.batch is not None or holds_state(before.storage, verb.application_id):
            raise before.not_in(place.checkpoint)
    if into is not None:
        for name in said.gone:
            evolution.note_carried(application_of(verb.owner, name), into, None)
        if generation is not None:
            evolution.note_carried(history.application_id, into, generation.batch)
    return generation


def committed_of(history: History, checkpoint: Committing, *, moved: bool = False) -> Committed:
    """Return what a checkpoint has of the application of a history.

    Args:
        history: the history of the query.
        checkpoint: where it stands.
        moved: whether the checkpoint goes on for another one, so that it may hold nothing yet.

    Raises:
        ConfigurationError: it has nothing of the job, although there is state of the query.
    """
    batch, operators = checkpoint.held()
    found = [manifest for manifests in operators.values() for manifest in manifests]
    mine = [manifest for manifest in found if manifest.application_id == history.application_id]
    began_with_state = history.evolved and history.records[-1].batch is None and not found
    others = commits_of(found)
    known = history.newest is not None and not (others - {NO_COMMIT}).isdisjoint(history.newest.origins)
    if not (history.may_be_in(operators) or moved or began_with_state or known) and history.may_have_tasks():
        raise history.not_in(checkpoint.location)
    return Committed(batch, mine, checkpoint.last, others)


def _said_of(locations: str | Mapping[str, str] | None, name: str | None) -> str | None:
    """Return the location for a sink or verb."""
    return locations.get(name or "") if isinstance(locations, Mapping) else locations


def on_spark(session: SparkSession) -> RunUnits:
    """Return a function that runs units of work as tasks of a Spark job."""

    def run(work: Work) -> Iterable[Mapping[str, str]]:
        units = session.range(0, work.units, 1, work.units)
        return [{name: text} for name, text in collected(in_workers(units, RunSome(work), TEXTS_DDL))]

    return run


def in_threads(workers: int) -> RunUnits:
    """Return a function that runs units of work in threads of this process."""

    def run(work: Work) -> Iterable[Mapping[str, str]]:
        with ThreadPoolExecutor(workers) as pool:
            return list(pool.map(work.run, range(work.units)))

    return run


def _conflict(history: History, plan: Plan, shape: Shape) -> StateConflictError:
    newest = history.newest
    known = newest is not None and newest.shape.stores
    differing = f":\n{told_difference(newest.shape, shape)}\n" if newest is not None and known else "; "
    kinds = {} if newest is None else conversions_to_declare(newest.shape, shape)
    converted = f"with converted={kinds} for what is of another kind, " if kinds else ""
    return StoresChangedError(
        f"{history.storage.describe(history.application_id)} holds the state of another topology of application "
        f"{history.application_id!r} than that for {plan.sink!r} with {plan.partitions} partitions, or of a release "
        f"with other layouts{differing}to carry the state over, declare evolution=Evolution(checkpoint), {converted}"
        "with renamed={...} and dropped=[...] for stores that have another name or are gone; or run the old topology "
        "and release there, or give the new one another application id (or state directory) and a new checkpoint"
    )


def _conflict_of_verb(history: History, verb: VerbOf, before: Shape, shape: Shape) -> StateConflictError:
    """Return the error for a verb whose state has another shape, of which nothing is said."""
    converted = conversions_to_declare(before, shape)
    carried = f"to carry the state over, write {declaration(None, converted=converted)}; or "
    try:
        origins_of(before, shape, Declared(converted=converted, verb=verb.name))
    except StateConflictError:
        carried = ""
    return StoresChangedError(
        f"{history.storage.describe(history.application_id)} holds the state of the verb {verb.name!r} in another "
        f"shape than it has now:\n{told_difference(before, shape)}\n{carried}call the verb with its former arguments, "
        f"or give it another name, and drop this one: {declaration(None, dropped=[verb.name])}; "
        "print(pond.plan(checkpoint)) tells what becomes of all verbs"
    )
