"""Warming: local copies in a directory of their own, kept up behind a job that runs elsewhere: KIP-258's roll over.

Rule of this module: it reads durable files and writes local copies. It never writes or deletes a durable file, and it
leaves directories alone that another format shows to be those of the running job. A copy that is warm is at rest like
any other: sealed, at a commit. So the next process that opens it catches up, and a process that dies while it warms
leaves copies that can do so, and at most one for each task that has to be restored.
"""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from millpond.errors import ArgumentConflictError
from millpond.stores.backend.contract import BackendSupplier
from millpond.stores.durability.copies.lease import LEASE_TIMEOUT, Lease
from millpond.stores.durability.copies.local import LocalCopy
from millpond.stores.durability.copies.restore import newest_are_stamped
from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.durability.manifests.policy import DurabilityPolicy
from millpond.stores.durability.parquet.sources import Fetched
from millpond.stores.durability.storage.storage import Storage
from millpond.stores.specs.location import StoreLocation
from millpond.stores.specs.store_spec import StoreSpec

_log = logging.getLogger(__name__)


class Warmed(NamedTuple):
    """A local copy that stands at a manifest.

    Attributes:
        store: the store's name.
        restored: whether it was filled anew, and did not only catch up.
        rows: the number of rows that came from durable files.
    """

    store: str
    restored: bool
    rows: int


def warm(
    specs: Sequence[StoreSpec],
    supplier: BackendSupplier,
    manifest: Manifest,
    *,
    local_dir: Path,
    storage: Storage,
    policy: DurabilityPolicy | None = None,
    lease_timeout: float = LEASE_TIMEOUT,
    as_recorded: bool = False,
) -> list[Warmed]:
    """Bring the local copies of one task to ``manifest``, in the formats that the specs ask for.

    Args:
        specs: the task's stores, as the job that is to open the copies has them. Those whose backend keeps nothing on
            disk are left out.
        supplier: the backend of stores whose spec names none.
        manifest: a committed version of the task, which may go on meanwhile.
        local_dir: the directory of the copies, never the running job's.
        storage: the place of the durable files.
        policy: the job's policy.
        lease_timeout: seconds to wait for another process to release the task in ``local_dir``.
        as_recorded: whether the kinds of ``specs`` come from an evolution record, which does not tell if a plain store
            has become timestamped since.

    Returns:
        The copies that are warm, in the order of ``specs``.

    Raises:
        ConfigurationError: ``local_dir`` has a copy in another format, as the directory of the running job has; or a
            store that is plain by its record has timestamps.
        MissingFileError: a file is gone; if it is garbage by now, a newer manifest does not name it.
        CorruptFileError, DurabilityError: the durable state is damaged, or the storage failed.
        BackendInUseError: another process has the task open in ``local_dir``.
        StoreFullError: there is no room for a copy.
        FormatError: a copy is in a format that this release does not know.
    """
    application_id, task_id = manifest.application_id, manifest.task_id
    places = [
        StoreLocation.of(spec, supplier, local_dir=local_dir, application_id=application_id, task_id=task_id)
        for spec in specs
    ]
    kept = [place for place in places if place.supplier.persistent]
    if not kept:
        return []
    for place in kept:
        _refuse_older(place)
    lease = Lease(local_dir / application_id / task_id, lease_timeout)
    lease.acquire()
    try:
        with Fetched(storage, manifest) as source:
            if as_recorded:
                _refuse_stamped(kept, manifest, source)
            return [_warmed(place, policy or DurabilityPolicy(), manifest, source) for place in kept]
    finally:
        lease.release()


def _refuse_older(place: StoreLocation) -> None:
    for directory in place.directories():
        if directory != place.directory and directory.is_dir():
            raise ArgumentConflictError(
                f"{directory} is in another format, as the local copies of a running job may be; give a local_dir of "
                "its own to warm copies in, with which the job is restarted"
            )


def _refuse_stamped(places: Sequence[StoreLocation], manifest: Manifest, source: Fetched) -> None:
    """Refuse to make plain copies of timestamped stores: the next opening would not know the timestamps."""
    for spec in (place.spec for place in places):
        if not spec.kind.stamped and newest_are_stamped(source, manifest, spec.name):
            raise ArgumentConflictError(
                f"the store {spec.name!r} of application {manifest.application_id!r} was {spec.kind.value!r} when its "
                "state got its shape, which is all that its record tells, and has become timestamped since; warm the "
                "copies with the topology of the restart: --topology"
            )


def _warmed(place: StoreLocation, policy: DurabilityPolicy, manifest: Manifest, source: Fetched) -> Warmed:
    copy = LocalCopy(place, policy)
    try:
        copy.open(manifest, source).close()
    finally:
        copy.close()
    if copy.brought.restored or copy.brought.rows:
        _log.info(
            "store %r of task %r is warm at commit %d, %s: %d rows",
            place.spec.name,
            manifest.task_id,
            manifest.sequence,
            "restored" if copy.brought.restored else "caught up",
            copy.brought.rows,
        )
    return Warmed(place.spec.name, *copy.brought)
