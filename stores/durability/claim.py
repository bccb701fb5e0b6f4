"""The claim of a topology on an application's directory in the storage.

Rule of this module: one application id belongs to one topology. The claim is a file whose *name* says whose it is, so
that workers that claim at the same time never see half a claim.
"""

from hashlib import sha256
from typing import Final

from millpond.errors import StateConflictError
from millpond.stores.durability.manifest import Manifest
from millpond.stores.durability.storage import Storage

_PREFIX: Final = "topology-"


def claim(storage: Storage, application_id: str, fingerprint: str) -> None:
    """Claim the application's directory for the topology with that fingerprint; claiming again is cheap.

    Raises:
        StateConflictError: another topology has claimed it.
    """
    name = _PREFIX + sha256(fingerprint.encode()).hexdigest()[:32]
    if name in (found := _claims(storage, application_id)):
        mine = False
    else:
        if not found:
            with storage.writing(f"{application_id}/{name}") as stream:
                stream.write(fingerprint.encode())
        mine, found = not found, found or _claims(storage, application_id)
    if found - {name}:
        if mine:
            storage.delete(f"{application_id}/{name}")
        raise _conflict(storage.describe(application_id), application_id)


def _claims(storage: Storage, application_id: str) -> set[str]:
    names = (file.path.rpartition("/")[2] for file in storage.list(application_id))
    return {name for name in names if name.startswith(_PREFIX)}


def check_owner(manifest: Manifest, application_id: str, task_id: str, fingerprint: str) -> None:
    """Refuse a manifest of another application, task or topology.

    Raises:
        StateConflictError: it belongs to another one.
    """
    if (manifest.application_id, manifest.task_id) != (application_id, task_id):
        raise StateConflictError(
            f"the manifest belongs to task {manifest.task_id!r} of application {manifest.application_id!r}, not to "
            f"task {task_id!r} of {application_id!r}; restart under the old application id, or with a new checkpoint"
        )
    if manifest.fingerprint and fingerprint and manifest.fingerprint != fingerprint:
        raise _conflict(f"the checkpoint of task {task_id!r}", application_id)


def _conflict(where: str, application_id: str) -> StateConflictError:
    return StateConflictError(
        f"{where} holds the state of another topology of application {application_id!r}, or of a release with other "
        "layouts; run the old topology and release there, or give the new one another application id (or state "
        "directory) and a new checkpoint"
    )
