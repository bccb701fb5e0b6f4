"""The local copy of one store: a cache of its durable state in a backend.

Rule of this module: it decides whether a copy can be trusted. As its seal says and at the manifest's commit: use it. At
an earlier commit of the manifest: replay what is missing. One commit beside the manifest (an attempt that failed): undo
it. Anything else (on another branch, of another boot, damaged, killed while open): throw it away and restore. The
caller holds the lease on the task's directory.
"""

import logging
from collections.abc import Iterator

from millpond.errors import (
    BackendError,
    BackendInUseError,
    CorruptFileError,
    CorruptStoreError,
    MissingFileError,
    StoreFullError,
)
from millpond.stores.backend import Backend
from millpond.stores.directory import delete_local_copy
from millpond.stores.durability.manifest import Manifest
from millpond.stores.durability.position import NOWHERE, Position, encode_position, position_of
from millpond.stores.durability.restore import entries, replay, restore, undo
from millpond.stores.durability.rows import Table, tables_of_changes, tables_of_entries
from millpond.stores.durability.seal import Seal
from millpond.stores.durability.sources import FileSource
from millpond.stores.keys import COMMIT_ROW
from millpond.stores.place import StorePlace
from millpond.stores.transaction import Transaction

_log = logging.getLogger(__name__)


class LocalCopy:
    """The local copy of the store whose place is ``place``.

    Args:
        place: the store, and where its copy is.
        seal_limit: how many bytes a copy may have to be compared with its seal in full.
    """

    def __init__(self, place: StorePlace, seal_limit: int) -> None:
        self.spec = place.spec
        self._place = place
        self._backend: Backend | None = None
        checked = place.supplier.checksums
        self._seals = [Seal(path, checked_by_engine=checked, limit=seal_limit) for path in place.directories()]

    def open(self, manifest: Manifest, source: FileSource) -> Transaction:
        """A transaction over the store's content at ``manifest``, whose files are read from ``source``.

        Raises:
            DurabilityError, FormatError: a durable file is missing, damaged, or of an unknown format.
            BackendInUseError, StoreFullError: the local directory cannot be used now.
        """
        try:
            return Transaction(self._at(manifest, source))
        except (BackendInUseError, StoreFullError):
            raise
        except BackendError as error:
            self._discard_because(str(error))
            return Transaction(self._at(manifest, source))

    def _at(self, manifest: Manifest, source: FileSource) -> Backend:
        store, version = self.spec.name, self.spec.kind.format_version
        backend = self._opened()
        position = position_of(backend)
        if position is not None and position.parent is not None and manifest.after(position.commit) is None:
            position = self._undone(backend, manifest, source, position)
        if position is not None and manifest.after(position.commit) is not None:
            replay(backend, source, manifest, position.commit, store, version)
            return backend
        if position != NOWHERE:
            _log.info("restoring store %r: its local copy is at no commit of the manifest", self.spec.name)
            self.discard()
            backend = self._opened()
        try:
            restore(backend, source, manifest, store, version)
        except BaseException:
            self.discard()
            raise
        return backend

    def _undone(self, backend: Backend, manifest: Manifest, source: FileSource, position: Position) -> Position | None:
        """Where the copy stands once its last commit is undone; None if that cannot be."""
        before = position.branched_from(manifest)
        if before is None or position.file is None:
            return None
        try:
            undo(backend, source, before, position.file, self.spec.name, self.spec.kind.format_version)
        except (MissingFileError, CorruptFileError) as error:
            _log.info("restoring store %r, because its last commit cannot be undone: %s", self.spec.name, error)
            return None
        return Position.of(before)

    @property
    def proven(self) -> bool:
        """Whether the copy is known to hold what was written to it."""
        return all(seal.proven for seal in self._seals)

    def commit(self, transaction: Transaction, manifest: Manifest) -> None:
        """Write the transaction's changes and the position at ``manifest``, in one atomic write."""
        transaction.put(COMMIT_ROW, encode_position(manifest))
        transaction.commit()

    def changed_tables(self, transaction: Transaction) -> Iterator[Table]:
        """What the transaction changes."""
        return tables_of_changes(self.spec.name, self.spec.kind.format_version, transaction.changes)

    def durable_tables(self, transaction: Transaction, manifest: Manifest, source: FileSource) -> Iterator[Table]:
        """All rows: those of the durable files at ``manifest``, from ``source``, and what the transaction changes."""
        name, version = self.spec.name, self.spec.kind.format_version
        rows = entries(source, manifest, name, version, transaction.changes)
        return tables_of_entries(name, version, rows)

    def copied_tables(self, transaction: Transaction) -> Iterator[Table]:
        """All rows: those of this copy, and what the transaction changes."""
        return tables_of_entries(self.spec.name, self.spec.kind.format_version, transaction.scan())

    def _opened(self) -> Backend:
        if self._backend is None:
            for reason in filter(None, [seal.take_off() for seal in self._seals]):
                self._discard_because(reason)
            self._backend = self._place.open()
            self._seals[0].opened()
        return self._backend

    def release(self) -> None:
        """Let go of the directory, for another process to use. A copy in memory stays: nobody else could use it."""
        if self._place.supplier.persistent:
            self.close()

    def close(self) -> None:
        """Close the backend. Doing so twice is no error."""
        backend, self._backend = self._backend, None
        if backend is not None:
            backend.close()
            self._seals[0].closed()

    def _discard_because(self, reason: str) -> None:
        _log.warning(
            "restoring store %r: its local copy in %s failed: %s", self.spec.name, self._place.directory, reason
        )
        self.discard()

    def discard(self) -> None:
        """Throw the copy away."""
        try:
            self.close()
        except CorruptStoreError as error:
            _log.warning("a damaged local copy of store %r did not close: %s", self.spec.name, error)
        if not self._place.supplier.persistent:
            return
        for directory in self._place.directories():
            delete_local_copy(directory)
