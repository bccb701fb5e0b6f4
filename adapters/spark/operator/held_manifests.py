"""The manifests that Spark's state holds for a group of tasks, and the check that its tasks may go on from them.

Rule of this module: a manifest is handed to the task whose it is. One of an application that does not run there is let
go of if those that run know it, because they were told that it is renamed or gone; otherwise nothing runs.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace

from millpond.adapters.spark.worker.worker import StateSettings
from millpond.errors import MissingFileError, StateConflictError
from millpond.stores.durability.manifests.claim import check_owner
from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.evolution.verbs.declarations import holds_state, lacks_state, strangers, taken


def by_application(held: Collection[Manifest], running: Sequence[StateSettings]) -> dict[str, Manifest]:
    """Return the manifests of those that run, by application.

    Args:
        held: what Spark's state holds.
        running: the settings of all that runs in the operator; of a topology, or of verbs of one application.

    Raises:
        StateConflictError: there is one of an application, or a verb, that none of them is, or was.
    """
    first, own = running[0], [one.application_id for one in running]
    now = {former: one.application_id for one in running for former in one.formerly}
    held = [replace(one, application_id=now.get(one.application_id, one.application_id)) for one in held]
    known = [one.generation.origins for one in running if one.generation is not None]
    for stranger in strangers(held, own, known):
        if first.owner is None:
            check_owner(stranger, first.application_id, stranger.task_id, "")
        else:
            raise taken(first.owner, [one.sink for one in running], stranger)
    return {one.application_id: one for one in held if one.application_id in own}


def explained(
    error: MissingFileError | StateConflictError, settings: StateSettings, before: Manifest | None
) -> Exception:
    """Return the error of a task that could not begin, or what is behind it: state that is in another place."""
    if settings.owner is None or before is None or not before.files:
        return error
    if holds_state(settings.storage, settings.application_id):
        return error if isinstance(error, MissingFileError) else type(error)(f"the verb {settings.sink!r}: {error}")
    return lacks_state(settings.storage, settings.owner, settings.sink)
