"""Editing the state of a query that does not run: some rows become others, as the next generation of its state.

Rule of this module: nothing that exists is changed. An edit is a delta over the manifest of each task that it concerns,
and it counts once its record is kept, as any evolution does. So it can be undone until a micro-batch has followed it:
the generation after it begins as the one before it did.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TypeAlias

from millpond.errors import DurabilityError, NothingToUndoError, StateConflictError
from millpond.stores.backend.contract import Changes
from millpond.stores.durability.manifests.claim import GENERATION_MARK
from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.durability.parquet.file_faults import broken_file
from millpond.stores.durability.parquet.rows import tables_of_changes
from millpond.stores.durability.storage.storage import Storage
from millpond.stores.evolution.evolving import Committed, Target, next_record
from millpond.stores.evolution.history import History, Standing
from millpond.stores.evolution.matching import Declared
from millpond.stores.evolution.record import EditNote, EvolutionRecord
from millpond.stores.evolution.snapshots import write_commit
from millpond.stores.specs.formats import FormatVersion

StoreChanges: TypeAlias = Mapping[str, tuple[FormatVersion, Changes]]
"""The format of a store's rows and their changes, by the name of the store; None deletes a row."""


@dataclass(frozen=True)
class Edit:
    """An edit of the state of one query, whose files are written. It counts once its record is kept.

    Attributes:
        history: the generations so far.
        committed: the content of the checkpoint.
        record: the record of the generation that begins with it.
    """

    history: History
    committed: Committed
    record: EvolutionRecord


def keep_edits(edits: Sequence[Edit]) -> None:
    """Let edits count, one after the other, once all of them fit where their queries stand.

    Raises:
        StateConflictError: the query has committed a micro-batch meanwhile, or another process has changed the state.
        DurabilityError: the storage failed. The messages of both errors tell which of several edits count.
    """
    for edit in edits:
        edit.committed.check_stands()
    for number, edit in enumerate(edits):
        try:
            edit.history.keep(edit.record).keep_out_older_releases()
        except DurabilityError as error:
            if len(edits) == 1:
                raise
            kept, left = (_listed(some) for some in (edits[:number], edits[number + 1 :]))
            raise type(error)(
                f"{error}. Of {len(edits)} edits that were to count together, those of {kept} count, that of "
                f"{_listed([edit])} has failed, and those of {left} do not count; undo takes back those that do, or "
                "make the others again"
            ) from error


def _listed(edits: Sequence[Edit]) -> str:
    return ", ".join(f"{one.history.application_id!r} ({one.history.sink!r})" for one in edits) or "none"


def edit_of(
    history: History, committed: Committed, standing: Standing, changes: Mapping[str, StoreChanges], note: EditNote
) -> Edit:
    """Write the changes of an edit.

    Args:
        history: the generations so far.
        committed: the content of the checkpoint.
        standing: the state at which it stands.
        changes: the changes, by the id of the task.
        note: the editor, and the reason.

    Raises:
        MissingFileError, CorruptFileError: a file of the state is gone or damaged.
        DurabilityError: the storage failed.
    """
    bases = dict(standing.manifests)
    for task_id, of_task in changes.items():
        base = bases.get(task_id) or Manifest.empty(history.application_id, task_id, standing.record.fingerprint)
        bases[task_id] = _with_changes(history.storage, base, of_task)
    return edit_with(history, committed, standing, bases, note)


def undoing_of(history: History, committed: Committed, standing: Standing, note: EditNote) -> Edit:
    """Return a generation that begins as the one before the newest did, if the newest is an edit's.

    Args:
        history: the generations so far.
        committed: the content of the checkpoint.
        standing: the state at which it stands.
        note: the person who undoes it, and the reason.

    Raises:
        StateConflictError: the newest generation is not an edit's, or a micro-batch has followed it.
    """
    newest = standing.record
    if newest.edit is None or newest is not history.newest:
        raise _not_edited_last(history, newest)
    if any(one.fingerprint == newest.fingerprint for one in committed.manifests):
        raise NothingToUndoError(
            f"the state of application {history.application_id!r}, {history.sink!r}, was edited after micro-batch "
            f"{newest.batch}, and the query has gone on since, up to micro-batch {committed.batch}: results have "
            "followed from the edit, so it cannot be undone; edit the rows once more"
        )
    if newest.edit.undoes:
        raise NothingToUndoError(
            f"the last edit of the state of application {history.application_id!r}, {history.sink!r}, is already undone"
        )
    if newest.edit.erases:
        raise NothingToUndoError(
            f"keys were erased from the state of application {history.application_id!r}, {history.sink!r}, and what "
            "was erased no longer exists anywhere, so it cannot be undone; put rows anew, if that is what you want"
        )
    before = replace(history, records=history.records[:-1]).standing(committed.manifests, committed.batch)
    return edit_with(history, committed, standing, before.manifests, note)


def _not_edited_last(history: History, newest: EvolutionRecord) -> StateConflictError:
    """Return the error for state whose last change, if any, is not an edit."""
    state, edited, shapes = f"the state of application {history.application_id!r}, {history.sink!r},", None, list[str]()
    for record in history.records:
        if record.edit is None:
            shapes.append(f"{record.shape.partitions} partitions")
        else:
            edited = record if record.edit.can_be_undone else None
    if edited is not None and edited.batch == newest.batch:
        return NothingToUndoError(
            f"{state} was edited after micro-batch {edited.batch} and then carried over, with the edit, to another "
            f"shape or number of partitions ({shapes[-1]}), so undo does not reach that; edit the rows once more"
        )
    if newest.edit is None and shapes[-2:-1] not in ([], shapes[-1:]):
        return NothingToUndoError(
            f"{state} was not edited last, but carried over from {shapes[-2]} to {shapes[-1]}, which undo does not "
            f"take back; to have {shapes[-2]} again, carry it over once more: millpond state repartition"
        )
    return NothingToUndoError(f"{state} was not edited last, so there is no edit to be undone")


def edit_with(
    history: History, committed: Committed, standing: Standing, bases: Mapping[str, Manifest], note: EditNote
) -> Edit:
    """Return the next generation, in the shape of the one before.

    Args:
        history: the generations so far.
        committed: the content of the checkpoint.
        standing: the state at which it stands.
        bases: the manifest with which each task begins, by its id.
        note: the editor, and the reason.
    """
    before = standing.record
    target = Target(before.fingerprint.partition(GENERATION_MARK)[0], before.shape, Declared())
    following = next_record(history, committed, target, before)
    record = replace(
        following,
        bases={task_id: replace(base, fingerprint=following.fingerprint) for task_id, base in sorted(bases.items())},
        seeded=before.seeded,
        backfill=before.backfill,
        edit=note,
    )
    return Edit(history, committed, record)


def _with_changes(storage: Storage, base: Manifest, changes: StoreChanges) -> Manifest:
    """Return a manifest with one more commit, of these changes."""
    tables = (tables_of_changes(store, version, rows) for store, (version, rows) in sorted(changes.items()))
    edited = write_commit(storage, base, chain.from_iterable(tables))
    fault = broken_file(storage, edited)
    if fault is not None:
        raise fault
    return edited
