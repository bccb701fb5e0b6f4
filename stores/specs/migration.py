"""Opening a store's directory in the format that its spec asks for, migrated if it only exists in another one.

Rule of this module: a directory is in one format from its first row to its last. A migration builds the new directory
beside the old one, renames it when it is whole and on disk, and only then removes the old one, which also begins with a
rename. If the process is killed at any point, the next opening starts over or continues, and never meets half of a
directory under a store's name. Directories of an unknown version are refused before anything is touched.
"""

import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, TypeAlias

from millpond.errors import BackendError, CorruptStoreError, FormatError, LocalDirectoryError
from millpond.stores.backend.checksums import Checksums
from millpond.stores.backend.contract import Backend, BackendSupplier, Entries
from millpond.stores.backend.converted_values import ConvertedValues
from millpond.stores.backend.own_files import FOLLOWED_NOT, links_below
from millpond.stores.backend.registry import open_backend
from millpond.stores.encoding.keys import DATA
from millpond.stores.specs.directory import delete_local_copy, refuse_linked_store
from millpond.stores.specs.formats import FormatVersion, unknown_versions
from millpond.stores.specs.store_spec import StoreSpec
from millpond.stores.typed.timestamped_keyvalue import TIMESTAMP_SIZE, UNKNOWN_TIMESTAMP, pack_timestamp
from millpond.stores.typed.versions.version_rows import entries_with_latest_apart

UNKNOWN: Final = pack_timestamp(UNKNOWN_TIMESTAMP)
"""The bytes before a value of unknown age."""


class UnknownTimestamps(ConvertedValues):
    """The rows of ``engine``, with the unknown timestamp before each value.

    Kafka Streams' timestamped stores do so on a store without timestamps: the timestamp of a value that is written is
    left out.

    >>> from millpond.stores.backend.memory import MemoryBackend
    >>> engine = MemoryBackend()
    >>> UnknownTimestamps(engine).write({DATA + b"tea": pack_timestamp(5) + b"3.10"})
    >>> engine.get(DATA + b"tea")
    b'3.10'
    """

    def _stored(self, key: bytes, value: bytes) -> bytes:
        return value[TIMESTAMP_SIZE:] if key[:1] == DATA else value

    def _seen(self, key: bytes, data: bytes) -> bytes:
        return UNKNOWN + data if key[:1] == DATA else data


_log = logging.getLogger(__name__)

Conversion: TypeAlias = Callable[[Entries], Entries]
"""A function from entries in key order to those of the new format, in key order."""


def _with_unknown_timestamps(entries: Entries) -> Entries:
    return ((row, UNKNOWN + value if row[:1] == DATA else value) for row, value in entries)


def _without_timestamps(entries: Entries) -> Entries:
    for row, data in entries:
        if row[:1] == DATA and data[:TIMESTAMP_SIZE] != UNKNOWN:
            raise FormatError(
                f"the row {row[:40]!r} has a timestamp, which format version {int(FormatVersion.PLAIN)} cannot hold; "
                "keep the timestamped kind, or delete the directory if it is a copy of durable state, which is then "
                "restored without timestamps"
            )
        yield row, data[TIMESTAMP_SIZE:] if row[:1] == DATA else data


MIGRATIONS: Final[Mapping[tuple[FormatVersion, FormatVersion], Conversion]] = {
    (FormatVersion.PLAIN, FormatVersion.TIMESTAMPED): _with_unknown_timestamps,
    (FormatVersion.PLAIN, FormatVersion.LATEST_APART): entries_with_latest_apart,
    (FormatVersion.TIMESTAMPED, FormatVersion.PLAIN): _without_timestamps,
}
"""The functions that carry rows over, by old and new content. Checksums come and go with any of them, and alone."""


def older_versions(version: FormatVersion) -> list[FormatVersion]:
    """Return the versions from which directories of ``version`` are made, those with the same content first."""
    others = [other for other in FormatVersion if other is not version]
    same = [other for other in others if other.content is version.content]
    return same + [other for other in others if (other.content, version.content) in MIGRATIONS]


ROW_BY_ROW: Final[Mapping[tuple[FormatVersion, FormatVersion], Callable[[Backend], Backend]]] = {
    (FormatVersion.PLAIN, FormatVersion.TIMESTAMPED): UnknownTimestamps,
}
"""The wrappers that show rows of one content as another, row by row."""


def usable_as(version: FormatVersion, wanted: FormatVersion) -> bool:
    """Return whether a directory of ``version`` can be used as if it were of ``wanted``."""
    return version.content is wanted.content or (version.content, wanted.content) in ROW_BY_ROW


def open_as(
    supplier: BackendSupplier, directory: Path, version: FormatVersion, wanted: FormatVersion, store: str
) -> Backend:
    """Return the backend on a directory that is in ``version`` and stays so, with rows as in ``wanted``.

    Raises what ``open_version`` raises.
    """
    opened = open_version(supplier, directory, version, store)
    return opened if version.content is wanted.content else ROW_BY_ROW[version.content, wanted.content](opened)


