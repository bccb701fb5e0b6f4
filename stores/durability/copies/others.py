"""Local copies of a store from before it became one of another kind.

Rule of this module: it reads where such a copy stands, never its rows. One at a commit that the manifest continues is
somebody's mistake and stays, to be refused or migrated when the store is opened. Any other copy, such as an empty one,
is of no use to the store, which goes on from elsewhere, and is deleted.
"""

import logging
from pathlib import Path

from millpond.errors import BackendUnavailableError, CorruptStoreError
from millpond.stores.durability.copies.clean_shutdown import CleanShutdownMarker, seal_path
from millpond.stores.durability.copies.position import NOWHERE, position_of
from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.durability.manifests.policy import DurabilityPolicy
from millpond.stores.specs.directory import delete_local_copy
from millpond.stores.specs.formats import FormatVersion
from millpond.stores.specs.location import StoreLocation
from millpond.stores.specs.migration import open_version

_log = logging.getLogger(__name__)


def delete_others(place: StoreLocation, policy: DurabilityPolicy, manifest: Manifest) -> None:
    """Delete the copies of a store in formats with other rows than its own that ``manifest`` does not continue.

    Raises:
        BackendInUseError, BackendUnavailableError: a copy cannot be read now.
        StoreError: a copy cannot be deleted.
    """
    for version, directory in place.others():
        if not _continues(place, policy, manifest, version, directory):
            _log.info("deleting %s: the store goes on from elsewhere, as %s", directory, place.spec.kind.value)
            delete_local_copy(place.supplier, directory)
            seal_path(directory).unlink(missing_ok=True)


def _continues(
    place: StoreLocation, policy: DurabilityPolicy, manifest: Manifest, version: FormatVersion, directory: Path
) -> bool:
    """Return whether ``manifest`` leads on from the position of the copy in a directory, as far as can be told."""
    seal = CleanShutdownMarker(directory, checked_by_engine=place.supplier.checksums, limit=policy.sealed_bytes)
    if seal.take_off() is not None:
        return False
    try:
        with open_version(place.supplier, directory, version, place.spec.name) as backend:
            position = position_of(backend, of_any_boot=True)
    except CorruptStoreError:
        return False
    except BackendUnavailableError:
        seal.closed()
        raise
    seal.closed()
    if position is None or position == NOWHERE:
        return False
    return manifest.includes(position.commit) or position.branched_from(manifest) is not None
