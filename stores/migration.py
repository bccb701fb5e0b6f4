"""Opening a store's directory in the format that its spec asks for, migrated from an older one if only that exists.

Rule of this module: a directory is in one format from its first row to its last. A migration builds the new directory
beside the old one, renames it when it is whole and on disk, and only then removes the old one. If the process is killed
at any point, the next opening starts over or continues. Directories of an unknown version are refused before anything
is touched.
"""

import logging
import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from shutil import rmtree
from typing import Final, TypeAlias

from millpond.errors import FormatError
from millpond.stores.backend import Backend, BackendSupplier, Entries, load
from millpond.stores.formats import FormatVersion, unknown_versions
from millpond.stores.keys import DATA
from millpond.stores.registry import open_backend
from millpond.stores.specs import StoreSpec
from millpond.stores.typed.timestamped_keyvalue import UNKNOWN_TIMESTAMP, pack_timestamp
from millpond.stores.typed.version_rows import entries_with_latest_apart

_log = logging.getLogger(__name__)

Conversion: TypeAlias = Callable[[Entries], Entries]
"""Entries in key order as those of the new format, in key order."""


def _with_unknown_timestamps(entries: Entries) -> Entries:
    return ((row, _UNKNOWN + value if row[:1] == DATA else value) for row, value in entries)


_UNKNOWN = pack_timestamp(UNKNOWN_TIMESTAMP)

MIGRATIONS: Final[Mapping[FormatVersion, Conversion]] = {
    FormatVersion.TIMESTAMPED: _with_unknown_timestamps,
    FormatVersion.LATEST_APART: entries_with_latest_apart,
}
"""How each version but the first is made from its ``older`` one."""


def open_directory(supplier: BackendSupplier, directory: Path, spec: StoreSpec) -> Backend:
    """The backend on a store's directory; ``directory`` is what ``store_directory`` gives for ``spec``.

    If only a directory of the older version exists, it is migrated: every value is carried over, with the timestamp -1
    if it had none and needs one, as when Kafka Streams upgrades its stores.

    Raises:
        FormatError: the store has a directory of a version that is unknown, or that its kind is not migrated from.
        CorruptStoreError: the older directory does not hold what the kind keeps there.
    """
    if supplier.persistent:
        version = spec.format_version
        _refuse_others(directory.parent, spec, {version, version.older})
        if version.older is not None:
            older = directory.with_name(version.older.directory_name(spec.name))
            if older.is_dir():
                _migrate(supplier, older, directory, MIGRATIONS[version])
    return open_backend(supplier, directory)


def _refuse_others(parent: Path, spec: StoreSpec, readable: Collection[FormatVersion | None]) -> None:
    for path in unknown_versions(parent, spec.name):
        raise FormatError(
            f"{path} is in a format version that this release does not know; use the release that wrote it, or delete "
            f"the directory if it is a copy of durable state, which is then restored"
        )
    for version in FormatVersion:
        path = parent / version.directory_name(spec.name)
        if version not in readable and path.is_dir():
            raise FormatError(
                f"{path} is in format version {int(version)}, but a store of kind {spec.kind.value} is kept in version "
                f"{int(spec.format_version)}; choose the kind that wrote it, or delete the directory if it is a copy "
                f"of durable state, which is then restored"
            )


def _migrate(supplier: BackendSupplier, older: Path, directory: Path, convert: Conversion) -> None:
    if not directory.exists():
        _log.info("migrating %s to %s", older, directory.name)
        building = directory.with_name(f".{directory.name}.building")
        rmtree(building, ignore_errors=True)
        with open_backend(supplier, older) as source, open_backend(supplier, building) as target:
            load(target, convert(source.scan()))
            target.flush()
        building.rename(directory)
        _sync(directory.parent)
    rmtree(older)


def _sync(directory: Path) -> None:
    """Make a rename in ``directory`` survive a loss of power."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