def open_version(supplier: BackendSupplier, directory: Path, version: FormatVersion, store: str) -> Backend:
    """Return the backend on a directory that is in ``version``, or new: its rows without checksums, which it verifies.

    Args:
        supplier: the engine.
        directory: the directory of its files.
        version: the version of the rows there.
        store: the name of the store for errors.

    Raises:
        BackendInUseError: another process or handle has it open, and the engine does not share it.
        CorruptStoreError: the files are damaged, or links are among them.
        BackendError: the directory is new, but not empty.
        StoreError: the directory is a link.
    """
    if supplier.persistent:
        _refuse_linked_files(directory)
    new = not directory.exists()
    opened = open_backend(supplier, directory)
    if new:
        try:
            _require_empty(opened, supplier, directory)
        except BaseException:
            opened.close()
            raise
    return Checksums(opened, store) if version.checksums else opened


def _refuse_linked_files(directory: Path) -> None:
    """Refuse links among an engine's files: it would read and write whatever they lead to."""
    refuse_linked_store(directory)
    try:
        link = next(links_below(directory), None) if directory.is_dir() else None
    except OSError as error:
        raise LocalDirectoryError(
            f"the directory {directory} of a store cannot be read: {error}; check its access"
        ) from error
    if link is not None:
        raise CorruptStoreError(f"{link} is {FOLLOWED_NOT}")


def _require_empty(backend: Backend, supplier: BackendSupplier, directory: Path) -> None:
    if next(backend.scan(), None) is not None:
        raise BackendError(
            f"the backend {supplier.name!r} shows rows in {directory}, which is new: they are those of another store, "
            "and nothing would be right from here; such a backend must not be used until it keeps to "
            "BackendSupplier.open, by which a new directory is an empty store"
        )


def open_directory(supplier: BackendSupplier, directory: Path, spec: StoreSpec) -> Backend:
    """Return the backend on a store's directory, which ``store_directory`` returns for ``spec``.

    If only a directory of another version exists, it is migrated: every value is carried over, with the timestamp -1
    if it had none and needs one, as when Kafka Streams upgrades its stores. The other way, -1 is left out.

    Raises:
        FormatError: the store has a directory of a version that is unknown, that its kind is not migrated from, or that
            holds timestamps which its kind cannot; nothing has changed.
        CorruptStoreError: the older directory is damaged, or does not hold rows of the kind.
    """
    version = spec.format_version
    if supplier.persistent:
        _refuse_others(directory.parent, spec)
        for other in older_versions(version):
            older = directory.with_name(other.directory_name(spec.name))
            delete_local_copy(supplier, _removing(older))
            if older.is_dir():
                _migrate(supplier, older, other, directory, spec)
    return open_version(supplier, directory, version, spec.name)


def _refuse_others(parent: Path, spec: StoreSpec) -> None:
    for path in unknown_versions(parent, spec.name):
        raise FormatError(
            f"{path} is in a format version that this release does not know; use the release that wrote it, or delete "
            f"the directory if it is a copy of durable state, which is then restored"
        )
    readable = {spec.format_version, *older_versions(spec.format_version)}
    for version in FormatVersion:
        path = parent / version.directory_name(spec.name)
        if version not in readable and path.is_dir():
            raise FormatError(
                f"{path} is in format version {int(version)}, but a store of kind {spec.kind.value} is kept in version "
                f"{int(spec.format_version)}; choose the kind that wrote it, or another name, for a store that begins "
                "empty"
            )


def _migrate(supplier: BackendSupplier, older: Path, version: FormatVersion, directory: Path, spec: StoreSpec) -> None:
    if not directory.exists():
        _log.info("migrating %s to %s", older, directory.name)
        building = directory.with_name(f".{directory.name}.building")
        delete_local_copy(supplier, building)
        try:
            with (
                open_version(supplier, older, version, spec.name) as source,
                open_version(supplier, building, spec.format_version, spec.name) as target,
            ):
                target.load(converted(source.scan(), version, spec.format_version))
                target.flush()
        except FormatError as error:
            delete_local_copy(supplier, building)
            raise FormatError(f"{older} cannot become {directory.name}: {error}") from error
        building.rename(directory)
        _sync(directory.parent)
    older.rename(_removing(older))
    delete_local_copy(supplier, _removing(older))


def converted(entries: Entries, version: FormatVersion, wanted: FormatVersion) -> Entries:
    """Return the rows of a store in ``version``, without checksums, as those of ``wanted``."""
    if version.content is wanted.content:
        return entries
    return MIGRATIONS[version.content, wanted.content](entries)


def _removing(directory: Path) -> Path:
    """Return the name of a directory while it is being removed."""
    return directory.with_name(f".{directory.name}.removing")


def _sync(directory: Path) -> None:
    """Make a rename in ``directory`` survive a loss of power."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
