"""The claim of a topology on an application's directory in the storage.

Rule of this module: one application id belongs to one topology, and to those that its state was carried over to. The
claim is a file whose *name* tells its owner, so that workers that claim at the same time never see half a claim. State
that was carried over is claimed by its evolution records (``millpond.stores.evolution.record``); a claim of another
form keeps out releases that know no such records. Any other file that begins like a claim is a later release's, and
keeps out this one.
"""

import re
from hashlib import sha256
from typing import Final

from millpond.errors import FormatError, StateConflictError, WrongCheckpointError
from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.durability.storage.storage import Storage

GENERATION_MARK: Final = "#"
"""A mark in the fingerprints of state that was carried over, and in no other."""

_PREFIX: Final = "topology-"
_CLAIM: Final = re.compile(r"topology-[0-9a-f]{32}")
_ANY_CLAIM: Final = re.compile(r"topology-[a-z0-9-]+")
_FENCE: Final = "topology-evolved"
"""The claim of another topology, to a release that knows no evolution records."""


def claim(storage: Storage, application_id: str, fingerprint: str) -> None:
    """Claim the application's directory for the topology with that fingerprint; claiming again is cheap.

    State that was carried over belongs to the jobs that have its record, and claims nothing.

    Raises:
        StateConflictError: another topology has claimed it.
        FormatError: a later release has claimed it in a form of its own.
    """
    if GENERATION_MARK in fingerprint:
        return
    name = _name(fingerprint)
    if name in (found := _claims(storage, application_id)):
        mine = False
    else:
        if not found:
            with storage.writing(f"{application_id}/{name}", keep=True) as stream:
                stream.write(fingerprint.encode())
        mine, found = not found, found or _claims(storage, application_id)
    if found - {name}:
        if mine:
            storage.delete(f"{application_id}/{name}")
        raise _conflict(storage.describe(application_id), application_id)


def claimed_by(storage: Storage, application_id: str) -> str | None:
    """Return the fingerprint of the topology that has claimed the application; None if none has, or only half a claim.

    Raises:
        DurabilityError: the storage failed.
        FormatError: a later release has claimed it in a form of its own.
    """
    for name in sorted(_claims(storage, application_id)):
        fingerprint = storage.read(f"{application_id}/{name}").decode(errors="replace")
        if _name(fingerprint) == name:
            return fingerprint
    return None


def is_claim(name: str) -> bool:
    """Return whether a file of that name in an application's directory is a claim, of any topology."""
    return _ANY_CLAIM.fullmatch(name) is not None


def keep_out_older_releases(storage: Storage, application_id: str) -> None:
    """Make releases that know no evolution records refuse the application's state; doing it again is cheap.

    Raises:
        DurabilityError: the storage failed.
    """
    path = f"{application_id}/{_FENCE}"
    if path not in (file.path for file in storage.list(application_id)):
        with storage.writing(path, keep=True) as stream:
            stream.write(b"see the evolution records beside this file")


def _name(fingerprint: str) -> str:
    return _PREFIX + sha256(fingerprint.encode()).hexdigest()[:32]


def _claims(storage: Storage, application_id: str) -> set[str]:
    names = (file.path.rpartition("/")[2] for file in storage.list(application_id))
    claims = set(filter(_ANY_CLAIM.fullmatch, names)) - {_FENCE}
    for name in sorted(claims):
        if not _CLAIM.fullmatch(name):
            raise FormatError(
                f"{storage.describe(f'{application_id}/{name}')} is a claim that this release of Millpond does not "
                "know; run the release that wrote it, or a newer one, and delete nothing"
            )
    return claims


def check_owner(manifest: Manifest, application_id: str, task_id: str, fingerprint: str) -> None:
    """Refuse a manifest of another application, task or topology.

    Raises:
        StateConflictError: it belongs to another.
    """
    if (manifest.application_id, manifest.task_id) != (application_id, task_id):
        raise WrongCheckpointError(
            f"the manifest belongs to task {manifest.task_id!r} of application {manifest.application_id!r}, not to "
            f"task {task_id!r} of {application_id!r}; start the query whose checkpoint this is, with "
            f"application_id={manifest.application_id!r}, or this one with a checkpoint of its own"
        )
    if manifest.fingerprint and fingerprint and manifest.fingerprint != fingerprint:
        raise _conflict(f"the checkpoint of task {task_id!r}", application_id)


def _conflict(where: str, application_id: str) -> StateConflictError:
    return StateConflictError(
        f"{where} holds the state of another topology of application {application_id!r}, or of a release with other "
        "layouts; run the old topology and release there, or give the new one another application id (or state "
        "directory) and a new checkpoint"
    )
