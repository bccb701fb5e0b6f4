"""Backfills: a query that has yet to begin gets its first state from a run over inputs that have an end.

Rule of this module: the order of things. First a note says that there will be a backfill, so that nobody begins
without; then a run writes files; then one record makes them count. The caller chooses who runs it, and where its
results go. The ids of all attempts at a backfill, and the lineages that they write, begin with the same half, which no
others have: so the files of an attempt that died can be recognized.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from millpond.errors import BegunAlreadyError, StateConflictError
from millpond.stores.durability.manifests.manifest import TASK_ID, Manifest
from millpond.stores.durability.storage.durable_file import new_commit_id
from millpond.stores.evolution.history import History
from millpond.stores.evolution.record import BEGINNING, EvolutionRecord, Previous, generation_fingerprint
from millpond.stores.evolution.seeding import Seeds, Sowing
from millpond.stores.evolution.shape import Shape

BACKFILL: Final = "backfill"
_HALF: Final = 16


@dataclass(frozen=True)
class Attempt:
    """A run that is to give the tasks of a query their first state.

    Attributes:
        id: its own, as ``new_commit_id`` makes them.
        history: the history of the query, which knows that there will be a backfill.
        generation: the generation to come. Its bases are the manifests with which the tasks of the run begin.
    """

    id: str
    history: History
    generation: EvolutionRecord

    def keep(self, manifests: Iterable[Manifest]) -> History:
        """Make the attempt count: the tasks of the query begin with the run's state.

        Args:
            manifests: the manifests of the tasks that have changed something.

        Raises:
            StateConflictError: another attempt counts.
            DurabilityError: the storage failed.
        """
        bases = {**self.generation.bases, **{manifest.task_id: manifest for manifest in manifests}}
        with_state = {task: manifest for task, manifest in bases.items() if manifest.files}
        return self.history.keep(replace(self.generation, bases=with_state))


def check_may_begin(history: History) -> None:
    """Refuse a backfill of a query that has begun without one.

    Args:
        history: the history of the query, which has no backfill that counts.

    Raises:
        StateConflictError: it has begun.
        FormatError: a record is damaged, or of a later release.
        DurabilityError: the storage failed.
    """
    newest = history.newest
    awaited = newest is not None and newest.awaits_backfill
    if not awaited and (newest is not None or history.may_have_tasks()):
        raise _too_late(history)


def check_ended(history: History) -> None:
    """Refuse to go on with a query whose backfill has begun and has not come to its end.

    Raises:
        StateConflictError: it has not ended.
    """
    if history.newest is not None and history.newest.awaits_backfill:
        raise BegunAlreadyError(
            f"{history.storage.describe(history.application_id)} belongs to application {history.application_id!r}, "
            f"whose backfill for {history.sink!r} has begun and has not come to its end; run the backfill again, "
            "before the stream is built, or begin without one under another application id"
        )


def begin(history: History, fingerprint: str, shape: Shape, seeds: Seeds | None = None) -> Attempt:
    """Note that a query begins with a backfill, and write the seeds with which the run begins.

    Args:
        history: the history of the query.
        fingerprint: the fingerprint of the plan that is to run.
        shape: the shape of the plan.
        seeds: the rows with which stores begin before the first record; None for none.

    Raises:
        StateConflictError: the query has begun without a backfill.
        FormatError: a record is damaged, or of a later release.
        DurabilityError: the storage failed.
    """
    check_may_begin(history)
    seeded = frozenset[str]() if seeds is None else seeds.stores
    history = history.begun(fingerprint, shape, seeded, backfill=new_commit_id())
    before = history.newest
    if before is None or before.generation > BEGINNING or before.backfill is None:
        raise _too_late(history)
    own = generation_fingerprint(fingerprint, history.next_generation, history.sink)
    bases = {task: Manifest(history.application_id, task, own, _id_like(before.backfill)) for task in shape.tasks}
    if seeds is not None:
        bases |= seeds.sow(Sowing(history.storage, seeded, shape, bases, history.application_id, own))
    attempt = _id_like(before.backfill)
    previous = Previous(before.generation, before.fingerprint, before.shape)
    generation = EvolutionRecord(
        history.next_generation, own, shape, previous=previous, bases=bases, seeded=seeded, backfill=attempt
    )
    return Attempt(attempt, history, generation)


def directory_of(history: History) -> str:
    """Return the default directory for the results of a query's backfill, which has one below it for each attempt."""
    return f"{history.application_id}/{BACKFILL}/{history.sink}"


def abandoned(history: History) -> Iterator[str]:
    """Yield the directories of attempts that died, or lost, once one counts: nobody will ever read them.

    Raises:
        DurabilityError: the storage failed.
    """
    counting = history.backfill
    if counting is None:
        return
    storage, application_id = history.storage, history.application_id
    kept = {manifest.lineage for record in history.records for manifest in record.bases.values()}
    for task in filter(TASK_ID.fullmatch, storage.directories(application_id)):
        for lineage in storage.directories(f"{application_id}/{task}"):
            if lineage[:_HALF] == counting[:_HALF] and lineage not in kept:
                yield f"{application_id}/{task}/{lineage}"
    results = directory_of(history)
    yield from (f"{results}/{attempt}" for attempt in storage.directories(results) if attempt != counting)


def _too_late(history: History) -> StateConflictError:
    return BegunAlreadyError(
        f"{history.storage.describe(history.application_id)} holds state of application {history.application_id!r}, "
        f"sink {history.sink!r}, that began without a backfill, so this one would come too late; call backfill before "
        "the stream is built, under an application id (or a verb's name) that has no state yet and with a new "
        "checkpoint, or take it out"
    )


def _id_like(id_: str) -> str:
    """Return a new id that begins with the same half."""
    return id_[:_HALF] + new_commit_id()[_HALF:]
