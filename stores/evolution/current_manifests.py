"""The manifests with which a stopped query's tasks go on, of all that its checkpoint has.

Rule of this module: Spark's state keeps what nobody continues, and the records of all queries of an application tell it
apart (``millpond.stores.evolution.history``). Nothing is written.
"""

from collections.abc import Collection
from functools import cache, partial

from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.durability.storage.storage import Storage
from millpond.stores.evolution.history import History, histories_beside, sinks_of


def current_manifests(storage: Storage, found: Collection[Manifest], batch: int | None) -> list[Manifest]:
    """Return the manifests with which tasks go on after a micro-batch, without those of earlier shapes.

    Args:
        storage: the place of the durable state.
        found: all manifests that the checkpoint has, of one or several applications.
        batch: the micro-batch; None if there was none.

    Raises:
        StateConflictError: the checkpoint does not belong to the state.
        DurabilityError: the storage failed.
    """
    current: list[Manifest] = []
    found = without_left_behind(storage, found, batch)
    for application_id in sorted({one.application_id for one in found}):
        mine = [one for one in found if one.application_id == application_id]
        histories = (History.of(storage, application_id, sink) for sink in sinks_of(storage, application_id))
        evolved = [history for history in histories if history.evolved and history.knows(mine)]
        current += evolved[0].standing(mine, batch).manifests.values() if evolved else mine
    return current


def without_left_behind(
    storage: Storage, found: Collection[Manifest], batch: int | None, *, starting: bool = False
) -> list[Manifest]:
    """Return the manifests without those of applications that nobody continues: verbs that were renamed or dropped.

    Spark's state keeps a manifest until its group of tasks runs again. The manifest of such a verb is known to the
    records of the verbs that go on, but to no record of its own verb, unless it is of an earlier generation, which had
    more groups: the last of these never run again. Edits do not count: they are no starts, and know only what they
    edit. Nor do generations that began later, as a checkpoint that was set back may hold what one held there.

    Args:
        storage: the place of the durable state.
        found: all manifests that a checkpoint has.
        batch: the micro-batch; None if there was none.
        starting: whether a query is being started there: generations that begin there know all that the checkpoint
            holds, also of verbs that go on beside them.

    Raises:
        FormatError: a record is damaged, or of a later release.
        DurabilityError: the storage failed.
    """
    commits: dict[str, set[str]] = {}
    for one in found:
        commits.setdefault(one.application_id, set()).add(one.commit)
    histories = {
        application_id: [History.of(storage, application_id, sink) for sink in sinks_of(storage, application_id)]
        for application_id in commits
    }
    known = {
        application_id: [record for one in theirs if (record := one.unedited_at(batch)) is not None]
        for application_id, theirs in histories.items()
    }
    gone_on = {
        application_id: [one.origins for one in records if not (starting and one.batch == batch)]
        for application_id, records in known.items()
    }
    left = {
        one
        for one, mine in commits.items()
        if not any(mine <= record.origins for record in known[one])
        and any(mine <= origins for other in gone_on if other != one for origins in gone_on[other])
    }
    every = [history for theirs in histories.values() for history in theirs]
    left |= {one.application_id for one in every if any(one.went_on_in(other) for other in every)}
    until = batch - 1 if starting and batch is not None else batch
    mine = {name: [one for one in found if one.application_id == name] for name in commits.keys() - left}
    beside = cache(partial(histories_beside, storage, every))  # most often nobody asks
    for name, held in mine.items():
        if any(one.has_gone(held, batch, until, beside) for one in histories[name]):
            left.add(name)
    return [one for one in found if one.application_id not in left]
